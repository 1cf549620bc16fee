#include "base/map.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/str.h"

static uint64_t seed[2];
static pthread_once_t seeded = PTHREAD_ONCE_INIT;

static void make_seed(void)
{
    random_bytes(seed, sizeof seed);
}

#define ROTL(x, b) (uint64_t)(((x) << (b)) | ((x) >> (64 - (b))))

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = ROTL(v[1], 13) ^ v[0];
    v[0] = ROTL(v[0], 32);
    v[2] += v[3];
    v[3] = ROTL(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = ROTL(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = ROTL(v[1], 17) ^ v[2];
    v[2] = ROTL(v[2], 32);
}

/* SipHash-1-3, as published by its authors. */
uint64_t hash_bytes(const void *p, size_t n)
{
    const unsigned char *s = p;

    pthread_once(&seeded, make_seed);
    uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575ULL, seed[1] ^ 0x646f72616e646f6dULL,
                     seed[0] ^ 0x6c7967656e657261ULL, seed[1] ^ 0x7465646279746573ULL};
    uint64_t last = (uint64_t)n << 56;
    for (; n >= 8; n -= 8, s += 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        v[3] ^= w;
        sip_round(v);
        v[0] ^= w;
    }
    for (size_t i = 0; i < n; i++)
        last |= (uint64_t)s[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static map_entry **map_find(const map *m, uint64_t hash, const void *key, size_t len)
{
    map_entry **at = &m->bucket[hash & (m->nbucket - 1)];

    while (*at && ((*at)->hash != hash || (*at)->len != len || memcmp((*at)->key, key, len) != 0))
        at = &(*at)->next;
    return at;
}

static void map_grow(map *m)
{
    size_t n = m->nbucket ? m->nbucket * 2 : 16;
    map_entry **bucket =
        xcalloc(n, sizeof(map_entry *)); /* NOLINT(bugprone-sizeof-expression): pointers */

    for (size_t i = 0; i < m->nbucket; i++)
        for (map_entry *e = m->bucket[i], *next; e; e = next) {
            next = e->next;
            e->next = bucket[e->hash & (n - 1)];
            bucket[e->hash & (n - 1)] = e;
        }
    free(m->bucket);
    m->bucket = bucket;
    m->nbucket = n;
}

void *map_get(const map *m, const void *key, size_t len)
{
    if (!m->count)
        return NULL;
    map_entry *e = *map_find(m, hash_bytes(key, len), key, len);
    return e ? e->value : NULL;
}

void *map_put(map *m, const void *key, size_t len, void *value)
{
    uint64_t hash = hash_bytes(key, len);

    if (m->count >= m->nbucket)
        map_grow(m);
    map_entry **at = map_find(m, hash, key, len);
    if (*at) {
        void *old = (*at)->value;
        (*at)->value = value;
        return old;
    }
    map_entry *e = xmalloc(sizeof *e + len);
    *e = (map_entry){.hash = hash, .value = value, .len = len};
    memcpy(e->key, key, len);
    *at = e;
    m->count++;
    return NULL;
}

void *map_take(map *m, const void *key, size_t len)
{
    if (!m->count)
        return NULL;
    map_entry **at = map_find(m, hash_bytes(key, len), key, len), *e = *at;
    if (!e)
        return NULL;
    void *value = e->value;
    *at = e->next;
    free(e);
    m->count--;
    return value;
}

void map_done(map *m)
{
    for (size_t i = 0; i < m->nbucket; i++)
        for (map_entry *e = m->bucket[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    free(m->bucket);
    *m = (map){0};
}

void *map_get_str(const map *m, const char *key)
{
    return map_get(m, key, strlen(key));
}

void *map_put_str(map *m, const char *key, void *value)
{
    return map_put(m, key, strlen(key), value);
}

void *map_take_str(map *m, const char *key)
{
    return map_take(m, key, strlen(key));
}

void *map_get_u64(const map *m, uint64_t key)
{
    return map_get(m, &key, sizeof key);
}

void *map_put_u64(map *m, uint64_t key, void *value)
{
    return map_put(m, &key, sizeof key, value);
}

void *map_take_u64(map *m, uint64_t key)
{
    return map_take(m, &key, sizeof key);
}

bool map_next(const map *m, map_iter *it)
{
    map_entry *e = it->entry ? it->following : NULL;

    while (!e && it->i < m->nbucket)
        e = m->bucket[it->i++];
    it->entry = e;
    it->following = e ? e->next : NULL;
    return e != NULL;
}

/* The environment of a child; a later value replaces an earlier one. Names are hashed because a
 * request may bring very many of them. Memory is never freed: exec discards it. */
#include "init/init.h"

#define VALUE_MAX 4096

static u32 name_hash(const char *s)
{
    u32 h = 2166136261u; /* FNV-1a; a tenant that makes collisions only slows its own command */
    for (; *s && *s != '='; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a && *a != '=' && *a == *b; a++)
        b++;
    return (!*a || *a == '=') && (!*b || *b == '=');
}

long env_init(struct env *e, u32 max)
{
    u32 slots = 16;

    while (slots < 2 * max)
        slots *= 2;
    e->v = map_anon(((size_t)max + 1) * sizeof *e->v);
    e->slot = map_anon((size_t)slots * sizeof *e->slot);
    e->n = 0;
    e->max = max;
    e->mask = slots - 1;
    return e->v && e->slot ? 0 : -ENOMEM;
}

/* Returns the hash slot that holds this name, or the free slot where it belongs. */
static u32 *init_env_find(const struct env *e, const char *name)
{
    u32 i = name_hash(name) & e->mask;

    while (e->slot[i] && !same_name(e->v[e->slot[i] - 1], name))
        i = (i + 1) & e->mask;
    return &e->slot[i];
}

void env_put(struct env *e, const char *pair)
{
    u32 *slot = init_env_find(e, pair);

    if (*slot) {
        e->v[*slot - 1] = (char *)pair;
    } else if (e->n < e->max) {
        e->v[e->n++] = (char *)pair;
        *slot = e->n;
    }
}

void env_put_pair(struct env *e, const char *name, const char *value)
{
    static char room[6 * (VALUE_MAX + 16)];
    static size_t at;
    size_t n = text_len(name), m = text_len(value);

    if (m > VALUE_MAX || at + n + m + 2 > sizeof room)
        return; /* paths and names are never that long */
    char *p = room + at;
    memcpy(p, name, n);
    p[n] = '=';
    memcpy(p + n + 1, value, m + 1);
    at += n + m + 2;
    env_put(e, p);
}

const char *env_get(const struct env *e, const char *name)
{
    u32 slot = *init_env_find(e, name);

    if (!slot)
        return NULL;
    const char *s = e->v[slot - 1];
    while (*s && *s != '=')
        s++;
    return *s ? s + 1 : NULL;
}

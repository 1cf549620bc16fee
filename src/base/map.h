/* A hash map from byte strings to pointers. The hash is keyed (SipHash-1-3, random per process),
 * because keys may come from a peer. Not locked: the owner locks. Values are not owned. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct map_entry {
    struct map_entry *next;
    uint64_t hash;
    void *value;
    size_t len;
    char key[];
} map_entry;

typedef struct map {
    map_entry **bucket;
    size_t nbucket;
    size_t count;
} map;

void *map_get(const map *m, const void *key, size_t len);
/* Inserts or replaces; returns the former value or NULL. */
void *map_put(map *m, const void *key, size_t len, void *value);
/* Removes; returns the former value or NULL. */
void *map_take(map *m, const void *key, size_t len);
void map_done(map *m); /* frees the map, not the values */

void *map_get_str(const map *m, const char *key);
void *map_put_str(map *m, const char *key, void *value);
void *map_take_str(map *m, const char *key);
void *map_get_u64(const map *m, uint64_t key);
void *map_put_u64(map *m, uint64_t key, void *value);
void *map_take_u64(map *m, uint64_t key);

/* Iteration: map_iter it = {0}; while (map_next(m, &it)) use it.entry. The current entry may be
 * removed while iterating, nothing else may change. */
typedef struct map_iter {
    size_t i;
    map_entry *entry;
    map_entry *following;
} map_iter;
bool map_next(const map *m, map_iter *it);

uint64_t hash_bytes(const void *p, size_t n);

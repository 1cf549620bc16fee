/* Indexes over the objects seen: by name, pool, sandbox, node and others. The operator's lock is
 * held; no references are taken. */
#pragma once

#include "base/map.h"
#include "operator/objects.h"

typedef struct seen seen;

enum index_by {
    TEMPLATES_BY_NAME,
    POOLS_BY_NAME,
    POOLS_BY_LABEL,
    POOLS_BY_TEMPLATE,
    SANDBOXES_BY_TEMPLATE,
    SANDBOXES_WAITING, /* without an id; by pool name */
    SANDBOXES_BY_VOLUME,
    PODS_BY_POOL, /* by pool label */
    PODS_BY_SANDBOX,
    PODS_BY_NODE,
    PODS_BY_HASH, /* by the hash of their template */
    PODS_BY_VOLUME,
    NODES_BY_NAME,
    INDEXES
};

/* All objects with one key, unordered. */
typedef struct seen_list {
    seen **v;
    size_t n, room;
} seen_list;

typedef struct seen_index {
    map by[INDEXES]; /* key → seen_list */
} seen_index;

/* Puts an object in, once; takes it out before it is freed. */
void index_put(seen_index *x, seen *s);
void index_take(seen_index *x, seen *s);
void index_done(seen_index *x);
/* Returns the objects with the key, which may be NULL. Never NULL; valid until the next put or
 * take. */
const seen_list *index_find(const seen_index *x, enum index_by by, const char *key);

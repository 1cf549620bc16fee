/* Private to the layer store: layers.c (life, stacks, prune), unpacking.c (the child), images.c. */
#pragma once

#include <pthread.h>

#include "base/map.h"
#include "warden/layers.h"

#define HEX_LEN         64
#define LAYERS_JOIN_MAX 4

typedef struct hex {
    char text[HEX_LEN + 1];
} hex;

/* The content of an image definition. */
typedef struct image_def {
    hex *layer; /* top first */
    size_t n;
    bool fix;
} image_def;

typedef struct waiting { /* a layer without an image */
    uint64_t since_ns;
    const void *of; /* the caller that made it and will define its image; NULL: unknown */
} waiting;

struct layers {
    int dir, layers_dir, images_dir, fix_dir, forgotten_dir, tmp_dir;
    char *unpack;
    uint64_t timeout_ms;
    int join[LAYERS_JOIN_MAX];
    size_t njoin;
    char boot[64]; /* of the running kernel; "" if not known */
    pthread_mutex_t
        shape; /* held by one image definition or one choice of a prune; taken before lock */
    pthread_mutex_t lock; /* the maps below, and every rename in layers/ and images/ */
    pthread_cond_t changed;
    map busy;                   /* hex diff id: being unpacked */
    map pending;                /* hex diff id -> waiting *: those still without an image */
    map held;                   /* hex image -> size_t *: stacks given out */
    bool sweeping, sweep_again; /* a thread removes doomed entries; more came meanwhile */
    /* Cache of the definition that was read last; last_id is "" for none. A definition never
     * changes; when its image is forgotten, the cache is dropped. */
    hex last_id;
    image_def last;
};

hex hex_of(const uint8_t digest[32]);

/* unpacking.c: runs the program on an empty directory. *ret_report is what it wrote to descriptor
 * 1. */
typedef struct unpack_job {
    const char *program;
    uint64_t timeout_ms;
    const char *format;
    hex diff_id;
    int blob, tree;
    const int *join;
    size_t njoin;
} unpack_job;
err *unpacking_run(const unpack_job *job, char **ret_report, size_t *ret_n) ERR_MUST;

/* images.c */
void image_def_done(image_def *d);
err *image_def_read(int dir, const char *name, image_def *ret_def) ERR_MUST;
/* Lists the names in a directory that are 64 hex digits, and skips all others. */
err *list_hex(int dir, hex **ret_names, size_t *ret_n) ERR_MUST;
/* Lists the names that begin with prefix: NULL-terminated, or NULL if there are none. */
err *list_prefixed(int dir, const char *prefix, char ***ret_names) ERR_MUST;

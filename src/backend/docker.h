/* Internals that the files of the backend `docker` share.
 *
 * A sandbox is a container whose pid 1 is `bothy-init serve` from a read-only volume; commands go
 * through link.h. Containers of a cell carry its label. A container with a sandbox is called
 * bothy-<box id>; until the engine has renamed it, the note claims/<container> in the state
 * directory names its box. A container with neither is warm or an orphan; orphans are removed when
 * bothyd starts or when the watcher sees them.
 *
 * Threads: the link's loop; workers, which may wait for the engine; the watcher, which reads
 * events. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/docker_api.h"
#include "backend/link.h"
#include "base/map.h"

#define DOCKER_LABEL_CELL  "dev.bothy.cell"
#define DOCKER_LABEL_NONCE "dev.bothy.nonce"
#define DOCKER_LABEL_POOL  "dev.bothy.pool"
#define DOCKER_LABEL_OURS  "dev.bothy" /* of volumes, which all cells share */
#define DOCKER_AT          "/.bothy"   /* where the volume is mounted inside */
#define DOCKER_RETRY_S     2           /* retry hint for callers while the engine is away */

/* ---- workers ---- */

typedef struct docker_work docker_work;
docker_work *docker_work_new(unsigned threads);
/* Runs run(arg) on a worker after delay_ms, in the order of due times. */
void docker_work_post(docker_work *w, unsigned delay_ms, void (*run)(void *), void *arg);
/* Runs all queued work at once, whatever its delay; then ends the threads. */
void docker_work_stop(docker_work *w);
/* Runs work that was posted after the stop on this thread. */
void docker_work_free(docker_work *w);

/* ---- recipes: which containers are interchangeable ---- */

/* Everything about a container that cannot be changed at its claim. Limits can be, if the engine
 * can update them. */
typedef struct docker_shape {
    char image[DOCKER_ID_LEN + 1]; /* the engine's id of the image */
    bool read_only, setuid, network;
    uint32_t shm_mib;
    tmpfs_spec *tmpfs;
    size_t ntmpfs;
} docker_shape;
docker_shape docker_shape_of(const box_spec *s);
void docker_shape_done(docker_shape *s);
void docker_shape_copy(docker_shape *to, const docker_shape *from);
#define DOCKER_KEY_LEN 32
void docker_shape_key(const docker_shape *s, char ret_key[DOCKER_KEY_LEN + 1]);

typedef struct docker_made {
    char handle[DOCKER_ID_LEN + 1];
    uint8_t nonce[LINK_NONCE_LEN];
    limits limits; /* memory, cpu_milli, pids */
} docker_made;

/* ---- the backend ---- */

typedef struct docker_box docker_box;
typedef struct docker_pool docker_pool;
typedef struct creation creation;

typedef struct docker {
    backend base;
    backend_ops ops; /* without operations that this engine does not support */
    docker_api *api;
    link_host *links;
    docker_work *work;
    docker_pool *pool;
    pthread_t watcher;
    int claims;  /* directory: container -> box id, as symbolic links */
    char *label; /* "dev.bothy.cell=<cell>" */
    char *cell, *network, *volume;
    char *init, *kit; /* paths on this machine */
    uint32_t max;
    atomic_bool closing;
    pthread_mutex_t volume_lock;
    bool volume_filled;

    pthread_mutex_t lock;      /* guards the members below */
    map boxes;                 /* box id -> docker_box */
    map handles;               /* container -> docker_box */
    map under_way;             /* containers being made (by name) or changed (by id) */
    bool listed;               /* boxes contains what an earlier bothyd left */
    uint32_t live;             /* boxes that are not dead */
    creation *waiting, **last; /* creates waiting for room */
} docker;

/* A box from its create or attach until it is destroyed. */
struct docker_box {
    char id[SANDBOX_ID_LEN + 1];
    char handle[DOCKER_ID_LEN + 1]; /* "" before it has a container */
    uint8_t nonce[LINK_NONCE_LEN];
    bool making; /* not claimed or attached yet: the watcher does not expect its container */
    bool frozen;
    bool dead;
    bool has_exit_code;
    int exit_code;
    uint32_t ooms;
    uint64_t memory_limit;
};

/* Adds a retry time if the engine is away. */
err *docker_away(err *e) ERR_MUST;

/* ---- boxes (docker_boxes.c) ---- */

/* Lock held. */
docker_box *docker_box_add(docker *d, const char *id);
void docker_box_contain(docker *d, docker_box *x, const docker_made *m);
void docker_box_forget(docker *d, const char *id);

/* Copies what is known of a box. Returns false if the box is not known. */
bool docker_box_get(docker *d, const char *id, docker_box *ret);
void docker_name_of(const char *id, char ret_name[DOCKER_NAME_MAX]);
/* Writes the engine's name for a box: its container's id, or its name if the box is not known. */
void docker_target(docker *d, const char *id, char ret[DOCKER_NAME_MAX]);
/* Finds the box of a container, by its note or its name. Returns false if it has none. */
bool docker_id_of(docker *d, const docker_container *c, char ret_id[SANDBOX_ID_LEN + 1]);
/* Handles the end of a container, as the engine reported it (exit_code -1: not known). */
void docker_box_died(docker *d, const char *handle, int exit_code, const char *why);
void docker_box_oom(docker *d, const char *handle);
/* Returns the handles of boxes that should run; malloc'ed. Call it before listing the containers:
 * the list may lack a container that is made meanwhile. */
char **docker_boxes_expected(docker *d);
/* Ends expected boxes whose container is missing or dead in the engine's list. */
void docker_boxes_compare(docker *d, char **expected, const docker_list *l);
/* Fills ret with the boxes of the engine's list, and returns their number. The first time it also
 * records the boxes that an earlier bothyd left. */
size_t docker_boxes_take(docker *d, const docker_list *l, box_status *ret);
/* Called around making a container (by name) or changing it (by id): meanwhile it is not an
 * orphan. */
void docker_making_begin(docker *d, const char *name);
void docker_making_end(docker *d, const char *name);
/* Returns whether a container is a box's, kept warm or being made. */
bool docker_knows(docker *d, const docker_container *c);
/* Removes a container in the background; retries until the engine has removed it. */
void docker_remove_soon(docker *d, const char *handle);
/* As docker_remove_soon, for a box's container; then forgets the box. */
void docker_box_remove_soon(docker *d, const char *id, const char *target);

/* Notes of claims: which box a warm container became, until the container is renamed. */
err *docker_claim_write(docker *d, const char *handle, const char *id) ERR_MUST;
bool docker_claim_read(docker *d, const char *handle, char ret_id[SANDBOX_ID_LEN + 1]);
void docker_claim_erase(docker *d, const char *handle);
void docker_rename_soon(docker *d, const char *handle, const char *id, unsigned delay_ms);

/* ---- creates (docker_create.c) ---- */

void docker_create_box(backend *b, const box_spec *s, const box_events *ev, void *arg,
                       create_done *done);
/* Counts the creates that wait for room, and the longest wait. */
void docker_waiting(docker *d, pool_status *ret);
/* Begins waiting creates if there is room. */
void docker_admit_next(docker *d);
/* Fails creates whose queue time is over, or all of them if bothyd ends; arg is the docker. */
void docker_create_expire(void *arg);

/* ---- containers (docker_make.c); these functions wait for the engine ---- */

/* Makes and starts a container. name NULL: a warm one. hostname may be NULL. */
err *docker_make(docker *d, const docker_shape *s, const limits *l, const char *name,
                 const char *hostname, docker_made *ret_made) ERR_MUST;
/* Returns limits in the form of the engine's update call. */
json_t *docker_limits_json(const docker_engine *e, const limits *l);
/* Returns whether the engine can change any limit of a live container. */
bool docker_can_update(const docker *d);
bool docker_nonce_of(char *const *labels, uint8_t ret_nonce[LINK_NONCE_LEN]);
/* Removes unused volumes with the programs of other releases; arg is the docker. */
void docker_volumes_sweep(void *arg);
err *docker_volume_name(const char *init, const char *kit, char **ret_name) ERR_MUST;
/* Makes the archive that the engine unpacks into the volume. */
err *docker_volume_tar(const char *init_path, const char *kit_path, buf *ret_tar) ERR_MUST;

/* ---- the pool (docker_pool.c) ---- */

typedef struct docker_warm { /* taken from the pool: its link and container */
    link_warm *link;
    docker_made made;
} docker_warm;
docker_pool *docker_pool_new(docker *d, uint32_t want);
/* Takes a ready container, preferably one with these limits. Marks the shape as recently used and
 * starts refills. Returns false if none is ready. */
bool docker_pool_take(docker_pool *p, const docker_shape *s, const limits *l, docker_warm *ret);
bool docker_pool_has(docker_pool *p, const char *handle);
void docker_pool_status(docker_pool *p, const pool_marks *set, pool_status *ret);
/* Removes the warm containers. Call it before the workers end. */
void docker_pool_stop(docker_pool *p);
void docker_pool_free(docker_pool *p);

/* ---- events (docker_watch.c) ---- */

void docker_watch_start(docker *d);
void docker_watch_stop(docker *d);

/* ---- operations (docker_fate.c, docker_image.c) ---- */

err *docker_usage_of(backend *b, const char *id, box_usage *ret_usage);
err *docker_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n, box_usage *ret);
err *docker_set_limits(backend *b, const char *id, const limits *l);
void docker_fate(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg);

err *docker_image_get(backend *b, const image_request *rq, image_facts *ret_facts);

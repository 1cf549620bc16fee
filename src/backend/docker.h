/* What the files of the backend `docker` share.
 *
 * A sandbox is a container whose pid 1 is `bothy-init serve` out of a read-only volume; commands go
 * through link.h. Containers of a cell carry its label. One that has a sandbox is called
 * bothy-<box id>; until the engine has renamed it, claims/<container> of the state directory says
 * whose it is. What has neither is kept warm, or nobody's: then it is removed, when bothyd starts
 * or when the watcher sees it.
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
#define DOCKER_LABEL_OURS  "dev.bothy" /* of volumes, which cells share */
#define DOCKER_AT          "/.bothy"   /* the volume, inside */
#define DOCKER_RETRY_S     2           /* told to who comes while the engine is away */

/* ---- workers ---- */

typedef struct docker_work docker_work;
docker_work *docker_work_new(unsigned threads);
/* Runs it on a worker, after delay_ms; in the order of their times. */
void docker_work_post(docker_work *w, unsigned delay_ms, void (*run)(void *), void *arg);
/* What is queued runs at once, whatever its delay; then the threads end. */
void docker_work_stop(docker_work *w);
/* What was posted since runs here. */
void docker_work_free(docker_work *w);

/* ---- recipes: which containers may stand for each other ---- */

/* Everything about a container that cannot be changed when it is claimed. Limits can, on engines
 * that update them. */
typedef struct docker_shape {
    char image[DOCKER_ID_LEN + 1]; /* the engine's id of it */
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
    backend_ops ops; /* without what this engine does not do */
    docker_api *api;
    link_host *links;
    docker_work *work;
    docker_pool *pool;
    pthread_t watcher;
    int claims;  /* directory: container -> box id, as symbolic links */
    char *label; /* "dev.bothy.cell=<cell>" */
    char *cell, *network, *volume;
    char *init, *kit; /* files on this machine */
    uint32_t max;
    atomic_bool closing;
    pthread_mutex_t volume_lock;
    bool volume_filled;

    pthread_mutex_t lock;      /* of what follows */
    map boxes;                 /* box id -> docker_box */
    map handles;               /* container -> the same */
    map under_way;             /* containers that are being made, by name, or changed, by id */
    bool listed;               /* boxes has what an earlier bothyd left */
    uint32_t live;             /* of them: not dead */
    creation *waiting, **last; /* until there is room */
} docker;

/* A box from its create or attach until it is destroyed. */
struct docker_box {
    char id[SANDBOX_ID_LEN + 1];
    char handle[DOCKER_ID_LEN + 1]; /* "" before it has a container */
    uint8_t nonce[LINK_NONCE_LEN];
    bool making; /* the watcher does not miss it yet */
    bool frozen;
    bool dead;
    bool has_exit_code;
    int exit_code;
    uint32_t ooms;
    uint64_t memory_limit;
};

/* When to come again, while the engine is away. */
err *docker_away(err *e) ERR_MUST;

/* ---- boxes (docker_boxes.c) ---- */

/* These are called with the lock. */
docker_box *docker_box_add(docker *d, const char *id);
void docker_box_contain(docker *d, docker_box *x, const docker_made *m);
void docker_box_forget(docker *d, const char *id);

/* What is known of a box; false: nothing. */
bool docker_box_get(docker *d, const char *id, docker_box *ret);
void docker_name_of(const char *id, char ret_name[DOCKER_NAME_MAX]);
/* How the engine knows a box: its container, or, of one we know nothing of, its name. */
void docker_target(docker *d, const char *id, char ret[DOCKER_NAME_MAX]);
/* The box a container belongs to: by its note, or by its name. */
bool docker_id_of(docker *d, const docker_container *c, char ret_id[SANDBOX_ID_LEN + 1]);
/* The engine says that a container has ended (exit_code -1: not how). */
void docker_box_died(docker *d, const char *handle, int exit_code, const char *why);
void docker_box_oom(docker *d, const char *handle);
/* Handles of boxes that should run; malloc'ed. Asked for before the list that they are looked for
 * in: one that is made meanwhile need not be there. */
char **docker_boxes_expected(docker *d);
/* Ends those that are not among the engine's containers any more. */
void docker_boxes_compare(docker *d, char **expected, const docker_list *l);
/* Around the making of a container by its name, or a change by its id: it is somebody's meanwhile.
 */
void docker_making_begin(docker *d, const char *name);
void docker_making_end(docker *d, const char *name);
/* Whether it is a box's, kept warm or being made. */
bool docker_knows(docker *d, const docker_container *c);
/* Removes a container, again and again until the engine has. */
void docker_remove_soon(docker *d, const char *handle);
/* The same for a box's, which is forgotten then. */
void docker_box_remove_soon(docker *d, const char *id, const char *target);

/* Whose a warm container has become, until it bears the name. */
err *docker_claim_write(docker *d, const char *handle, const char *id) ERR_MUST;
bool docker_claim_read(docker *d, const char *handle, char ret_id[SANDBOX_ID_LEN + 1]);
void docker_claim_erase(docker *d, const char *handle);
void docker_rename_soon(docker *d, const char *handle, const char *id, unsigned delay_ms);

/* ---- creates (docker_create.c) ---- */

void docker_create_box(backend *b, const box_spec *s, const box_events *ev, void *arg,
                       create_done *done);
/* How many wait for room, and how long. */
void docker_waiting(docker *d, pool_status *ret);
/* There may be room for who waits. */
void docker_admit_next(docker *d);
/* Refuses those whose time in the queue is over, or all, if bothyd ends; arg is the docker. */
void docker_create_expire(void *arg);

/* ---- containers (docker_make.c); these wait ---- */

/* Makes and starts one. name: NULL: warm. hostname may be NULL. */
err *docker_make(docker *d, const docker_shape *s, const limits *l, const char *name,
                 const char *hostname, docker_made *ret_made) ERR_MUST;
/* Limits as the engine takes them in an update. */
json_t *docker_limits_json(const docker_engine *e, const limits *l);
/* Whether limits of a live container can be changed, and there are any. */
bool docker_can_update(const docker *d);
bool docker_nonce_of(char *const *labels, uint8_t ret_nonce[LINK_NONCE_LEN]);
/* Removes volumes of other releases' programs that no container has; arg is the docker. */
void docker_volumes_sweep(void *arg);
err *docker_volume_name(const char *init, const char *kit, char **ret_name) ERR_MUST;
/* What the engine is given to unpack there. */
err *docker_volume_tar(const char *init_path, const char *kit_path, buf *ret_tar) ERR_MUST;

/* ---- the pool (docker_pool.c) ---- */

typedef struct docker_warm { /* one that was taken: its link, and what it is */
    link_warm *link;
    docker_made made;
} docker_warm;
docker_pool *docker_pool_new(docker *d, uint32_t want);
/* Takes one that is ready, with these limits if there is one; the shape is used lately, and refills
 * begin. False: there is none. */
bool docker_pool_take(docker_pool *p, const docker_shape *s, const limits *l, docker_warm *ret);
bool docker_pool_has(docker_pool *p, const char *handle);
void docker_pool_status(docker_pool *p, const pool_marks *set, pool_status *ret);
/* Before the workers end; warm containers are removed. */
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

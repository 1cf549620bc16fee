/* A client of Docker's Engine API, which Podman speaks too, over its unix socket.
 *
 * Every call waits for its answer, with a limit of its own; any thread may call, also at the same
 * time. What the engine says about a failure is the cause of the error: not_found (404), conflict
 * (409), unavailable (nobody answers), else internal. To begin what runs, or end what is gone, is
 * success, so every call may be repeated. */
#pragma once

#include <sys/types.h>

#include "backend/docker_answer.h"
#include "base/json.h"

typedef struct docker_api docker_api;

/* url: "unix:/var/run/docker.sock". Asks the engine for what it is. */
err *docker_api_new(const char *url, docker_api **ret_api) ERR_MUST;
void docker_api_free(docker_api *a);
static inline void docker_api_freep(docker_api **a)
{
    docker_api_free(*a);
}
/* What it was at the beginning. */
const docker_engine *docker_api_engine(const docker_api *a);
/* Asks again: it may have been started as another version. */
err *docker_api_ask(docker_api *a, docker_engine *ret_engine) ERR_MUST;

/* ---- containers, by id or name ---- */
/* name may be NULL: the engine's choice. ERR_CONFLICT: the name is taken. */
err *docker_create(docker_api *a, const char *name, const json_t *body,
                   char ret_id[DOCKER_ID_LEN + 1]) ERR_MUST;
err *docker_start(docker_api *a, const char *id) ERR_MUST;
err *docker_inspect(docker_api *a, const char *id, docker_container *ret) ERR_MUST;
/* All with this label ("key=value"), dead ones too. */
err *docker_list_labelled(docker_api *a, const char *label, docker_list *ret) ERR_MUST;
err *docker_rename(docker_api *a, const char *id, const char *name) ERR_MUST;
/* Of a container that does not run it is ERR_CONFLICT. */
err *docker_kill(docker_api *a, const char *id, const char *signal) ERR_MUST;
/* Kills it, and its anonymous volumes go, too. */
err *docker_remove(docker_api *a, const char *id) ERR_MUST;
err *docker_update(docker_api *a, const char *id, const json_t *limits) ERR_MUST;
err *docker_pause(docker_api *a, const char *id) ERR_MUST;
err *docker_unpause(docker_api *a, const char *id) ERR_MUST;
/* Until it does not run; ERR_TIMEOUT. */
err *docker_wait(docker_api *a, const char *id, uint64_t timeout_ms, int *ret_exit_code) ERR_MUST;
err *docker_usage(docker_api *a, const char *id, docker_stats *ret) ERR_MUST;
/* Unpacks a tar into a directory of a container, which need not run. */
err *docker_put(docker_api *a, const char *id, const char *dir, const void *tar, size_t n) ERR_MUST;

/* Whether there is a file of that path in it. */
err *docker_has(docker_api *a, const char *id, const char *path, bool *ret_has) ERR_MUST;

/* ---- events ---- */
typedef struct docker_watch {
    const char *label; /* "key=value": of containers that have it */
    uint64_t
        since_ns; /* of the engine's clock: those that have happened already come first; 0: none */
    /* False ends it. on_tick is asked about every second. */
    bool (*on_event)(void *arg, const docker_event *e);
    bool (*on_tick)(void *arg);
    void *arg;
} docker_watch;
/* Returns when the stream ends or was ended. The same event may come again. */
err *docker_events(docker_api *a, const docker_watch *w) ERR_MUST;

/* ---- volumes ---- */
err *docker_volume_make(docker_api *a, const char *name, const char *label) ERR_MUST;
/* Names of those that have the label; NULL: none has. */
err *docker_volume_list(docker_api *a, const char *label, char ***ret_names) ERR_MUST;
err *docker_volume_inspect(docker_api *a, const char *name) ERR_MUST;
err *docker_volume_remove(docker_api *a, const char *name) ERR_MUST;

/* ---- networks ---- */
/* Whether one of this name can be used. */
err *docker_network_inspect(docker_api *a, const char *name) ERR_MUST;

/* ---- images ---- */
err *docker_image_inspect(docker_api *a, const char *name, docker_image *ret) ERR_MUST;
err *docker_image_list(docker_api *a, docker_images *ret) ERR_MUST;
typedef struct docker_login { /* none: NULL members */
    const char *user, *password, *registry;
} docker_login;
typedef struct docker_pull_request {
    const char *name; /* whole, with tag or digest: without, the engine fetches every tag */
    const docker_login *login; /* NULL: none */
    /* False ends it with ERR_CONFLICT: the caller knows why it did so. on_tick is asked about every
     * second. Both may be NULL. */
    bool (*on_progress)(void *arg, const docker_progress *p);
    bool (*on_tick)(void *arg);
    void *arg;
} docker_pull_request;
/* The engine's own word about a failure is the cause: ERR_IMAGE_PULL_FAILED, or not_found. */
err *docker_pull(docker_api *a, const docker_pull_request *rq) ERR_MUST;

/* ---- commands inside, as a stream ---- */
typedef struct docker_exec docker_exec;
/* Runs argv as user 0 with three pipes and gives the bytes of two of them: its stdin and stdout. */
err *docker_exec_open(docker_api *a, const char *id, const char *const *argv, uint64_t timeout_ms,
                      docker_exec **ret_exec) ERR_MUST;
/* Without waiting: bytes; 0 at the end (read); -1 with errno (EAGAIN). One thread at a time. Read
 * until EAGAIN before polling: bytes may have been read ahead. */
ssize_t docker_exec_read(docker_exec *x, void *p, size_t n);
ssize_t docker_exec_write(docker_exec *x, const void *p, size_t n);
int docker_exec_fd(const docker_exec *x);
/* What it and the engine had to say beside its output; malloc'ed, NULL: nothing. */
char *docker_exec_why(docker_exec *x);
void docker_exec_close(docker_exec *x);
static inline void docker_exec_closep(docker_exec **x)
{
    docker_exec_close(*x);
}

/* A client of Docker's Engine API, which Podman speaks too, over its unix socket.
 *
 * Every call waits for its answer, with its own time limit; any thread may call, also concurrently.
 * The engine's message about a failure is the cause of the error. Codes: not_found (404), conflict
 * (409), unavailable (no engine answers), else internal. Starting a running container or removing a
 * missing one is success, so every call may be repeated. */
#pragma once

#include <sys/types.h>

#include "backend/docker_answer.h"
#include "base/json.h"

typedef struct docker_api docker_api;

/* Asks the engine for its version and properties. url: "unix:/var/run/docker.sock". */
err *docker_api_new(const char *url, docker_api **ret_api) ERR_MUST;
void docker_api_free(docker_api *a);
static inline void docker_api_freep(docker_api **a)
{
    docker_api_free(*a);
}
/* Returns the engine's properties as of docker_api_new. */
const docker_engine *docker_api_engine(const docker_api *a);
/* Asks again: the engine may have restarted as another version. */
err *docker_api_ask(docker_api *a, docker_engine *ret_engine) ERR_MUST;

/* ---- containers, by id or name ---- */
/* name may be NULL: the engine chooses. ERR_CONFLICT: the name is taken. */
err *docker_create(docker_api *a, const char *name, const json_t *body,
                   char ret_id[DOCKER_ID_LEN + 1]) ERR_MUST;
err *docker_start(docker_api *a, const char *id) ERR_MUST;
err *docker_inspect(docker_api *a, const char *id, docker_container *ret) ERR_MUST;
/* Lists all containers with this label ("key=value"), dead ones too. */
err *docker_list_labelled(docker_api *a, const char *label, docker_list *ret) ERR_MUST;
err *docker_rename(docker_api *a, const char *id, const char *name) ERR_MUST;
/* ERR_CONFLICT if the container does not run. */
err *docker_kill(docker_api *a, const char *id, const char *signal) ERR_MUST;
/* Kills and removes it, with its anonymous volumes. */
err *docker_remove(docker_api *a, const char *id) ERR_MUST;
err *docker_update(docker_api *a, const char *id, const json_t *limits) ERR_MUST;
err *docker_pause(docker_api *a, const char *id) ERR_MUST;
err *docker_unpause(docker_api *a, const char *id) ERR_MUST;
/* Waits until it does not run; ERR_TIMEOUT. */
err *docker_wait(docker_api *a, const char *id, uint64_t timeout_ms, int *ret_exit_code) ERR_MUST;
err *docker_usage(docker_api *a, const char *id, docker_stats *ret) ERR_MUST;
/* Unpacks a tar into a directory of a container; it need not run. */
err *docker_put(docker_api *a, const char *id, const char *dir, const void *tar, size_t n) ERR_MUST;

/* Checks whether a file exists in a container. */
err *docker_has(docker_api *a, const char *id, const char *path, bool *ret_has) ERR_MUST;

/* ---- events ---- */
typedef struct docker_watch {
    const char *label; /* "key=value": only containers that have it */
    uint64_t since_ns; /* of the engine's clock: past events since then come first; 0: none */
    /* Return false to end the stream. on_tick is called about every second. */
    bool (*on_event)(void *arg, const docker_event *e);
    bool (*on_tick)(void *arg);
    void *arg;
} docker_watch;
/* Reads events until the stream ends or a callback ends it. An event may come twice. */
err *docker_events(docker_api *a, const docker_watch *w) ERR_MUST;

/* ---- volumes ---- */
err *docker_volume_make(docker_api *a, const char *name, const char *label) ERR_MUST;
/* Lists the names of volumes with the label; NULL if there are none. */
err *docker_volume_list(docker_api *a, const char *label, char ***ret_names) ERR_MUST;
err *docker_volume_inspect(docker_api *a, const char *name) ERR_MUST;
err *docker_volume_remove(docker_api *a, const char *name) ERR_MUST;

/* ---- networks ---- */
/* Checks that a network of this name can be used. */
err *docker_network_inspect(docker_api *a, const char *name) ERR_MUST;

/* ---- images ---- */
err *docker_image_inspect(docker_api *a, const char *name, docker_image *ret) ERR_MUST;
err *docker_image_list(docker_api *a, docker_images *ret) ERR_MUST;
typedef struct docker_login { /* no login: NULL members */
    const char *user, *password, *registry;
} docker_login;
typedef struct docker_pull_request {
    const char *name; /* complete, with tag or digest: otherwise the engine fetches every tag */
    const docker_login *login; /* NULL: none */
    /* Return false to end the pull with ERR_CONFLICT. on_tick is called about every second. Both
     * may be NULL. */
    bool (*on_progress)(void *arg, const docker_progress *p);
    bool (*on_tick)(void *arg);
    void *arg;
} docker_pull_request;
/* Pulls an image. The engine's own message is the cause of ERR_IMAGE_PULL_FAILED or not_found. */
err *docker_pull(docker_api *a, const docker_pull_request *rq) ERR_MUST;

/* ---- commands inside, as a stream ---- */
typedef struct docker_exec docker_exec;
/* Runs argv as user 0 with three pipes; returns its stdin and stdout as a stream. */
err *docker_exec_open(docker_api *a, const char *id, const char *const *argv, uint64_t timeout_ms,
                      docker_exec **ret_exec) ERR_MUST;
/* Non-blocking: bytes; 0 at the end (read); -1 with errno (EAGAIN). One thread at a time. Read
 * until EAGAIN before polling: bytes may have been read ahead. */
ssize_t docker_exec_read(docker_exec *x, void *p, size_t n);
ssize_t docker_exec_write(docker_exec *x, const void *p, size_t n);
int docker_exec_fd(const docker_exec *x);
/* Returns the command's stderr and the engine's message; malloc'ed, NULL if there is none. */
char *docker_exec_why(docker_exec *x);
void docker_exec_close(docker_exec *x);
static inline void docker_exec_closep(docker_exec **x)
{
    docker_exec_close(*x);
}

/* Parses the answers of a container engine (Docker's Engine API, and Podman's form of it): bytes
 * in, plain values out. No I/O; any thread.
 *
 * The engine is trusted, but its answers contain names, labels and output of others. So sizes have
 * ceilings, ids and digests are checked, and missing fields are empty. A document that is not JSON,
 * or of another shape, is ERR_INTERNAL: the engine's fault, not a caller's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define DOCKER_ID_LEN     64 /* hex digits */
#define DOCKER_NAME_MAX   128
#define DOCKER_TEXT_MAX   512
#define DOCKER_ANSWER_MAX (16u << 20)
#define DOCKER_LINE_MAX   (1u << 20) /* per line of a stream of documents */
#define DOCKER_LIST_MAX   16384
#define DOCKER_WORDS_MAX  4096 /* entries of an image's environment, of labels */

/* Copies the message of an error answer to `ret`, cut to its size; for people. Returns NULL if
 * there is none. */
const char *docker_parse_message(const void *p, size_t n, char ret[DOCKER_TEXT_MAX]);

/* ---- the engine ---- */
typedef struct docker_engine {
    char name[16]; /* "docker", "podman" */
    char version[DOCKER_NAME_MAX];
    char os[32], arch[32];
    unsigned api, api_min; /* minor numbers of version 1 */
    unsigned cgroup;       /* 1, 2; 0: not reported */
    bool podman, rootless, seccomp;
    bool memory_limit, swap_limit, cpu_limit, pids_limit;
    bool live_restore; /* containers outlive a restart of the daemon */
} docker_engine;
err *docker_parse_version(const void *p, size_t n, docker_engine *e) ERR_MUST;
/* Adds to what docker_parse_version has filled in. */
err *docker_parse_info(const void *p, size_t n, docker_engine *e) ERR_MUST;

/* ---- containers ---- */
enum docker_state {
    DOCKER_UNKNOWN, /* an unknown state: assumed to be alive */
    DOCKER_CREATED,
    DOCKER_RUNNING,
    DOCKER_PAUSED,
    DOCKER_DEAD, /* exited, stopped, dead, being removed */
};
typedef struct docker_container {
    char id[DOCKER_ID_LEN + 1];
    char name[DOCKER_NAME_MAX]; /* the first one, without its slash */
    char **labels;              /* "key=value" */
    enum docker_state state;
    bool oom_killed;
    int exit_code;
    char error[DOCKER_TEXT_MAX]; /* why it did not start */
    uint64_t memory, pids;       /* limits; 0: none */
    uint32_t cpu_milli;
} docker_container;
void docker_container_done(docker_container *c);
typedef struct docker_list {
    docker_container *c;
    size_t n;
} docker_list;
void docker_list_done(docker_list *l);
/* Parses the id of a new object: a container, an exec. */
err *docker_parse_made(const void *p, size_t n, char ret_id[DOCKER_ID_LEN + 1]) ERR_MUST;
err *docker_parse_container(const void *p, size_t n, docker_container *ret) ERR_MUST;
/* A list has only ids, names, labels and states. */
err *docker_parse_list(const void *p, size_t n, docker_list *ret) ERR_MUST;
err *docker_parse_wait(const void *p, size_t n, int *ret_exit_code) ERR_MUST;

typedef struct docker_stats {
    uint64_t cpu_us, cpu_throttled_us;
    uint64_t memory, memory_peak, memory_limit;
    uint64_t io_read, io_written;
    uint64_t net_rx, net_tx, net_dropped;
    uint32_t pids;
} docker_stats;
err *docker_parse_stats(const void *p, size_t n, docker_stats *ret) ERR_MUST;

/* ---- images ---- */
typedef struct docker_image {
    char digest[DOCKER_ID_LEN + 1]; /* of its config, hex */
    char **names;                   /* tags and digests, as the engine writes them */
    char **env, **entrypoint, **cmd;
    char *user, *cwd; /* never NULL */
    char os[32], arch[32];
    uint64_t size;
} docker_image;
void docker_image_done(docker_image *i);
err *docker_parse_image(const void *p, size_t n, docker_image *ret) ERR_MUST;
typedef struct docker_images {
    docker_image *i;
    size_t n;
} docker_images;
void docker_images_done(docker_images *l);
/* A list has only digests, names and sizes. */
err *docker_parse_images(const void *p, size_t n, docker_images *ret) ERR_MUST;

/* Parses names of volumes; skips invalid ones. NULL: there are none. */
err *docker_parse_volumes(const void *p, size_t n, char ***ret_names) ERR_MUST;

/* ---- streams of documents, one a line ---- */
typedef struct docker_lines {
    buf part; /* an incomplete line */
} docker_lines;
typedef err *docker_line(void *arg, const char *p, size_t n);
/* Calls `line` for every complete line that is not empty; stops at the first error. */
err *docker_lines_feed(docker_lines *l, const void *p, size_t n, docker_line *line,
                       void *arg) ERR_MUST;
/* Handles a last line without an end of line. */
err *docker_lines_end(docker_lines *l, docker_line *line, void *arg) ERR_MUST;
void docker_lines_done(docker_lines *l);

enum docker_action {
    DOCKER_OTHER,
    DOCKER_DIE,
    DOCKER_OOM,
    DOCKER_DESTROY,
};
typedef struct docker_event {
    enum docker_action action;
    char id[DOCKER_ID_LEN + 1];
    uint64_t time_ns; /* of the engine's clock */
    int exit_code;    /* of DIE; -1: not reported */
    char **labels;    /* the container's, and other attributes */
} docker_event;
void docker_event_done(docker_event *e);
err *docker_parse_event(const void *p, size_t n, docker_event *ret) ERR_MUST;

typedef struct docker_progress {
    char layer[DOCKER_NAME_MAX]; /* "": of the whole image */
    char status[DOCKER_TEXT_MAX];
    char error[DOCKER_TEXT_MAX]; /* "": none */
    uint64_t current, total;
} docker_progress;
err *docker_parse_progress(const void *p, size_t n, docker_progress *ret) ERR_MUST;

/* Returns the value of a label, or NULL. */
const char *docker_label(char *const *labels, const char *key);

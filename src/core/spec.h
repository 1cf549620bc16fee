/* What a sandbox and a command are asked to be: plain values, no I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

typedef struct limits { /* 0: not set; limits_fill() fills it */
    uint64_t memory;    /* bytes, swap included */
    uint64_t disk;      /* bytes */
    uint32_t cpu_milli; /* thousandths of a core */
    uint32_t pids;
    uint32_t nofile;      /* open files a process begins with */
    uint32_t nofile_hard; /* and may raise that to */
    uint32_t shm_mib;
    uint32_t execs;
} limits;
/* Of design section 17. Its disk is 10 GiB. */
extern const limits LIMITS_DEFAULT;
/* Fills what is not set from `otherwise`, but for disk: whether the default disk limit is applied
 * depends on the backend's quotas, which the engine knows. */
void limits_fill(limits *l, const limits *otherwise);
/* Ranges of what is set, and that no process begins with more files than it may have. */
err *limits_check(const limits *l) ERR_MUST;

/* Refuses what is set and above an administrator's ceiling (limits.max_* of bothy.yaml); 0 in `most`
 * is none. Memory, cpu, pids, disk and shm have one. */
err *limits_check_most(const limits *l, const limits *most) ERR_MUST;
/* Lifts each ceiling to at least this. */
void limits_lift(limits *most, const limits *l);

#define SPEC_NOFILE_HARD      65536u
#define SPEC_TTL_DEFAULT_MS   (UINT64_C(3600) * 1000)
#define SPEC_TTL_MAX_MS       (UINT64_C(30) * 86400 * 1000)
#define SPEC_IDLE_MAX_MS      SPEC_TTL_MAX_MS
#define SPEC_QUEUE_DEFAULT_MS (UINT64_C(60) * 1000)
#define SPEC_QUEUE_MAX_MS     (UINT64_C(3600) * 1000)
#define SPEC_TIMEOUT_MAX_MS   SPEC_TTL_MAX_MS
#define SPEC_UMASK_DEFAULT    022u
#define SPEC_TMPFS_MAX        8
#define SPEC_TMPFS_PATH_MAX   255
#define SPEC_ENV_MAX          (1u << 20)  /* bytes of a sandbox's env and secrets together */
#define SPEC_DOOR_MAX         (64u << 10) /* bytes a door may keep with a sandbox */
#define SPEC_START_MAX        (64u << 10) /* bytes of a start command's argv */
#define SPEC_ARGS_MAX         (7u << 20)  /* bytes of a command's argv and env together */

/* What a sandbox may reach. Named destinations will be a third, with a list beside it. */
enum network_grant {
    NETWORK_NONE, /* a loopback of its own */
    NETWORK_OPEN, /* public addresses and the node's resolvers; never the node or what is near it */
};
const char *network_grant_name(enum network_grant n);
/* NETWORK_NONE for what it does not know: nobody gets more than was understood. */
enum network_grant network_grant_by_name(const char *name);

typedef struct tmpfs_spec {
    char *path;
    uint64_t size;
    uint32_t mode; /* 01777 */
    bool exec;
} tmpfs_spec;

/* What runs from its beginning on, without counting as busy; argv NULL: nothing. */
typedef struct start_spec {
    char **argv;
    char *user; /* NULL: the sandbox's */
    char *cwd;  /* NULL: the sandbox's */
} start_spec;

typedef struct sandbox_spec {
    char *image;        /* as the caller wrote it */
    char *template;     /* or the recipe that names it; NULL: none */
    char *snapshot;     /* or whose files it begins with, by id; NULL: none */
    char *name;         /* or NULL: a label for people, unique among the owner's live ones */
    char **env;         /* NAME=value; never stored */
    char **secrets;     /* NAME=value; never stored, wiped on free */
    bool holds_secrets; /* what it begins with may hold some of another's */
    bool of_fork;       /* the snapshot is a fork's own, which nobody else may name */
    char *heir_of;      /* its parent's template, for its variables; NULL: none */
    char *user;         /* NULL: the image's */
    char *cwd;          /* NULL: the image's */
    char **labels;      /* key=value */
    limits limits;
    tmpfs_spec *tmpfs;
    size_t ntmpfs;
    uint64_t ttl_ms;
    bool ttl_pauses;   /* when its time is over it is paused, not ended */
    uint64_t idle_ms;  /* 0: it may be idle for ever */
    uint64_t queue_ms; /* how long it may wait for a slot */
    bool read_only;
    bool setuid;      /* grant */
    bool has_network; /* else a template may say it */
    enum network_grant network;
    bool has_umask;
    uint32_t umask;
    char *door; /* what a door keeps with it, JSON, or NULL; stored, shown by no other door */
    start_spec start;
    bool no_start; /* nor its template's */
    char *object;  /* uid of the cluster's object it is made for, or NULL; no request says it */
} sandbox_spec;
void sandbox_spec_done(sandbox_spec *s);
/* Ranges, names, env form, tmpfs paths; fills defaults but for the disk limit
 * (limits_fill). Other defaults than the built-in ones are filled in before the call. */
err *sandbox_spec_check(sandbox_spec *s) ERR_MUST;
/* What is not said is as of the other, which stays as it is: a template. Its env and labels lie
 * under the spec's own. */
void sandbox_spec_fill(sandbox_spec *s, const sandbox_spec *otherwise);
/* A name for people: a letter or digit, then up to 63 of letters, digits, _ . -; never the form of
 * an id, because either may stand in a path. */
bool spec_name_valid(const char *name);
/* key=value each, at most 64. */
err *spec_labels_check(char *const *labels) ERR_MUST;

enum stdio_mode {
    STDIO_PIPES,
    STDIO_MERGED,
    STDIO_PTY
};
typedef struct exec_spec {
    char **argv;
    char **env;    /* NAME=value */
    char *user;    /* NULL: the sandbox's */
    char *cwd;     /* NULL: the sandbox's */
    bool cwd_home; /* it may be "~", or begin with "~/": the user's home, which init knows */
    enum stdio_mode stdio;
    bool stdin_open; /* bytes will come; else /dev/null */
    uint16_t rows, cols;
    uint64_t timeout_ms;  /* 0: none */
    int exec_fd;          /* -1, or the executable by descriptor, not owned; argv[0] is its name */
    uint32_t nofile;      /* soft RLIMIT_NOFILE; 0: the slot's */
    uint32_t nofile_hard; /* 0: SPEC_NOFILE_HARD */
    bool setuid;          /* the sandbox's grant */
    bool transient;       /* a verb's, not a caller's: see exec_discard() */
    bool awaited;         /* whoever starts it follows its stdout from the first byte on */
    bool start;           /* the sandbox's start command: it does not keep it from being idle */
} exec_spec;
void exec_spec_done(exec_spec *s);
err *exec_spec_check(const exec_spec *s) ERR_MUST;

/* The requested properties of a sandbox and of a command: plain values, no I/O. */
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
    uint32_t nofile;      /* soft limit of open files, with which a process starts */
    uint32_t nofile_hard; /* hard limit, up to which a process may raise it */
    uint32_t shm_mib;
    uint32_t execs;
} limits;
/* The built-in defaults. The disk limit is 10 GiB. */
extern const limits LIMITS_DEFAULT;
/* Fills members that are 0 from `otherwise`, except disk: whether the default disk limit applies
 * depends on the backend's quotas, which the engine knows. */
void limits_fill(limits *l, const limits *otherwise);
/* Checks the ranges of the limits that are set, and that nofile is not above nofile_hard. */
err *limits_check(const limits *l) ERR_MUST;

/* Refuses limits above an administrator's ceiling (limits.max_* of bothy.yaml); 0 in `most` is no
 * ceiling. Memory, cpu, pids, disk and shm have one. */
err *limits_check_most(const limits *l, const limits *most) ERR_MUST;
/* Raises each ceiling that is set to at least this limit. */
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
#define SPEC_DOOR_MAX         (64u << 10) /* bytes a door may store with a sandbox */
#define SPEC_START_MAX        (64u << 10) /* bytes of a start command's argv */
#define SPEC_ARGS_MAX         (7u << 20)  /* bytes of a command's argv and env together */

/* The network that a sandbox may reach. Named destinations will be a third grant, with a list. */
enum network_grant {
    NETWORK_NONE, /* a loopback of its own */
    NETWORK_OPEN, /* public addresses and the node's resolvers; never the node or its neighbours */
};
const char *network_grant_name(enum network_grant n);
/* Returns the grant of this name; NETWORK_NONE for an unknown name, so that nothing unknown is
 * granted. */
enum network_grant network_grant_by_name(const char *name);

typedef struct tmpfs_spec {
    char *path;
    uint64_t size;
    uint32_t mode; /* 01777 */
    bool exec;
} tmpfs_spec;

/* A command that runs from the start on and does not count as busy; argv NULL: none. */
typedef struct start_spec {
    char **argv;
    char *user; /* NULL: the sandbox's */
    char *cwd;  /* NULL: the sandbox's */
} start_spec;

typedef struct sandbox_spec {
    char *image;        /* as the caller wrote it */
    char *template;     /* or a template, which names the image; NULL: none */
    char *snapshot;     /* or the id of a snapshot to start from; NULL: none */
    char *name;         /* or NULL: a label for people, unique among the owner's live sandboxes */
    char **env;         /* NAME=value; never stored */
    char **secrets;     /* NAME=value; never stored, wiped on free */
    bool holds_secrets; /* its snapshot or parent may hold secrets */
    bool of_fork;       /* the snapshot belongs to a fork and cannot be named by callers */
    char *heir_of;      /* the parent's template, for its variables; NULL: none */
    char *user;         /* NULL: the image's */
    char *cwd;          /* NULL: the image's */
    char **labels;      /* key=value */
    limits limits;
    tmpfs_spec *tmpfs;
    size_t ntmpfs;
    uint64_t ttl_ms;
    bool ttl_pauses;   /* at the end of the ttl it is paused, not ended */
    uint64_t idle_ms;  /* 0: no idle limit */
    uint64_t queue_ms; /* how long it may wait for a slot */
    bool read_only;
    bool setuid;      /* grants set-uid programs */
    bool has_network; /* `network` is set; otherwise a template may set it */
    enum network_grant network;
    bool has_umask;
    uint32_t umask;
    char *door; /* a door's own state, JSON, or NULL; stored, shown by no other door */
    start_spec start;
    bool no_start; /* do not run the template's start command either */
    char *object;  /* uid of its Kubernetes object, or NULL; never set by a request */
} sandbox_spec;
void sandbox_spec_done(sandbox_spec *s);
/* Checks ranges, names, the form of env and tmpfs paths. Sets unset members to the built-in
 * defaults; a caller with other defaults sets them before. limits.disk gets no default here: see
 * limits_fill(). */
err *sandbox_spec_check(sandbox_spec *s) ERR_MUST;
/* Fills members that are not set from a template, which stays unchanged. Its env and labels are
 * added where the spec has none of the same name. */
void sandbox_spec_fill(sandbox_spec *s, const sandbox_spec *otherwise);
/* Returns true for a valid name: a letter or digit, then up to 63 of letters, digits, _ . -; never
 * of the form of an id, because a path may hold either. */
bool spec_name_valid(const char *name);
/* Checks that each label is key=value, and that there are at most 64. */
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
    bool cwd_home; /* cwd may be "~" or begin with "~/": the user's home, which init resolves */
    enum stdio_mode stdio;
    bool stdin_open; /* stdin will be written; false: /dev/null */
    uint16_t rows, cols;
    uint64_t timeout_ms;  /* 0: none */
    int exec_fd;          /* -1, or the executable's descriptor, not owned; argv[0] names it */
    uint32_t nofile;      /* soft RLIMIT_NOFILE; 0: the slot's */
    uint32_t nofile_hard; /* 0: SPEC_NOFILE_HARD */
    bool setuid;          /* the sandbox grants set-uid programs */
    bool transient;       /* started by a verb, not by a caller: see exec_discard() */
    bool awaited;         /* the starter follows its stdout from the first byte on */
    bool start;           /* the sandbox's start command, which does not count as activity */
} exec_spec;
void exec_spec_done(exec_spec *s);
err *exec_spec_check(const exec_spec *s) ERR_MUST;

/* What a sandbox and a command are asked to be: plain values, no I/O. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

typedef struct limits { /* 0: not set; limits_default() fills it */
    uint64_t memory;    /* bytes, swap included */
    uint64_t disk;      /* bytes */
    uint32_t cpu_milli; /* thousandths of a core */
    uint32_t pids;
    uint32_t nofile;
    uint32_t shm_mib;
    uint32_t execs;
} limits;

typedef struct tmpfs_spec {
    char *path;
    uint64_t size;
    uint32_t mode; /* 01777 */
    bool exec;
} tmpfs_spec;

typedef struct sandbox_spec {
    char *image;    /* as the caller wrote it */
    char *name;     /* or NULL: a label for people, unique among the owner's live ones */
    char **env;     /* NAME=value; never stored */
    char **secrets; /* NAME=value; never stored, wiped on free */
    char *user;     /* NULL: the image's */
    char *cwd;      /* NULL: the image's */
    char **labels;  /* key=value */
    limits limits;
    tmpfs_spec *tmpfs;
    size_t ntmpfs;
    uint64_t ttl_ms;
    uint64_t queue_ms; /* how long it may wait for a slot */
    bool read_only;
    bool setuid; /* grant */
    bool has_umask;
    uint32_t umask;
} sandbox_spec;
void sandbox_spec_done(sandbox_spec *s);
/* Ranges, names, env form, tmpfs paths; fills defaults (design, section 17). */
err *sandbox_spec_check(sandbox_spec *s) ERR_MUST;

enum stdio_mode {
    STDIO_PIPES,
    STDIO_MERGED,
    STDIO_PTY
};
typedef struct exec_spec {
    char **argv;
    char **env; /* NAME=value */
    char *user; /* NULL: the sandbox's */
    char *cwd;  /* NULL: the sandbox's */
    enum stdio_mode stdio;
    bool stdin_open; /* bytes will come; else /dev/null */
    uint16_t rows, cols;
    uint64_t timeout_ms; /* 0: none */
    int exec_fd;         /* -1, or the executable by descriptor; argv[0] is its name */
    bool setuid;         /* the sandbox's grant */
} exec_spec;
void exec_spec_done(exec_spec *s);
err *exec_spec_check(const exec_spec *s) ERR_MUST;

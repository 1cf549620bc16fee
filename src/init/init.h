/* bothy-init: pid 1 of a slot. What its files share.
 *
 * One thread, one poll loop (init.c). Requests are in request.c, signals in signal.c. child.c,
 * bare/passwd.c and env.c run in forked children only: whatever the tenant has put into the image,
 * it is a child that meets it, never pid 1. */
#pragma once

#include "bare/lib.h"
#include "bare/passwd.h"
#include "wire/spine.h"

/* Shared with one child until it execs: how far it came, and who it became. */
struct note {
    int32_t err; /* > 0: errno of the step that failed */
    u32 stage;
    u32 uid, gid; /* NO_ID until resolved */
};

struct entry {
    struct sp_rec r;
    int fd[SP_FDS_MAX]; /* the host's ends, ours to keep */
    bool used, sent, acked;
};

struct claim { /* as CLAIM brought it; zero before */
    bool made;
    u32 umask, grants;
    u32 envc;
    const char *user, *cwd, *env; /* into one anonymous mapping; env: envc strings in a row */
    const char *end;
};

struct state {
    struct entry tab[SP_MAX_EXEC];
    u32 top, used; /* entries [0, top) may be in use */
    struct note *notes;
    struct claim claim;
    u64 high, instance, boot_mono, boot_real;
    int conn, sigfd, ptsdir, procdir;
    int sndbuf;
    bool want_out;          /* exits wait for room */
    bool paused;            /* requests wait for room */
    struct k_rlimit nofile; /* what children get */
    struct {
        u32 tried, held; /* before the first HELLO */
        u32 again;       /* after the claim */
    } walls;
};
extern struct state g;

enum { /* inherited */
    FD_LISTENER = 0,
    FD_NULL = 1, /* the host's /dev/null, opened by us */
};

/* init.c */
u64 clock_now(int clock);
struct entry *entry_find(u64 id);
u32 entry_index(const struct entry *e);
u32 entry_open_mask(const struct entry *e);
void entry_close(struct entry *e, u32 mask);
void entry_maybe_free(struct entry *e);
void conn_drop(void);
/* Never blocks. p2 may be NULL. */
long conn_send(void *p, size_t n, void *p2, size_t n2, const int *fds, u32 nfds);
bool conn_has_room(int share);
void exits_flush(void);
void children_reap(void);

/* request.c */
void request_receive(void);

/* walls.c */
void walls_try(void);
u64 walls_try_again(u32 grants); /* SP_WALLS */

/* signal.c */
long signal_send(const struct sp_op *q);

/* child.c */
struct job {
    const struct sp_spawn *q;
    int payload; /* memfd or -1 */
    int execfd;  /* or -1 */
    int io[3];
    struct note *note;
};
__attribute__((noreturn)) void child_run(const struct job *j);
long child_no_new_privs(void);

/* env.c */
struct env {
    char **v; /* NULL-terminated */
    u32 n, max;
    u32 *slot; /* hash of names, index + 1 */
    u32 mask;
};
long env_init(struct env *e, u32 max);
void env_put(struct env *e, const char *pair); /* later wins */
void env_put_pair(struct env *e, const char *name, const char *value);
const char *env_get(const struct env *e, const char *name);

/* bothy-init: pid 1 of a slot, or of an engine's container. What its files share.
 *
 * One thread, one poll loop (init.c for slots, serve.c for containers). Requests are in request.c,
 * signals in signal.c. child.c, bare/passwd.c and env.c run in forked children only: whatever the
 * tenant has put into the image, it is a child that meets it, never pid 1. */
#pragma once

#include "bare/lib.h"
#include "bare/passwd.h"
#include "wire/spine.h"
#include "wire/spine_data.h"

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
    u32 sandbox[4];               /* HELLO's extra bytes in the stream form */
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
    bool stream; /* container mode: no descriptors are handed out, bytes are carried (stream.c) */
    char **env;  /* container mode: what the engine gave us; the lowest layer of a command's */
    u32 envc;
    char cwd[4096]; /* container mode: the directory the engine gave us; "" is none */
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

#define SIGNAL_BIT(s) (1ul << ((s)-1))

enum { /* inherited */
    FD_LISTENER = 0,
    FD_NULL = 1, /* the host's /dev/null, opened by us */
};

/* init.c */
u64 clock_now(int clock);
__attribute__((noreturn)) void fatal(int status);
void init_setup(u64 signals); /* blocked, and read from g.sigfd */
void conn_greet(void);        /* HELLO */
struct entry *entry_find(u64 id);
u32 entry_index(const struct entry *e);
u32 entry_open_mask(const struct entry *e);
void entry_close(struct entry *e, u32 mask);
void entry_maybe_free(struct entry *e);
const struct sp_rec *entry_record(struct entry *e); /* as it is now */
void conn_drop(void);
/* Never blocks. */
long conn_send(void *p, size_t n, const int *fds, u32 nfds);
bool conn_has_room(int share);
void exits_flush(void);
void children_reap(void);

/* request.c */
void request_receive(void);
/* A record that came by a stream, 8-byte aligned, and its extra bytes. */
void request_take(const void *record, size_t n, const char *extra, size_t nextra);

/* walls.c */
void walls_try(void);
u64 walls_try_again(u32 grants); /* SP_WALLS */

/* signal.c */
long signal_send(const struct sp_op *q);
bool signal_parent_of(u32 pid, u32 *ret_ppid); /* 0: somebody outside this pid namespace */

/* child.c */
struct job {
    const struct sp_spawn *q;
    int payload;       /* memfd or -1 */
    const char *extra; /* the payload in our memory, or NULL */
    int execfd;        /* or -1 */
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

/* serve.c: container mode. */
__attribute__((noreturn)) void serve_main(char **envp);
long link_send(const void *record, size_t n); /* sealed; -EPIPE, or -EAGAIN when it does not fit */
/* A message of n extra bytes, which the caller writes where it is told; NULL: no room. */
void *link_begin(const void *record, size_t n, size_t nextra);
void link_end(void);
bool link_has_room(void); /* for output and ends; answers have more */
u32 link_peer(void);      /* the attach process, 0: none or outside */

/* attach.c */
__attribute__((noreturn)) void attach_main(void);
__attribute__((noreturn)) void install_main(const char *dir); /* install.c */
__attribute__((noreturn)) void reach_main(const char *address, const char *port,
                                          const char *times); /* reach.c */
#define SERVE_NAME_MAX 40
/* The abstract name init listens on, with its leading NUL; the length, or -errno. */
long serve_name(char ret[SERVE_NAME_MAX]);

/* stream.c: bytes of stdio on a stream. All is told by the entry. */
void flow_begin(struct entry *e); /* it was started on this connection */
void flow_fetch(struct entry *e); /* again from what was not received */
void flow_hold_all(void);         /* a new connection: nothing flows before it is asked for */
void flow_exited(struct entry *e);
u32 flow_open_mask(const struct entry *e); /* streams with bytes left */
void flow_close(struct entry *e, u32 mask);
bool flow_is_on(const struct entry *e);
bool flow_flush(void); /* true: there is more than room */
/* False: the peer broke the rules. */
bool flow_message(const sps_message *m);
/* The poll set: what there is to wait for, at most FLOW_POLLS; then what came of it. */
#define FLOW_POLLS (3 * SP_MAX_EXEC)
u32 flow_poll(struct pollfd *ret);
void flow_polled(const struct pollfd *p);

/* bothy-init: pid 1 of a slot, or of an engine's container. Declarations that its files share.
 *
 * One thread, one poll loop (init.c for slots, serve.c for containers). Requests are in request.c,
 * signals in signal.c. child.c, bare/passwd.c and env.c run in forked children only: whatever the
 * tenant has put into the image, only a child touches it, never pid 1. */
#pragma once

#include "bare/lib.h"
#include "bare/passwd.h"
#include "wire/spine.h"
#include "wire/spine_data.h"

/* Shared with one child until it execs: the step it reached, and the user it became. */
struct note {
    int32_t err; /* > 0: errno of the step that failed */
    u32 stage;
    u32 uid, gid; /* NO_ID until resolved */
};

struct entry {
    struct sp_rec r;
    int fd[SP_FDS_MAX]; /* the host's ends, owned by init */
    bool used, sent, acked;
};

struct claim { /* as CLAIM brought it; zero before the claim */
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
    bool stream; /* container mode: bytes are carried in messages, no descriptors (stream.c) */
    char **env;  /* container mode: the engine's environment, the lowest layer of a command's */
    u32 envc;
    char cwd[4096]; /* container mode: the directory the engine gave; "" is none */
    int sndbuf;
    bool want_out;          /* exits wait for room in the send buffer */
    bool paused;            /* requests wait for room in the send buffer */
    struct k_rlimit nofile; /* limits of children */
    struct {
        u32 tried, held; /* before the first HELLO */
        u32 again;       /* after the claim */
    } walls;
};
extern struct state g;

#define SIGNAL_BIT(s) (1ul << ((s)-1))

enum { /* inherited descriptors */
    FD_LISTENER = 0,
    FD_NULL = 1, /* the host's /dev/null, opened by init */
};

/* init.c */
u64 clock_now(int clock);
__attribute__((noreturn)) void fatal(int status);
void init_setup(u64 signals); /* signals to block and read from g.sigfd */
void conn_greet(void);        /* sends HELLO */
struct entry *entry_find(u64 id);
u32 entry_index(const struct entry *e);
u32 entry_open_mask(const struct entry *e);
void entry_close(struct entry *e, u32 mask);
void entry_maybe_free(struct entry *e);
const struct sp_rec *entry_record(struct entry *e); /* completes and returns the record */
void conn_drop(void);
/* Never blocks. */
long conn_send(void *p, size_t n, const int *fds, u32 nfds);
bool conn_has_room(int share);
void exits_flush(void);
void children_reap(void);

/* request.c */
void request_receive(void);
/* Handles a record that came on a stream, 8-byte aligned, with its extra bytes. */
void request_take(const void *record, size_t n, const char *extra, size_t nextra);

/* walls.c */
void walls_try(void);
u64 walls_try_again(u32 grants); /* returns SP_WALLS */

/* signal.c */
long signal_send(const struct sp_op *q);
bool signal_parent_of(u32 pid, u32 *ret_ppid); /* *ret_ppid 0: outside this namespace */

/* child.c */
struct job {
    const struct sp_spawn *q;
    int payload;       /* memfd or -1 */
    const char *extra; /* the payload in init's memory, or NULL */
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
void env_put(struct env *e, const char *pair); /* a later value replaces an earlier one */
void env_put_pair(struct env *e, const char *name, const char *value);
const char *env_get(const struct env *e, const char *name);

/* serve.c: container mode. */
__attribute__((noreturn)) void serve_main(char **envp);
long link_send(const void *record, size_t n); /* sealed; -EPIPE, or -EAGAIN if it does not fit */
/* Begins a message with n extra bytes, which the caller writes to the returned address; link_end()
 * completes it. NULL if there is no room. */
void *link_begin(const void *record, size_t n, size_t nextra);
void link_end(void);
bool link_has_room(void); /* for output and exits; answers have more */
u32 link_peer(void);      /* pid of the attach process; 0: none, or one outside this namespace */

/* attach.c */
__attribute__((noreturn)) void attach_main(void);
__attribute__((noreturn)) void install_main(const char *dir); /* install.c */
__attribute__((noreturn)) void reach_main(const char *address, const char *port,
                                          const char *times); /* reach.c */
#define SERVE_NAME_MAX 40
/* Writes the abstract name init listens on, with its leading NUL. Returns the length, or -errno. */
long serve_name(char ret[SERVE_NAME_MAX]);

/* stream.c: bytes of stdio on a stream, one flow for each entry. */
void flow_begin(struct entry *e); /* the command was started on this connection */
void flow_fetch(struct entry *e); /* sends again from the first byte that was not received */
void flow_hold_all(void);         /* on a new connection: stops all flows until they are fetched */
void flow_exited(struct entry *e);
u32 flow_open_mask(const struct entry *e); /* streams with bytes left */
void flow_close(struct entry *e, u32 mask);
bool flow_is_on(const struct entry *e);
bool flow_flush(void); /* true if more is left than there is room for */
/* Returns false if the peer violated the protocol. */
bool flow_message(const sps_message *m);
/* flow_poll() fills the poll set, at most FLOW_POLLS; flow_polled() handles the result. */
#define FLOW_POLLS (3 * SP_MAX_EXEC)
u32 flow_poll(struct pollfd *ret);
void flow_polled(const struct pollfd *p);

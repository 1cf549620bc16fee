/* Internals of bothy-fake-node. One process, one thread, one poll loop; it outlives the daemon as a
 * slot does, and remembers like bothy-init: exits until they are acknowledged, output until it is
 * received (at most OUT_MAX a stream, then the command waits). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/fake_proto.h"
#include "base/buf.h"
#include "wire/spine_codec.h"

#define OUT_MAX  (256u * 1024)
#define IN_MAX   (512u * 1024)
#define SEND_MAX (512u * 1024)

typedef struct nbox nbox;
typedef struct proc proc;

typedef struct stream {
    int fd;        /* read end; -1: closed */
    bool hung_up;  /* pty without a slave: read again at the exit */
    buf bytes;     /* [base, base + len) */
    uint64_t base; /* offset up to which the daemon has received */
    uint64_t sent; /* on this connection */
    uint64_t at_exit;
    bool eof, eof_sent;
} stream;

struct proc {
    proc *next;
    nbox *box;
    pid_t pid;
    uint32_t flags;
    struct sp_rec rec;
    stream out[2];
    int in_fd;
    buf in;           /* accepted, not yet written */
    uint64_t in_base; /* offset up to which stdin is written */
    bool in_eof, in_over;
    uint64_t taken_told;
    bool flowing; /* frames are wanted on this connection */
    bool exit_sent, acked;
};

typedef struct conn {
    struct conn *next;
    int fd;
    nbox *box;
    buf in, out;
    bool dead;
} conn;

struct nbox {
    nbox *next;
    char id[SANDBOX_ID_LEN + 1];
    char *dir;
    char **env; /* the claim's */
    uint32_t umask;
    bool claimed;
    uint64_t high, instance;
    uint64_t boot_mono, boot_real;
    proc *procs;
    conn *conn;
};

/* fake_proc.c */
/* Starts a command. Returns 0, or errno of a refusal. A command that failed to execute is a proc,
 * too. */
int proc_spawn(nbox *b, const spine_spawn *s, proc **ret_proc);
proc *proc_find(nbox *b, uint64_t id);
void proc_read(proc *p, int i); /* output is available */
void proc_write(proc *p);       /* stdin has room */
void proc_reaped(proc *p, int status, const void *rusage);
void proc_flush(proc *p); /* sends frames and the exit to the connection */
void proc_close(proc *p, uint32_t mask);
bool proc_is_done(const proc *p); /* nothing left to remember */
void proc_free(proc *p);

/* fake_tree.c */
int tree_signal(nbox *b, proc *p, const struct sp_op *op); /* 0 or errno */
void tree_kill_rest(void); /* kills processes outside the trees of all boxes, when the node ends */

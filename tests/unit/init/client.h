/* The daemon's side of the spine, one request at a time, for tests of init. */
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "wire/spine_codec.h"

#include "guest.h"

#define STASH 2048
typedef struct client {
    int fd;
    uint64_t next_id;
    struct sp_hello hello;
    struct sp_rec recs[SP_MAX_EXEC];
    struct sp_exit stash[STASH]; /* EXITs that came before they were asked for */
    size_t nstash;
} client;

/* Connects and reads HELLO. */
void client_open(client *c, const guest *g);
void client_close(client *c);

/* Sends; the payload goes into a memfd when it is large. fds come after that one. */
void client_send(client *c, spine_out *o, const int *fds, size_t nfds);
void client_send_raw(client *c, const void *p, size_t n, const int *fds, size_t nfds);
/* The next record that is no EXIT; EXITs are stashed. Fails the test after ten seconds. */
size_t client_recv(client *c, void *p, size_t max, int *fds, size_t *ret_nfds);
struct sp_exit client_exit(client *c, uint64_t id);

int client_claim(client *c, const spine_claim *q); /* DONE's err */
int client_op(client *c, struct sp_op op);         /* DONE's err */
void client_tell(client *c, struct sp_op op);      /* no answer */
int client_signal(client *c, uint64_t id, int signo, uint32_t scope, uint32_t pid, uint64_t since);

typedef struct proc {
    uint64_t id;
    struct sp_started st; /* st.h.err: refused */
    int fd[SP_FDS_MAX];
} proc;
proc client_spawn(client *c, const spine_spawn *s, const int *fds, size_t nfds);
proc client_fetch(client *c, uint64_t id);
void proc_close(proc *p);

typedef struct result {
    struct sp_rec rec;
    char out[65536], err[65536];
} result;
/* Runs `sh -c script` to its end as user (NULL: the claim's), gathers, acknowledges. */
const result *client_sh(client *c, const char *user, uint32_t flags, const char *script);
const result *client_run(client *c, const spine_spawn *s);
/* What is there now, up to EAGAIN or end. */
void drain(int fd, char *p, size_t max);
/* Waits until the text of a file descriptor holds this. */
void wait_for(int fd, const char *text);

/* Tunnels inside: what tunnel.c (life, events) and tunnel_io.c (bytes) share. Nobody outside this
 * folder includes it; exec_tunnel() in exec.h is the way in.
 *
 * A tunnel is a command whose stdin and stdout are one end of a socket pair. It has no journal
 * record, no spool and no file of stdin: what it carries is somebody's connection, which dies with
 * us, too. What is not taken at once waits in the socket and in the command's own pipes; with
 * frames, whose sender goes on until it is told where to stop, also here, up to a ceiling.
 *
 * How the peer, who holds the other end, learns of an end:
 *     stdout has ended whole     our end is shut for writing, and stays open
 *     stdout was cut off         our end is closed (the command was killed, or wrote no stderr)
 *
 * The other way: a peer that shuts its end for writing has sent everything. A peer that closes its
 * end reads no more, but the bytes it sent are still delivered. Bytes for a command that takes no
 * more input are dropped. */
#pragma once

#include "exec/internal.h"

#define TUNNEL_OUT_MAX (256u * 1024) /* what an init sends before it is told to go on */
#define TUNNEL_IN_MAX  (128u * 1024)

struct tunnel {
    _Atomic unsigned refs;
    exec_table *table; /* referenced */
    uint64_t id;
    box *box; /* referenced: of a table that was reset it is the old one */
    size_t first;
    pump_job job;
    pump_timer timer;
    _Atomic bool due; /* it fired */
    int closing[3];   /* the job's: pipes that are closed when no lock is held */

    pthread_mutex_t lock;   /* everything below; inside the table's, around the backend's */
    exec_tunnel_done *done; /* NULL: told */
    void *arg;
    int peer; /* for whom is told; -1 then */
    /* what the box has said */
    bool answered, exited, lost;
    int refused;
    struct sp_rec rec;
    bool over;     /* nothing more comes from there, and it knows that we know */
    bool left;     /* without a socket: it has some time to come to its end */
    bool too_late; /* it has said too little in its time */
    /* ours */
    int fd;
    bool gone;         /* the peer has closed its end */
    bool whole;        /* shut for writing */
    uint64_t whole_ns; /* since when, monotonic */
    uint64_t weight;   /* as hub->tunnel_bytes has it */
    /* from the command */
    uint64_t out_at, err_at; /* bytes that came, in order */
    uint64_t moved;          /* of stdout, into the socket */
    bool out_eof, err_said, err_eof;
    bool full;     /* the socket takes no more now */
    bool stalled;  /* frames: some were dropped for want of room; to be fetched */
    bool fetching; /* frames: what comes before the answer was sent before it was asked */
    buf held;      /* frames: came, and is not in the socket */
    int pipe[3];   /* descriptors form */
    /* to it */
    bool in_eof, in_over; /* the peer has said all; the command takes no more */
    bool in_full;         /* descriptors form: its pipe takes no more now */
    bool in_eof_sent, taken_known;
    uint64_t in_at,
        in_sent; /* frames: offsets of what `in` begins with, of what was not sent yet */
    buf in;      /* frames: sent or not, and not taken yet */
};

/* tunnel_io.c; all with the lock */
void tunnel_output(struct tunnel *u);
void tunnel_input(struct tunnel *u);
void tunnel_rewatch(struct tunnel *u);
/* Takes what fits of a frame. */
void tunnel_take(struct tunnel *u, int stream, uint64_t offset, const char *p, size_t n);
void tunnel_taken(struct tunnel *u, uint64_t offset);
/* Frames that were dropped, or may have been lost with a connection: from where we are. */
void tunnel_fetch(struct tunnel *u);
/* Our end, and what waits for it. */
void tunnel_shut(struct tunnel *u);
void tunnel_close_pipe(struct tunnel *u, int i);

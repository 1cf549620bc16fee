/* Internal header of tunnels, shared by tunnel.c (life, events) and tunnel_io.c (bytes). Other
 * folders use exec_tunnel() in exec.h.
 *
 * A tunnel is a command whose stdin and stdout are one end of a socket pair. It has no journal
 * record, no spool and no stdin file: it carries a caller's connection, which ends with this
 * process, too. Bytes that are not taken at once wait in the socket and in the command's own pipes.
 * In the frames form they also wait here, up to a ceiling, because init sends ahead of what was
 * acknowledged.
 *
 * How the peer, which has the other end, learns of an end:
 *     stdout has ended whole     this end is shut for writing, and stays open
 *     stdout was cut off         this end is closed (the command was killed, or wrote no stderr)
 *
 * The other way: a peer that shuts its end for writing has sent everything. A peer that closes its
 * end reads no more, but the bytes it sent are still delivered. Bytes for a command that takes no
 * more input are dropped. */
#pragma once

#include "exec/internal.h"

#define TUNNEL_OUT_MAX (256u * 1024) /* bytes that init sends before they are acknowledged */
#define TUNNEL_IN_MAX  (128u * 1024)

struct tunnel {
    _Atomic unsigned refs;
    exec_table *table; /* referenced */
    uint64_t id;
    box *box; /* referenced; after a reset of the table still the old box */
    size_t first;
    pump_job job;
    pump_timer timer;
    _Atomic bool due; /* the timer has fired */
    int closing[3];   /* for the job: pipes to close when no lock is held */

    pthread_mutex_t lock;   /* guards the rest; after the table's lock, before the backend's */
    exec_tunnel_done *done; /* NULL: was called */
    void *arg;
    int peer; /* the caller's end; -1: done has got it */
    /* reported by the box */
    bool answered, exited, lost;
    int refused;
    struct sp_rec rec;
    bool over;     /* the box sends nothing more, and has its ACK */
    bool left;     /* without a socket: the command gets some time to end */
    bool too_late; /* the first bytes did not come in time */
    /* this end */
    int fd;
    bool gone;         /* the peer has closed its end */
    bool whole;        /* shut for writing */
    uint64_t whole_ns; /* when it was shut, monotonic */
    uint64_t weight;   /* its part of hub->tunnel_bytes */
    /* from the command */
    uint64_t out_at, err_at; /* bytes that came, in order */
    uint64_t moved;          /* of stdout, into the socket */
    bool out_eof, err_said, err_eof;
    bool full;     /* the socket takes no more now */
    bool stalled;  /* frames: some were dropped for want of room and must be fetched */
    bool fetching; /* frames: until the answer, frames are older than the fetch */
    buf held;      /* frames: received, and not in the socket yet */
    int pipe[3];   /* descriptors form */
    /* to the command */
    bool in_eof, in_over; /* the peer has sent everything; the command takes no more */
    bool in_full;         /* descriptors form: its pipe takes no more now */
    bool in_eof_sent, taken_known;
    uint64_t in_at,
        in_sent; /* frames: offsets of the first byte of `in` and of the first unsent byte */
    buf in;      /* frames: bytes not taken yet, sent or not */
};

/* tunnel_io.c; lock held */
void tunnel_output(struct tunnel *u);
void tunnel_input(struct tunnel *u);
void tunnel_rewatch(struct tunnel *u);
/* Takes what fits of a frame. */
void tunnel_take(struct tunnel *u, int stream, uint64_t offset, const char *p, size_t n);
void tunnel_taken(struct tunnel *u, uint64_t offset);
/* Fetches frames that were dropped, or may have been lost with a connection. */
void tunnel_fetch(struct tunnel *u);
/* Closes this end, and drops what waits for it. */
void tunnel_shut(struct tunnel *u);
void tunnel_close_pipe(struct tunnel *u, int i);

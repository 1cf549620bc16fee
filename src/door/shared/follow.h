/* Sends an exec's streams to a caller as they come: the part that all doors share.
 *
 * There is one job per connection. The relay drives it; the exec's watch wakes it. All bytes are
 * read by offset from the spool, so a job holds none but those that the peer has not taken yet. A
 * form decides how bytes, gaps and ends look: pure functions that append to a buffer. */
#pragma once

#include "door/shared/stream.h"
#include "engine/engine.h"
#include "net/http.h"

typedef struct follow follow;

typedef struct follow_form {
    /* Makes the whole answer itself. The members below are then unused, except hold. */
    enum relay_next (*step)(follow *f, relay_io *io, const exec_state *st);
    /* Answers with the error of a command that never ran. */
    void (*refuse)(follow *f, relay_io *io, const exec_state *st, const err *why);
    void (*head)(follow *f, relay_io *io, const exec_state *st);
    /* Renders n bytes from the offset; f->at[stream] is behind them. NULL:
     * they go into the body unchanged. */
    void (*bytes)(follow *f, buf *body, int stream, uint64_t offset, const char *p, size_t n);
    /* Renders the loss of the bytes from `from` to f->at[stream]. Returns false if the
     * answer ends there; the next stream continues behind the gap. NULL: a gap cannot be
     * rendered, so the connection is closed. */
    bool (*gap)(follow *f, buf *body, int stream, uint64_t from);
    void (*ping)(follow *f, buf *body);                      /* or NULL */
    void (*end)(follow *f, buf *body, const exec_state *st); /* or NULL */
    /* Called when the stream is aborted before the command's end record; `why` is the reason. NULL:
     * the connection is closed without a last chunk. */
    void (*broken)(follow *f, buf *body, const err *why);
    void (*free)(void *arg); /* frees o.arg; or NULL */
    uint64_t partial_ns;     /* how long to wait for the rest of a split UTF-8 character */
    bool hold;               /* bytes it has not sent yet are not dropped (exec_hold) */
    bool text;               /* do not split UTF-8 characters, where possible */
} follow_form;

enum follow_until {
    UNTIL_END,
    UNTIL_EOF,
    UNTIL_NOW
};
typedef struct follow_options {
    const follow_form *form;
    void *arg; /* the form's data */
    enum follow_until until;
    unsigned streams;     /* bit 1: out, bit 2: err */
    uint64_t from[3];     /* start offset, by stream */
    bool resume;          /* instead, start where the peer of the last such stream is known to be */
    bool replay;          /* report a replay in the head */
    bool is_exec;         /* a command that never started is an error */
    uint64_t ping_ns;     /* time without a byte; 0: FOLLOW_PING_NS */
    uint64_t deadline_ns; /* monotonic; afterwards broken() with ERR_TIMEOUT; 0: none */
    session *session;     /* follow a command of this session instead of an exec: */
    uint64_t seq;
    uint64_t wait_ns; /* for forms that answer once: the latest time to answer; 0: none, or: */
    bool look;        /* answer at once */
    /* The command has not begun: turn_try() begins it when the session is free. Errors as
     * session_run. Takes ownership of `turn`. */
    void *turn;
    err *(*turn_try)(void *turn, uint64_t *ret_seq, bool *ret_replay);
    void (*turn_free)(void *turn);
} follow_options;

#define FOLLOW_PING_NS (15 * UINT64_C(1000000000))

struct follow {
    exec *x;    /* or: */
    session *s; /* the session whose command o.seq is followed */
    sandbox *sb;
    follow_options o;
    exec_watch watch;
    relay_job *job;
    exec_hold *hold[3]; /* of the streams it sends */
    char *request_id;
    char *cause; /* of the sandbox's end, for an unknown end; read once */
    uint64_t at[3];
    /* lengths at the first step, where UNTIL_NOW stops; [0]: set once they are taken */
    uint64_t now[3];
    uint64_t last_sent;
    uint64_t began;           /* time of the first step */
    uint64_t forked;          /* when the fork was first seen; 0: not yet */
    uint64_t probe_at;        /* no earlier exec_probe() */
    uint64_t partial[3];      /* of stream 1, 2: since when a split character waits; 0: none */
    struct follow_acks *acks; /* with o.resume */
    bool head_sent;
    bool uses; /* it counts as activity of the sandbox */
};             /* no byte buffers in here: thousands of follows may wait */

/* Hands the connection to the relay. Takes its own references. x: NULL for a session's command. */
void follow_start(request *rq, response *rs, sandbox *sb, exec *x, const follow_options *o);

/* ---- for forms ---- */
/* Reads the state. A command of a session is shown as an exec, so that forms treat both alike. */
void follow_look(follow *f, exec_state *ret);
err *follow_read(const follow *f, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                 uint64_t *ret_gap_to) ERR_MUST;
/* Returns the cause of the sandbox's end, as JSON, or NULL. */
const char *follow_cause(follow *f);
/* Notes that f->at was moved over lost bytes: the peer's next stream begins there. */
void follow_skipped(follow *f);
/* Returns why a command never ran, with its name; NULL for any other end. */
err *follow_start_error(const exec_state *st) ERR_MUST;
/* Returns whether the head may be sent. Sets *ret_failure if the answer is an error instead. */
bool follow_head_due(follow *f, relay_io *io, const exec_state *st, err **ret_failure);
enum relay_next follow_finish(const relay_io *io);

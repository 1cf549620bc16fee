/* Answers made of an exec's streams as they come: what every door has in common.
 *
 * One job per connection, driven by the relay; the exec's watch wakes it. Everything is read by
 * offset from the spool, so a job holds no bytes of its own but what the peer has not taken yet.
 * How bytes, gaps and ends look is the form's: pure functions that append to a buffer. */
#pragma once

#include "door/shared/stream.h"
#include "engine/engine.h"
#include "net/http.h"

typedef struct follow follow;

typedef struct follow_form {
    /* The whole answer is the form's own; what follows is not used then, but for hold. */
    enum relay_next (*step)(follow *f, relay_io *io, const exec_state *st);
    /* It never ran, and that is the answer. */
    void (*refuse)(follow *f, relay_io *io, const exec_state *st, const err *why);
    void (*head)(follow *f, relay_io *io, const exec_state *st);
    /* n bytes that began at the offset; f->at[stream] is behind them. NULL: they go into the body
     * as they are. */
    void (*bytes)(follow *f, buf *body, int stream, uint64_t offset, const char *p, size_t n);
    /* What was from there to f->at[stream] is lost. False: that was the last that is said; the next
     * stream goes on behind it. NULL: it cannot be said, and the connection is closed before it. */
    bool (*gap)(follow *f, buf *body, int stream, uint64_t from);
    void (*ping)(follow *f, buf *body);                      /* or NULL */
    void (*end)(follow *f, buf *body, const exec_state *st); /* or NULL */
    /* It ends without its end: why. NULL: the connection is closed without a last chunk. */
    void (*broken)(follow *f, buf *body, const err *why);
    void (*free)(void *arg); /* of o.arg; or NULL */
    uint64_t partial_ns;     /* how long an unfinished character waits for the rest of it */
    bool hold;               /* the streams it sends are held back until it has them */
    bool text;               /* characters are not cut in two, if that can be */
} follow_form;

enum follow_until {
    UNTIL_END,
    UNTIL_EOF,
    UNTIL_NOW
};
typedef struct follow_options {
    const follow_form *form;
    void *arg; /* the form's */
    enum follow_until until;
    unsigned streams;     /* bit 1: out, bit 2: err */
    uint64_t from[3];     /* by stream */
    bool resume;          /* begin where the peer of the last such stream is known to be, instead */
    bool replay;          /* say so in the head */
    bool is_exec;         /* a command that never started is an error, not an answer */
    uint64_t ping_ns;     /* without a byte; 0: FOLLOW_PING_NS */
    uint64_t deadline_ns; /* monotonic: broken with ERR_TIMEOUT then; 0: none */
    session *session;     /* a command of it instead of an exec: */
    uint64_t seq;
    uint64_t wait_ns; /* of a form that answers once: then at the latest; 0: no such time, or: */
    bool look;        /* at once */
    /* The command has still to begin; ERR_* as session_run. Taken over. */
    void *turn;
    err *(*turn_try)(void *turn, uint64_t *ret_seq, bool *ret_replay);
    void (*turn_free)(void *turn);
} follow_options;

#define FOLLOW_PING_NS (15 * UINT64_C(1000000000))

struct follow {
    exec *x;    /* or: */
    session *s; /* whose command o.seq is followed */
    sandbox *sb;
    follow_options o;
    exec_watch watch;
    relay_job *job;
    exec_hold *hold[3]; /* of the streams it sends as they come */
    char *request_id;
    char *cause; /* of the sandbox, for an unknown end; read once */
    uint64_t at[3];
    uint64_t now[3]; /* lengths when it began: where UNTIL_NOW stops */
    uint64_t last_sent;
    uint64_t began;           /* the first step */
    uint64_t forked;          /* when we heard that it was; 0: not yet */
    uint64_t probe_at;        /* not before is it asked for again */
    uint64_t partial[3];      /* since when an unfinished character waits; 0: none does */
    struct follow_acks *acks; /* with o.resume */
    bool head_sent;
    bool uses; /* it keeps the sandbox from being idle */
};             /* thousands wait: no bytes in it */

/* Hands the connection to the relay. Takes references of its own; x is NULL for a session's. */
void follow_start(request *rq, response *rs, sandbox *sb, exec *x, const follow_options *o);

/* ---- for forms ---- */
/* A command of a session looks like an exec: what follows them is the same. */
void follow_look(follow *f, exec_state *ret);
err *follow_read(const follow *f, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                 uint64_t *ret_gap_to) ERR_MUST;
/* Of the sandbox, as JSON, or NULL. */
const char *follow_cause(follow *f);
/* f->at was set ahead, over what cannot be had any more: the next stream begins there. */
void follow_skipped(follow *f);
/* Why a command never ran, with the command; NULL for any other end. */
err *follow_start_error(const exec_state *st) ERR_MUST;
/* May the head go out? Sets *ret_failure when the answer is an error instead. */
bool follow_head_due(follow *f, relay_io *io, const exec_state *st, err **ret_failure);
enum relay_next follow_finish(const relay_io *io);

/* Does with a box what src/exec does: takes output by offset, asks again after a cut, sends stdin
 * from where init is. On top of link_seen.h. */
#pragma once

#include "link_seen.h"

#define KEEPER_EXECS SEEN_EXECS
#define KEEPER_PIECE 40000u

typedef struct keeper {
    seen s; /* first: SEEN_BOX's functions take the keeper for it */
    pthread_mutex_t lock;
    box *b;
    struct {
        const char *bytes; /* its whole stdin */
        size_t n;
        bool more;  /* will come: this is not its end */
        bool known; /* init's word about it came in this connection */
        uint64_t sent;
        bool eof_sent;
    } in[KEEPER_EXECS];
} keeper;

static inline void keeper_init(keeper *k)
{
    memset(k, 0, sizeof *k);
    seen_init(&k->s);
    pthread_mutex_init(&k->lock, NULL);
}

static inline void keeper_done(keeper *k)
{
    seen_done(&k->s);
    pthread_mutex_destroy(&k->lock);
}

/* lock held */
static inline bool keeper_piece(keeper *k, uint64_t id)
{
    uint64_t at = k->in[id].sent;
    size_t n = k->in[id].n - at < KEEPER_PIECE ? k->in[id].n - at : KEEPER_PIECE;
    err *e = link_stdin_write(k->b, id, at, k->in[id].bytes + at, n, false);

    while (e && e->errnum == EAGAIN && n > 512) {
        err_free(e);
        n = n / 4 > 512 ? n / 4 : 512;
        e = link_stdin_write(k->b, id, at, k->in[id].bytes + at, n, false);
    }
    if (!e)
        k->in[id].sent += n;
    err_free(e);
    return !e;
}

static inline void keeper_feed(keeper *k, uint64_t id)
{
    LOCK_SCOPE(&k->lock);
    if (!k->b || !k->in[id].known)
        return;
    while (k->in[id].sent < k->in[id].n && keeper_piece(k, id))
        continue;
    if (k->in[id].sent == k->in[id].n && !k->in[id].more && !k->in[id].eof_sent) {
        err *e = link_stdin_write(k->b, id, k->in[id].n, NULL, 0, true);
        k->in[id].eof_sent = !e;
        err_free(e);
    }
}

static inline void keeper_taken(void *arg, uint64_t id, uint64_t offset)
{
    keeper *k = arg;

    seen_taken(&k->s, id, offset);
    if (id >= KEEPER_EXECS || offset == UINT64_MAX)
        return;
    {
        LOCK_SCOPE(&k->lock);
        if (!k->in[id].known) {
            k->in[id].sent = offset;
            k->in[id].eof_sent = false;
        }
        k->in[id].known = true;
    }
    keeper_feed(k, id);
}

static inline void keeper_attached(void *arg, const struct sp_hello *h, const struct sp_rec *recs)
{
    keeper *k = arg;

    for (uint32_t i = 0; i < h->nrec && recs[i].id < KEEPER_EXECS; i++) {
        uint64_t id = recs[i].id, have[2];
        {
            LOCK_SCOPE(&k->lock);
            k->in[id].known = false;
        }
        {
            LOCK_SCOPE(&k->s.lock);
            have[0] = k->s.x[id].out[0].len;
            have[1] = k->s.x[id].out[1].len;
        }
        link_received(k->b, id, 1, have[0]);
        link_received(k->b, id, 2, have[1]);
        err_free(link_fetch(k->b, id));
    }
    seen_attached(&k->s, h, recs);
}

static inline void keeper_claimed(void *arg, err *failure, box *made, const box_timing *timing)
{
    keeper *k = arg;

    {
        LOCK_SCOPE(&k->lock);
        k->b = made;
    }
    seen_claimed(&k->s, failure, made, timing);
}

static inline void keeper_frame(void *arg, uint64_t id, int stream, uint64_t offset, const void *p,
                                size_t n)
{
    keeper *k = arg;

    seen_frame_of(&k->s, k->b, id, stream, offset, p, n);
}

static const box_events KEEPER_BOX = {.attached = keeper_attached,
                                      .started = seen_started,
                                      .frame = keeper_frame,
                                      .exited = seen_exited,
                                      .stdin_taken = keeper_taken,
                                      .signalled = seen_signalled,
                                      .distrusted = seen_distrusted,
                                      .newer = seen_newer,
                                      .gone = seen_gone};

/* A receiver of everything a link tells, for tests. */
#pragma once

#include <pthread.h>
#include <string.h>

#include "backend/link.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"

#define SEEN_EXECS 64

typedef struct seen {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned ready, lost, ended; /* warm */
    unsigned done;               /* a claim */
    err *failure;
    box *made;
    box_timing timing;
    unsigned attached, gone, distrusted, newer, exits, signals; /* a box */
    bool done_first;                                            /* `attached` came after `done` */
    struct sp_hello hello;
    struct sp_rec recs[8];
    char why[256];
    struct {
        unsigned starts, exits;
        int errnum, signal_errnum;
        uint64_t cookie, taken;
        unsigned takens;
        buf out[2];
        bool eof[2];
        struct sp_rec rec;
    } x[SEEN_EXECS];
} seen;

#define SEEN_CHANGE(s)      \
    LOCK_SCOPE(&(s)->lock); \
    pthread_cond_broadcast(&(s)->cond)

static inline void seen_init(seen *s)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->cond);
}

static inline void seen_done(seen *s)
{
    err_free(s->failure);
    for (int i = 0; i < SEEN_EXECS; i++)
        for (int k = 0; k < 2; k++)
            buf_done(&s->x[i].out[k]);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->cond);
}

/* Waits until the expression holds, with s->lock held; false after 10 s. */
#define SEEN_WAIT(s, expression)                             \
    ({                                                       \
        uint64_t until_ = now_mono_ns() + 10 * NS_PER_S;     \
        LOCK_SCOPE(&(s)->lock);                              \
        while (!(expression) && now_mono_ns() < until_)      \
            cond_wait_until(&(s)->cond, &(s)->lock, until_); \
        (expression);                                        \
    })

static inline void seen_ready(void *arg, link_warm *w)
{
    seen *s = arg;

    (void)w;
    SEEN_CHANGE(s);
    s->ready++;
}

static inline void seen_lost(void *arg, link_warm *w)
{
    seen *s = arg;

    (void)w;
    SEEN_CHANGE(s);
    s->lost++;
}

static inline void seen_ended(void *arg, link_warm *w, const char *why)
{
    seen *s = arg;

    (void)w;
    SEEN_CHANGE(s);
    s->ended++;
    str_copy(s->why, sizeof s->why, why);
}

static const link_warm_events SEEN_WARM = {seen_ready, seen_lost, seen_ended};

static inline void seen_claimed(void *arg, err *failure, box *made, const box_timing *timing)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->done++;
    err_free(s->failure);
    s->failure = failure;
    s->made = made;
    s->done_first = !s->attached;
    if (timing)
        s->timing = *timing;
}

static inline void seen_attached(void *arg, const struct sp_hello *h, const struct sp_rec *recs)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->attached++;
    s->hello = *h;
    memcpy(s->recs, recs, (h->nrec < 8 ? h->nrec : 8) * sizeof *recs);
}

static inline void seen_started(void *arg, uint64_t id, int errnum, const struct sp_started *st,
                                int fd[SP_FDS_MAX])
{
    seen *s = arg;

    (void)st;
    (void)fd;
    SEEN_CHANGE(s);
    s->x[id % SEEN_EXECS].starts++;
    s->x[id % SEEN_EXECS].errnum = errnum;
}

static inline void seen_frame_of(seen *s, box *b, uint64_t id, int stream, uint64_t offset,
                                 const void *p, size_t n)
{
    size_t have;

    {
        SEEN_CHANGE(s);
        buf *out = &s->x[id % SEEN_EXECS].out[stream - 1];
        if (!n)
            s->x[id % SEEN_EXECS].eof[stream - 1] = true;
        if (offset > out->len) { /* no gap, ever: seen as too many bytes */
            buf_str(out, "GAP");
            return;
        }
        if (offset + n > out->len)
            buf_append(out, (const char *)p + (out->len - offset), offset + n - out->len);
        have = out->len;
    }
    if (b)
        link_received(b, id, stream, have);
}

static inline void seen_frame(void *arg, uint64_t id, int stream, uint64_t offset, const void *p,
                              size_t n)
{
    seen *s = arg;

    seen_frame_of(s, s->made, id, stream, offset, p, n);
}

static inline void seen_exited(void *arg, const struct sp_rec *rec)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->exits++;
    s->x[rec->id % SEEN_EXECS].exits++;
    s->x[rec->id % SEEN_EXECS].rec = *rec;
}

static inline void seen_taken(void *arg, uint64_t id, uint64_t offset)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->x[id % SEEN_EXECS].taken = offset;
    s->x[id % SEEN_EXECS].takens++;
}

static inline void seen_signalled(void *arg, uint64_t id, uint64_t cookie, int errnum)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->signals++;
    s->x[id % SEEN_EXECS].cookie = cookie;
    s->x[id % SEEN_EXECS].signal_errnum = errnum;
}

static inline void seen_distrusted(void *arg)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->distrusted++;
}

static inline void seen_newer(void *arg)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->newer++;
}

static inline void seen_gone(void *arg, const char *why)
{
    seen *s = arg;

    SEEN_CHANGE(s);
    s->gone++;
    str_copy(s->why, sizeof s->why, why);
}

static const box_events SEEN_BOX = {.attached = seen_attached,
                                    .started = seen_started,
                                    .frame = seen_frame,
                                    .exited = seen_exited,
                                    .stdin_taken = seen_taken,
                                    .signalled = seen_signalled,
                                    .distrusted = seen_distrusted,
                                    .newer = seen_newer,
                                    .gone = seen_gone};

/* Runs bytes through guard, parser and body the way a server does, in pieces of a given size, and
 * writes down what it understood: "GET /a [body];" for each request, then "open" or "bad: why". */
#pragma once

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "wire/http1.h"

typedef struct http1_drive {
    http1_guard guard;
    http1_request rq;
    buf head; /* owns the strings of rq */
    buf said;
    bool in_body;
    bool bad;
} http1_drive;

static inline void drive_fail(http1_drive *d, err *e)
{
    buf_printf(&d->said, "bad: %s", str_or(e->cause, e->message));
    err_free(e);
    d->bad = true;
}

static inline void drive_begin(http1_drive *d)
{
    err *e = http1_parse(d->head.p, d->head.len, &d->rq);

    if (e) {
        drive_fail(d, e);
        return;
    }
    buf_printf(&d->said, "%s %s [", d->rq.method, d->rq.target);
    d->in_body = true;
}

static inline size_t drive_head(http1_drive *d, const char *p, size_t n)
{
    size_t used = 0;
    enum http1_result r = http1_guard_feed(&d->guard, p, n, &used);

    buf_append(&d->head, p, used);
    if (r == HTTP1_BAD)
        drive_fail(d, http1_guard_err(&d->guard));
    else if (r == HTTP1_DONE)
        drive_begin(d);
    return used;
}

static inline size_t drive_body(http1_drive *d, const char *p, size_t n)
{
    size_t used = 0, got = 0;
    CLEANUP(freep) char *out = xmalloc(n + 1);
    err *e = http1_body(&d->rq.body, p, n, out, &used, &got);

    if (e) {
        drive_fail(d, e);
        return n;
    }
    /* Readable, and never mistaken for a verdict. */
    for (size_t i = 0; i < got; i++)
        buf_char(&d->said, out[i] == 0 || out[i] == ':' ? '?' : out[i]);
    return used;
}

static inline void drive_end(http1_drive *d)
{
    buf_str(&d->said, "];");
    d->in_body = false;
    d->guard = (http1_guard){0};
    buf_clear(&d->head);
}

/* One piece, as it would come from a socket. */
static inline void drive_piece(http1_drive *d, const char *p, size_t n)
{
    while (!d->bad && (n || (d->in_body && http1_body_ended(&d->rq.body)))) {
        if (d->in_body && http1_body_ended(&d->rq.body)) {
            drive_end(d);
            continue;
        }
        size_t used = d->in_body ? drive_body(d, p, n) : drive_head(d, p, n);
        p += used;
        n -= used;
    }
}

/* Pieces of `step` bytes, or of random sizes from `seed` when step is 0. */
static inline char *drive_run(const char *p, size_t n, size_t step, unsigned seed)
{
    http1_drive *d = xcalloc(1, sizeof *d);

    for (size_t at = 0; at < n && !d->bad;) {
        seed = seed * 1103515245u + 12345u;
        size_t k = step ? step : 1 + (seed >> 16) % 23;
        if (k > n - at)
            k = n - at;
        /* A copy of exactly this size: the sanitizer sees a read past it. */
        CLEANUP(freep) char *piece = xmalloc(k);
        memcpy(piece, p + at, k);
        drive_piece(d, piece, k);
        at += k;
    }
    if (!d->bad)
        buf_str(&d->said, d->in_body || d->guard.seen ? "more" : "open");
    char *said = buf_take(&d->said);
    buf_done(&d->head);
    free(d);
    return said;
}

#include "cli/follow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "wire/sse.h"

#define PATIENCE_S   60
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 2000
#define STEADY_NS    (5 * NS_PER_S) /* a daemon that was heard for so long was there */

/* One connection of a follow. */
typedef struct attempt {
    follow *f;
    uint64_t begun, heard; /* monotonic: of the last event */
    sse_decoder decoder;
    err *fatal;    /* an error that a retry cannot fix */
    bool progress; /* new bytes came */
    bool cut;      /* the stream is inconsistent: reconnect */
} attempt;

uint64_t follow_patience_ns(void)
{
    const char *text = cli_setting("BOTHY_PATIENCE");
    uint64_t seconds = PATIENCE_S;

    if (text)
        str_to_u64(text, 86400, &seconds);
    return seconds * NS_PER_S;
}

void follow_pause_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&t, NULL);
}

void follow_tell_waiting(uint64_t lost, uint64_t deadline, bool *told)
{
    uint64_t now = now_mono_ns();

    if (*told || now < lost + NS_PER_S || now >= deadline)
        return;
    fprintf(stderr, "bothy: the daemon does not answer, waiting up to %llu s\n",
            (unsigned long long)((deadline - now) / NS_PER_S + 1));
    *told = true;
}

void follow_done(follow *f)
{
    for (size_t i = 0; i < ARRAY_LEN(f->sink); i++)
        buf_done(&f->sink[i].kept);
    json_decref(f->end);
    f->end = NULL;
}

static err *sink_write(follow_sink *s, const char *p, size_t n)
{
    s->offset += n;
    if (s->fd >= 0) {
        int rc = fs_write_all(s->fd, p, n);
        return rc ? out_failed(-rc, "the command's output") : NULL;
    }
    size_t room = s->keep_max > s->kept.len ? s->keep_max - s->kept.len : 0;
    buf_append(&s->kept, p, n < room ? n : room);
    return NULL;
}

/* Takes bytes of a stream at an offset; drops those that were written already. */
static void take_bytes(attempt *a, follow_sink *s, uint64_t offset, const char *p, size_t n)
{
    if (offset > s->offset) { /* a hole that was not reported: ask again from our offset */
        a->cut = true;
        return;
    }
    uint64_t had = s->offset - offset;
    if (had >= n)
        return;
    a->progress = true;
    a->fatal = sink_write(s, p + had, n - (size_t)had);
}

static void take_output(attempt *a, follow_sink *s, const json_t *data)
{
    uint64_t offset = (uint64_t)json_int(data, "offset", -1);
    const json_t *text = json_object_get(data, "text");
    const char *b64 = json_str(data, "b64");
    CLEANUP(freep) void *bytes = NULL;
    size_t n = 0;

    if (json_is_string(text))
        take_bytes(a, s, offset, json_string_value(text), json_string_length(text));
    else if (b64 && base64_decode(b64, strlen(b64), &bytes, &n))
        take_bytes(a, s, offset, bytes, n);
    else
        a->cut = true;
}

static void take_gap(attempt *a, const json_t *data)
{
    bool is_err = str_eq(json_str(data, "stream"), "err");
    follow_sink *s = &a->f->sink[is_err];
    int64_t from = json_int(data, "from", 0), to = json_int(data, "to", 0);

    if ((uint64_t)from > s->offset) {
        a->cut = true;
        return;
    }
    if (to < 0 || (uint64_t)to <= s->offset)
        return;
    s->dropped += (uint64_t)to - s->offset;
    if (s->fd >= 0)
        fprintf(stderr, "bothy: %llu bytes of %s are not kept any more and left out here\n",
                (unsigned long long)((uint64_t)to - s->offset), is_err ? "err" : "out");
    s->offset = (uint64_t)to;
    a->progress = true;
}

/* Takes the end record. If the caller wants every byte, an end before its bytes is a lost
 * connection. */
static void take_end(attempt *a, json_t *data)
{
    follow *f = a->f;
    uint64_t out = (uint64_t)json_int(data, "out_bytes", 0);
    uint64_t errs = (uint64_t)json_int(data, "err_bytes", 0);

    if (f->exact && (f->sink[0].offset < out || f->sink[1].offset < errs))
        a->cut = true;
    else
        f->end = json_incref(data);
}

static bool on_event(void *arg, const sse_event *ev)
{
    attempt *a = arg;
    CLEANUP(json_decrefp) json_t *data = NULL;
    CLEANUP(err_freep) err *bad = json_parse(ev->data, ev->len, &data);

    a->heard = now_mono_ns();
    if (bad)
        a->cut = !str_eq(ev->event, "ping");
    else if (str_eq(ev->event, "out"))
        take_output(a, &a->f->sink[0], data);
    else if (str_eq(ev->event, "err"))
        take_output(a, &a->f->sink[1], data);
    else if (str_eq(ev->event, "gap"))
        take_gap(a, data);
    else if (str_eq(ev->event, "end"))
        take_end(a, data);
    else if (str_eq(ev->event, "error"))
        a->fatal = json_to_err(data);
    return !a->cut && !a->fatal && !a->f->end;
}

static bool on_bytes(void *arg, const void *p, size_t n)
{
    attempt *a = arg;
    CLEANUP(err_freep) err *e = sse_feed(&a->decoder, p, n, on_event, a);

    if (e)
        a->cut = true;
    return !a->cut && !a->fatal && !a->f->end;
}

/* Returns true for errors after which the daemon may come back with the stream. */
static bool may_come_back(const err *e)
{
    return e->code == ERR_UNAVAILABLE || e->code == ERR_DRAINING || e->code == ERR_TIMEOUT;
}

/* Makes one connection. Returns NULL when the stream is over, for whatever reason. */
static err *connect_once(attempt *a)
{
    follow *f = a->f;
    CLEANUP(freep)
    char *exec = f->at ? NULL : str_printf("/v1/sandboxes/%s/processes/%s", f->sandbox, f->exec);
    CLEANUP(freep)
    char *path = str_printf("%s/output?stream=both&follow=%s", f->at ? f->at : exec, f->until);
    CLEANUP(freep)
    char *last = str_printf("%llu.%llu", (unsigned long long)f->sink[0].offset,
                            (unsigned long long)f->sink[1].offset);
    client_call call = {.method = "GET",
                        .path = path,
                        .accept = "text/event-stream",
                        .last_event_id = last,
                        .on_bytes = on_bytes,
                        .arg = a};
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(err_freep) err *e = client_do(f->client, &call, &answer);

    sse_decoder_done(&a->decoder);
    if (a->fatal)
        return TAKE_PTR(a->fatal);
    return e && !f->end && !may_come_back(e) ? TAKE_PTR(e) : NULL;
}

static err *unknown_end(const follow *f)
{
    err *e = err_new(ERR_UNAVAILABLE, "how the command ended is not known");

    e = err_because(e, "the daemon cut the output before its end and did not come back in time");
    if (f->at)
        return err_remedy(e, "Do not take it for a success. When the daemon is back: GET %s",
                          f->at);
    return err_remedy(e,
                      "Do not take it for a success. When the daemon is back: "
                      "bothy logs -f %s %s",
                      f->sandbox, f->exec);
}

/* Returns true if nothing may be written for people. */
static bool is_silent(const follow *f)
{
    return f->sink[0].fd < 0 && f->sink[1].fd < 0;
}

err *follow_run(follow *f)
{
    uint64_t patience = follow_patience_ns(), lost = now_mono_ns(), deadline = lost + patience;
    unsigned pause = PAUSE_MIN_MS;
    bool told = is_silent(f);

    for (;;) {
        attempt a = {.f = f, .begun = now_mono_ns()};
        TRY(connect_once(&a));
        if (f->end || (str_eq(f->until, "no") && !a.cut))
            return NULL;
        if (a.heard)
            lost = now_mono_ns();
        if (a.progress || a.heard >= a.begun + STEADY_NS) { /* the command may have been silent */
            deadline = lost + patience;
            pause = PAUSE_MIN_MS;
            told = is_silent(f);
        }
        if (now_mono_ns() >= deadline)
            return unknown_end(f);
        follow_tell_waiting(lost, deadline, &told);
        follow_pause_ms(pause);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
}

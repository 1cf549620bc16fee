/* What a server inside a sandbox answers, on its way to the caller: head, interim answers, body.
 * The first byte chooses the form and the cuts. Whatever comes: what is passed on is one head that
 * can be read in one way only, and does not depend on how the bytes were cut. */
#include <strings.h>

#include "base/cleanup.h"
#include "wire/gateway.h"

#include "fuzz.h"

#define PREFIX "/v1/sandboxes/x/ports/80"

typedef struct outcome {
    buf out;
    bool bad;
} outcome;

/* What Connection lists goes as well; an unlisted header of any other name may stay. */
static const char *const NEVER[] = {"set-cookie", "refresh",   "keep-alive",     "te",
                                    "trailer",    "proxy-any", "clear-site-data"};

static bool named(const http1_answer *a, const char *name)
{
    return http1_header_get(a, name) != NULL;
}

/* The head that was written must be one for anybody who reads it as strictly as we do. */
static void check_head(const buf *out, bool path_form, bool to_head)
{
    CLEANUP(freep) char *text = xmalloc(out->len + 1);
    CLEANUP(freep) http1_answer *a = xcalloc(1, sizeof *a);
    http1_guard guard = {.answer = true};
    size_t used = 0;

    memcpy(text, out->p, out->len);
    MUST(http1_guard_feed(&guard, text, out->len, &used) == HTTP1_DONE && used == out->len);
    err *e = http1_parse_answer(text, out->len, to_head, a);
    MUST(!e);
    for (size_t i = 0; path_form && i < ARRAY_LEN(NEVER); i++)
        MUST(!named(a, NEVER[i]));
    if (!path_form)
        return;
    MUST(named(a, "content-security-policy"));
    const char *to = http1_header_get(a, "location");
    CLEANUP(freep) char *path = to ? xstrndup(to, strcspn(to, "?#")) : NULL;
    MUST(!path || (str_starts(path, PREFIX "/") && !strstr(path, "/../") &&
                   !str_ends(path, "/..") && !strchr(path, '\\')));
}

static enum gateway_framing framing_of(const http1_answer *a, bool to_head)
{
    if (a->status == 101)
        return GATEWAY_SWITCHED;
    if (to_head || a->status == 204 || a->status == 304)
        return GATEWAY_NO_BODY;
    return a->body.chunked || a->body.to_end ? GATEWAY_CHUNKED : GATEWAY_LENGTH;
}

static void take_body(outcome *o, http1_framing *f, const char *p, size_t n, size_t step)
{
    for (size_t at = 0; at < n && !http1_body_ended(f);) {
        size_t k = n - at < step ? n - at : step, used = 0, got = 0;
        CLEANUP(freep) char *in = xmalloc(k);
        CLEANUP(freep) char *out = xmalloc(k);
        memcpy(in, p + at, k);
        err *e = http1_body(f, in, k, out, &used, &got);
        if (e) {
            MUST(e->code == ERR_PORT_CLOSED);
            err_free(e);
            o->bad = true;
            return;
        }
        MUST(got <= k && used <= k && (used || got || !k));
        buf_append(&o->out, out, got);
        at += used;
    }
}

static void run(outcome *o, const char *p, size_t n, size_t step, bool path_form, bool to_head)
{
    const gateway_rules rules = {.prefix = path_form ? PREFIX : NULL,
                                 .target = "/a/b?c",
                                 .host = "localhost:80",
                                 .id = "id",
                                 .upgrade = "websocket"};
    http1_guard guard = {.answer = true};
    enum http1_result r = HTTP1_MORE;
    CLEANUP(buf_done) buf head = {0};
    CLEANUP(freep) http1_answer *a = xcalloc(1, sizeof *a);
    size_t at = 0, used = 0;

    while (at < n && r == HTTP1_MORE) {
        r = http1_guard_feed(&guard, p + at, n - at < step ? n - at : step, &used);
        buf_append(&head, p + at, used);
        at += used;
    }
    err *e = r == HTTP1_BAD    ? http1_guard_err(&guard)
             : r == HTTP1_DONE ? http1_parse_answer(head.p, head.len, to_head, a)
                               : NULL;
    MUST(!e || e->code == ERR_PORT_CLOSED);
    o->bad = e != NULL;
    err_free(e);
    if (o->bad || r != HTTP1_DONE)
        return;
    gateway_write_answer(&o->out, a, &rules, "outer:7070", framing_of(a, to_head), true);
    /* With ours it may be more than we would take; others take more. */
    if (a->status >= 200 && a->nheader + 8 < HTTP1_HEADERS_MAX && o->out.len < HTTP1_HEAD_MAX)
        check_head(&o->out, path_form, to_head);
    http1_framing body;
    http1_framing_move(&a->body, &body);
    take_body(o, &body, p + at, n - at, step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    outcome whole = {0}, pieces = {0};

    if (size < 2)
        return 0;
    const char *in = (const char *)data + 1;
    run(&whole, in, size - 1, size, data[0] & 1, data[0] & 2);
    run(&pieces, in, size - 1, 1 + (data[0] >> 2) % 17, data[0] & 1, data[0] & 2);
    MUST(whole.bad == pieces.bad);
    /* A bad body may be noticed before or after some of its bytes were passed on. */
    MUST(whole.bad || (whole.out.len == pieces.out.len &&
                       !memcmp(whole.out.p ? whole.out.p : "", pieces.out.p ? pieces.out.p : "",
                               whole.out.len)));
    buf_done(&whole.out);
    buf_done(&pieces.out);
    return 0;
}

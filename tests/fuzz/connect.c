/* Envelopes: the same messages however the stream is cut; a body that is one envelope is read as
 * the stream is; what is put is read as the same. */
#include "wire/connect.h"

#include "base/cleanup.h"

#include "fuzz.h"

typedef struct seen {
    buf text;
    size_t count;
} seen;

static err *collect(void *arg, const char *p, size_t n)
{
    seen *s = arg;

    MUST(n <= CONNECT_MESSAGE_MAX);
    connect_message(&s->text, p, n);
    s->count++;
    return NULL;
}

/* True: it was read to its end. */
static bool run(const void *p, size_t n, size_t step, seen *s)
{
    connect_decoder d = {0};
    err *e = NULL;

    for (size_t at = 0; at < n && !e; at += step)
        e = connect_feed(&d, (const char *)p + at, step < n - at ? step : n - at, collect, s);
    if (!e)
        e = connect_finish(&d);
    connect_decoder_done(&d);
    MUST(!e || e->code == ERR_INVALID_REQUEST || e->code == ERR_TOO_LARGE);
    bool whole = !e;
    err_free(e);
    return whole;
}

static bool same(const buf *a, const buf *b)
{
    return a->len == b->len && (!a->len || !memcmp(a->p, b->p, a->len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    size_t step = 1 + fuzz_byte(&in) % 16, n = 0;
    CLEANUP(freep) char *bytes = fuzz_bytes(&in, in.n, &n);
    CLEANUP(freep) char *text = xstrndup(n ? bytes : "", n);
    seen whole = {0}, pieces = {0}, again = {0};
    const char *one = NULL;
    size_t length = 0;
    uint64_t ms = 0;

    bool read = run(bytes, n, n ? n : 1, &whole);
    MUST(run(bytes, n, step, &pieces) == read);
    MUST(same(&whole.text, &pieces.text));
    MUST(run(whole.text.p, whole.text.len, 7, &again) && same(&whole.text, &again.text));
    if (read) /* a whole stream is written as it was */
        MUST(whole.text.len == n && (!n || !memcmp(whole.text.p, bytes, n)));
    err *e = connect_single(bytes, n, &one, &length);
    MUST(!e == (read && whole.count == 1));
    MUST(e || (one == bytes + CONNECT_HEAD && length == n - CONNECT_HEAD));
    err_free(e);
    e = connect_timeout(text, &ms);
    MUST(e || ms <= 9999999999);
    err_free(e);
    buf_clear(&again.text);
    connect_end(&again.text, "internal", text);
    MUST(utf8_valid(again.text.p + CONNECT_HEAD, again.text.len - CONNECT_HEAD));
    buf_done(&whole.text);
    buf_done(&pieces.text);
    buf_done(&again.text);
    return 0;
}

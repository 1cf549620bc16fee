#include <string.h>

#include "base/str.h"
#include "wire/sse.h"

#include "unit.h"

typedef struct collected {
    buf text;
    int limit; /* stop after so many events; 0: never */
    int n;
} collected;

static bool collect(void *arg, const sse_event *e)
{
    collected *c = arg;

    buf_printf(&c->text, "(%s|%s|%.*s)", e->event, e->id, (int)e->len, e->data);
    return ++c->n != c->limit;
}

static void decode(const char *in, size_t n, size_t step, int limit, const char *want)
{
    CLEANUP(sse_decoder_done) sse_decoder d = {0};
    collected c = {.limit = limit};

    for (size_t at = 0; at < n; at += step)
        assert_ok(sse_feed(&d, in + at, step < n - at ? step : n - at, collect, &c));
    assert_string_equal(buf_cstr(&c.text), want);
    buf_done(&c.text);
}

static void streams_are_decoded_in_any_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } CASES[] = {
        {"data: a\n\n", "(message||a)"},
        {"event: out\nid: 5.0\ndata: {\"x\":1}\n\n", "(out|5.0|{\"x\":1})"},
        {"data: a\ndata: b\r\ndata:c\rdata\n\r\n", "(message||a\nb\nc\n)"},
        {"data:  two\n\n:comment\n\ndata: x\n\n", "(message|| two)(message||x)"},
        {"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", "(message|7|a)(message|7|b)(message||c)"},
        {"event: ping\n\ndata: a\n\n", "(message||a)"}, /* without data it is no event */
        {"\xef\xbb\xbf"
         "data: bom\n\n",
         "(message||bom)"},
        {"data: cut off\n", ""},
        {"retry: 5\nunknown: x\ndata: a\r\r", "(message||a)"},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++)
        for (size_t step = 1; step < 9; step++)
            decode(CASES[i].in, strlen(CASES[i].in), step, 0, CASES[i].want);
}

static void a_callback_can_stop(void **state)
{
    (void)state;
    const char in[] = "data: a\n\ndata: b\n\ndata: c\n\n";

    decode(in, sizeof in - 1, 100, 2, "(message||a)(message||b)");
    decode(in, sizeof in - 1, 1, 2, "(message||a)(message||b)");
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf b = {0};

    sse_write(&b, "out", "1.2", "line 1\nline 2\r\nline 3\r\r", 23);
    sse_write_comment(&b, "ping\nevent: evil");
    sse_write(&b, "evil\ndata: x", NULL, "", 0);
    sse_write(&b, NULL, NULL, NULL, 0);
    decode(b.p, b.len, 3, 0, "(out|1.2|line 1\nline 2\nline 3\n\n)(evil|1.2|)(message|1.2|)");
}

static void events_have_a_ceiling(void **state)
{
    (void)state;
    CLEANUP(sse_decoder_done) sse_decoder d = {0};
    CLEANUP(freep) char *big = xmalloc(SSE_EVENT_MAX);
    collected c = {0};

    memset(big, 'x', SSE_EVENT_MAX);
    assert_ok(sse_feed(&d, big, SSE_EVENT_MAX, collect, &c));
    assert_err(sse_feed(&d, "x", 1, collect, &c), ERR_TOO_LARGE);
    d.line.len = 0;
    err *e = NULL;
    memcpy(big, "data: ", 6);
    for (int i = 0; i < 5 && !e; i++) {
        e = sse_feed(&d, big, SSE_EVENT_MAX / 4, collect, &c);
        if (!e)
            e = sse_feed(&d, "\n", 1, collect, &c);
    }
    assert_err(e, ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_decoded_in_any_pieces),
        cmocka_unit_test(a_callback_can_stop),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(events_have_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "wire/ws.h"

#include "unit.h"

typedef struct end {
    ws *w;
    buf out;
    buf got; /* messages, "(b:…)" or "(t:…)" */
} end;

static void collect(void *arg, bool text, const void *p, size_t n)
{
    end *e = arg;

    buf_printf(&e->got, "(%c:", text ? 't' : 'b');
    buf_append(&e->got, p, n);
    buf_char(&e->got, ')');
}

static void masks(void *p, size_t n)
{
    memset(p, 0x5a, n);
}

static void end_init(end *e, bool client)
{
    *e = (end){0};
    e->w = ws_new(&(ws_options){
        .client = client, .message_max = 1000, .on_message = collect, .arg = e, .random = masks});
}

static void end_done(end *e)
{
    ws_free(e->w);
    buf_done(&e->out);
    buf_done(&e->got);
}

/* Everything a has to say goes to b. */
static void carry(end *a, end *b, size_t step)
{
    ws_flush(a->w, &a->out);
    for (size_t at = 0; at < a->out.len; at += step)
        ws_feed(b->w, a->out.p + at, step < a->out.len - at ? step : a->out.len - at);
    buf_clear(&a->out);
}

/* A frame as a client would mask it, with a zero mask. */
static void frame(buf *b, unsigned first, bool mask, size_t n, const char *p)
{
    unsigned char head[14] = {(unsigned char)first};
    size_t at = 2;

    head[1] = (unsigned char)(n < 126 ? n : 126);
    if (n >= 126) {
        head[2] = (unsigned char)(n >> 8);
        head[3] = (unsigned char)n;
        at = 4;
    }
    if (mask) {
        head[1] |= 0x80;
        at += 4;
    }
    buf_append(b, head, at);
    buf_append(b, p ? p : "x", p ? n : 1); /* NULL: only its first byte */
}

static unsigned close_code(const end *e)
{
    const unsigned char *p = (const unsigned char *)e->out.p;

    if (e->out.len == 2 && p[0] == 0x88)
        return WS_NO_CODE;
    if (e->out.len < 4 || p[0] != 0x88)
        return 0;
    return (unsigned)p[2] << 8 | p[3];
}

static void messages_go_both_ways_in_any_pieces(void **state)
{
    (void)state;
    for (size_t step = 1; step < 5; step++) {
        CLEANUP(end_done) end client, server;
        end_init(&client, true);
        end_init(&server, false);
        ws_put(client.w, &client.out, "\0", 1, "ls\n", 3);
        ws_put(client.w, &client.out, "\0", 1, NULL, 0);
        carry(&client, &server, step);
        assert_int_equal(server.got.len, 13);
        assert_memory_equal(server.got.p, "(b:\0ls\n)(b:\0)", 13);
        ws_put(server.w, &server.out, "\1", 1, "file", 4);
        carry(&server, &client, step);
        assert_string_equal(buf_cstr(&client.got), "(b:\1file)");
    }
}

static void fragments_become_one_message(void **state)
{
    (void)state;
    CLEANUP(end_done) end server;
    CLEANUP(buf_done) buf in = {0};

    end_init(&server, false);
    frame(&in, 0x02, true, 3, "one");
    frame(&in, 0x89, true, 2, "hi"); /* a ping may come in between */
    frame(&in, 0x00, true, 0, "");
    frame(&in, 0x80, true, 3, "two");
    ws_feed(server.w, in.p, in.len);
    assert_string_equal(buf_cstr(&server.got), "(b:onetwo)");
    ws_flush(server.w, &server.out);
    assert_int_equal(server.out.len, 4);
    assert_memory_equal(server.out.p, "\x8a\x02hi", 4);
}

static void a_mistake_gets_its_code(void **state)
{
    (void)state;
    static char big[1200];
    static const struct {
        unsigned first;
        bool mask;
        size_t n;
        const char *p;
        unsigned code;
    } CASES[] = {
        {0x82, false, 1, "x", WS_PROTOCOL_ERROR},       /* not masked */
        {0xc2, true, 1, "x", WS_PROTOCOL_ERROR},        /* an extension's bit */
        {0x83, true, 1, "x", WS_PROTOCOL_ERROR},        /* an opcode nobody knows */
        {0x80, true, 1, "x", WS_PROTOCOL_ERROR},        /* goes on with nothing */
        {0x09, true, 1, "x", WS_NO_CODE},               /* a ping in pieces; wslay names no code */
        {0x89, true, 126, big, WS_NO_CODE},             /* a ping that is too long */
        {0x88, true, 1, "x", WS_NO_CODE},               /* half a code: taken for none */
        {0x88, true, 2, "\x03\xed", WS_PROTOCOL_ERROR}, /* a code that is never sent: 1005 */
        {0x81, true, 2, "\xc3\x28", 1007},              /* text that is not UTF-8 */
        {0x82, true, 1001, big, WS_TOO_BIG},
        {0x82, true, 1001, NULL, WS_TOO_BIG}, /* known with its first byte */
    };

    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(end_done) end server;
        CLEANUP(buf_done) buf in = {0};
        end_init(&server, false);
        frame(&in, CASES[i].first, CASES[i].mask, CASES[i].n, CASES[i].p);
        ws_feed(server.w, in.p, in.len);
        ws_flush(server.w, &server.out);
        if (close_code(&server) != CASES[i].code)
            fail_msg("case %zu: code %u, not %u", i, close_code(&server), CASES[i].code);
        assert_int_equal(server.got.len, 0);
        assert_true(ws_is_closing(server.w));
        assert_true(ws_is_over(server.w));
    }
}

static void fragments_count_together(void **state)
{
    (void)state;
    static char big[600];
    CLEANUP(end_done) end server;
    CLEANUP(buf_done) buf in = {0};

    end_init(&server, false);
    frame(&in, 0x02, true, sizeof big, big);
    frame(&in, 0x80, true, sizeof big, big);
    ws_feed(server.w, in.p, in.len);
    ws_flush(server.w, &server.out);
    assert_int_equal(close_code(&server), WS_TOO_BIG);
    assert_int_equal(server.got.len, 0);
}

static void pings_without_reading_are_too_many(void **state)
{
    (void)state;
    CLEANUP(end_done) end server;
    CLEANUP(buf_done) buf in = {0};
    int n = 0;

    end_init(&server, false);
    frame(&in, 0x89, true, 0, "");
    for (; !ws_is_full(server.w) && n < 1000; n++)
        ws_feed(server.w, in.p, in.len);
    assert_true(n < 100);
    ws_flush(server.w, &server.out);
    assert_false(ws_is_full(server.w));
    assert_int_equal(server.out.len, 2 * n);
}

static void closing_takes_both(void **state)
{
    (void)state;
    CLEANUP(end_done) end client, server;

    end_init(&client, true);
    end_init(&server, false);
    ws_close(server.w, WS_NORMAL, "bye");
    assert_true(ws_is_closing(server.w));
    carry(&server, &client, 1);
    assert_false(ws_is_over(server.w)); /* it waits for the other's */
    assert_int_equal(ws_peer_code(client.w), WS_NORMAL);
    assert_false(ws_is_over(client.w)); /* its answer is not flushed */
    ws_put(client.w, &client.out, "x", 1, NULL, 0);
    carry(&client, &server, 1);
    assert_int_equal(server.got.len, 0);
    assert_true(ws_is_over(client.w));
    assert_true(ws_is_over(server.w));
    assert_int_equal(ws_peer_code(server.w), WS_NORMAL);
}

static void silence_is_noticed(void **state)
{
    (void)state;
    CLEANUP(end_done) end server;
    uint64_t now = NS_PER_S, wake = 0;

    end_init(&server, false);
    assert_true(ws_alive(server.w, now, false, &wake));
    assert_int_equal(wake, now + WS_PING_NS);
    ws_flush(server.w, &server.out);
    assert_int_equal(server.out.len, 0);
    now = wake;
    assert_true(ws_alive(server.w, now, false, &wake));
    ws_flush(server.w, &server.out);
    assert_int_equal(server.out.len, 2); /* a ping */
    ws_feed(server.w, "\x8a\x80\0\0\0\0", 6);
    now = wake;
    assert_true(ws_alive(server.w, now, false, &wake)); /* it answered */
    assert_int_equal(wake, now + WS_PING_NS);
    now += WS_DEAD_NS - 1;
    assert_true(ws_alive(server.w, now, false, &wake));
    assert_true(ws_alive(server.w, now + 1, true, &wake)); /* we were not listening */
    assert_false(ws_alive(server.w, now + 1 + WS_DEAD_NS, false, &wake));
}

/* The example of RFC 6455, section 1.3. */
static void the_server_accepts(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf lines = {0};
    ws_offer o = {"13", "dGhlIHNhbXBsZSBub25jZQ==", "chat,  bothy.v1"};

    assert_ok(ws_accept(&o, "bothy.v1", &lines));
    assert_string_equal(buf_cstr(&lines), "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                          "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
                                          "Sec-WebSocket-Protocol: bothy.v1\r\n");
    buf_clear(&lines);
    o.protocols = "bothy.v12";
    assert_ok(ws_accept(&o, "bothy.v1", &lines));
    assert_null(strstr(buf_cstr(&lines), "Protocol"));
    assert_err(ws_accept(&(ws_offer){"8", o.key, NULL}, "p", &lines), ERR_INVALID_REQUEST);
    assert_err(ws_accept(&(ws_offer){NULL, o.key, NULL}, "p", &lines), ERR_INVALID_REQUEST);
    assert_err(ws_accept(&(ws_offer){"13", NULL, NULL}, "p", &lines), ERR_INVALID_REQUEST);
    assert_err(ws_accept(&(ws_offer){"13", "c2hvcnQ=", NULL}, "p", &lines), ERR_INVALID_REQUEST);
    assert_err(ws_accept(&(ws_offer){"13", "dGhlIHNhbXBsZSBub25jZQ!!", NULL}, "p", &lines),
               ERR_INVALID_REQUEST);
}

static void the_client_checks_the_answer(void **state)
{
    (void)state;
    static const char KEY[] = "dGhlIHNhbXBsZSBub25jZQ==";
    char fresh[WS_KEY_LEN + 1];
    CLEANUP(buf_done) buf lines = {0};

    assert_true(ws_accepted(KEY, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_false(ws_accepted(KEY, "s3pPLMBiTxaQ9kYGzzhZRbK+xO0="));
    assert_false(ws_accepted(KEY, NULL));
    ws_key((const uint8_t *)"the sample nonce", fresh);
    assert_string_equal(fresh, KEY);
    ws_ask(&lines, fresh, "bothy.v1");
    assert_non_null(strstr(buf_cstr(&lines), "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_both_ways_in_any_pieces),
        cmocka_unit_test(fragments_become_one_message),
        cmocka_unit_test(a_mistake_gets_its_code),
        cmocka_unit_test(fragments_count_together),
        cmocka_unit_test(pings_without_reading_are_too_many),
        cmocka_unit_test(closing_takes_both),
        cmocka_unit_test(silence_is_noticed),
        cmocka_unit_test(the_server_accepts),
        cmocka_unit_test(the_client_checks_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

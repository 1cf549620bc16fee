#include "http1_drive.h"
#include "unit.h"

#define H    "Host: a\r\n"
#define TE   "Transfer-Encoding: chunked\r\n"
#define POST "POST /u HTTP/1.1\r\n" H

/* Every case is understood the same in one piece, byte by byte and in random pieces. */
static void expect_n(const char *name, const char *in, size_t n, const char *want)
{
    for (unsigned seed = 0; seed < 12; seed++) {
        CLEANUP(freep) char *said = drive_run(in, n, seed == 0 ? n : seed == 1 ? 1 : 0, seed);
        /* Part of a bad body may have been passed on before; an error's text is a prefix. */
        const char *bad = strstr(said, "bad: ");
        if (str_starts(want, "bad: ") ? !bad || !str_starts(bad, want) : strcmp(said, want) != 0) {
            print_error("%s, seed %u:\n  said %.200s\n  want %s\n", name, seed, said, want);
            fail();
        }
    }
}

typedef struct http1_case {
    const char *name;
    const char *in;
    size_t n;
    const char *want; /* "bad: " and the beginning of the reason, or all that is understood */
} http1_case;
#define CASE(name, in, want)           \
    {                                  \
        name, in, sizeof(in) - 1, want \
    }

static const http1_case GOOD[] = {
    CASE("plain", "GET /hello HTTP/1.1\r\n" H "\r\n", "GET /hello [];open"),
    CASE("query", "GET /a?b=c%20d&e HTTP/1.1\r\n" H "\r\n", "GET /a?b=c%20d&e [];open"),
    CASE("two at once", "GET /1 HTTP/1.1\r\n" H "\r\nGET /2 HTTP/1.1\r\n" H "\r\n",
         "GET /1 [];GET /2 [];open"),
    CASE("length", POST "Content-Length: 5\r\n\r\nhello", "POST /u [hello];open"),
    CASE("length, then the next", POST "Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n" H "\r\n",
         "POST /u [hello];GET / [];open"),
    CASE("length 0", POST "Content-Length: 0\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n",
         "POST /u [];GET / [];open"),
    CASE("body not complete", POST "Content-Length: 5\r\n\r\nhel", "POST /u [helmore"),
    CASE("chunked", POST TE "\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
         "POST /u [hello world];open"),
    CASE("chunked, then the next", POST TE "\r\n1\r\na\r\n0\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n",
         "POST /u [a];GET / [];open"),
    CASE("chunked, empty", POST TE "\r\n0\r\n\r\n", "POST /u [];open"),
    CASE("coding in capitals", POST "TRANSFER-encoding: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
         "POST /u [a];open"),
    CASE("one empty line before", "\r\nGET / HTTP/1.1\r\n" H "\r\n", "GET / [];open"),
    CASE("absolute form", "GET http://a/hello HTTP/1.1\r\n" H "\r\n", "GET /hello [];open"),
    CASE("absolute form, no path", "GET http://a HTTP/1.1\r\n" H "\r\n", "GET / [];open"),
    CASE("absolute form, query only", "GET http://a?x HTTP/1.1\r\n" H "\r\n", "GET /?x [];open"),
    CASE("asterisk", "OPTIONS * HTTP/1.1\r\n" H "\r\n", "OPTIONS * [];open"),
    CASE("1.0 without Host", "GET / HTTP/1.0\r\n\r\n", "GET / [];open"),
    CASE("empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / [];open"),
    CASE("upgrade", "GET /w HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
         "GET /w [];open"),
    CASE("upgrade with a body",
         POST TE "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n1\r\na\r\n0\r\n\r\n",
         "POST /u [a];open"),
    CASE("head not complete", "GET / HTTP/1.1\r\nHos", "more"),
};

static const http1_case BAD[] = {
    CASE("no Host", "GET /hello HTTP/1.1\r\n\r\n", "bad: no Host"),
    CASE("two Hosts", "GET / HTTP/1.1\r\n" H H "\r\n", "bad: more than one Host"),
    CASE("Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "bad: a Host header"),
    CASE("Host with a user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "bad: a Host header"),
    CASE("length and coding",
         POST "Content-Length: 5\r\n" TE "\r\n0\r\n\r\nGET /x HTTP/1.1\r\n" H "\r\n", "bad: "),
    CASE("coding and length",
         POST TE "Content-Length: 5\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n" H "\r\n", "bad: "),
    CASE("two lengths", POST "Content-Length: 5\r\nContent-Length: 3\r\n\r\nhello", "bad: "),
    CASE("the same length twice", POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
         "bad: "),
    CASE("length list", POST "Content-Length: 5, 5\r\n\r\nhello", "bad: "),
    CASE("length empty", POST "Content-Length: \r\n\r\nhello", "bad: "),
    CASE("length +5", POST "Content-Length: +5\r\n\r\nhello", "bad: "),
    CASE("length -1", POST "Content-Length: -1\r\n\r\n", "bad: "),
    CASE("length 0x5", POST "Content-Length: 0x5\r\n\r\nhello", "bad: "),
    CASE("length 2^70", POST "Content-Length: 1180591620717411303424\r\n\r\n", "bad: "),
    CASE("length 2^63", POST "Content-Length: 9223372036854775808\r\n\r\n", "bad: "),
    CASE("coding xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "bad: "),
    CASE("coding twice", POST TE TE "\r\n0\r\n\r\n", "bad: "),
    CASE("chunked, identity", POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
         "bad: "),
    CASE("gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "bad: "),
    CASE("identity", POST "Transfer-Encoding: identity\r\n\r\n", "bad: "),
    CASE("chunkedchunked", POST "Transfer-Encoding: chunkedchunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
         "bad: "),
    CASE("coding in 1.0", "POST / HTTP/1.0\r\n" H TE "\r\n0\r\n\r\n", "bad: "),
    CASE("bare LF lines", "GET /hello HTTP/1.1\nHost: a\n\n", "bad: a LF without CR"),
    CASE("LF after a header", "GET / HTTP/1.1\r\n" H "Foo: bar\n\r\n", "bad: a LF without CR"),
    CASE("LF between headers", "GET / HTTP/1.1\r\nDummy: x\nContent-Length: 23\r\n\r\n",
         "bad: a LF without CR"),
    CASE("space before the colon", POST "Content-Length : 5\r\n\r\nhello", "bad: "),
    CASE("space before a header", POST " Content-Length: 5\r\n\r\nhello",
         "bad: a line that begins"),
    CASE("folded line", "GET / HTTP/1.1\r\n" H "X-A: b\r\n c\r\n\r\n", "bad: a line that begins"),
    CASE("folded coding",
         POST "Transfer-Encoding: chunked\r\n , identity\r\n\r\n1\r\na\r\n0\r\n\r\n",
         "bad: a line that begins"),
    CASE("NUL", "GET / HTTP/1.1\r\n" H "X-A: b\0c\r\n\r\n", "bad: a control byte"),
    CASE("DEL", "GET / HTTP/1.1\r\n" H "X-A: b\x7f\r\n\r\n", "bad: a control byte"),
    CASE("ESC", "GET / HTTP/1.1\r\n" H "X-A: \x1b[2J\r\n\r\n", "bad: a control byte"),
    CASE("TLS", "\x16\x03\x01\x02\x00", "bad: a control byte"),
    CASE("CR in a value", "GET / HTTP/1.1\r\n" H "X-A: b\rX: y\r\n\r\n", "bad: a CR without LF"),
    CASE("CR for an empty value", POST "X-Abc:\rx" TE "\r\n1\r\nA\r\n0\r\n\r\n",
         "bad: a CR without LF"),
    CASE("CR X as the end", "GET / HTTP/1.1\r\n" H "\rXGET /smug HTTP/1.1\r\nHost: b\r\n\r\n",
         "bad: a CR without LF"),
    CASE("CR CR LF", "GET / HTTP/1.1\r\n" H "\r\r\n\r\n", "bad: a CR without LF"),
    CASE("empty header name", "GET / HTTP/1.1\r\n" H ": a\r\n\r\n", "bad: "),
    CASE("no colon", "GET / HTTP/1.1\r\n" H "Foo\r\n\r\n", "bad: "),
    CASE("chunk size overflow", POST TE "\r\nFFFFFFFFFFFFFFFFFF\r\nx", "bad: "),
    CASE("chunk size with junk", POST TE "\r\n5 x\r\nhello\r\n0\r\n\r\n", "bad: "),
    CASE("chunk size with space", POST TE "\r\n1 \r\na\r\n0\r\n\r\n", "bad: "),
    CASE("chunk size 0x1", POST TE "\r\n0x1\r\na\r\n0\r\n\r\n", "bad: "),
    CASE("chunk size -1", POST TE "\r\n-1\r\na\r\n0\r\n\r\n", "bad: "),
    CASE("chunk size LF", POST TE "\r\n1\na\r\n0\r\n\r\n", "bad: "),
    CASE("chunk longer than said", POST TE "\r\n5\r\nhelloX\r\n0\r\n\r\n", "bad: "),
    CASE("chunk without CRLF", POST TE "\r\n1\r\naX0\r\n\r\n", "bad: "),
    CASE("chunk with LF", POST TE "\r\n1\r\na\n0\r\n\r\n", "bad: "),
    CASE("extension with LF", POST TE "\r\n2;\nxx\r\n0\r\n\r\n", "bad: "),
    CASE("extension with CR", POST TE "\r\n1;a=\rb\r\na\r\n0\r\n\r\n", "bad: "),
    CASE("trailers", POST TE "\r\n1\r\na\r\n0\r\nX: y\r\n\r\n", "bad: trailers"),
    CASE("CR X behind the last chunk", POST TE "\r\n0\r\n\rX", "bad: trailers"),
    CASE("LF behind the last chunk", POST TE "\r\n0\r\n\n", "bad: trailers"),
    CASE("HTTP/0.9", "GET /hello\r\n", "bad: the first line"),
    CASE("HTTP/1.2", "GET /hello HTTP/1.2\r\n", "bad: the first line"),
    CASE("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bad: the first line"),
    CASE("RTSP", "GET /a RTSP/1.0\r\n", "bad: the first line"),
    CASE("two spaces", "GET  /a HTTP/1.1\r\n", "bad: the first line"),
    CASE("tab in the first line", "GET\t/a HTTP/1.1\r\n", "bad: a tab"),
    CASE("two empty lines before", "\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", "bad: empty lines"),
    CASE("odd method", "G@T /hello HTTP/1.1\r\n" H "\r\n", "bad: "),
    CASE("method in small letters", "get /hello HTTP/1.1\r\n" H "\r\n", "bad: "),
    CASE("CONNECT", "CONNECT a:80 HTTP/1.1\r\n" H "\r\n", "bad: a target"),
    CASE("target of another host", "GET http://b/hello HTTP/1.1\r\n" H "\r\n",
         "bad: a target whose"),
    CASE("target with a user", "GET http://u@a/ HTTP/1.1\r\n" H "\r\n", "bad: "),
    CASE("target https", "GET https://a/ HTTP/1.1\r\n" H "\r\n", "bad: a target"),
    CASE("asterisk with GET", "GET * HTTP/1.1\r\n" H "\r\n", "bad: "),
    CASE("fragment", "GET /a#b HTTP/1.1\r\n" H "\r\n", "bad: a fragment"),
    CASE("bytes above ASCII in the target", "GET /\xc3\xa9 HTTP/1.1\r\n" H "\r\n", "bad: "),
    CASE("expectation", POST "Expect: a-miracle\r\nContent-Length: 1\r\n\r\n", "bad: an Expect"),
};

static void good_requests_are_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++)
        expect_n(GOOD[i].name, GOOD[i].in, GOOD[i].n, GOOD[i].want);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        expect_n(BAD[i].name, BAD[i].in, BAD[i].n, BAD[i].want);
}

static void limits_are_kept(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf b = {0};

    buf_str(&b, "GET / HTTP/1.1\r\n" H "X: ");
    size_t fixed = b.len + 4;
    for (size_t i = fixed; i < HTTP1_HEAD_MAX; i++)
        buf_char(&b, 'a');
    buf_str(&b, "\r\n\r\n");
    assert_int_equal(b.len, HTTP1_HEAD_MAX);
    expect_n("64 KiB", b.p, b.len, "GET / [];open");
    b.len -= 4;
    buf_str(&b, "a\r\n\r\n");
    expect_n("64 KiB and 1", b.p, b.len, "bad: the request's head is larger");

    buf_clear(&b);
    buf_str(&b, "GET / HTTP/1.1\r\n" H);
    for (int i = 1; i < HTTP1_HEADERS_MAX; i++)
        buf_str(&b, "a: b\r\n");
    size_t n = b.len;
    buf_str(&b, "\r\n");
    expect_n("100 headers", b.p, b.len, "GET / [];open");
    b.len = n;
    buf_str(&b, "a: b\r\n\r\n");
    expect_n("101 headers", b.p, b.len, "bad: more than 100");
}

static void chunk_with_line(buf *b, const char *begin, char fill, size_t n)
{
    buf_clear(b);
    buf_str(b, POST TE "\r\n1\r\na\r\n"); /* the CR LF here counts for the next line */
    buf_str(b, begin);
    for (size_t i = strlen(begin) + 4; i < n; i++)
        buf_char(b, fill);
    buf_str(b, "\r\n");
}

static void size_lines_have_a_ceiling(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf b = {0};

    chunk_with_line(&b, "1;", 'x', HTTP1_CHUNK_LINE_MAX);
    buf_str(&b, "b\r\n0\r\n\r\n");
    expect_n("a long extension", b.p, b.len, "POST /u [ab];open");
    chunk_with_line(&b, "1;", 'x', HTTP1_CHUNK_LINE_MAX + 1);
    buf_str(&b, "b\r\n0\r\n\r\n");
    expect_n("a longer extension", b.p, b.len, "bad: a chunk's size line");
    chunk_with_line(&b, "0", '0', 100000);
    expect_n("endless zeros", b.p, b.len, "bad: a chunk's size line");
    chunk_with_line(&b, "1;", ';', 100000);
    expect_n("endless extensions", b.p, b.len, "bad: ");
}

static void parse(const char *text, buf *head, http1_request *rq)
{
    buf_clear(head);
    buf_str(head, text);
    assert_ok(http1_parse(head->p, head->len, rq));
}

static void heads_are_read(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf head = {0};
    http1_request rq;

    parse("PUT /x HTTP/1.1\r\nHost: h:1\r\nX-Empty:\r\nX-Pad: \t a b \t\r\nx-pad: second\r\n"
          "Content-Length: 7\r\nExpect: 100-Continue\r\n\r\n",
          &head, &rq);
    assert_string_equal(rq.host, "h:1");
    assert_string_equal(http1_header_get(&rq, "x-empty"), "");
    assert_string_equal(http1_header_get(&rq, "X-PAD"), "a b");
    assert_null(http1_header_get(&rq, "x-pa"));
    assert_true(rq.http11 && rq.keep_alive && rq.expect_continue && !rq.body.chunked &&
                !rq.upgrade);
    assert_int_equal(rq.body.left, 7);

    parse("GET / HTTP/1.1\r\n" H "Connection: close\r\nExpect: 100-continue\r\n\r\n", &head, &rq);
    assert_true(!rq.keep_alive && !rq.expect_continue);
    parse("GET / HTTP/1.0\r\n" H "Connection: keep-alive\r\n\r\n", &head, &rq);
    assert_true(!rq.keep_alive && !rq.http11);
    parse("GET / HTTP/1.1\r\n" H "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", &head, &rq);
    assert_true(rq.upgrade && rq.keep_alive);
}

static void bodies_decode_in_place(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf head = {0};
    http1_request rq;
    char body[] = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nGET";
    size_t used, n;

    parse(POST TE "\r\n", &head, &rq);
    assert_ok(http1_body(&rq.body, body, sizeof body - 1, body, &used, &n));
    assert_true(http1_body_ended(&rq.body));
    assert_int_equal(used, sizeof body - 1 - 3);
    assert_int_equal(n, 11);
    assert_memory_equal(body, "hello world", 11);
}

static void answers_cannot_be_split(void **state)
{
    (void)state;
    CLEANUP(buf_done) buf out = {0};

    http1_write_status(&out, 404);
    http1_write_header(&out, "X", "a\r\nEvil: 1\x7f");
    http1_write_chunk(&out, "0123456789abcdef!", 17);
    http1_write_chunk(&out, NULL, 0);
    assert_string_equal(buf_cstr(&out), "HTTP/1.1 404 Not Found\r\nX: a  Evil: 1 \r\n"
                                        "11\r\n0123456789abcdef!\r\n0\r\n\r\n");
}

/* How an answer is understood: "200 length 2", or "bad". */
static void answers_have_one_reading(void **state)
{
    static const struct {
        const char *head;
        bool to_head, good, chunked, to_end;
        uint64_t left;
    } CASES[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", false, true, false, false, 2},
        {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false, true, false, false, 0},
        {"HTTP/1.0 200 OK\r\n\r\n", false, true, false, true, 0},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, true, true, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true, true, false, false, 0},
        {"HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n", false, true, false, false, 0},
        {"HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n", false, true, false, false, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", false, false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", false,
         false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", false, false},
        {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, false},
        {"HTTP/1.1 99 OK\r\n\r\n", false, false},
        {"HTTP/1.2 200 OK\r\n\r\n", false, false},
        {"\r\nHTTP/1.1 200 OK\r\n\r\n", false, false},
        {"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", false, false},
        {"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", false, false},
        {"HTTP/1.1 200 OK\n\n", false, false},
        {"GET / HTTP/1.1\r\n\r\n", false, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        CLEANUP(freep) char *head = xstrdup(CASES[i].head);
        CLEANUP(freep) http1_answer *a = xcalloc(1, sizeof *a);
        http1_guard guard = {.answer = true};
        size_t n = strlen(head), used = 0;
        err *e = http1_guard_feed(&guard, head, n, &used) == HTTP1_DONE
                     ? http1_parse_answer(head, n, CASES[i].to_head, a)
                     : http1_guard_err(&guard);
        if (!CASES[i].good) {
            assert_err(e, ERR_PORT_CLOSED);
            continue;
        }
        assert_ok(e);
        assert_int_equal(a->body.chunked, CASES[i].chunked);
        assert_int_equal(a->body.to_end, CASES[i].to_end);
        assert_int_equal(a->body.left, CASES[i].left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_have_one_reading),  cmocka_unit_test(good_requests_are_understood),
        cmocka_unit_test(bad_requests_are_refused),  cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(size_lines_have_a_ceiling), cmocka_unit_test(heads_are_read),
        cmocka_unit_test(bodies_decode_in_place),    cmocka_unit_test(answers_cannot_be_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <string.h>

#include "base/str.h"
#include "wire/gateway.h"

#include "unit.h"

#define ID "abcdefghij0123456789"

static enum gateway_host host(const char *text, uint16_t *ret_port)
{
    char id[21] = "";
    enum gateway_host h = gateway_host_parse(text, "a.example", 20, id, ret_port);

    if (h == GATEWAY_HOST_PORT)
        assert_string_equal(id, ID);
    return h;
}

static void hosts_name_a_port_in_one_way(void **state)
{
    static const char *const GOOD[] = {"80-" ID ".a.example", "80-" ID ".A.EXAMPLE.",
                                       "80-ABCDEFGHIJ0123456789.a.example:7070",
                                       "80-" ID ".a.example.:1"};
    static const char *const BAD[] = {"x.a.example",
                                      "-" ID ".a.example",
                                      "0-" ID ".a.example",
                                      "080-" ID ".a.example",
                                      "65536-" ID ".a.example",
                                      "80-" ID "0.a.example",
                                      "80" ID ".a.example",
                                      "b.80-" ID ".a.example",
                                      "80-abcdefghij012345678-.a.example",
                                      ".a.example",
                                      "80-abcdefghij012345678\xc3.a.example"};
    static const char *const OTHER[] = {"a.example",
                                        "a.example:80",
                                        "xa.example",
                                        "localhost",
                                        "80-" ID ".a.example.org",
                                        "[::1]:80",
                                        ""};
    uint16_t port = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
        assert_int_equal(host(GOOD[i], &port), GATEWAY_HOST_PORT);
        assert_int_equal(port, 80);
    }
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_int_equal(host(BAD[i], &port), GATEWAY_HOST_BAD);
    for (size_t i = 0; i < ARRAY_LEN(OTHER); i++)
        assert_int_equal(host(OTHER[i], &port), GATEWAY_HOST_OTHER);
    assert_true(gateway_domain_ok("a.example") && gateway_domain_ok("localhost"));
    assert_false(gateway_domain_ok("A.example") || gateway_domain_ok(".a") ||
                 gateway_domain_ok("a.") || gateway_domain_ok("a..b") || gateway_domain_ok("a_b"));
}

/* What a head becomes; the caller frees. */
static char *through(const char *head, bool path_form)
{
    CLEANUP(freep) char *text = xstrdup(head);
    CLEANUP(freep) http1_request *rq = xcalloc(1, sizeof *rq);
    CLEANUP(buf_done) buf out = {0};

    assert_ok(http1_parse(text, strlen(text), rq));
    gateway_write_request(&out, rq,
                          &(gateway_rules){.prefix = path_form ? "/p" : NULL,
                                           .target = "/t",
                                           .host = "h",
                                           .caller = "192.0.2.1",
                                           .id = "i",
                                           .upgrade = gateway_upgrade(rq)});
    return buf_take(&out);
}

static void credentials_stay_outside(void **state)
{
    static const char HEAD[] =
        "POST /x HTTP/1.1\r\nHost: b\r\nauthorization: s\r\nX_Api-Key: s\r\nX-ACCESS-TOKEN: s\r\n"
        "E2B-x: s\r\ne2b_y: s\r\nProxy-Authorization: s\r\nCookie: c\r\nConnection: x-own, "
        "Content-Length\r\nX_Own: s\r\nKeep-Alive: s\r\nX-Kept: k\r\nX-Forwarded-For: 1.2.3.4\r\n"
        "Content-Length: 7\r\n\r\n";
    CLEANUP(freep) char *path = through(HEAD, true);
    CLEANUP(freep) char *own = through(HEAD, false);

    (void)state;
    assert_string_equal(path, "POST /t HTTP/1.1\r\nHost: h\r\nX-Kept: k\r\n"
                              "X-Forwarded-For: 1.2.3.4, 192.0.2.1\r\nX-Forwarded-Host: b\r\n"
                              "X-Forwarded-Proto: http\r\nX-Forwarded-Prefix: /p\r\n"
                              "X-Request-Id: i\r\nContent-Length: 7\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(own, "\r\nCookie: c\r\n"));
    assert_null(strstr(own, ": s\r\n"));
}

static void upgrades_are_passed_on_but_h2c(void **state)
{
    static const char *const HEADS[] = {
        "GET / HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: a, b\r\n\r\n",
        ("POST / HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: x\r\n"
         "Content-Length: 1\r\n\r\n")};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(HEADS); i++) {
        CLEANUP(freep) char *out = through(HEADS[i], true);
        assert_int_equal(strstr(out, "Upgrade") != NULL, i == 0);
    }
}

/* Of an answer, in both forms. */
static void proxies_in_front_take_no_orders_from_inside(void **state)
{
    static const char HEAD[] =
        "HTTP/1.1 200 OK\r\nX-Accel-Redirect: s\r\nx_accel_buffering: s\r\nX-Sendfile: s\r\n"
        "X-SENDFILE2: s\r\nX-LiteSpeed-Location: s\r\nX-Reproxy-URL: s\r\nX-Kept: k\r\n"
        "Content-Length: 0\r\n\r\n";

    (void)state;
    for (int form = 0; form < 2; form++) {
        char head[sizeof HEAD];
        CLEANUP(freep) http1_answer *a = xcalloc(1, sizeof *a);
        CLEANUP(buf_done) buf out = {0};
        memcpy(head, HEAD, sizeof HEAD);
        assert_ok(http1_parse_answer(head, strlen(head), false, a));
        gateway_write_answer(
            &out, a,
            &(gateway_rules){.prefix = form ? "/p" : NULL, .target = "/t", .host = "h", .id = "i"},
            "b", GATEWAY_LENGTH, true);
        assert_null(strstr(buf_cstr(&out), ": s\r\n"));
        assert_non_null(strstr(out.p, "X-Kept: k\r\n"));
    }
}

static char *location(const char *value)
{
    CLEANUP(freep)
    char *head =
        str_printf("HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", value);
    CLEANUP(freep) http1_answer *a = xcalloc(1, sizeof *a);
    CLEANUP(buf_done) buf out = {0};

    assert_ok(http1_parse_answer(head, strlen(head), false, a));
    gateway_write_answer(
        &out, a, &(gateway_rules){.prefix = "/p", .target = "/d/t?q", .host = "h:1", .id = "i"},
        "o:2", GATEWAY_LENGTH, true);
    const char *at = strstr(buf_cstr(&out), "\r\nLocation: ");
    return at ? xstrndup(at + 12, strcspn(at + 12, "\r")) : NULL;
}

static void redirects_stay_in_the_port(void **state)
{
    static const char *const LEADS[][2] = {{"/a", "/p/a"},      {"b", "/p/d/b"},
                                           {"?c", "/p/d/t?c"},  {"http://h:1/a", "/p/a"},
                                           {"//O:2/a", "/p/a"}, {"https://o:2", "/p/"},
                                           {"/p/a", "/p/a"},    {"/a..b/.c", "/p/a..b/.c"},
                                           {"/...", "/p/..."},  {"/a?b=/../c", "/p/a?b=/../c"}};
    static const char *const NOWHERE[] = {
        "//e/a",         "http://e/", "x:y",           "/..",       "/a/../b", "..", "/%2E%2e",
        "/a/%2e./b",     "/.",        "\\\\e",         "/a\\..\\b", "http:/a", "//", "/\\e",
        "http://h:1@e/", "/./a",      "http://o:2\\x/"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(LEADS); i++) {
        CLEANUP(freep) char *to = location(LEADS[i][0]);
        assert_non_null(to);
        assert_string_equal(to, LEADS[i][1]);
    }
    for (size_t i = 0; i < ARRAY_LEN(NOWHERE); i++) {
        CLEANUP(freep) char *to = location(NOWHERE[i]);
        assert_null(to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_name_a_port_in_one_way),
        cmocka_unit_test(credentials_stay_outside),
        cmocka_unit_test(upgrades_are_passed_on_but_h2c),
        cmocka_unit_test(proxies_in_front_take_no_orders_from_inside),
        cmocka_unit_test(redirects_stay_in_the_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/str.h"
#include "core/registry.h"

#include "../unit.h"

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return address_is_public((struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return address_is_public((struct sockaddr *)&v6);
}

static void only_public_addresses_are(void **state)
{
    static const char *const PUBLIC[] = {
        "1.1.1.1",          "9.255.255.255",   "11.0.0.0",     "100.63.255.255", "100.128.0.0",
        "126.0.0.1",        "128.0.0.1",       "169.253.0.1",  "172.15.255.255", "172.32.0.0",
        "192.167.0.1",      "223.255.255.255", "2606:4700::1", "2a00:1450::5",   "::ffff:8.8.8.8",
        "64:ff9b::808:808", "2002:808:808::1",
    };
    static const char *const NOT[] = {
        "0.0.0.0",     "0.1.2.3",      "10.0.0.1",         "10.255.255.255",  "100.64.0.1",
        "127.0.0.1",   "127.255.0.1",  "169.254.169.254",  "172.16.0.1",      "172.31.255.255",
        "192.0.0.8",   "192.0.2.1",    "192.168.1.1",      "198.18.0.1",      "198.51.100.1",
        "203.0.113.9", "224.0.0.1",    "255.255.255.255",  "240.0.0.1",       "::",
        "::1",         "fe80::1",      "fc00::1",          "fd12::1",         "ff02::1",
        "::127.0.0.1", "2001:db8::1",  "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe",
        "2001::1",     "2002:a00:1::", "2002:7f00:1::1",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(PUBLIC); i++)
        if (!is_public(PUBLIC[i]))
            fail_msg("%s is public", PUBLIC[i]);
    for (size_t i = 0; i < ARRAY_LEN(NOT); i++)
        if (is_public(NOT[i]))
            fail_msg("%s is not public", NOT[i]);
    struct sockaddr other = {.sa_family = AF_UNIX};
    assert_false(address_is_public(&other));
}

static void hosts_are_checked(void **state)
{
    static const char *const GOOD[] = {"docker.io", "a", "a-b.c:5000", "127.0.0.1:1",
                                       "x1.y2:65535"};
    static const char *const BAD[] = {
        "",   ":1",  "a:",  "a:0",  "a:65536", "a:1x", "A.b", "-a.b",  "a-.b", "a..b",    ".a",
        "a.", "a b", "a/b", "a\"b", "a:1:2",   "a_b",  "a\n", "[::1]", "a:+1", "\xc3\xa4"};
    char label[80];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++)
        assert_true(registry_host_ok(GOOD[i]));
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        if (registry_host_ok(BAD[i]))
            fail_msg("'%s' is no host", BAD[i]);
    memset(label, 'a', sizeof label);
    label[64] = 0;
    assert_false(registry_host_ok(label));
    label[63] = 0;
    assert_true(registry_host_ok(label));
}

static void mirrors_may_have_a_path(void **state)
{
    static const char *const GOOD[] = {"m.example", "m:5000/a", "m/a/b-c_d.e"};
    static const char *const BAD[] = {"m/",     "m//a", "/a",    "m/a/",
                                      "m/../a", "m/A",  "m/a\"", "http://m"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++)
        assert_true(registry_mirror_ok(GOOD[i]));
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        if (registry_mirror_ok(BAD[i]))
            fail_msg("'%s' is no mirror", BAD[i]);
}

static void entries_are_found_by_host(void **state)
{
    registries all = {0};

    (void)state;
    registries_put(&all, "a:1")->insecure = true;
    strv_push(&registries_put(&all, "b")->mirrors, xstrdup("m"));
    assert_ptr_equal(registries_put(&all, "a:1"), registries_find(&all, "a:1"));
    assert_int_equal(all.n, 2);
    assert_true(registries_find(&all, "a:1")->insecure);
    assert_null(registries_find(&all, "a"));
    registries_done(&all);
    assert_int_equal(all.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_public_addresses_are),
        cmocka_unit_test(hosts_are_checked),
        cmocka_unit_test(mirrors_may_have_a_path),
        cmocka_unit_test(entries_are_found_by_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

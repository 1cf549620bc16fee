/* The node's nft table as text, names of interfaces, and netlink messages as bytes. */
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "warden/netlink.h"
#include "warden/nettable.h"

#include "../unit.h"

static const net_plan PLAN = {
    .tag = "a1b2c", .subnet = 0x0ad70000, .nresolvers = 2, .resolver = {0x09090909, 0x0a000002}};

static void names_fit_and_lead_back(void **state)
{
    char name[NET_NAME_MAX];
    uint32_t n = 0;

    (void)state;
    net_name(&PLAN, 16383, name);
    assert_string_equal(name, "bya1b2c-16383");
    assert_true(net_number(&PLAN, name, &n));
    assert_int_equal(n, 16383);
    assert_false(net_number(&PLAN, "eth0", &n));
    assert_false(net_number(&PLAN, "byzzzzz-1", &n));
    assert_false(net_number(&PLAN, "bya1b2c-", &n));
    assert_false(net_number(&PLAN, "bya1b2c-1x", &n));
    assert_false(net_number(&PLAN, "bya1b2c-100000", &n));
}

static void an_empty_table_has_no_empty_list(void **state)
{
    net_plan bare = PLAN;
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    bare.nresolvers = 0;
    net_table_text(&bare, NULL, 0, &b);
    assert_null(strstr(buf_cstr(&b), "{ }"));
    assert_non_null(strstr(b.p, "set resolvers { type ipv4_addr; }"));
    assert_non_null(strstr(b.p, "iifname . ip saddr != @sandboxes goto refuse"));
}

static void the_living_are_in_it(void **state)
{
    const uint32_t live[] = {0, 258};
    CLEANUP(buf_done) buf b = {0};

    (void)state;
    net_table_text(&PLAN, live, 2, &b);
    assert_non_null(
        strstr(buf_cstr(&b), "add table inet bothy_a1b2c\ndelete table inet bothy_a1b2c\n"));
    assert_non_null(strstr(b.p, "\"bya1b2c-0\" . 10.215.0.0, \"bya1b2c-258\" . 10.215.1.2 }"));
    assert_non_null(strstr(b.p, "{ 9.9.9.9, 10.0.0.2 }"));
    assert_non_null(strstr(b.p, "ip saddr 10.215.0.0/18 masquerade"));
}

static void messages_have_their_lengths(void **state)
{
    nl_batch b = {0};
    size_t n = 0;

    (void)state;
    nl_begin(&b, 16, 0, "head", 4);
    nl_put_text(&b, 3, "eth0");
    size_t nest = nl_nest(&b, 18);
    nl_put_u32(&b, 1, 7);
    nl_nest_end(&b, nest);
    const struct nlmsghdr *h = (const struct nlmsghdr *)b.b;
    assert_int_equal(h->nlmsg_len, b.len);
    assert_int_equal(h->nlmsg_flags, NLM_F_REQUEST | NLM_F_ACK);
    assert_int_equal(b.expect, 1);
    const void *at = nl_find(b.b + NLMSG_HDRLEN + 4, b.len - NLMSG_HDRLEN - 4, 18, &n);
    assert_non_null(at);
    at = nl_find(at, n, 1, &n);
    assert_non_null(at);
    assert_int_equal(n, 4);
    assert_null(nl_find(b.b + NLMSG_HDRLEN + 4, b.len - NLMSG_HDRLEN - 4, 99, &n));
    nl_silent(&b);
    assert_int_equal(b.expect, 0);
}

static void broken_attributes_end_the_search(void **state)
{
    const uint8_t longer[] = {40, 0, 1, 0, 0, 0, 0, 0}, shorter[] = {2, 0, 1, 0, 0, 0, 0, 0};
    size_t n = 0;

    (void)state;
    assert_null(nl_find(longer, sizeof longer, 1, &n));
    assert_null(nl_find(shorter, sizeof shorter, 1, &n));
    assert_null(nl_find(shorter, 3, 1, &n));
}

static void acknowledge(int fd, uint32_t seq, int errnum)
{
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
    } m = {{.nlmsg_len = sizeof m, .nlmsg_type = NLMSG_ERROR, .nlmsg_seq = seq}, {.error = errnum}};

    assert_int_equal(send(fd, &m, sizeof m, 0), sizeof m);
}

/* Those of a batch whose time was over are still in the socket when the next one is sent. */
static void late_answers_are_nobodys(void **state)
{
    nl_batch late = {0}, b = {0};
    int fd[2];

    (void)state;
    assert_false(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd));
    nl_begin(&late, 16, 0, "head", 4);
    nl_begin(&b, 16, 0, "head", 4);
    nl_begin(&b, 16, 0, "head", 4);
    assert_true(b.first > late.last && b.last == b.first + 1);
    acknowledge(fd[1], late.last, -EEXIST);
    acknowledge(fd[1], b.first, 0);
    acknowledge(fd[1], b.last, -ENOSPC);
    assert_int_equal(nl_send(fd[0], &b), -ENOSPC);
    close(fd[0]);
    close(fd[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_fit_and_lead_back),
        cmocka_unit_test(an_empty_table_has_no_empty_list),
        cmocka_unit_test(the_living_are_in_it),
        cmocka_unit_test(messages_have_their_lengths),
        cmocka_unit_test(broken_attributes_end_the_search),
        cmocka_unit_test(late_answers_are_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

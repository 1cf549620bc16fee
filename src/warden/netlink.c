#include "warden/netlink.h"

#include <assert.h>
#include <errno.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAIT_S 5

int nl_open(int protocol)
{
    struct sockaddr_nl a = {.nl_family = AF_NETLINK};
    struct timeval wait = {.tv_sec = WAIT_S};
    int on = 1, fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on); /* no copy of the request */
    if (!bind(fd, (struct sockaddr *)&a, sizeof a) &&
        !setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait))
        return fd;
    int errnum = errno;
    close(fd);
    return -errnum;
}

/* ---- building ---- */

static _Atomic uint32_t last_seq; /* no two messages of this process have the same */

static void *netlink_add(nl_batch *b, const void *p, size_t n)
{
    size_t room = NLMSG_ALIGN(n);

    assert(b->len + room <= sizeof b->b); /* all sizes are the warden's own */
    uint8_t *to = b->b + b->len;
    memset(to, 0, room);
    if (p)
        memcpy(to, p, n);
    b->len += room;
    return to;
}

/* Ends the message, and everything that is open in it, at the present length. */
static void close_message(nl_batch *b)
{
    ((struct nlmsghdr *)(b->b + b->at))->nlmsg_len = (uint32_t)(b->len - b->at);
}

void nl_begin(nl_batch *b, uint16_t type, uint16_t flags, const void *head, size_t n)
{
    const struct nlmsghdr h = {.nlmsg_type = type,
                               .nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST | NLM_F_ACK),
                               .nlmsg_seq = ++last_seq};

    if (!b->len)
        b->first = h.nlmsg_seq;
    b->last = h.nlmsg_seq;
    b->at = b->len;
    netlink_add(b, &h, sizeof h);
    netlink_add(b, head, n);
    b->expect++;
    close_message(b);
}

void nl_silent(nl_batch *b)
{
    ((struct nlmsghdr *)(b->b + b->at))->nlmsg_flags &= (uint16_t)~NLM_F_ACK;
    b->expect--;
}

void nl_put(nl_batch *b, uint16_t type, const void *p, size_t n)
{
    const struct nlattr a = {.nla_len = (uint16_t)(NLA_HDRLEN + n), .nla_type = type};

    netlink_add(b, &a, sizeof a);
    netlink_add(b, p, n);
    close_message(b);
}

void nl_put_text(nl_batch *b, uint16_t type, const char *text)
{
    nl_put(b, type, text, strlen(text) + 1);
}

void nl_put_u32(nl_batch *b, uint16_t type, uint32_t v)
{
    nl_put(b, type, &v, sizeof v);
}

size_t nl_nest(nl_batch *b, uint16_t type)
{
    const struct nlattr a = {.nla_type = type | NLA_F_NESTED};
    size_t at = b->len;

    netlink_add(b, &a, sizeof a);
    return at;
}

void nl_nest_header(nl_batch *b, const void *head, size_t n)
{
    netlink_add(b, head, n);
}

void nl_nest_end(nl_batch *b, size_t at)
{
    ((struct nlattr *)(b->b + at))->nla_len = (uint16_t)(b->len - at);
    close_message(b);
}

/* ---- talking ---- */

typedef struct answers {
    uint32_t first, last; /* sequence numbers of what was asked */
    unsigned left;        /* acknowledgements, or the end of a dump */
    int failure;
    void *data; /* the first message that is no acknowledgement goes here */
    size_t max, n;
    void (*each)(void *arg, const void *body, size_t n); /* or all of them here */
    void *arg;
} answers;

static void take_body(answers *to, const uint8_t *body, size_t n)
{
    if (to->each) {
        to->each(to->arg, body, n);
    } else if (to->data && !to->n && n <= to->max) {
        memcpy(to->data, body, n);
        to->n = n;
    }
}

static void netlink_take(answers *to, const struct nlmsghdr *h)
{
    const uint8_t *body = (const uint8_t *)h + NLMSG_HDRLEN;
    size_t n = h->nlmsg_len - NLMSG_HDRLEN;
    int errnum;

    if (h->nlmsg_type != NLMSG_ERROR && h->nlmsg_type != NLMSG_DONE) {
        take_body(to, body, n);
        return;
    }
    if (n < sizeof errnum)
        return;
    memcpy(&errnum, body, sizeof errnum);
    if (!to->failure)
        to->failure = errnum;
    if (to->left)
        to->left--;
}

/* Returns false if the message answers an earlier batch that timed out. */
static bool is_ours(const answers *to, const struct nlmsghdr *h)
{
    return h->nlmsg_seq - to->first <= to->last - to->first;
}

static int netlink_receive(int fd, answers *to)
{
    _Alignas(8) uint8_t in[8192];

    while (to->left) {
        ssize_t n = recv(fd, in, sizeof in, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        for (size_t at = 0; at + NLMSG_HDRLEN <= (size_t)n;) {
            const struct nlmsghdr *h = (const struct nlmsghdr *)(in + at);
            if (h->nlmsg_len < NLMSG_HDRLEN || h->nlmsg_len > (size_t)n - at)
                return -EPROTO;
            if (is_ours(to, h))
                netlink_take(to, h);
            at += NLMSG_ALIGN(h->nlmsg_len);
        }
    }
    return to->failure;
}

static int netlink_talk(int fd, nl_batch *b, answers *to)
{
    to->left = b->expect;
    to->first = b->first;
    to->last = b->last;
    ssize_t n = send(fd, b->b, b->len, 0);
    b->len = b->expect = 0;
    if (n < 0)
        return -errno;
    return netlink_receive(fd, to);
}

int nl_send(int fd, nl_batch *b)
{
    answers none = {0};

    return netlink_talk(fd, b, &none);
}

int nl_ask(int fd, nl_batch *b, void *answer, size_t max, size_t *ret_n)
{
    answers a = {.data = answer, .max = max};
    int r = netlink_talk(fd, b, &a);

    *ret_n = a.n;
    return r ? r : a.n ? 0 : -ENODATA;
}

int nl_dump(int fd, nl_batch *b, void (*each)(void *arg, const void *body, size_t n), void *arg)
{
    answers a = {.each = each, .arg = arg};

    return netlink_talk(fd, b, &a);
}

const void *nl_find(const void *attrs, size_t n, uint16_t type, size_t *ret_n)
{
    const uint8_t *p = attrs;

    for (size_t at = 0; at + NLA_HDRLEN <= n;) {
        struct nlattr a;
        memcpy(&a, p + at, sizeof a);
        if (a.nla_len < NLA_HDRLEN || a.nla_len > n - at)
            return NULL;
        if ((a.nla_type & NLA_TYPE_MASK) == type) {
            *ret_n = a.nla_len - (size_t)NLA_HDRLEN;
            return p + at + NLA_HDRLEN;
        }
        at += NLA_ALIGN(a.nla_len);
    }
    return NULL;
}

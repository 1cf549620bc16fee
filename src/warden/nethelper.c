#include "warden/nethelper.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "warden/netflows.h"
#include "warden/netlink.h"
#include "warden/netpair.h"
#include "warden/privs.h"

#define NFT_MS 20000u

typedef struct helper {
    net_plan plan;
    bool loaded;
    int route, filter;
    struct net_request in;
    uint32_t live[NET_LIVE_MAX];
    bool older[NET_LIVE_MAX]; /* by slot: there may be connections the table has not counted */
} helper;

/* ---- start: the table ---- */

static int text_file(const char *name, const char *p, size_t n)
{
    CLEANUP(closep) int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd < 0 || (n && fs_write_all(fd, p, n)) || lseek(fd, 0, SEEK_SET))
        return -1;
    return TAKE_FD(fd);
}

/* Runs nft, which compiles the text and hands it to the kernel as one transaction. Its output is
 * for people. */
static int run_nft(const buf *text, char *ret_said, size_t max)
{
    CLEANUP(closep) int in = text_file("table", text->p, text->len);
    CLEANUP(closep) int out = text_file("said", "", 0);
    char *argv[] = {"nft", "-f", "-", NULL};
    const int fds[] = {in, out, out};
    int status = 0;
    pid_t pid;

    if (in < 0 || out < 0)
        return -EMFILE;
    err *e = spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = ARRAY_LEN(fds)}, &pid);
    if (!e)
        e = spawn_wait(pid, NFT_MS, &status);
    if (e) {
        snprintf(ret_said, max, "nft cannot be run (install nftables): %s", e->message);
        err_free(e);
        return -ENOENT;
    }
    ssize_t n = pread(out, ret_said, max - 1, 0);
    ret_said[n > 0 ? n : 0] = 0;
    for (char *c = ret_said; *c; c++)
        *c = *c < ' ' ? ' ' : *c;
    return status ? -EINVAL : 0;
}

static bool is_live(const helper *h, uint32_t n)
{
    for (uint32_t i = 0; i < h->in.n; i++)
        if (h->live[i] == n)
            return true;
    return false;
}

/* Deletes interfaces of slots that are gone or were never whole. */
static void nethelper_sweep(const helper *h)
{
    struct if_nameindex *all = if_nameindex();
    uint32_t n;

    for (struct if_nameindex *i = all; i && i->if_index; i++)
        if (net_number(&h->plan, i->if_name, &n) && !is_live(h, n))
            (void)net_pair_delete(h->route, i->if_name);
    if_freenameindex(all);
}

static void nethelper_load(helper *h, size_t got, struct net_answer *a)
{
    CLEANUP(buf_done) buf text = {0};

    if (h->loaded || h->in.n > NET_LIVE_MAX || got != sizeof h->in + h->in.n * sizeof *h->live) {
        a->err = -EPROTO;
        return;
    }
    h->plan = h->in.plan;
    h->route = nl_open(NETLINK_ROUTE);
    h->filter = nl_open(NETLINK_NETFILTER);
    if (h->route < 0 || h->filter < 0) {
        a->err = h->route < 0 ? h->route : h->filter;
        return;
    }
    net_table_text(&h->plan, h->live, h->in.n, &text);
    if (!FAULT("wall.egress.table"))
        a->err = run_nft(&text, a->text, sizeof a->text);
    if (a->err)
        return;
    nethelper_sweep(h);
    a->err = net_flows_forget_others(h->filter, &h->plan, h->live, h->in.n);
    if (a->err) {
        snprintf(a->text, sizeof a->text,
                 "connections of sandboxes that are gone cannot be forgotten (the kernel needs "
                 "nf_conntrack_netlink)");
        return;
    }
    for (uint32_t i = 0; i < h->in.n; i++)
        if (h->live[i] < NET_LIVE_MAX)
            h->older[h->live[i]] = true;
    h->loaded = true;
    privs_network_loaded();
}

/* ---- requests ---- */

static int take_out(helper *h, uint32_t n)
{
    int r = net_table_remove(h->filter, &h->plan, n, h->older[n]);

    h->older[n] = r; /* its remains are removed before the next one is added */
    return r;
}

/* Adds the walls before the interfaces: there is no moment in which the sandbox could send without
 * being judged. */
static int nethelper_add(helper *h, uint32_t n, int netns, struct net_answer *a)
{
    if (netns < 0)
        return -EBADF;
    int r = h->older[n] ? take_out(h, n) : 0;
    if (!r && !FAULT("wall.egress.elements"))
        r = net_table_add(h->filter, &h->plan, n);
    a->value = r ? NET_BY_TABLE : 0;
    return r ? r : net_pair_make(h->route, &h->plan, n, netns);
}

static void nethelper_serve(helper *h, size_t got, int netns, struct net_answer *a)
{
    const struct net_request *q = &h->in;

    if (q->op == NET_LOAD)
        nethelper_load(h, got, a);
    else if (!h->loaded || got != sizeof *q || q->n >= NET_LIVE_MAX)
        a->err = -EPROTO;
    else if (q->op == NET_ADD)
        a->err = nethelper_add(h, q->n, netns, a);
    else if (q->op == NET_REMOVE)
        a->err = take_out(h, q->n);
    else if (q->op == NET_DROPPED)
        a->err = net_table_dropped(h->filter, &h->plan, q->n, &a->value);
    else
        a->err = -EPROTO;
}

/* Receives one packet: the request and the list behind it. */
static ssize_t nethelper_receive(helper *h, int *ret_fd)
{
    static uint8_t b[sizeof h->in + sizeof h->live];
    ssize_t n = sock_recv_lost(STDIN_FILENO, b, sizeof b, ret_fd, 0);

    if (n < (ssize_t)sizeof h->in)
        return n < 0 && n != -EINTR ? n : 0;
    memcpy(&h->in, b, sizeof h->in);
    memcpy(h->live, b + sizeof h->in, (size_t)n - sizeof h->in);
    return n;
}

int net_helper_run(void)
{
    static helper h;

    log_init("bothy-warden", LOG_INFO);
    prctl(PR_SET_NAME, "bothy-network");
    err *e = privs_close_memory();
    if (!e)
        e = privs_network();
    if (e) {
        log_error("network", "%s: %s", e->message, str_or(e->cause, "no cause"));
        err_free(e);
        return 1;
    }
    for (;;) {
        CLEANUP(closep) int netns = -1;
        struct net_answer a = {0};
        ssize_t n = nethelper_receive(&h, &netns);
        if (n <= 0)
            return 0; /* the warden is gone */
        nethelper_serve(&h, (size_t)n, netns, &a);
        if (sock_send(STDIN_FILENO, &(struct iovec){&a, sizeof a}, 1, NULL, 0, 0))
            return 0;
    }
}

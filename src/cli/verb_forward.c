/* bothy forward: offers ports of a sandbox on this machine's loopback. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "cli/out.h"
#include "cli/pump.h"
#include "cli/verbs.h"

#define FORWARDS_MAX 64
#define LOOK_MS      3000 /* between checks whether the sandbox still exists */

typedef struct forward_args {
    common_args common;
} forward_args;

static const opt OPTS[] = {COMMON_OPTS(forward_args)};

typedef struct forward {
    uint16_t local, port;
    int fd;
} forward;

typedef struct forwarding {
    const cli *cli;
    const char *sandbox;
    forward list[FORWARDS_MAX];
    size_t n;
    client *client;
    pthread_mutex_t lock; /* guards the output */
} forwarding;

typedef struct visit { /* one connection; owned by its thread */
    forwarding *all;
    int fd;
    uint16_t port;
} visit;

/* ---- words ---- */

static bool parse_number(const char *s, size_t n, uint64_t least, uint16_t *ret)
{
    CLEANUP(freep) char *text = xstrndup(s, n);
    uint64_t value = 0;

    if (!str_to_u64(text, UINT16_MAX, &value) || value < least)
        return false;
    *ret = (uint16_t)value;
    return true;
}

static err *parse_word(const char *word, forward *ret)
{
    const char *colon = strchr(word, ':'), *port = colon ? colon + 1 : word;
    bool good = parse_number(port, strlen(port), 1, &ret->port);

    ret->local = ret->port;
    if (good && colon)
        good = parse_number(word, (size_t)(colon - word), 0, &ret->local);
    return good ? NULL : usage_error("'%s' is not PORT or LOCAL:PORT", word);
}

static err *listen_on(forward *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(f->local),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int on = 1;

    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (f->fd >= 0)
        setsockopt(f->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (f->fd < 0 || bind(f->fd, (struct sockaddr *)&a, sizeof a) || listen(f->fd, 128) ||
        getsockname(f->fd, (struct sockaddr *)&a, &n))
        return err_remedy(
            err_sys(ERR_UNAVAILABLE, errno, "cannot listen on 127.0.0.1:%u", f->local),
            "Take another local port, LOCAL:%u; 0:%u takes any that is free.", f->port, f->port);
    f->local = ntohs(a.sin_port);
    return NULL;
}

static err *open_all(forwarding *all, const opt_words *words)
{
    if (words->n - 1 > FORWARDS_MAX)
        return usage_error("more than %d ports", FORWARDS_MAX);
    for (int i = 1; i < words->n; i++) {
        forward *f = &all->list[all->n];
        *f = (forward){.fd = -1};
        TRY(parse_word(words->v[i], f));
        all->n++;
        TRY(listen_on(f));
    }
    return NULL;
}

static void close_all(forwarding *all)
{
    for (size_t i = 0; i < all->n; i++)
        closep(&all->list[i].fd);
}

static void forward_tell(const forwarding *all, bool json)
{
    for (size_t i = 0; i < all->n; i++) {
        const forward *f = &all->list[i];
        if (json) {
            CLEANUP(json_decrefp)
            json_t *j = json_pack("{s:s,s:i,s:i,s:s}", "address", "127.0.0.1", "local",
                                  (int)f->local, "port", (int)f->port, "sandbox", all->sandbox);
            CLEANUP(buf_done) buf line = {0};
            json_write(&line, j);
            printf("%s\n", buf_cstr(&line)); /* one per line: they are read while we run */
        } else {
            printf("127.0.0.1:%u -> port %u of %s\n", f->local, f->port, all->sandbox);
        }
    }
    fflush(stdout);
}

/* ---- connections ---- */

static void *forward_serve(void *arg)
{
    visit *v = arg;
    forwarding *all = v->all;
    CLEANUP(freep) char *path = str_printf("/v1/sandboxes/%s/forward/%u", all->sandbox, v->port);
    CLEANUP(client_stream_freep) client_stream *s = NULL;
    CLEANUP(err_freep) err *e = client_upgrade(all->client, path, "tcp", NULL, &s);

    if (e) {
        LOCK_SCOPE(&all->lock);
        out_error(stderr, e, all->cli->common.json, out_colours(stderr));
    } else {
        pump_run(v->fd, s);
    }
    close(v->fd);
    free(v);
    return NULL;
}

static void take_in(forwarding *all, const forward *f)
{
    int fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    visit *v = xcalloc(1, sizeof *v);
    *v = (visit){.all = all, .fd = fd, .port = f->port};
    if (!thread_try_detach(forward_serve, v)) {
        close(fd);
        free(v);
    }
}

/* Returns an error if the sandbox has ended. A daemon that does not answer is being restarted, and
 * is asked again later. */
static err *forward_look(cli *c, const char *sandbox)
{
    CLEANUP(json_decrefp) json_t *now = NULL;
    CLEANUP(err_freep) err *e = cli_call(c, "GET", NULL, &now, "/v1/sandboxes/%s", sandbox);

    if (e)
        return e->code == ERR_UNAVAILABLE ? NULL : TAKE_PTR(e);
    if (!str_eq(json_str(now, "state"), "gone"))
        return NULL;
    return err_because(
        err_new(ERR_SANDBOX_GONE, "sandbox %s has ended", sandbox), "%s",
        str_or(json_str(json_object_get(now, "cause"), "kind"), "no cause is known"));
}

/* Runs until a signal comes, which is the normal end, or the sandbox ends. */
static err *run_loop(cli *c, forwarding *all, int signals)
{
    struct pollfd fds[FORWARDS_MAX + 1] = {{.fd = signals, .events = POLLIN}};

    for (size_t i = 0; i < all->n; i++)
        fds[i + 1] = (struct pollfd){.fd = all->list[i].fd, .events = POLLIN};
    for (;;) {
        int n = poll(fds, all->n + 1, LOOK_MS);
        if (fds[0].revents)
            return NULL;
        if (n == 0)
            TRY(forward_look(c, all->sandbox));
        for (size_t i = 0; n > 0 && i < all->n; i++)
            if (fds[i + 1].revents)
                take_in(all, &all->list[i]);
    }
}

/* Blocks signals before there are threads, so that they only come to the descriptor. */
static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

static err *forward_run(cli *c, void *args, const opt_words *words, int *status)
{
    /* Threads may still use it when we end. */
    static forwarding all = {.lock = PTHREAD_MUTEX_INITIALIZER};
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(closep) int signals = open_signals();

    (void)args;
    (void)status;
    TRY(cli_sandbox(c, words->v[0], false, &sandbox));
    all.cli = c;
    all.sandbox = xstrdup(str_or(json_str(sandbox, "id"), ""));
    TRY(cli_client(c, &all.client));
    err *e = open_all(&all, words);
    if (!e) {
        forward_tell(&all, c->common.json);
        e = run_loop(c, &all, signals);
    }
    close_all(&all);
    return e;
}

const verb VERB_FORWARD = {
    .name = "forward",
    .usage = "SANDBOX [LOCAL:]PORT...",
    .summary = "Reach ports of a sandbox on this machine",
    .text =
        "Listens on 127.0.0.1, on the port of the same number unless LOCAL says another; LOCAL 0\n"
        "takes any that is free. Every connection to it is one to that port inside, whatever it\n"
        "speaks; the server there has to listen on 127.0.0.1, ::1 or all addresses. Anybody on\n"
        "this machine can connect. Ends with Ctrl-C, or when the sandbox does.",
    .opts = OPTS,
    .args_size = sizeof(forward_args),
    .words_min = 2,
    .words_max = -1,
    .run = forward_run,
};

/* bench-client burst SOCKET WARDEN IMAGE N QUEUE_S hold|delete
 *
 * The pool is full, N connections are open; all send a create at once, and each runs a command as
 * soon as it has its sandbox. delete: each deletes its sandbox after the first result; hold: all
 * live until the last result is there. Notes the phases of every create; prints "failed N" last. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/str.h"

#include "bench.h"

#define GRACE_MS   60000
#define EVENTS_MAX 64
#define TELL_MAX   5 /* failures that are printed in full */

enum step {
    CREATING,
    RUNNING,
    DELETING,
    DONE
};

typedef struct guest {
    conn c;
    enum step step;
    bool failed;
    uint64_t sent, made;
    char id[64];
} guest;

typedef struct burst {
    guest **guests;
    unsigned n, left, failed;
    bool hold;
    uint64_t begun;
    int epfd;
} burst;

static void lose(burst *b, guest *g, const char *why)
{
    if (b->failed++ < TELL_MAX)
        fprintf(stderr, "bench-client: a guest failed at step %d: %s\n", g->step, why);
    epoll_ctl(b->epfd, EPOLL_CTL_DEL, g->c.fd, NULL);
    g->failed = true;
    g->step = DONE;
    b->left--;
}

static void next_request(guest *g, enum step step, const char *method, const char *rest,
                         const char *body)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/sandboxes/%s%s", g->id, rest);
    g->step = step;
    g->sent = now_mono_ns();
    conn_send(&g->c, method, path, body);
}

static void created(guest *g)
{
    static const char *const PHASES[] = {"queue", "build", "swap", "claim", "commit"};

    g->made = now_mono_ns();
    note("create", g->made - g->sent);
    for (size_t i = 0; i < ARRAY_LEN(PHASES); i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_ms", PHASES[i]);
        note(PHASES[i], (uint64_t)(member_number(&g->c, name) * 1e6));
    }
    member(&g->c, "id", g->id, sizeof g->id);
    next_request(g, RUNNING, "POST", "/exec", "{\"argv\":[\"true\"]}");
}

static void settle_guest(burst *b, guest *g)
{
    epoll_ctl(b->epfd, EPOLL_CTL_DEL, g->c.fd, NULL);
    g->step = DONE;
    b->left--;
}

static void answered(burst *b, guest *g)
{
    if (!answer_is_ok(&g->c)) {
        lose(b, g, g->c.answer + answer_head(&g->c));
        return;
    }
    switch (g->step) {
    case CREATING:
        created(g);
        return;
    case RUNNING:
        if (member_number(&g->c, "exit_code") != 0) {
            lose(b, g, g->c.answer + answer_head(&g->c));
            return;
        }
        note("exec", now_mono_ns() - g->sent);
        note("total", now_mono_ns() - b->begun);
        if (!b->hold)
            next_request(g, DELETING, "DELETE", "", "");
        else
            settle_guest(b, g);
        return;
    case DELETING:
        note("delete", now_mono_ns() - g->sent);
        settle_guest(b, g);
        return;
    case DONE:
        return;
    }
}

static void readable(burst *b, guest *g)
{
    conn *c = &g->c;
    ssize_t k = read(c->fd, c->answer + c->got, ANSWER_MAX - c->got);

    if (k <= 0) {
        lose(b, g, k ? strerrordesc_np(errno) : "the connection was closed");
        return;
    }
    c->got += (size_t)k;
    c->answer[c->got] = 0;
    if (answer_length(c))
        answered(b, g);
}

static void connect_all(burst *b, const char *path)
{
    struct rlimit r;

    if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur < b->n + 64u) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    b->guests = xcalloc(b->n, sizeof *b->guests);
    for (unsigned i = 0; i < b->n; i++) {
        guest *g = b->guests[i] = xcalloc(1, sizeof *g);
        struct epoll_event ev = {.events = EPOLLIN, .data.ptr = g};
        conn_open(&g->c, path);
        if (epoll_ctl(b->epfd, EPOLL_CTL_ADD, g->c.fd, &ev))
            die("epoll_ctl");
    }
}

static void send_all(burst *b, const char *body)
{
    b->begun = now_mono_ns();
    for (unsigned i = 0; i < b->n; i++) {
        b->guests[i]->sent = now_mono_ns();
        conn_send(&b->guests[i]->c, "POST", "/v1/sandboxes", body);
    }
    note("sent", now_mono_ns() - b->begun);
}

static void run(burst *b, uint64_t until)
{
    struct epoll_event events[EVENTS_MAX];

    while (b->left && now_mono_ns() < until) {
        int n = epoll_wait(b->epfd, events, EVENTS_MAX, 1000);
        for (int i = 0; i < n; i++)
            readable(b, events[i].data.ptr);
    }
    for (unsigned i = 0; i < b->n && b->left; i++)
        if (b->guests[i]->step != DONE)
            lose(b, b->guests[i], "no answer in time");
    note("all", now_mono_ns() - b->begun);
}

static void delete_held(burst *b)
{
    for (unsigned i = 0; i < b->n; i++) {
        guest *g = b->guests[i];
        if (g->failed)
            continue;
        char path[128];
        snprintf(path, sizeof path, "/v1/sandboxes/%s", g->id);
        uint64_t begun = now_mono_ns();
        ask(&g->c, "DELETE", path, "");
        note("delete", now_mono_ns() - begun);
    }
}

int bench_burst(int argc, char **argv)
{
    burst b = {.epfd = epoll_create1(EPOLL_CLOEXEC)};
    char body[256];

    if (argc != 7)
        return 2;
    b.n = b.left = number(argv[4]);
    unsigned wait = number(argv[5]);
    b.hold = strcmp(argv[6], "hold") == 0;
    snprintf(body, sizeof body, "{\"image\":\"%s\",\"queue_wait\":%u}", argv[3], wait);
    connect_all(&b, argv[1]);
    warden_open(argv[2]);
    settle(true);
    send_all(&b, body);
    run(&b, b.begun + (wait * 1000ull + GRACE_MS) * NS_PER_MS);
    if (b.hold)
        delete_held(&b);
    printf("failed %u\n", b.failed);
    return 0;
}

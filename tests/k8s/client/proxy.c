/* Bytes between a client and the server, cut where a test wants it. A thread a connection. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/thread.h"
#include "tests/k8s/client/client.h"

#define LINES       64
#define LOST_ANSWER 600 /* bytes: then it was one */

struct proxy {
    struct sockaddr_storage to;
    socklen_t nto;
    int listener, port;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    size_t cut_after, lose_after;
    unsigned made, live;
    bool refuses;
    int fds[LINES][2];
};

typedef struct line {
    proxy *p;
    unsigned at;
} line;

static bool pass(int from, int to, size_t *ret_n)
{
    char b[16384];
    ssize_t n = recv(from, b, sizeof b, 0);

    if (n <= 0)
        return false;
    *ret_n = (size_t)n;
    for (ssize_t at = 0; at < n;) {
        ssize_t sent = send(to, b + at, (size_t)(n - at), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
    }
    return true;
}

static bool is_over(proxy *p, size_t answered)
{
    LOCK_SCOPE(&p->lock);
    return p->cut_after && answered > p->cut_after;
}

static bool is_lost(proxy *p, size_t asked)
{
    LOCK_SCOPE(&p->lock);
    return p->lose_after && asked > p->lose_after;
}

/* An answer that nobody gets. What comes before it is shorter: TLS has something to say, too. */
static bool lose(int server, size_t *lost)
{
    char b[16384];
    ssize_t n = recv(server, b, sizeof b, 0);

    *lost += n > 0 ? (size_t)n : 0;
    return n > 0 && *lost <= LOST_ANSWER;
}

static void *run_line(void *arg)
{
    line *l = arg;
    proxy *p = l->p;
    int client = p->fds[l->at][0], server = p->fds[l->at][1];
    size_t answered = 0, asked = 0, lost = 0, n = 0;

    for (;;) {
        struct pollfd f[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
        if (poll(f, 2, -1) < 0)
            break;
        if (f[0].revents && !pass(client, server, &n))
            break;
        asked += f[0].revents ? n : 0;
        if (!f[1].revents)
            continue;
        if (is_lost(p, asked)) {
            if (!lose(server, &lost))
                break;
            continue;
        }
        if (!pass(server, client, &n))
            break;
        answered += n;
        if (is_over(p, answered))
            break;
    }
    pthread_mutex_lock(&p->lock);
    close(client);
    close(server);
    p->fds[l->at][0] = p->fds[l->at][1] = -1;
    p->live--;
    pthread_cond_broadcast(&p->idle);
    pthread_mutex_unlock(&p->lock);
    free(l);
    return NULL;
}

static void open_line(proxy *p, int client)
{
    int server = socket(p->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unsigned at = 0;

    if (connect(server, (struct sockaddr *)&p->to, p->nto)) {
        close(server);
        close(client);
        return;
    }
    LOCK_SCOPE(&p->lock);
    while (at < LINES && p->fds[at][0] >= 0)
        at++;
    if (at == LINES || p->refuses) {
        close(server);
        close(client);
        return;
    }
    line *l = xcalloc(1, sizeof *l);
    *l = (line){p, at};
    p->fds[at][0] = client;
    p->fds[at][1] = server;
    p->made++;
    p->live++;
    thread_detach("proxy-line", run_line, l);
}

static void *run(void *arg)
{
    proxy *p = arg;
    int fd;

    while ((fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        open_line(p, fd);
    return NULL;
}

proxy *proxy_new(const char *server)
{
    proxy *p = xcalloc(1, sizeof *p);
    const char *host = strstr(server, "://") + 3, *colon = strrchr(host, ':');
    CLEANUP(freep) char *name = xstrndup(host, colon ? (size_t)(colon - host) : strlen(host));
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof here;

    if (getaddrinfo(name, colon ? colon + 1 : "443", &hints, &found))
        abort();
    memcpy(&p->to, found->ai_addr, found->ai_addrlen);
    p->nto = found->ai_addrlen;
    freeaddrinfo(found);
    pthread_mutex_init(&p->lock, NULL);
    cond_init(&p->idle);
    memset(p->fds, -1, sizeof p->fds);
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(p->listener, (struct sockaddr *)&here, n) || listen(p->listener, 64) ||
        getsockname(p->listener, (struct sockaddr *)&here, &n))
        abort();
    p->port = ntohs(here.sin_port);
    p->thread = thread_start("proxy", run, p);
    return p;
}

int proxy_port(const proxy *p)
{
    return p->port;
}

void proxy_cut_after(proxy *p, size_t bytes)
{
    LOCK_SCOPE(&p->lock);
    p->cut_after = bytes;
}

void proxy_lose_after(proxy *p, size_t bytes)
{
    LOCK_SCOPE(&p->lock);
    p->lose_after = bytes;
}

void proxy_refuse(proxy *p, bool refuses)
{
    {
        LOCK_SCOPE(&p->lock);
        p->refuses = refuses;
    }
    if (refuses)
        proxy_cut_now(p);
}

void proxy_cut_now(proxy *p)
{
    LOCK_SCOPE(&p->lock);
    for (unsigned i = 0; i < LINES; i++)
        if (p->fds[i][0] >= 0)
            shutdown(p->fds[i][0], SHUT_RDWR);
}

unsigned proxy_connections(proxy *p)
{
    LOCK_SCOPE(&p->lock);
    return p->made;
}

void proxy_free(proxy *p)
{
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listener);
    proxy_cut_now(p);
    pthread_mutex_lock(&p->lock);
    while (p->live)
        pthread_cond_wait(&p->idle, &p->lock);
    pthread_mutex_unlock(&p->lock);
    free(p);
}

err *proxy_client(const world *w, const proxy *p, kube **ret_kube)
{
    CLEANUP(freep) char *server = str_printf("https://127.0.0.1:%d", p->port);
    const char *host = strstr(w->config.server, "://") + 3;
    CLEANUP(freep) char *name = xstrndup(host, strcspn(host, ":/"));
    kube_config c = w->config; /* borrowed: kube_new copies */

    c.server = server;
    c.tls_name = name;
    return kube_new(&c, ret_kube);
}

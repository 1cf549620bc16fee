/* Thousands of connections that follow output, in one thread, so that the driver is not the limit.
 *
 *   followers SOCKET < targets      a target is a line "COUNT raw|sse PATH"
 *
 * Every line of output is a number (10 digits, from 0 and without a gap), a space, and the
 * CLOCK_BOOTTIME at which it was written, in ns (20 digits): 32 bytes. When each connection has its
 * head, it prints "ready"; then each "report" on stdin is answered with a line of JSON about what
 * came since the last one, and "quit" ends it. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LINE    32
#define CONNECT 64 /* requests that may be on their way at once */
#define DELAYS  (1 << 20)

enum where {
    HEAD,
    CHUNK_SIZE,
    CHUNK,
    CHUNK_END,
    OVER /* the last chunk has come */
};

typedef struct follower {
    int fd;
    bool sse, headed, data;
    enum where where;
    uint64_t chunk;    /* bytes of it that are left */
    uint64_t lines;    /* also the number of the next one */
    uint64_t last_ns;  /* when its last line was written */
    uint64_t reported; /* lines at the last report */
    unsigned matched;  /* of the text looked for: the end of the head, or an event's prefix */
    unsigned used;
    char line[LINE];
    const char *path;
} follower;

static follower *all;
static size_t count, opened, headed;
static int epfd;
static const char *socket_path;
static uint64_t bad, cut, ended;
static uint32_t *delays; /* us, since the last report */
static size_t ndelays;
static uint64_t delay_max;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* ---- what comes ---- */

static void whole_line(follower *f, uint64_t now)
{
    char text[LINE + 1] = {0};

    memcpy(text, f->line, LINE);
    uint64_t number = strtoull(text, NULL, 10), written = strtoull(text + 11, NULL, 10);
    if (text[10] != ' ' || text[LINE - 1] != '\n' || number != f->lines) {
        if (!bad++)
            fprintf(stderr, "line %lu reads %s\n", (unsigned long)f->lines, text);
    }
    f->lines++;
    f->last_ns = written;
    uint64_t us = now > written ? (now - written) / 1000 : 0;
    if (us > delay_max)
        delay_max = us;
    if (ndelays < DELAYS)
        delays[ndelays++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

static void take(follower *f, char c, uint64_t now)
{
    f->line[f->used++] = c;
    if (f->used == LINE) {
        f->used = 0;
        whole_line(f, now);
    }
}

/* An event's data is {"text":"...","offset":N} in any order; digits, spaces and \n are all there
 * is. */
static void take_event(follower *f, char c, uint64_t now)
{
    static const char PREFIX[] = "\"text\":\"";

    if (!f->data) {
        f->matched = c == PREFIX[f->matched] ? f->matched + 1 : c == PREFIX[0];
        if (!PREFIX[f->matched]) {
            f->data = true;
            f->matched = 0;
        }
        return;
    }
    if (f->matched) { /* behind a backslash */
        take(f, '\n', now);
        f->matched = 0;
    } else if (c == '\\') {
        f->matched = 1;
    } else if (c == '"') {
        f->data = false;
    } else {
        take(f, c, now);
    }
}

static void take_head(follower *f, char c)
{
    static const char END[] = "\r\n\r\n", OK[] = "HTTP/1.1 200";

    if (f->used < sizeof OK - 1) {
        if (c != OK[f->used]) {
            fprintf(stderr, "refused: %s\n", f->path);
            exit(1);
        }
        f->used++;
    }
    f->matched = c == END[f->matched] ? f->matched + 1 : c == '\r';
    if (f->matched < 4)
        return;
    f->matched = f->used = 0;
    f->where = CHUNK_SIZE;
    f->chunk = 0;
    f->headed = true;
    headed++;
}

static void take_size(follower *f, char c)
{
    if (c >= '0' && c <= '9')
        f->chunk = f->chunk * 16 + (uint64_t)(c - '0');
    else if (c >= 'a' && c <= 'f')
        f->chunk = f->chunk * 16 + (uint64_t)(c - 'a') + 10;
    else if (c == '\n')
        f->where = f->chunk ? CHUNK : OVER;
}

static void feed(follower *f, const char *p, size_t n, uint64_t now)
{
    for (size_t i = 0; i < n; i++) {
        switch (f->where) {
        case HEAD:
            take_head(f, p[i]);
            break;
        case CHUNK_SIZE:
            take_size(f, p[i]);
            break;
        case CHUNK:
            if (f->sse)
                take_event(f, p[i], now);
            else
                take(f, p[i], now);
            if (!--f->chunk)
                f->where = CHUNK_END;
            break;
        case CHUNK_END:
            if (p[i] == '\n')
                f->where = CHUNK_SIZE;
            break;
        case OVER:
            break;
        }
    }
}

static void readable(follower *f)
{
    static char p[256 * 1024];

    for (;;) {
        ssize_t n = recv(f->fd, p, sizeof p, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            if (f->where == OVER)
                ended++;
            else
                cut++;
            close(f->fd);
            f->fd = -1;
            return;
        }
        feed(f, p, (size_t)n, now_ns());
        if (f->where == OVER) {
            ended++;
            close(f->fd);
            f->fd = -1;
            return;
        }
    }
}

/* ---- connecting ---- */

static void open_one(follower *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char text[512];

    snprintf(a.sun_path, sizeof a.sun_path, "%s", socket_path);
    f->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (f->fd < 0 || connect(f->fd, (void *)&a, sizeof a))
        die("connect");
    int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: b\r\n%s\r\n", f->path,
                     f->sse ? "Accept: text/event-stream\r\n" : "");
    if (send(f->fd, text, (size_t)n, MSG_NOSIGNAL) != n)
        die("send");
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = f};
    if (epoll_ctl(epfd, EPOLL_CTL_ADD, f->fd, &ev))
        die("epoll_ctl");
}

static void read_targets(void)
{
    static char line[1024];
    size_t cap = 0;

    while (fgets(line, sizeof line, stdin) && line[0] != '\n') {
        char form[8], path[512];
        unsigned n;
        if (sscanf(line, "%u %7s %511s", &n, form, path) != 3) {
            fprintf(stderr, "no target: %s", line);
            exit(2);
        }
        char *kept = strdup(path);
        for (unsigned i = 0; i < n; i++) {
            if (count == cap) {
                cap = cap ? 2 * cap : 1024;
                all = realloc(all, cap * sizeof *all);
            }
            all[count++] = (follower){.fd = -1, .path = kept, .sse = !strcmp(form, "sse")};
        }
    }
}

/* ---- telling ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static void report(void)
{
    uint64_t lines = 0, silent = 0, least = UINT64_MAX, now = now_ns(), oldest = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t n = all[i].lines - all[i].reported;
        lines += n;
        silent += !n;
        least = n < least ? n : least;
        if (all[i].fd >= 0 && now - all[i].last_ns > oldest)
            oldest = now - all[i].last_ns;
        all[i].reported = all[i].lines;
    }
    qsort(delays, ndelays, sizeof *delays, by_value);
    printf(
        "{\"followers\":%zu,\"lines\":%lu,\"least\":%lu,\"silent\":%lu,\"wrong\":%lu,\"cut\":%lu,"
        "\"ended\":%lu,\"p50_ms\":%.1f,\"p99_ms\":%.1f,\"max_ms\":%.1f,\"oldest_ms\":%.1f}\n",
        count, (unsigned long)lines, (unsigned long)least, (unsigned long)silent,
        (unsigned long)bad, (unsigned long)cut, (unsigned long)ended,
        ndelays ? delays[ndelays / 2] / 1e3 : 0, ndelays ? delays[ndelays * 99 / 100] / 1e3 : 0,
        (double)delay_max / 1e3, (double)oldest / 1e6);
    fflush(stdout);
    ndelays = 0;
    delay_max = 0;
}

static bool command(void)
{
    char line[64];
    ssize_t n = read(0, line, sizeof line);

    if (n <= 0 || line[0] == 'q')
        return false;
    report();
    return true;
}

int main(int argc, char **argv)
{
    struct epoll_event ev[256], in = {.events = EPOLLIN, .data.ptr = NULL};
    struct rlimit r;
    bool told = false;

    if (argc != 2)
        return 2;
    socket_path = argv[1];
    setvbuf(stdin, NULL, _IONBF, 0);
    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    epfd = epoll_create1(EPOLL_CLOEXEC);
    delays = malloc(DELAYS * sizeof *delays);
    read_targets();
    epoll_ctl(epfd, EPOLL_CTL_ADD, 0, &in);
    for (;;) {
        while (opened < count && opened - headed < CONNECT)
            open_one(&all[opened++]);
        if (headed == count && !told) {
            told = true;
            puts("ready");
            fflush(stdout);
        }
        int n = epoll_wait(epfd, ev, 256, -1);
        for (int i = 0; i < n; i++) {
            if (ev[i].data.ptr)
                readable(ev[i].data.ptr);
            else if (!command())
                return 0;
        }
    }
}

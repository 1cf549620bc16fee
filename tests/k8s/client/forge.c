/* A tenant who wants to be bothyd or init. Static; it runs in a sandbox of tests/k8s/claims.py.
 *
 *     forge socket SECONDS    speaks to init's socket in every wrong way
 *     forge attach SECONDS    the same through a `bothy-init attach` of its own
 *     forge flood SECONDS     keeps connections open that prove nothing, all the time
 *     forge kill SECONDS      kills each attach process as it comes
 *     forge stop              stops those that are there
 *     forge reach             tries to get at stdio and memory of those that are there
 *
 * Prints "tried N, taken N": taken is what worked, and must be 0 but for kill and stop, which count
 * processes. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wire/spine_link.h"

#define WAIT_MS 300
#define FLOOD   64

static unsigned tried, taken;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a way to init ---- */

typedef struct way {
    int in, out;
    pid_t pid; /* of an attach of ours, or 0 */
} way;

static int dial_socket(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char target[64] = "", digits[32];
    size_t n = 0;

    if (readlink("/proc/self/ns/pid", target, sizeof target - 1) < 0)
        return -1;
    for (const char *c = target; *c && n < sizeof digits - 1; c++)
        if (*c >= '0' && *c <= '9')
            digits[n++] = *c;
    digits[n] = 0;
    int len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "bothy-init.%s", digits);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&name,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int run_attach(way *w)
{
    int to[2], from[2];

    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        return -1;
    w->pid = fork();
    if (!w->pid) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl("/.bothy/bothy-init", "bothy-init", "attach", (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    w->in = from[0];
    w->out = to[1];
    return w->pid > 0 ? 0 : -1;
}

static int way_open(way *w, int attach)
{
    *w = (way){-1, -1, 0};
    if (attach)
        return run_attach(w);
    w->in = w->out = dial_socket();
    return w->in < 0 ? -1 : 0;
}

static void way_close(way *w)
{
    close(w->in);
    if (w->out != w->in)
        close(w->out);
    if (w->pid > 0) {
        kill(w->pid, SIGKILL);
        waitpid(w->pid, NULL, 0);
    }
}

/* What comes within a moment, as a message of this end; 0: nothing, -1: it is over. */
static long hear(const way *w, spl_end *e, sps_message *m)
{
    static _Alignas(8) char bytes[SPL_ANSWER_MAX];
    size_t have = 0;
    const char *why;

    for (double until = now() + WAIT_MS / 1000.0; now() < until;) {
        struct pollfd p = {w->in, POLLIN, 0};
        if (poll(&p, 1, 20) <= 0)
            continue;
        ssize_t n = read(w->in, bytes + have, sizeof bytes - have);
        if (n <= 0)
            return -1;
        have += (size_t)n;
        long r = spl_next(e, bytes, have, m, &why);
        if (r)
            return r;
    }
    return 0;
}

static void say(const way *w, const void *p, size_t n)
{
    if (write(w->out, p, n) < 0)
        return; /* it was closed: nothing was taken */
}

/* ---- every wrong way ---- */

/* A message with the seal of a key of ours. */
static void say_sealed(const way *w, spl_end *e, uint32_t type, const void *extra, size_t nextra)
{
    static _Alignas(8) char out[SPL_SIZE(256, 256)];
    _Alignas(8) char record[64] = {0};
    struct sp_hdr h = {.type = type, .id = 1};

    memcpy(record, &h, sizeof h);
    say(w, out, spl_put(e, out, record, sizeof record, extra, nextra));
}

static void one(int attach, unsigned how)
{
    static const uint8_t mine[SPL_SECRET] = "a secret of the tenant's own";
    _Alignas(8) char out[SPL_ATTACH_ROOM];
    uint8_t nonce[SPL_NONCE] = {(uint8_t)how};
    spl_end e;
    sps_message m;
    way w;

    tried++;
    if (way_open(&w, attach))
        return;
    spl_begin_link(&e, nonce);
    if (hear(&w, &e, &m) > 0 && m.type == SPS_GREETING) {
        if (how % 4 == 0) /* says that init is nobody's, and leaves a secret */
            e.peer_state = SPL_FRESH;
        size_t n = spl_attach(&e, mine, out);
        if (how % 4 != 3) /* else: as if it had been proved */
            say(&w, out, n);
        if (how % 4 >= 2) { /* what only a proved one may say, and what only init may */
            say_sealed(&w, &e, SP_CLAIM, "sandbox of another", 16);
            say_sealed(&w, &e, SP_EXIT, NULL, 0);
            say_sealed(&w, &e, SPS_STDIO, "forged", 6);
        }
        long r = hear(&w, &e, &m);
        taken += r > 0 && m.type != SPS_REFUSED && m.type != SPS_GREETING;
    }
    way_close(&w);
}

static void flood(double until)
{
    while (now() < until) {
        int fd[FLOOD];
        for (unsigned i = 0; i < FLOOD; i++, tried++)
            fd[i] = dial_socket();
        usleep(200000);
        for (unsigned i = 0; i < FLOOD; i++)
            if (fd[i] >= 0)
                close(fd[i]);
    }
}

/* ---- bothyd's attach processes ---- */

static int is_attach(const char *pid)
{
    char path[300], line[64] = "";
    int fd;

    snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    size_t first = strlen(line);
    return n > (ssize_t)first + 1 && strstr(line, "bothy-init") &&
           !strcmp(line + first + 1, "attach");
}

static void reach(pid_t pid)
{
    static const char *const FILES[] = {"fd/0", "fd/1", "fd/3", "mem", "environ"};
    char path[64];

    for (unsigned i = 0; i < sizeof FILES / sizeof *FILES; i++, tried++) {
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, FILES[i]);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            printf("%s was opened\n", path);
            taken++;
            close(fd);
        }
    }
    tried++;
    if (!ptrace(PTRACE_SEIZE, pid, 0, 0)) {
        printf("%d is traced\n", (int)pid);
        taken++;
    }
}

static void each_attach(int sig)
{
    DIR *d = opendir("/proc");
    struct dirent *e;

    while (d && (e = readdir(d))) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9' || !is_attach(e->d_name))
            continue;
        if (!sig) {
            reach((pid_t)atoi(e->d_name));
            continue;
        }
        tried++;
        taken += !kill((pid_t)atoi(e->d_name), sig);
    }
    if (d)
        closedir(d);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    double until = now() + (argc > 2 ? atof(argv[2]) : 0);

    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(verb, "stop"))
        each_attach(SIGSTOP);
    else if (!strcmp(verb, "reach"))
        each_attach(0);
    else if (!strcmp(verb, "flood"))
        flood(until);
    else if (!strcmp(verb, "kill"))
        for (; now() < until; usleep(20000))
            each_attach(SIGKILL);
    else
        for (unsigned how = 0; now() < until; how++)
            one(!strcmp(verb, "attach"), how);
    printf("tried %u, taken %u\n", tried, taken);
    return 0;
}

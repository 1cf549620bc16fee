/* bench-client: what is timed, in C, so that the driver's own time is not part of it.
 *
 *   bench-client tti SOCKET IMAGE N -- COMMAND…    create and first result; against COMMAND
 *   bench-client exec SOCKET SANDBOX N -- COMMAND… an exec in a live sandbox; against COMMAND and
 *                                                  against /bin/true on the host
 *
 * Subjects take turns in each round, so that what the machine does otherwise hits all alike. Prints
 * "SUBJECT NANOSECONDS" lines. COMMAND is spawned and waited for; {} in it becomes a fresh name. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MAX 65536

extern char **environ;

typedef struct conn {
    int fd;
    char answer[ANSWER_MAX]; /* of the last request, NUL-terminated */
} conn;

static void die(const char *what)
{
    fprintf(stderr, "bench-client: %s: %s\n", what, strerrordesc_np(errno));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void connect_to(conn *c, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof a.sun_path) {
        errno = ENAMETOOLONG;
        die(path);
    }
    memcpy(a.sun_path, path, strlen(path));
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&a, sizeof a))
        die(path);
}

/* The length of a whole answer of n bytes, or 0 if more must come. Only Content-Length: that is
 * what the daemon sends for JSON. */
static size_t answer_length(const char *p, size_t n)
{
    const char *end = strstr(p, "\r\n\r\n"), *length = strcasestr(p, "\r\nContent-Length:");

    if (!end)
        return 0;
    size_t head = (size_t)(end - p) + 4;
    size_t whole = head + (length && length < end ? strtoul(length + 17, NULL, 10) : 0);
    return n >= whole ? whole : 0;
}

/* One request on the kept connection; dies unless the answer is a success. */
static void ask(conn *c, const char *method, const char *path, const char *body)
{
    char out[8192];
    int n = snprintf(out, sizeof out,
                     "%s %s HTTP/1.1\r\nHost: bothy\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     method, path, strlen(body), body);
    size_t got = 0;

    if (n < 0 || (size_t)n >= sizeof out || write(c->fd, out, (size_t)n) != n)
        die("write");
    do {
        ssize_t k = read(c->fd, c->answer + got, sizeof c->answer - got - 1);
        if (k <= 0)
            die("read");
        got += (size_t)k;
        c->answer[got] = 0;
    } while (!answer_length(c->answer, got));
    if (strncmp(c->answer, "HTTP/1.1 2", 10) != 0) {
        fprintf(stderr, "bench-client: %s %s: %s\n", method, path, c->answer);
        exit(1);
    }
}

/* The value of a JSON string member of the last answer. */
static void member(const conn *c, const char *name, char *ret, size_t size)
{
    const char *p = strstr(c->answer, name);
    size_t n = 0;

    p = p ? strchr(p + strlen(name), ':') : NULL;
    p = p ? strchr(p, '"') : NULL;
    if (p)
        n = strcspn(p + 1, "\"");
    if (!p || n >= size) {
        errno = EPROTO;
        die(name);
    }
    memcpy(ret, p + 1, n);
    ret[n] = 0;
}

static void check_exit(const conn *c)
{
    if (!strstr(c->answer, "\"exit_code\":0") && !strstr(c->answer, "\"exit_code\": 0")) {
        fprintf(stderr, "bench-client: the command failed: %s\n", c->answer);
        exit(1);
    }
}

static uint64_t run_command(char *const *argv, unsigned round)
{
    char *copy[64];
    char name[32];
    posix_spawn_file_actions_t fa;
    pid_t pid;
    int status = 0, i = 0;

    snprintf(name, sizeof name, "bench-%d-%u", getpid(), round);
    for (; argv[i] && i < 63; i++)
        copy[i] = strcmp(argv[i], "{}") == 0 ? name : argv[i];
    copy[i] = NULL;
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&fa, 1, "/dev/null", O_WRONLY, 0);
    uint64_t begun = now();
    if (posix_spawnp(&pid, copy[0], &fa, NULL, copy, environ) || waitpid(pid, &status, 0) != pid)
        die(copy[0]);
    uint64_t took = now() - begun;
    posix_spawn_file_actions_destroy(&fa);
    if (status) {
        fprintf(stderr, "bench-client: %s ended with %#x\n", copy[0], (unsigned)status);
        exit(1);
    }
    return took;
}

static uint64_t create_and_run(conn *c, const char *image)
{
    char body[512], path[128], id[64];

    snprintf(body, sizeof body, "{\"image\":\"%s\"}", image);
    uint64_t begun = now();
    ask(c, "POST", "/v1/sandboxes", body);
    member(c, "\"id\"", id, sizeof id);
    snprintf(path, sizeof path, "/v1/sandboxes/%s/exec", id);
    ask(c, "POST", path, "{\"argv\":[\"true\"]}");
    uint64_t took = now() - begun;
    check_exit(c);
    snprintf(path, sizeof path, "/v1/sandboxes/%s", id);
    ask(c, "DELETE", path, "");
    return took;
}

static uint64_t run_exec(conn *c, const char *sandbox)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/sandboxes/%s/exec", sandbox);
    uint64_t begun = now();
    ask(c, "POST", path, "{\"argv\":[\"true\"]}");
    uint64_t took = now() - begun;
    check_exit(c);
    return took;
}

int main(int argc, char **argv)
{
    static char *const BARE[] = {"/bin/true", NULL};
    static conn c;
    unsigned n = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 0;

    if (argc < 7 || !n || strcmp(argv[5], "--") != 0) {
        fprintf(stderr, "usage: bench-client tti|exec SOCKET IMAGE|SANDBOX N -- COMMAND...\n");
        return 2;
    }
    bool tti = strcmp(argv[1], "tti") == 0;
    connect_to(&c, argv[2]);
    for (unsigned i = 0; i < n; i++) {
        uint64_t ours = tti ? create_and_run(&c, argv[3]) : run_exec(&c, argv[3]);
        printf("bothy %lu\n", ours);
        printf("crun %lu\n", run_command(argv + 6, i));
        if (!tti)
            printf("spawn %lu\n", run_command(BARE, i));
    }
    return 0;
}

/* A hand-held bothyd for tests: speaks frames to a warden and records to pid 1 of a slot.
 *
 *   client SOCKET hello
 *   client SOCKET image DIGEST DIFFID...            hex; bottom first
 *   client SOCKET unpack DIFFID FORMAT FILE         0 plain, 1 gzip, 2 zstd
 *   client SOCKET claim ID DIGEST [KEY=VALUE...]    prints slot, uid_base and times; keys: memory
 *            cpu pids shm disk deadline ro setuid tmpfs=PATH:SIZE[:exec] grant user env=NAME=VALUE
 *   client SOCKET exec ID EXEC [-u USER] ARGV...    attaches, runs, prints its streams, its status
 *   client SOCKET attach|destroy|freeze|thaw|socket ID [PORT]
 *   client SOCKET limits ID [KEY=VALUE...]
 *   client SOCKET list | stats ID... | metrics | pool [LOW HIGH] | prune [unclaimed] [DIGEST...]
 *   client SOCKET snapshot ID LAYER [DEADLINE [SECONDS]]  in ms; stays connected so long
 *   client SOCKET raw HEX                           one frame as it is; prints the answer's errno
 *   client SOCKET hold SECONDS ID DIGEST [KEY=VALUE...]  sends a claim and waits without reading
 *
 * Exits with 0, the command's status (exec), or 100 after printing "error ERRNO NAME: text". */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/sock.h"
#include "base/str.h"
#include "wire/spine.h"
#include "wire/spine_codec.h"
#include "wire/wardenp.h"

#define FAILED 100

static int warden = -1;
static char answer[WP_FRAME_MAX];
static size_t answer_n;
static int answer_fd = -1;

static void die(const char *what)
{
    fprintf(stderr, "client: %s: %s\n", what, strerrordesc_np(errno));
    exit(99);
}

static void die_err(err *e)
{
    fprintf(stderr, "client: %s: %s\n", e->message, str_or(e->cause, "-"));
    exit(99);
}

static void must(err *e)
{
    if (e)
        die_err(e);
}

/* ---- frames ---- */

static void send_frame(uint32_t type, uint64_t request, const void *body, size_t n, int fd)
{
    struct wp_hdr h = {.type = type, .request = request};
    struct iovec iov[] = {{&h, sizeof h}, {(void *)body, n}};
    int r = sock_send(warden, iov, 2, &fd, fd >= 0, 0);

    if (r) {
        errno = -r;
        die("send");
    }
}

static struct wp_hdr receive_frame(void)
{
    static char frame[WP_FRAME_MAX];
    struct wp_hdr h;
    size_t nfds;
    int fd = -1;
    ssize_t n = sock_recv(warden, frame, sizeof frame, &fd, 1, &nfds, 0);

    if (n < (ssize_t)sizeof h) {
        errno = n < 0 ? (int)-n : EPIPE;
        die("receive");
    }
    memcpy(&h, frame, sizeof h);
    answer_n = (size_t)n - sizeof h;
    memcpy(answer, frame + sizeof h, answer_n);
    answer_fd = nfds ? fd : -1;
    return h;
}

/* The request's answer in answer[]; ends the program when it is an error. */
static void ask(uint32_t type, const void *body, size_t n, int fd)
{
    static uint64_t request = 7;

    send_frame(type, ++request, body, n, fd);
    struct wp_hdr h = receive_frame();
    if (h.type != (type | WP_ANSWER) || h.request != request) {
        errno = EPROTO;
        die("answer");
    }
    if (h.err) {
        struct wp_error e;
        if (!wp_error_ok(answer, answer_n)) {
            errno = EBADMSG;
            die("error's form");
        }
        memcpy(&e, answer, sizeof e);
        printf("error %d %s: %.*s\n", h.err, strerrorname_np(h.err), (int)(answer_n - sizeof e),
               answer + sizeof e);
        if (e.retry_after)
            printf("retry_after %u\n", e.retry_after);
        exit(FAILED);
    }
    if (!wp_answer_ok(type, answer, answer_n)) {
        errno = EBADMSG;
        die("answer's form");
    }
}

static void greet(void)
{
    ask(WP_HELLO, &(struct wp_hello){.min = 1, .max = 1}, sizeof(struct wp_hello), -1);
}

/* ---- arguments ---- */

static struct wp_id id_arg(const char *s)
{
    struct wp_id id = {0};

    memcpy(id.id, s, strnlen(s, sizeof id.id));
    return id;
}

static struct wp_digest digest_arg(const char *s)
{
    struct wp_digest d;

    if (!hex_decode(s, d.sha256, sizeof d.sha256)) {
        errno = EINVAL;
        die(s);
    }
    return d;
}

static uint64_t bytes_arg(const char *s)
{
    uint64_t v;

    if (!str_to_bytes(s, &v)) {
        errno = EINVAL;
        die(s);
    }
    return v;
}

typedef struct claim_args {
    struct wp_claim c;
    struct wp_tmpfs t[WP_TMPFS_MAX + 1];
    const char *user;
    char **env;
    uint32_t grants;
} claim_args;

static void tmpfs_arg(const char *v, claim_args *a)
{
    CLEANUP(freep) char *text = xstrdup(v);
    char *save = NULL;
    struct wp_tmpfs *t = &a->t[a->c.ntmpfs++];
    const char *path = strtok_r(text, ":", &save), *size = strtok_r(NULL, ":", &save);

    strncpy(t->path, str_or(path, ""), sizeof t->path - 1);
    t->size = bytes_arg(str_or(size, "1m"));
    t->mode = 01777;
    t->flags = strtok_r(NULL, ":", &save) ? WP_TMPFS_EXEC : 0;
}

static bool limit_arg(const char *key, const char *v, struct wp_limits *l)
{
    if (!strcmp(key, "memory"))
        l->memory = bytes_arg(v);
    else if (!strcmp(key, "disk"))
        l->disk = bytes_arg(v);
    else if (!strcmp(key, "cpu"))
        l->cpu_milli = (uint32_t)bytes_arg(v);
    else if (!strcmp(key, "pids"))
        l->pids = (uint32_t)bytes_arg(v);
    else if (!strcmp(key, "shm"))
        l->shm_mib = (uint32_t)bytes_arg(v);
    else
        return false;
    return true;
}

static void claim_arg(char *arg, claim_args *a)
{
    char *v = strchr(arg, '=');

    v = v ? (*v = 0, v + 1) : "";
    if (limit_arg(arg, v, &a->c.limits))
        return;
    if (!strcmp(arg, "deadline"))
        a->c.deadline_ms = bytes_arg(v);
    else if (!strcmp(arg, "ro"))
        a->c.flags |= WP_CLAIM_READ_ONLY;
    else if (!strcmp(arg, "setuid"))
        a->c.flags |= WP_CLAIM_SETUID;
    else if (!strcmp(arg, "tmpfs"))
        tmpfs_arg(v, a);
    else if (!strcmp(arg, "grant"))
        a->grants |= SP_GRANT_SETUID;
    else if (!strcmp(arg, "user"))
        a->user = v;
    else if (!strcmp(arg, "env"))
        strv_push(&a->env, xstrdup(v));
    else {
        errno = EINVAL;
        die(arg);
    }
}

static claim_args claim_args_of(char **argv)
{
    claim_args a = {
        .c = {.sandbox = id_arg(argv[0]), .image = digest_arg(argv[1]), .deadline_ms = 20000}};

    for (argv += 2; *argv; argv++)
        claim_arg(*argv, &a);
    return a;
}

static size_t claim_len(const claim_args *a)
{
    return sizeof a->c + a->c.ntmpfs * sizeof a->t[0];
}

/* ---- the spine ---- */

static void send_record(int fd, spine_out *o)
{
    struct iovec iov = {o->record.p, o->record.len};
    int r = sock_send(fd, &iov, 1, NULL, 0, 0);

    if (r) {
        errno = -r;
        die("spine");
    }
    spine_out_done(o);
}

static size_t receive_record(int fd, void *p, size_t max, int *fds, size_t *nfds)
{
    ssize_t n = sock_recv(fd, p, max, fds, SP_FDS_MAX, nfds, 0);

    if (n <= 0) {
        errno = n < 0 ? (int)-n : EPIPE;
        die("spine");
    }
    const char *wrong = spine_check_answer(p, (size_t)n, *nfds);
    if (wrong) {
        fprintf(stderr, "client: bad record: %s\n", wrong);
        exit(99);
    }
    return (size_t)n;
}

static void dress(int fd, const claim_args *a)
{
    static _Alignas(8) char record[SP_HELLO_MAX];
    spine_out o = {0};
    int fds[SP_FDS_MAX];
    size_t nfds;

    must(spine_encode_claim(
        &(spine_claim){.user = a->user, .env = a->env, .umask = 022, .grants = a->grants}, &o));
    send_record(fd, &o);
    receive_record(fd, record, sizeof record, fds, &nfds);
    const struct sp_hdr *h = (const void *)record;
    if (h->type != SP_DONE || h->err) {
        errno = h->err;
        die("CLAIM of pid 1");
    }
}

static void copy_streams(const int *fds)
{
    struct pollfd p[2] = {{fds[SP_FD_OUT], POLLIN, 0}, {fds[SP_FD_ERR], POLLIN, 0}};
    char chunk[65536];

    while (p[0].fd >= 0 || p[1].fd >= 0) {
        poll(p, 2, -1);
        for (int i = 0; i < 2; i++) {
            if (p[i].fd < 0 || !p[i].revents)
                continue;
            ssize_t n = read(p[i].fd, chunk, sizeof chunk);
            if (n > 0)
                fs_write_all(i + 1, chunk, (size_t)n);
            else if (n == 0 || errno != EAGAIN)
                p[i].fd = -1;
        }
    }
}

static int wait_exit(int fd, uint64_t id)
{
    static _Alignas(8) char record[SP_HELLO_MAX];
    int fds[SP_FDS_MAX];
    size_t nfds;

    for (;;) {
        receive_record(fd, record, sizeof record, fds, &nfds);
        const struct sp_exit *x = (const void *)record;
        if (x->h.type != SP_EXIT || x->r.id != id)
            continue;
        if (x->r.state == SP_FAILED) {
            fprintf(stderr, "client: not started: stage %u, %s\n", x->r.stage,
                    strerrorname_np(x->r.status));
            return 126;
        }
        return WIFEXITED(x->r.status) ? WEXITSTATUS(x->r.status) : 128 + WTERMSIG(x->r.status);
    }
}

static int run(int fd, uint64_t id, const char *user, char **argv)
{
    static _Alignas(8) char record[SP_HELLO_MAX];
    spine_out o = {0};
    int fds[SP_FDS_MAX], named[SP_FDS_MAX] = {-1, -1, -1, -1};
    size_t nfds;

    must(spine_encode_spawn(
        &(spine_spawn){
            .id = id, .flags = SP_F_NOSTDIN, .umask = SP_UMASK_CLAIM, .user = user, .argv = argv},
        &o));
    send_record(fd, &o);
    do
        receive_record(fd, record, sizeof record, fds, &nfds);
    while (((struct sp_hdr *)record)->type != SP_STARTED);
    const struct sp_started *st = (const void *)record;
    if (st->h.err) {
        errno = st->h.err;
        die("SPAWN");
    }
    for (size_t i = 0, k = 0; i < SP_FDS_MAX; i++)
        if (st->fds & (1u << i))
            named[i] = fds[k++];
    copy_streams(named);
    int status = wait_exit(fd, id);
    struct sp_op ack = spine_ack(id, 0xf);
    send(fd, &ack, sizeof ack, MSG_NOSIGNAL);
    return status;
}

/* ---- verbs ---- */

static int do_hello(char **argv)
{
    struct wp_hello h;

    (void)argv;
    memcpy(&h, answer, sizeof h);
    printf("version %u caps %u\n", h.max, h.caps);
    return 0;
}

static int do_image(char **argv)
{
    struct {
        struct wp_image i;
        struct wp_digest d[WP_LAYERS_MAX];
    } f = {.i = {.image = digest_arg(argv[0])}};

    for (argv++; *argv; argv++)
        f.d[f.i.n++] = digest_arg(*argv);
    ask(WP_IMAGE, &f, sizeof f.i + f.i.n * sizeof *f.d, -1);
    return 0;
}

static int do_unpack(char **argv)
{
    struct wp_unpack u = {.diff_id = digest_arg(argv[0]), .format = (uint32_t)atoi(argv[1])};
    struct wp_unpacked a;
    CLEANUP(closep) int fd = open(argv[2], O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        die(argv[2]);
    ask(WP_UNPACK, &u, sizeof u, fd);
    memcpy(&a, answer, sizeof a);
    printf("bytes %" PRIu64 " entries %" PRIu64 " was_there %u\n", a.bytes, a.entries, a.was_there);
    return 0;
}

static int do_claim(char **argv)
{
    claim_args a = claim_args_of(argv);
    struct wp_claimed c;
    struct sp_hello h;

    ask(WP_CLAIM, &a, claim_len(&a), -1);
    memcpy(&c, answer, sizeof c);
    memcpy(&h, answer + sizeof c, sizeof h);
    if (answer_fd < 0 || c.hello != sizeof h || h.h.type != SP_HELLO) {
        errno = EBADMSG;
        die("CLAIM's answer");
    }
    dress(answer_fd, &a);
    printf("slot %u uid_base %u queue_us %" PRIu64 " build_us %" PRIu64 " swap_us %" PRIu64 "\n",
           c.slot, c.uid_base, c.queue_ns / 1000, c.build_ns / 1000, c.swap_ns / 1000);
    strv_free(a.env);
    return 0;
}

static int do_hold(char **argv)
{
    claim_args a = claim_args_of(argv + 1);

    send_frame(WP_CLAIM, 99, &a, claim_len(&a), -1);
    printf("sent\n");
    fflush(stdout);
    usleep((useconds_t)(atof(argv[0]) * 1e6));
    return 0;
}

static int attach(const char *id)
{
    struct wp_id i = id_arg(id);

    ask(WP_ATTACH, &i, sizeof i, -1);
    if (answer_fd < 0) {
        errno = EBADMSG;
        die("ATTACH's answer");
    }
    return answer_fd;
}

static int do_attach(char **argv)
{
    static _Alignas(8) char record[SP_HELLO_MAX];
    int fds[SP_FDS_MAX], fd = attach(argv[0]);
    size_t nfds;

    receive_record(fd, record, sizeof record, fds, &nfds);
    const struct sp_hello *h = (const void *)record;
    printf("instance %016" PRIx64 " high %" PRIu64 " nrec %u claimed %u\n", h->instance, h->high,
           h->nrec, h->flags & SP_HELLO_CLAIMED);
    return 0;
}

static int do_exec(char **argv)
{
    static _Alignas(8) char record[SP_HELLO_MAX];
    int fds[SP_FDS_MAX], fd = attach(argv[0]);
    size_t nfds;
    const char *user = NULL;
    uint64_t id = strtoull(argv[1], NULL, 10);

    receive_record(fd, record, sizeof record, fds, &nfds);
    if (!id) /* the next one */
        id = ((const struct sp_hello *)record)->high + 1;
    argv += 2;
    if (*argv && !strcmp(*argv, "-u")) {
        user = argv[1];
        argv += 2;
    }
    return run(fd, id, user, argv);
}

static int simple(uint32_t type, char **argv)
{
    struct wp_id i = id_arg(argv[0]);

    ask(type, &i, sizeof i, -1);
    return 0;
}

static int do_destroy(char **argv)
{
    return simple(WP_DESTROY, argv);
}
static int do_freeze(char **argv)
{
    return simple(WP_FREEZE, argv);
}
static int do_thaw(char **argv)
{
    return simple(WP_THAW, argv);
}

/* With a port: connects from the host's side and prints what the server inside says. */
static int do_socket(char **argv)
{
    struct sockaddr_in6 to = {.sin6_family = AF_INET6};
    char chunk[4096];

    simple(WP_SOCKET, argv);
    if (!argv[1])
        return answer_fd < 0;
    to.sin6_port = htons((uint16_t)atoi(argv[1]));
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr);
    if (connect(answer_fd, (struct sockaddr *)&to, sizeof to)) {
        to.sin6_addr = in6addr_loopback;
        if (connect(answer_fd, (struct sockaddr *)&to, sizeof to))
            die("connect");
    }
    for (ssize_t n; (n = read(answer_fd, chunk, sizeof chunk)) > 0;)
        fs_write_all(1, chunk, (size_t)n);
    return 0;
}

static int do_limits(char **argv)
{
    struct wp_limits_of l = {.sandbox = id_arg(argv[0])};

    for (argv++; *argv; argv++) {
        char *v = strchr(*argv, '=');
        if (!v)
            return 2;
        *v = 0;
        limit_arg(*argv, v + 1, &l.limits);
    }
    ask(WP_LIMITS, &l, sizeof l, -1);
    return 0;
}

static int do_list(char **argv)
{
    struct wp_list l = {0};

    (void)argv;
    do {
        l = (struct wp_list){.from = l.next};
        ask(WP_LIST, &l, sizeof l, -1);
        memcpy(&l, answer, sizeof l);
        for (uint32_t i = 0; i < l.n; i++) {
            struct wp_box b;
            memcpy(&b, answer + sizeof l + i * sizeof b, sizeof b);
            printf("%s slot %u uid_base %u pid %u flags %u\n", b.sandbox.id, b.slot, b.uid_base,
                   b.pid, b.flags);
        }
    } while (l.next);
    return 0;
}

static int do_stats(char **argv)
{
    struct {
        struct wp_stats s;
        struct wp_id id[WP_STATS_MAX];
    } f = {0};

    for (; *argv; argv++)
        f.id[f.s.n++] = id_arg(*argv);
    f.s.size = sizeof(struct wp_usage);
    ask(WP_STATS, &f, sizeof f.s + f.s.n * sizeof *f.id, -1);
    for (uint32_t i = 0; i < f.s.n; i++) {
        struct wp_usage u = wp_usage_at(answer, i);
        printf("%s cpu_us %" PRIu64 " memory %" PRIu64 " peak %" PRIu64 " limit %" PRIu64
               " oom %" PRIu64 " pids %u flags %u throttled_us %" PRIu64 " io_read %" PRIu64
               " io_written %" PRIu64 "\n",
               u.sandbox.id, u.cpu_us, u.memory, u.memory_peak, u.memory_limit, u.oom_kills, u.pids,
               u.flags, u.cpu_throttled_us, u.io_read, u.io_written);
    }
    return 0;
}

static int do_metrics(char **argv)
{
    (void)argv;
    ask(WP_METRICS, NULL, 0, -1);
    printf("%.*s", (int)answer_n, answer);
    return 0;
}

static int do_pool(char **argv)
{
    struct wp_watermarks set = {0};
    struct wp_pool p;

    if (argv[0] && argv[1])
        set = (struct wp_watermarks){
            .low = (uint32_t)atoi(argv[0]), .high = (uint32_t)atoi(argv[1]), .flags = WP_POOL_SET};
    ask(WP_POOL, &set, sizeof set, -1);
    memcpy(&p, answer, sizeof p);
    printf("low %u high %u max %u ready %u making %u claimed %u dying %u waiting %u failed %u "
           "failures %u why %u held_by %u refill_us %" PRIu64 " oldest_ms %" PRIu64
           " next_try_ms %" PRIu64 "\n%s",
           p.low, p.high, p.max, p.ready, p.making, p.claimed, p.dying, p.waiting, p.refills_failed,
           p.failures, p.why, p.held_by, p.refill_ns / 1000, p.oldest_wait_ns / 1000000,
           p.next_try_ns / 1000000, p.last_error);
    return 0;
}

static int do_prune(char **argv)
{
    struct {
        struct wp_prune p;
        struct wp_digest d[64];
    } f = {0};
    struct wp_pruned a;

    if (*argv && !strcmp(*argv, "unclaimed")) {
        f.p.flags = WP_PRUNE_UNCLAIMED;
        argv++;
    }
    for (; *argv; argv++)
        f.d[f.p.n++] = digest_arg(*argv);
    ask(WP_PRUNE, &f, sizeof f.p + f.p.n * sizeof *f.d, -1);
    memcpy(&a, answer, sizeof a);
    printf("layers %" PRIu64 " bytes %" PRIu64 "\n", a.layers, a.bytes);
    return 0;
}

static int do_snapshot(char **argv)
{
    struct wp_snapshot s = {
        .sandbox = id_arg(argv[0]), .layer = digest_arg(argv[1]), .deadline_ms = 60000};
    struct wp_snapshotted a;

    if (argv[2])
        s.deadline_ms = strtoull(argv[2], NULL, 10);
    ask(WP_SNAPSHOT, &s, sizeof s, -1);
    memcpy(&a, answer, sizeof a);
    printf("bytes %" PRIu64 " entries %" PRIu64 " still_us %" PRIu64 "\n", a.bytes, a.entries,
           a.still_ns / 1000);
    fflush(stdout);
    if (argv[2] && argv[3])
        usleep((useconds_t)(atof(argv[3]) * 1e6));
    return 0;
}

static int do_raw(char **argv)
{
    static char frame[WP_FRAME_MAX];
    size_t n = strlen(argv[0]) / 2;

    if (n > sizeof frame || !hex_decode(argv[0], frame, n))
        return 2;
    if (send(warden, frame, n, MSG_NOSIGNAL) < 0)
        die("send");
    struct wp_hdr h = receive_frame();
    printf("error %d %s\n", h.err, h.err ? strerrorname_np(h.err) : "none");
    return 0;
}

static const struct {
    const char *name;
    int (*run)(char **argv);
    int least; /* arguments */
} VERBS[] = {
    {"hello", do_hello, 0},   {"image", do_image, 2},     {"unpack", do_unpack, 3},
    {"claim", do_claim, 2},   {"hold", do_hold, 3},       {"exec", do_exec, 3},
    {"attach", do_attach, 1}, {"destroy", do_destroy, 1}, {"freeze", do_freeze, 1},
    {"thaw", do_thaw, 1},     {"socket", do_socket, 1},   {"limits", do_limits, 1},
    {"list", do_list, 0},     {"stats", do_stats, 1},     {"metrics", do_metrics, 0},
    {"pool", do_pool, 0},     {"prune", do_prune, 0},     {"snapshot", do_snapshot, 2},
    {"raw", do_raw, 1},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 2 && i < ARRAY_LEN(VERBS); i++) {
        if (strcmp(argv[2], VERBS[i].name) != 0 || argc - 3 < VERBS[i].least)
            continue;
        must(sock_connect_path(argv[1], SOCK_SEQPACKET, &warden));
        if (strcmp(argv[2], "raw") != 0)
            greet();
        int status = VERBS[i].run(argv + 3);
        fflush(stdout);
        return status;
    }
    fprintf(stderr, "usage: client SOCKET VERB ...: see the head of client.c\n");
    return 2;
}

/* The kit's verbs that are not about files, as programs (argv[1]): a connection that is stdin and
 * stdout, and what a cgroup has counted. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/str.h"
#include "wire/kit.h"

#include "../unit.h"

extern char **environ;
static const char *program;

typedef struct kit {
    pid_t pid;
    int in, out, err;
} kit;

static kit launch(const kit_request *rq)
{
    char numbers[KIT_NUMBERS];
    const char *argv[KIT_ARGC + 1];
    posix_spawn_file_actions_t fa;
    int in[2], out[2], errors[2];
    kit k;

    assert_int_equal(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC) | pipe2(errors, O_CLOEXEC), 0);
    kit_request_write(rq, numbers, argv);
    posix_spawn_file_actions_init(&fa);
    posix_spawn_file_actions_adddup2(&fa, in[0], 0);
    posix_spawn_file_actions_adddup2(&fa, out[1], 1);
    posix_spawn_file_actions_adddup2(&fa, errors[1], 2);
    assert_int_equal(posix_spawn(&k.pid, program, &fa, NULL, (char **)argv, environ), 0);
    posix_spawn_file_actions_destroy(&fa);
    close(in[0]);
    close(out[1]);
    close(errors[1]);
    k.in = in[1];
    k.out = out[0];
    k.err = errors[0];
    return k;
}

static int ended(kit *k)
{
    int status;

    closep(&k->in);
    closep(&k->out);
    closep(&k->err);
    assert_int_equal(waitpid(k->pid, &status, 0), k->pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- dial ---- */

static int listen_on(int family, uint16_t *ret_port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    bool v6 = family == AF_INET6;
    struct sockaddr *a = v6 ? (struct sockaddr *)&six : (struct sockaddr *)&four;
    socklen_t n = v6 ? sizeof six : sizeof four;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, a, n))
        return -1;
    assert_int_equal(listen(fd, 8), 0);
    getsockname(fd, a, &n);
    *ret_port = ntohs(v6 ? six.sin6_port : four.sin_port);
    return fd;
}

static kit dial(uint16_t port)
{
    return launch(&(kit_request){.verb = KIT_DIAL, .offset = port, .path = "/"});
}

static int dialled(const kit *k)
{
    char said[sizeof(struct kit_dialled)];
    int errnum = -1;

    assert_int_equal(read(k->out, said, sizeof said), sizeof said);
    assert_true(kit_dialled_read(said, sizeof said, &errnum));
    return errnum;
}

static size_t read_all(int fd, buf *b)
{
    char chunk[65536];
    ssize_t n;

    buf_clear(b);
    while ((n = read(fd, chunk, sizeof chunk)) > 0)
        buf_append(b, chunk, (size_t)n);
    return b->len;
}

static int waiting(int fd)
{
    int n = 0;

    assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
    return n;
}

static void bytes_go_both_ways_and_each_side_ends_by_itself(void **state)
{
    CLEANUP(buf_done) buf b = {0};
    uint16_t port;
    int l = listen_on(AF_INET, &port);
    kit k = dial(port);
    int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);

    (void)state;
    assert_int_equal(dialled(&k), 0);
    assert_int_equal(write(k.in, "question", 8), 8);
    closep(&k.in);
    k.in = -1;
    assert_int_equal(read_all(s, &b), 8); /* to the end of what we say, and the server goes on */
    assert_int_equal(send(s, "answer", 6, 0), 6);
    assert_int_equal(waiting(k.err), 0);
    close(s);
    assert_int_equal(read_all(k.out, &b), 6);
    assert_int_equal(waiting(k.err), 1); /* whole */
    assert_int_equal(ended(&k), 0);
    close(l);
}

static void a_server_that_has_ended_its_side_is_still_spoken_to(void **state)
{
    CLEANUP(buf_done) buf b = {0};
    uint16_t port;
    int l = listen_on(AF_INET, &port);
    kit k = dial(port);
    int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);

    (void)state;
    assert_int_equal(dialled(&k), 0);
    shutdown(s, SHUT_WR);
    assert_int_equal(read_all(k.out, &b), 0);
    assert_int_equal(waiting(k.err), 1);
    assert_int_equal(write(k.in, "late", 4), 4);
    closep(&k.in);
    k.in = -1;
    assert_int_equal(read_all(s, &b), 4);
    assert_int_equal(ended(&k), 0);
    close(s);
    close(l);
}

static void more_than_anything_holds_goes_through(void **state)
{
    enum {
        SIZE = 5 << 20
    };
    CLEANUP(freep) char *sent = xmalloc(SIZE), *got = xmalloc(SIZE);
    uint16_t port;
    int l = listen_on(AF_INET, &port);
    kit k = dial(port);
    int s = accept4(l, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    size_t out = 0, in = 0;

    (void)state;
    assert_int_equal(dialled(&k), 0);
    fcntl(k.out, F_SETFL, O_NONBLOCK);
    for (size_t i = 0; i < SIZE; i++)
        sent[i] = (char)(i * 31 + (i >> 12));
    while (in < SIZE) {
        ssize_t n = out < SIZE ? send(s, sent + out, SIZE - out, MSG_NOSIGNAL) : 0;
        out += n > 0 ? (size_t)n : 0;
        n = read(k.out, got + in, SIZE - in);
        assert_true(n > 0 || (n < 0 && errno == EAGAIN));
        in += n > 0 ? (size_t)n : 0;
    }
    assert_memory_equal(sent, got, SIZE);
    close(s);
    assert_int_equal(ended(&k), 0);
    close(l);
}

static void a_port_nobody_listens_on_is_told(void **state)
{
    CLEANUP(buf_done) buf b = {0};
    uint16_t port;

    (void)state;
    close(listen_on(AF_INET, &port));
    kit k = dial(port);
    assert_int_equal(dialled(&k), ECONNREFUSED);
    assert_int_equal(read_all(k.out, &b), 0);
    assert_int_equal(ended(&k), 0);
    k = dial(0);
    assert_int_equal(dialled(&k), EINVAL);
    ended(&k);
}

static void a_server_on_the_other_loopback_is_found(void **state)
{
    uint16_t port;
    int l = listen_on(AF_INET6, &port);

    (void)state;
    if (l < 0)
        skip(); /* the machine has no IPv6 */
    kit k = dial(port);
    assert_int_equal(dialled(&k), 0);
    ended(&k);
    close(l);
}

static void an_answer_that_was_reset_does_not_end_whole(void **state)
{
    struct linger now = {.l_onoff = 1};
    CLEANUP(buf_done) buf b = {0};
    uint16_t port;
    int l = listen_on(AF_INET, &port);
    kit k = dial(port);
    int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);

    (void)state;
    assert_int_equal(dialled(&k), 0);
    assert_int_equal(send(s, "half", 4, 0), 4);
    assert_int_equal(read(k.out, (char[4]){0}, 4), 4);
    setsockopt(s, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(s);
    assert_int_equal(read_all(k.out, &b), 0);
    assert_int_equal(waiting(k.err), 0);
    assert_int_equal(ended(&k), 1);
    close(l);
}

static void who_leaves_has_said_what_was_said(void **state)
{
    CLEANUP(buf_done) buf b = {0};
    uint16_t port;
    int l = listen_on(AF_INET, &port);
    kit k = dial(port);
    int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);

    (void)state;
    assert_int_equal(dialled(&k), 0);
    assert_int_equal(write(k.in, "last words", 10), 10);
    assert_int_equal(ended(&k), 0); /* though the server has closed nothing */
    assert_int_equal(read_all(s, &b), 10);
    close(s);
    close(l);
}

/* ---- usage ---- */

static char tree[] = "/tmp/bothy-usage.XXXXXX";

static void put(const char *path, const char *text)
{
    CLEANUP(freep) char *full = str_printf("%s/%s", tree, path);
    CLEANUP(freep) char *parent = str_printf("%s/%s", tree, path);

    *strrchr(parent, '/') = 0;
    assert_ok(fs_mkdirs(parent, 0755));
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static struct kit_usage usage(void)
{
    CLEANUP(buf_done) buf b = {0};
    kit k = launch(&(kit_request){.verb = KIT_USAGE, .path = tree});
    struct kit_usage u = {0};

    read_all(k.out, &b);
    assert_true(kit_usage_read(b.p, b.len, &u));
    assert_int_equal(ended(&k), 0);
    return u;
}

static int make_tree(void **state)
{
    (void)state;
    return mkdtemp(tree) ? 0 : -1;
}

static int remove_tree(void **state)
{
    (void)state;
    err_drop(fs_remove(AT_FDCWD, tree), "test");
    memcpy(tree + strlen(tree) - 6, "XXXXXX", 6);
    return 0;
}

static const char NETWORK[] =
    "Inter-|   Receive                            |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop\n"
    "    lo: 999 1 0 9 0 0 0 0 999 1 0 9 0 0 0 0\n"
    "  eth0: 100 2 0 3 0 0 0 0 2000 4 0 5 0 0 0 0\n"
    "  eth1:11 2 0 0 0 0 0 0 22 4 0 0 0 0 0 0\n";

static void v2_is_read(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put("proc/net/dev", NETWORK);
    put("sys/fs/cgroup/cgroup.controllers", "cpu io memory pids\n");
    put("sys/fs/cgroup/cpu.stat", "usage_usec 12345\nuser_usec 1\nthrottled_usec 77\n");
    put("sys/fs/cgroup/memory.current", "4096\n");
    put("sys/fs/cgroup/memory.peak", "8192\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    put("sys/fs/cgroup/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 9\n");
    put("sys/fs/cgroup/pids.current", "17\n");
    put("sys/fs/cgroup/io.stat",
        "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2 dbytes=9\n");
    struct kit_usage u = usage();
    assert_int_equal(u.flags, KIT_USAGE_CPU);
    assert_int_equal(u.cpu_us, 12345);
    assert_int_equal(u.cpu_throttled_us, 77);
    assert_int_equal(u.memory, 4096);
    assert_int_equal(u.memory_peak, 8192);
    assert_int_equal(u.memory_limit, 0);
    assert_int_equal(u.oom_kills, 2);
    assert_int_equal(u.pids, 17);
    assert_int_equal(u.io_read, 11);
    assert_int_equal(u.io_written, 22);
    assert_int_equal(u.net_rx, 111);
    assert_int_equal(u.net_tx, 2022);
    assert_int_equal(u.net_dropped, 8);
}

static void the_own_group_comes_before_the_mounts_root(void **state)
{
    (void)state;
    put("proc/self/cgroup", "1:name=systemd:/x\n0::/pod/box\n");
    put("sys/fs/cgroup/cgroup.controllers", "memory\n");
    put("sys/fs/cgroup/memory.current", "1\n");
    put("sys/fs/cgroup/pids.current", "3\n");
    put("sys/fs/cgroup/pod/box/memory.current", "2\n");
    struct kit_usage u = usage();
    assert_int_equal(u.memory, 2);
    assert_int_equal(u.pids, 3);
}

static void v1_is_read(void **state)
{
    (void)state;
    put("proc/self/cgroup",
        "9:name=systemd:/\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
    put("sys/fs/cgroup/memory/memory.max_usage_in_bytes", "8192\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", "5000000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.stat", "nr_periods 1\nthrottled_time 9000\n");
    put("sys/fs/cgroup/pids/pids.current", "5\n");
    put("sys/fs/cgroup/blkio/blkio.throttle.io_service_bytes_recursive",
        "8:0 Read 30\n8:0 Write 40\n8:0 Total 70\n8:16 Read 3\nTotal 73\n");
    struct kit_usage u = usage();
    assert_int_equal(u.memory, 4096);
    assert_int_equal(u.memory_peak, 8192);
    assert_int_equal(u.memory_limit, 0);
    assert_int_equal(u.oom_kills, 4);
    assert_int_equal(u.flags, KIT_USAGE_CPU);
    assert_int_equal(u.cpu_us, 5000);
    assert_int_equal(u.cpu_throttled_us, 9);
    assert_int_equal(u.pids, 5);
    assert_int_equal(u.io_read, 33);
    assert_int_equal(u.io_written, 40);
}

/* A tenant that is root may mount what it likes there: a FIFO, nonsense, nothing. */
static void what_is_no_counter_is_nothing(void **state)
{
    CLEANUP(freep) char *fifo = str_printf("%s/sys/fs/cgroup/memory.current", tree);

    (void)state;
    assert_int_equal(usage().flags, 0); /* and is known to be none */
    put("proc/self/cgroup", "0::\n:::::\n0:\n12");
    put("proc/net/dev", ":\n: x 2\neth0:\neth0: -1 x\neth1: 99999999999999999999 1");
    put("sys/fs/cgroup/cgroup.controllers", "");
    put("sys/fs/cgroup/cpu.stat", "usage_usec");
    put("sys/fs/cgroup/io.stat", "rbytes=rbytes=5 wbytes=99999999999999999999999");
    assert_int_equal(mkfifo(fifo, 0644), 0);
    struct kit_usage u = usage();
    assert_int_equal(u.cpu_us | u.io_read | u.io_written | u.memory | u.net_rx | u.net_tx, 0);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, make_tree, remove_tree)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_both_ways_and_each_side_ends_by_itself),
        cmocka_unit_test(a_server_that_has_ended_its_side_is_still_spoken_to),
        cmocka_unit_test(more_than_anything_holds_goes_through),
        cmocka_unit_test(a_port_nobody_listens_on_is_told),
        cmocka_unit_test(a_server_on_the_other_loopback_is_found),
        cmocka_unit_test(an_answer_that_was_reset_does_not_end_whole),
        cmocka_unit_test(who_leaves_has_said_what_was_said),
        TREE_TEST(v2_is_read),
        TREE_TEST(the_own_group_comes_before_the_mounts_root),
        TREE_TEST(v1_is_read),
        TREE_TEST(what_is_no_counter_is_nothing),
    };

    if (argc < 2)
        return 2;
    program = realpath(argv[1], NULL);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/sock.h"
#include "base/str.h"

#include "../unit.h"

static void long_paths_bind_and_connect(void **state)
{
    char dir[] = "/tmp/bothy-test-XXXXXX";
    int listener = -1, client = -1;
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(dir));
    CLEANUP(freep) char *deep = str_printf("%s/%0120d", dir, 1);
    CLEANUP(freep) char *path = str_printf("%s/s", deep);
    assert_ok(fs_mkdirs(deep, 0700));
    assert_ok(sock_bind_path(path, SOCK_SEQPACKET, 0660, &listener));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    assert_err(sock_connect_path(path, SOCK_SEQPACKET, &client), ERR_UNAVAILABLE);
    assert_int_equal(listen(listener, 1), 0);
    assert_ok(sock_connect_path(path, SOCK_SEQPACKET, &client));
    sock_peer peer;
    assert_true(sock_peer_of(client, &peer));
    assert_int_equal(peer.pid, getpid());
    assert_true(sock_peer_in_group(client, getgid()));
    close(client);
    close(listener);
    assert_ok(fs_remove(AT_FDCWD, dir));
}

static void descriptors_travel_and_none_leaks(void **state)
{
    int s[2], got[2], p[2];
    size_t n = 0;
    char c = 0;
    struct iovec v = {"hello", 5};
    char text[16];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    assert_int_equal(sock_send(s[0], &v, 1, (int[]){p[0], p[1]}, 2, 0), 0);
    assert_int_equal(sock_recv(s[1], text, sizeof text, got, 2, &n, 0), 5);
    assert_int_equal(n, 2);
    assert_int_equal(write(got[1], "x", 1), 1);
    assert_int_equal(read(p[0], &c, 1), 1);
    assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    close(got[0]);
    close(got[1]);
    /* a cut message gives its descriptors back to nobody */
    assert_int_equal(sock_send(s[0], &v, 1, (int[]){p[0]}, 1, 0), 0);
    int before = dup(0);
    close(before);
    assert_int_equal(sock_recv(s[1], text, 2, got, 2, &n, 0), -EMSGSIZE);
    int after = dup(0);
    close(after);
    assert_int_equal(before, after);
    close(s[0]);
    assert_int_equal(sock_recv(s[1], text, sizeof text, got, 2, &n, 0), 0);
    close(s[1]);
    close(p[0]);
    close(p[1]);
}

/* Whose fault it is that descriptors do not come must be told apart: too many are the peer's. */
static void a_full_table_is_not_the_peers_fault(void **state)
{
    int s[2], got[4], one = 7;
    struct iovec v = {"hello", 5};
    struct rlimit old, low;
    char text[16];
    size_t n = 9;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(sock_send(s[0], &v, 1, (int[]){0, 0, 0}, 3, 0), 0);
    int next = dup(0);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = (struct rlimit){(rlim_t)next + 1, old.rlim_max}; /* place for one */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    ssize_t first = sock_recv(s[1], text, sizeof text, got, 4, &n, 0);
    ssize_t second = sock_recv_lost(s[1], text, sizeof text, &one, 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(first, -EMFILE);
    assert_int_equal(n, 0);
    assert_int_equal(second, 5);
    assert_int_equal(one, -1);
    int after = dup(0);
    close(after);
    assert_int_equal(after, next); /* none leaked */
    close(s[0]);
    close(s[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_paths_bind_and_connect),
        cmocka_unit_test(descriptors_travel_and_none_leaks),
        cmocka_unit_test(a_full_table_is_not_the_peers_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

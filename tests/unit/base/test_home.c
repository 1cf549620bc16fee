/* Where a user's things lie, and which engine is taken. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/home.h"
#include "base/sock.h"
#include "base/str.h"

#include "../unit.h"

static char dir[64];

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/bothy-home.XXXXXX");
    assert_non_null(mkdtemp(dir));
    setenv("HOME", dir, 1);
    unsetenv("XDG_STATE_HOME");
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("DOCKER_HOST");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_ok(fs_remove(AT_FDCWD, dir));
    return 0;
}

static void check(char *got, const char *below)
{
    CLEANUP(freep)
    char *expected = *below == '/' ? xstrdup(below) : str_printf("%s/%s", dir, below);

    assert_string_equal(got, expected);
    free(got);
}

static void places_are_xdgs(void **state)
{
    (void)state;
    check(home_state(), ".local/state/bothy");
    check(home_config(), ".config/bothy/bothy.yaml");
    check(home_run(), ".local/state/bothy/run");
    setenv("XDG_STATE_HOME", "/s", 1);
    setenv("XDG_CONFIG_HOME", "/c", 1);
    setenv("XDG_RUNTIME_DIR", "/r", 1);
    check(home_state(), "/s/bothy");
    check(home_config(), "/c/bothy/bothy.yaml");
    check(home_run(), "/r/bothy");
    setenv("XDG_STATE_HOME", "s", 1); /* relative: as if it were not there */
    check(home_state(), ".local/state/bothy");
}

static char *listen_at(const char *below, mode_t mode, int *ret_fd)
{
    char *path = str_printf("%s/%s", dir, below);
    CLEANUP(freep) char *parent = xstrndup(path, (size_t)(strrchr(path, '/') - path));

    assert_ok(fs_mkdirs(parent, 0700));
    assert_ok(sock_bind_path(path, SOCK_STREAM, mode, ret_fd));
    assert_int_equal(listen(*ret_fd, 1), 0);
    return path;
}

static void a_users_podman_is_found(void **state)
{
    CLEANUP(closep) int fd = -1;
    CLEANUP(freep) char *path = listen_at("run/podman/podman.sock", 0600, &fd);
    CLEANUP(freep) char *run = str_printf("%s/run", dir);
    CLEANUP(freep) char *got = NULL;

    (void)state;
    if (!access("/var/run/docker.sock", F_OK))
        skip(); /* it goes first, and is not ours */
    setenv("XDG_RUNTIME_DIR", run, 1);
    assert_ok(home_engine("", &got));
    assert_string_equal(got, path);
}

static void what_is_named_is_the_only_one(void **state)
{
    CLEANUP(closep) int fd = -1;
    CLEANUP(freep) char *path = listen_at("engine.sock", 0600, &fd);
    CLEANUP(freep) char *url = str_printf("unix://%s", path);
    CLEANUP(freep) char *got = NULL;
    CLEANUP(freep) char *of_env = NULL;
    CLEANUP(freep) char *as_url = NULL;

    (void)state;
    assert_ok(home_engine(path, &got));
    assert_string_equal(got, path);
    assert_ok(home_engine(url, &as_url));
    assert_string_equal(as_url, path);
    setenv("DOCKER_HOST", url, 1);
    assert_ok(home_engine(NULL, &of_env));
    assert_string_equal(of_env, path);
    assert_err(home_engine("/nowhere/x.sock", &got), ERR_UNAVAILABLE);
    setenv("DOCKER_HOST", "unix:///nowhere/x.sock", 1);
    assert_err(home_engine(NULL, &got), ERR_UNAVAILABLE);
    setenv("DOCKER_HOST", "tcp://127.0.0.1:2375", 1);
    assert_err(home_engine(NULL, &got), ERR_UNSUPPORTED);
}

static void a_refusal_says_what_to_do(void **state)
{
    char *none = NULL;

    (void)state;
    CLEANUP(err_freep) err *e = home_engine("/nowhere/x.sock", &none);
    assert_non_null(strstr(err_remedy_of(e), "systemctl start docker"));
    if (!geteuid())
        return; /* nothing is denied to root */
    CLEANUP(closep) int fd = -1;
    CLEANUP(freep) char *path = listen_at("denied.sock", 0000, &fd);
    CLEANUP(err_freep) err *denied = home_engine(path, &none);
    assert_non_null(strstr(err_remedy_of(denied), "usermod -aG docker"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(places_are_xdgs),
        TEST(a_users_podman_is_found),
        TEST(what_is_named_is_the_only_one),
        TEST(a_refusal_says_what_to_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

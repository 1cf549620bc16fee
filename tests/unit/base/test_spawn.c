#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/spawn.h"

#include "../unit.h"

static void output_comes_back(void **state)
{
    char *const argv[] = {"sh", "-c", "echo out; echo err >&2", NULL};
    char *out = NULL;

    (void)state;
    assert_ok(spawn_run(argv, 5000, &out));
    assert_string_equal(out, "out\nerr\n");
    free(out);
}

static void failure_names_the_last_line(void **state)
{
    char *const argv[] = {"sh", "-c", "echo first; echo why it failed >&2; exit 4", NULL};
    char *const none[] = {"/no/such/program", NULL};

    (void)state;
    err *e = spawn_run(argv, 5000, NULL);
    assert_non_null(e);
    assert_string_equal(e->cause, "why it failed");
    assert_non_null(strstr(e->message, "status 4"));
    err_free(e);
    assert_err(spawn_run(none, 5000, NULL), ERR_UNAVAILABLE);
}

static void only_the_named_descriptors_arrive(void **state)
{
    char *const argv[] = {"sh", "-c", "ls /proc/self/fd | wc -l", NULL};
    int stray = open("/dev/null", O_RDONLY); /* not close-on-exec on purpose */
    char *out = NULL;

    (void)state;
    assert_ok(spawn_run(argv, 5000, &out));
    assert_int_equal(atoi(out), 4); /* 0 1 2 and ls's own directory */
    free(out);
    close(stray);
}

static void a_child_that_does_not_end_is_killed(void **state)
{
    char *const argv[] = {"sleep", "60", NULL};
    const int fds[] = {-1, -1, -1};
    pid_t pid;
    int status = 0;
    uint64_t start = now_mono_ns();

    (void)state;
    assert_ok(spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 3}, &pid));
    assert_err(spawn_wait(pid, 50, &status), ERR_TIMEOUT);
    assert_true(WIFSIGNALED(status));
    assert_true(now_mono_ns() - start < 10 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_comes_back),
        cmocka_unit_test(failure_names_the_last_line),
        cmocka_unit_test(only_the_named_descriptors_arrive),
        cmocka_unit_test(a_child_that_does_not_end_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

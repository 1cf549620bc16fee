/* Kills by the numbers that a cgroup of v1 lists; it is a file of a directory here. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "warden/cgroup.h"

#include "../unit.h"

#define CHILDREN 150 /* more than are held at once */

static char dir[32];
static cgroups cg;
static pid_t child[CHILDREN];
static pid_t leaves; /* negative: leaves the cgroup when it is held; then positive */

/* Lists all children but the one that has left. */
static void list(void)
{
    char path[96];

    snprintf(path, sizeof path, "%s/t/1/cgroup.procs", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < CHILDREN; i++)
        if (child[i] != leaves)
            fprintf(f, "%d\n", child[i]);
    fclose(f);
}

/* In place of the system's. */
int pidfd_open(pid_t pid, unsigned flags)
{
    if (leaves == -pid) {
        leaves = pid;
        list();
    }
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

static int setup(void **state)
{
    (void)state;
    char path[96];

    strcpy(dir, "/tmp/bothy-kill-XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/t%s", dir, i ? "/1" : "");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    cg = (cgroups){.path = "/t", .io = -1, .cpuset = -1};
    for (int i = 0; i < CG_CONTROLLERS; i++)
        cg.of[i] = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < CHILDREN; i++) {
        child[i] = fork();
        if (!child[i])
            for (;;)
                pause();
    }
    leaves = 0;
    list();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < CHILDREN; i++)
        if (child[i] && !waitpid(child[i], NULL, WNOHANG)) {
            kill(child[i], SIGKILL);
            waitpid(child[i], NULL, 0);
        }
    for (int i = 0; i < CG_CONTROLLERS; i++)
        close(cg.of[i]);
    return fs_remove(AT_FDCWD, dir) ? -1 : 0;
}

static void all_that_are_listed_are_killed(void **state)
{
    (void)state;
    cgroup_kill(&cg, 1);
    for (size_t i = 0; i < CHILDREN; i++) {
        int status = 0;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        child[i] = 0;
    }
}

/* Its number may be that of a stranger by now. */
static void one_that_has_left_the_cgroup_lives(void **state)
{
    (void)state;
    leaves = -child[70];
    cgroup_kill(&cg, 1);
    assert_int_equal(leaves, child[70]);
    for (size_t i = 0; i < CHILDREN; i++) {
        if (i == 70)
            continue;
        assert_int_equal(waitpid(child[i], NULL, 0), child[i]);
        child[i] = 0;
    }
    assert_int_equal(waitpid(child[70], NULL, WNOHANG), 0);
    assert_int_equal(kill(child[70], 0), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_that_are_listed_are_killed),
        CASE(one_that_has_left_the_cgroup_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/landlock.h"
#include "base/str.h"
#include "base/thread.h"

#include "../unit.h"

typedef struct tree { /* top/in, top/out, each with a file f */
    char top[32];
    char *in, *out;
} tree;

static void make(const char *dir)
{
    char *path = str_printf("%s/f", dir);
    int fd;

    assert_int_equal(mkdir(dir, 0700), 0);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    close(fd);
    free(path);
}

static int setup(void **state)
{
    tree *t = xcalloc(1, sizeof *t);

    strcpy(t->top, "/tmp/bothy-landlock-XXXXXX");
    assert_non_null(mkdtemp(t->top));
    t->in = str_printf("%s/in", t->top);
    t->out = str_printf("%s/out", t->top);
    make(t->in);
    make(t->out);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    tree *t = *state;
    char *line = str_printf("rm -rf %s", t->top);
    int r = system(line);

    free(line);
    free(t->in);
    free(t->out);
    free(t);
    return r;
}

/* ---- attempts; 0 or errno ---- */

static int try_open(const char *dir, const char *name, int flags)
{
    char *path = str_printf("%s/%s", dir, name);
    int fd = open(path, flags | O_CLOEXEC, 0600), r = fd < 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    free(path);
    return r;
}

static int try_rename(const char *from, const char *to)
{
    char *a = str_printf("%s/new", from), *b = str_printf("%s/g", to);
    int r = rename(a, b) ? errno : 0;

    free(a);
    free(b);
    return r;
}

/* Into another directory that can be written as well. */
static int try_move(const char *dir)
{
    char *sub = str_printf("%s/sub", dir), *a = str_printf("%s/g", dir);
    char *b = str_printf("%s/sub/g", dir);
    int r = mkdir(sub, 0700) || rename(a, b) ? errno : 0;

    free(sub);
    free(a);
    free(b);
    return r;
}

static int try_run(const char *dir)
{
    char *path = str_printf("%s/f", dir);
    char *argv[] = {path, NULL}, *envp[] = {NULL};

    execve(path, argv, envp); /* an empty file: ENOEXEC where it is let through */
    int r = errno;
    free(path);
    return r;
}

static int try_bind(uint16_t port)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = bind(fd, (struct sockaddr *)&a, sizeof a) ? errno : 0;

    close(fd);
    return r;
}

/* ---- each in a thread of its own: a domain cannot be left ---- */

static void alone(void *(*run)(void *), void *arg)
{
    if (landlock_abi() < 6)
        skip();
    void *bad = NULL;
    pthread_join(thread_start("landlock", run, arg), &bad);
    if (bad)
        fail_msg("%s", (const char *)bad);
}
#define EXPECT(call, want)                          \
    do {                                            \
        if ((call) != (want))                       \
            return (void *)(#call " is no " #want); \
    } while (0)

static void *run_write(void *arg)
{
    tree *t = arg;
    const landlock_rule rules[] = {{t->in, LANDLOCK_READ | LANDLOCK_WRITE, false},
                                   {t->out, LANDLOCK_READ, false},
                                   {"/no/such", LANDLOCK_READ, true}};

    err *e = landlock_restrict(&(landlock_domain){.rules = rules,
                                                  .n = ARRAY_LEN(rules),
                                                  .refused = LANDLOCK_READ | LANDLOCK_WRITE,
                                                  .bind = true});
    if (e)
        return (void *)"no domain";
    EXPECT(try_open(t->in, "f", O_RDWR | O_TRUNC), 0);
    EXPECT(try_open(t->in, "new", O_CREAT | O_WRONLY), 0);
    EXPECT(try_open(t->out, "f", O_RDONLY), 0);
    EXPECT(try_open(t->out, "f", O_WRONLY), EACCES);
    EXPECT(try_open(t->out, "new", O_CREAT | O_WRONLY), EACCES);
    EXPECT(try_open(t->top, ".", O_RDONLY | O_DIRECTORY), EACCES);
    EXPECT(try_rename(t->in, t->out), EACCES);
    EXPECT(try_rename(t->in, t->in), 0);
    EXPECT(try_move(t->in), 0);
    EXPECT(try_run(t->out), ENOEXEC); /* running was not refused */
    EXPECT(try_bind(0), 0);
    return NULL;
}

static void only_what_the_rules_give(void **state)
{
    alone(run_write, *state);
    /* The thread that made it has no domain. */
    assert_int_equal(try_open(((tree *)*state)->out, "f", O_WRONLY), 0);
}

static void *run_narrower(void *arg)
{
    tree *t = arg;
    const landlock_rule both[] = {{t->in, LANDLOCK_RUN, false}, {t->out, LANDLOCK_RUN, false}};

    err *e = landlock_restrict(
        &(landlock_domain){.rules = both, .n = 1, .refused = LANDLOCK_RUN, .bind = true});
    if (e)
        return (void *)"no domain";
    EXPECT(try_run(t->in), ENOEXEC);
    EXPECT(try_run(t->out), EACCES);
    e = landlock_restrict(
        &(landlock_domain){.rules = both, .n = 2, .refused = LANDLOCK_RUN, .bind = true});
    if (e)
        return (void *)"no second domain";
    EXPECT(try_run(t->out), EACCES); /* a second domain gives nothing back */
    e = landlock_restrict(&(landlock_domain){.refused = LANDLOCK_RUN, .bind = true});
    if (e)
        return (void *)"no third domain";
    EXPECT(try_run(t->in), EACCES);
    return NULL;
}

static void a_second_domain_only_narrows(void **state)
{
    alone(run_narrower, *state);
}

static void *run_bind(void *arg)
{
    (void)arg;
    if (landlock_restrict(&(landlock_domain){.bind_port = 40123}))
        return (void *)"no domain";
    EXPECT(try_bind(0), EACCES);
    EXPECT(try_bind(40124), EACCES);
    int r = try_bind(40123); /* somebody else may have it */
    return r == EACCES ? (void *)"its own port is refused" : NULL;
}

static void one_port_can_be_bound(void **state)
{
    alone(run_bind, *state);
}

static void *run_missing(void *arg)
{
    const landlock_rule gone = {"/no/such/directory", LANDLOCK_READ, false};

    (void)arg;
    err *e = landlock_restrict(
        &(landlock_domain){.rules = &gone, .n = 1, .refused = LANDLOCK_READ, .bind = true});
    if (!e || e->code != ERR_WALL_FAILED)
        return (void *)"a wall without its place was built";
    err_free(e);
    return NULL;
}

static void a_wall_that_cannot_be_built_is_an_error(void **state)
{
    alone(run_missing, *state);
}

static void *run_named(void *arg)
{
    char name[16] = "";

    (void)arg;
    prctl(PR_GET_NAME, name);
    return strcmp(name, "landlock") ? (void *)"the thread has no name" : NULL;
}

static void a_thread_names_itself(void **state)
{
    alone(run_named, *state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_the_rules_give),
        cmocka_unit_test(a_second_domain_only_narrows),
        cmocka_unit_test(one_port_can_be_bound),
        cmocka_unit_test(a_wall_that_cannot_be_built_is_an_error),
        cmocka_unit_test(a_thread_names_itself),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

#include <string.h>

#include "base/str.h"
#include "core/spec.h"

#include "../unit.h"

static sandbox_spec minimal(void)
{
    return (sandbox_spec){.image = xstrdup("busybox")};
}

static void defaults_are_filled(void **state)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = minimal();

    (void)state;
    assert_ok(sandbox_spec_check(&s));
    assert_int_equal(s.limits.memory, 1u << 30);
    assert_int_equal(s.limits.cpu_milli, 1000);
    assert_int_equal(s.limits.pids, 512);
    assert_int_equal(s.limits.nofile, 1024);
    assert_int_equal(s.limits.shm_mib, 64);
    assert_int_equal(s.limits.execs, 256);
    assert_int_equal(s.ttl_ms, 3600 * 1000);
    assert_int_equal(s.queue_ms, 60 * 1000);
    assert_int_equal(s.umask, 022);
    assert_int_equal(s.limits.disk, 0); /* the engine's to decide */
}

static void given_values_stay(void **state)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = minimal();

    (void)state;
    s.limits = (limits){.memory = 64u << 20, .disk = 1u << 30, .cpu_milli = 250, .pids = 50};
    s.ttl_ms = 1500;
    s.has_umask = true;
    assert_ok(sandbox_spec_check(&s));
    assert_int_equal(s.limits.memory, 64u << 20);
    assert_int_equal(s.limits.disk, 1u << 30);
    assert_int_equal(s.limits.cpu_milli, 250);
    assert_int_equal(s.limits.pids, 50);
    assert_int_equal(s.ttl_ms, 1500);
    assert_int_equal(s.umask, 0);
}

static void assert_limits_equal(const limits *a, const limits *b)
{
    assert_int_equal(a->memory, b->memory);
    assert_int_equal(a->disk, b->disk);
    assert_int_equal(a->cpu_milli, b->cpu_milli);
    assert_int_equal(a->pids, b->pids);
    assert_int_equal(a->nofile, b->nofile);
    assert_int_equal(a->nofile_hard, b->nofile_hard);
    assert_int_equal(a->shm_mib, b->shm_mib);
    assert_int_equal(a->execs, b->execs);
    /* a new limit belongs above and into core's table */
    assert_int_equal(sizeof(limits), 2 * sizeof(uint64_t) + 6 * sizeof(uint32_t));
}

/* A limit without a row would be filled by nobody. */
static void every_limit_has_a_default_and_is_filled(void **state)
{
    limits l = {.disk = 1};

    (void)state;
    limits_fill(&l, &LIMITS_DEFAULT);
    l.disk = LIMITS_DEFAULT.disk;
    assert_limits_equal(&l, &LIMITS_DEFAULT);
    assert_ok(limits_check(&l));
}

static void limits_out_of_range_are_named(void **state)
{
    static const struct {
        limits l;
        const char *name;
    } BAD[] = {
        {{.memory = 1}, "memory"},
        {{.memory = UINT64_MAX}, "memory"},
        {{.cpu_milli = 9}, "cpu_milli"},
        {{.pids = 3}, "pids"},
        {{.nofile = 2000000}, "nofile"},
        {{.nofile_hard = 65537}, "nofile_hard"},
        {{.nofile = 17, .nofile_hard = 16}, "nofile_hard"},
        {{.execs = 5000}, "execs"},
        {{.disk = 1}, "disk"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        CLEANUP(err_freep) err *e = limits_check(&BAD[i].l);
        assert_non_null(e);
        assert_int_equal(e->code, ERR_INVALID_REQUEST);
        assert_non_null(strstr(e->message, BAD[i].name));
    }
}

static void names(void **state)
{
    static const char *const GOOD[] = {"a", "web-1", "A.b_c", "0"};
    static const char *const BAD[] = {
        "", "-a", ".a", "a b", "a/b", "\xc3\xa4", "b000abcdefghij012345"};
    char lots[66];

    (void)state;
    memset(lots, 'a', 65);
    lots[65] = 0;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++)
        assert_true(spec_name_valid(GOOD[i]));
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_false(spec_name_valid(BAD[i]));
    assert_false(spec_name_valid(lots));
    assert_true(spec_name_valid(lots + 1));
}

/* Sets one thing, expects the error to speak of it. */
static void refuse(void (*set)(sandbox_spec *s, const char *value), const char *value,
                   const char *expected)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = minimal();

    set(&s, value);
    CLEANUP(err_freep) err *e = sandbox_spec_check(&s);
    if (!e)
        print_error("'%s' was taken\n", value);
    assert_non_null(e);
    if (!strstr(e->message, expected))
        print_error("'%s': %s\n", value, e->message);
    assert_non_null(strstr(e->message, expected));
}

static void set_image(sandbox_spec *s, const char *v)
{
    free(s->image);
    s->image = xstrdup(v);
}
static void set_env(sandbox_spec *s, const char *v)
{
    strv_push(&s->env, xstrdup(v));
}
static void set_secret(sandbox_spec *s, const char *v)
{
    strv_push(&s->secrets, xstrdup(v));
}
static void set_user(sandbox_spec *s, const char *v)
{
    s->user = xstrdup(v);
}
static void set_cwd(sandbox_spec *s, const char *v)
{
    s->cwd = xstrdup(v);
}
static void set_label(sandbox_spec *s, const char *v)
{
    strv_push(&s->labels, xstrdup(v));
}
static void set_tmpfs(sandbox_spec *s, const char *v)
{
    s->tmpfs = xcalloc(1, sizeof *s->tmpfs);
    s->tmpfs[0] = (tmpfs_spec){.path = xstrdup(v), .size = 1 << 20};
    s->ntmpfs = 1;
}

static void wrong_texts_are_refused(void **state)
{
    (void)state;
    refuse(set_image, "", "image");
    refuse(set_image, "a\nb", "image");
    refuse(set_env, "novalue", "env[0]");
    refuse(set_env, "=x", "env[0]");
    refuse(set_secret, "=x", "secrets[0]");
    refuse(set_user, "", "user");
    refuse(set_user, "a\nb", "user");
    refuse(set_cwd, "relative", "cwd");
    refuse(set_label, "nokey", "labels");
    refuse(set_label, "-k=v", "labels");
    refuse(set_tmpfs, "tmp", "tmpfs[0].path");
    refuse(set_tmpfs, "/", "tmpfs[0].path");
    refuse(set_tmpfs, "/a/../b", "tmpfs[0].path");
    refuse(set_tmpfs, "/a/./b", "tmpfs[0].path");
    refuse(set_tmpfs, "/a//b", "tmpfs[0].path");
    refuse(set_tmpfs, "/a/", "tmpfs[0].path");
    refuse(set_tmpfs, "/proc/x", "/proc");
    refuse(set_tmpfs, "/dev", "/dev");
}

static void a_secret_is_never_quoted(void **state)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = minimal();

    (void)state;
    strv_push(&s.secrets, xstrdup("hunter2-without-a-name"));
    CLEANUP(err_freep) err *e = sandbox_spec_check(&s);
    assert_non_null(e);
    assert_null(strstr(e->message, "hunter2"));
}

static void tmpfs_gets_its_mode_and_only_once_a_path(void **state)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = minimal();

    (void)state;
    s.tmpfs = xcalloc(2, sizeof *s.tmpfs);
    s.ntmpfs = 2;
    s.tmpfs[0] = (tmpfs_spec){.path = xstrdup("/scratch"), .size = 4096};
    s.tmpfs[1] = (tmpfs_spec){.path = xstrdup("/devices"), .size = 4096, .mode = 0700};
    assert_ok(sandbox_spec_check(&s));
    assert_int_equal(s.tmpfs[0].mode, 01777);
    assert_int_equal(s.tmpfs[1].mode, 0700);
    free(s.tmpfs[1].path);
    s.tmpfs[1].path = xstrdup("/scratch");
    assert_err(sandbox_spec_check(&s), ERR_INVALID_REQUEST);
}

static void environment_has_a_ceiling(void **state)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = minimal();
    char *big = xmalloc(SPEC_ENV_MAX + 3);

    (void)state;
    memset(big, 'x', SPEC_ENV_MAX + 2);
    big[1] = '=';
    big[SPEC_ENV_MAX + 2] = 0;
    strv_push(&s.secrets, big);
    assert_err(sandbox_spec_check(&s), ERR_TOO_LARGE);
}

static void what_a_spec_does_not_say_comes_from_a_template(void **state)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = {.cwd = xstrdup("/own"), .has_umask = true};
    CLEANUP(sandbox_spec_done)
    sandbox_spec t = {.image = xstrdup("busybox"),
                      .cwd = xstrdup("/theirs"),
                      .user = xstrdup("7"),
                      .limits = {.pids = 9, .disk = 1 << 20},
                      .setuid = true,
                      .has_network = true,
                      .network = NETWORK_OPEN,
                      .has_umask = true,
                      .umask = 077,
                      .idle_ms = 3000};

    (void)state;
    strv_push(&s.env, xstrdup("A=own"));
    strv_push(&t.env, xstrdup("A=theirs"));
    strv_push(&t.env, xstrdup("B=theirs"));
    strv_push(&t.start.argv, xstrdup("server"));
    sandbox_spec_fill(&s, &t);
    assert_string_equal(s.image, "busybox");
    assert_string_equal(s.cwd, "/own");
    assert_string_equal(s.user, "7");
    assert_string_equal(s.env[0], "A=own");
    assert_string_equal(s.env[1], "B=theirs");
    assert_null(s.env[2]);
    assert_int_equal(s.limits.pids, 9);
    assert_int_equal(s.limits.disk, 1 << 20);
    assert_int_equal(s.limits.memory, 0);
    assert_true(s.setuid);
    assert_int_equal(s.network, NETWORK_OPEN);
    assert_int_equal(s.umask, 0);
    assert_int_equal(s.idle_ms, 3000);
    assert_string_equal(s.start.argv[0], "server");
    CLEANUP(sandbox_spec_done) sandbox_spec none = {.has_network = true};
    sandbox_spec_fill(&none, &t);
    assert_int_equal(none.network, NETWORK_NONE);
}

static void commands(void **state)
{
    char *none[] = {NULL}, *empty[] = {(char[]){""}, NULL}, *good[] = {(char[]){"true"}, NULL};
    char *bad_env[] = {(char[]){"x"}, NULL};

    (void)state;
    assert_err(exec_spec_check(&(exec_spec){0}), ERR_INVALID_REQUEST);
    assert_err(exec_spec_check(&(exec_spec){.argv = none}), ERR_INVALID_REQUEST);
    assert_err(exec_spec_check(&(exec_spec){.argv = empty}), ERR_INVALID_REQUEST);
    assert_ok(exec_spec_check(&(exec_spec){.argv = good, .exec_fd = -1}));
    assert_err(exec_spec_check(&(exec_spec){.argv = good, .env = bad_env}), ERR_INVALID_REQUEST);
    assert_ok(exec_spec_check(&(exec_spec){.argv = good, .cwd = (char[]){"~"}, .cwd_home = true}));
    assert_ok(
        exec_spec_check(&(exec_spec){.argv = good, .cwd = (char[]){"~/x"}, .cwd_home = true}));
    assert_err(exec_spec_check(&(exec_spec){.argv = good, .cwd = (char[]){"~/x"}}),
               ERR_INVALID_REQUEST);
    assert_err(
        exec_spec_check(&(exec_spec){.argv = good, .cwd = (char[]){"~eve"}, .cwd_home = true}),
        ERR_INVALID_REQUEST);
    assert_err(exec_spec_check(&(exec_spec){.argv = good, .cwd = (char[]){"x"}}),
               ERR_INVALID_REQUEST);
    assert_err(exec_spec_check(&(exec_spec){.argv = good, .timeout_ms = UINT64_MAX}),
               ERR_INVALID_REQUEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_filled),
        cmocka_unit_test(given_values_stay),
        cmocka_unit_test(every_limit_has_a_default_and_is_filled),
        cmocka_unit_test(limits_out_of_range_are_named),
        cmocka_unit_test(names),
        cmocka_unit_test(wrong_texts_are_refused),
        cmocka_unit_test(a_secret_is_never_quoted),
        cmocka_unit_test(tmpfs_gets_its_mode_and_only_once_a_path),
        cmocka_unit_test(environment_has_a_ceiling),
        cmocka_unit_test(what_a_spec_does_not_say_comes_from_a_template),
        cmocka_unit_test(commands),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Answers of real engines, as tests/docker/run --record takes them down, and forms of which there
 * was no example at hand. The argument is their directory. */
#include <fcntl.h>
#include <string.h>

#include "backend/docker_answer.h"
#include "base/fs.h"
#include "base/str.h"

#include "../unit.h"

static const char *answers;
static const char *const ENGINES[] = {"docker", "podman"};

static buf answer(const char *engine, const char *name)
{
    CLEANUP(freep) char *path = str_printf("%s/%s/%s.json", answers, engine, name);
    buf b = {0};

    assert_ok(fs_read(AT_FDCWD, path, DOCKER_ANSWER_MAX, &b));
    return b;
}

static docker_engine engine_of(const char *name)
{
    CLEANUP(buf_done) buf version = answer(name, "version");
    CLEANUP(buf_done) buf info = answer(name, "info");
    docker_engine e;

    assert_ok(docker_parse_version(version.p, version.len, &e));
    assert_ok(docker_parse_info(info.p, info.len, &e));
    assert_string_equal(e.name, name);
    assert_int_equal(e.api, 41);
    assert_string_equal(e.os, "linux");
    assert_true(e.seccomp && !e.live_restore);
    return e;
}

static void engines_are_told_apart(void **state)
{
    docker_engine d = engine_of("docker"), p = engine_of("podman");

    (void)state;
    assert_true(!d.podman && !d.rootless && d.cgroup == 1);
    assert_true(d.memory_limit && d.swap_limit && d.cpu_limit && d.pids_limit);
    assert_true(p.podman && p.rootless && p.cgroup == 2);
    /* it says that it limits pids, and has no controller for it */
    assert_true(!p.memory_limit && !p.cpu_limit && !p.pids_limit);
}

static docker_container container(const char *engine, const char *name)
{
    CLEANUP(buf_done) buf b = answer(engine, name);
    docker_container c;

    assert_ok(docker_parse_container(b.p, b.len, &c));
    assert_string_equal(c.name, "bothy-recorded");
    assert_string_equal(docker_label(c.labels, "dev.bothy.cell"), "test");
    assert_null(docker_label(c.labels, "dev.bothy"));
    docker_container_done(&c);
    return c;
}

static void containers_have_a_state(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ENGINES); i++) {
        assert_int_equal(container(ENGINES[i], "running").state, DOCKER_RUNNING);
        assert_int_equal(container(ENGINES[i], "paused").state, DOCKER_PAUSED);
        docker_container dead = container(ENGINES[i], "dead");
        assert_int_equal(dead.state, DOCKER_DEAD);
        assert_int_equal(dead.exit_code, 137);
        assert_false(dead.oom_killed);
    }
    docker_container c = container("docker", "running");
    assert_int_equal(c.memory, 64 << 20);
    assert_int_equal(c.cpu_milli, 250);
    assert_int_equal(c.pids, 20);
}

static void lists_are_of_what_has_an_id(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ENGINES); i++) {
        CLEANUP(buf_done) buf b = answer(ENGINES[i], "list");
        CLEANUP(docker_list_done) docker_list l = {0};
        assert_ok(docker_parse_list(b.p, b.len, &l));
        assert_int_equal(l.n, 1);
        assert_string_equal(l.c[0].name, "bothy-recorded");
        assert_int_equal(l.c[0].state, DOCKER_RUNNING);
        assert_string_equal(docker_label(l.c[0].labels, "dev.bothy.pool"), "0123");
    }
    CLEANUP(docker_list_done) docker_list l = {0};
    static const char ODD[] = "[{},{\"Id\":\"short\"},7]";
    assert_ok(docker_parse_list(ODD, strlen(ODD), &l));
    assert_int_equal(l.n, 0);
}

static void usage_is_counted(void **state)
{
    docker_stats s;
    CLEANUP(buf_done) buf d = answer("docker", "stats");
    CLEANUP(buf_done) buf p = answer("podman", "stats");

    (void)state;
    assert_ok(docker_parse_stats(d.p, d.len, &s));
    assert_true(s.cpu_us && s.memory && s.pids == 1);
    assert_int_equal(s.memory_limit, 64 << 20);
    assert_ok(docker_parse_stats(p.p, p.len, &s));
    assert_true(s.cpu_us && !s.memory && !s.pids); /* as it has no controllers */
    static const char HUGE[] =
        "{\"cpu_stats\":{\"cpu_usage\":{\"total_usage\":5000}},"
        "\"memory_stats\":{\"limit\":9223372036854771712},"
        "\"blkio_stats\":{\"io_service_bytes_recursive\":[{\"op\":\"Read\",\"value\":3},"
        "{\"op\":\"read\",\"value\":4},{\"op\":\"Write\",\"value\":5},{\"op\":\"Total\",\"value\":9}]},"
        "\"pids_stats\":{\"current\":2,\"limit\":18446744073709551615},"
        "\"networks\":{\"eth0\":{\"rx_bytes\":1,\"tx_bytes\":2},\"eth1\":{\"rx_bytes\":10}}}";
    assert_ok(docker_parse_stats(HUGE, strlen(HUGE), &s));
    assert_true(s.cpu_us == 5 && !s.memory_limit && s.io_read == 7 && s.io_written == 5);
    assert_true(s.pids == 2 && s.net_rx == 11 && s.net_tx == 2);
}

static void images_are_described(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ENGINES); i++) {
        CLEANUP(buf_done) buf one = answer(ENGINES[i], "image");
        CLEANUP(buf_done) buf all = answer(ENGINES[i], "images");
        CLEANUP(docker_image_done) docker_image image = {0};
        CLEANUP(docker_images_done) docker_images l = {0};
        assert_ok(docker_parse_image(one.p, one.len, &image));
        assert_string_equal(image.os, "linux");
        assert_string_equal(image.user, "");
        assert_non_null(strv_env_get(image.env, "PATH"));
        assert_true(image.size > 1000000);
        assert_ok(docker_parse_images(all.p, all.len, &l));
        assert_int_equal(l.n, 1);
        assert_string_equal(l.i[0].digest, image.digest);
        assert_string_equal(l.i[0].names[0], image.names[0]);
    }
}

static void volumes_have_names(void **state)
{
    static const char SOME[] =
        "{\"Volumes\":[{\"Name\":\"bothy-0.1.0-abc\"},{\"Name\":\"../etc\"},"
        "{\"Name\":7},{\"Name\":\"a?b\"},{\"Name\":\"other\"}],\"Warnings\":null}";
    static const char NONE[] = "{\"Volumes\":null}";
    CLEANUP(strv_freep) char **names = NULL;

    (void)state;
    assert_ok(docker_parse_volumes(NONE, strlen(NONE), &names));
    assert_null(names);
    assert_ok(docker_parse_volumes(SOME, strlen(SOME), &names));
    assert_int_equal(strv_len(names), 2);
    assert_string_equal(names[0], "bothy-0.1.0-abc");
    assert_string_equal(names[1], "other");
    char **no = NULL;
    assert_err(docker_parse_volumes("[]", 2, &no), ERR_INTERNAL);
}

/* ---- streams ---- */

typedef struct ends {
    int dies, destroys, exit_code;
    uint64_t last;
} ends;

static err *one_event(void *arg, const char *p, size_t n)
{
    ends *s = arg;
    docker_event e;

    TRY(docker_parse_event(p, n, &e));
    assert_true(e.time_ns >= s->last && e.time_ns > UINT64_C(1600000000) * 1000000000);
    s->last = e.time_ns;
    s->dies += e.action == DOCKER_DIE;
    s->destroys += e.action == DOCKER_DESTROY;
    if (e.action == DOCKER_DIE) {
        s->exit_code = e.exit_code;
        assert_string_equal(docker_label(e.labels, "dev.bothy.cell"), "test");
    }
    docker_event_done(&e);
    return NULL;
}

static void events_tell_ends_however_they_are_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ENGINES); i++) {
        CLEANUP(buf_done) buf b = answer(ENGINES[i], "events");
        for (size_t step = 1; step < 900; step += 97) {
            CLEANUP(docker_lines_done) docker_lines l = {0};
            ends s = {0};
            for (size_t at = 0; at < b.len; at += step)
                assert_ok(docker_lines_feed(&l, b.p + at, b.len - at < step ? b.len - at : step,
                                            one_event, &s));
            assert_ok(docker_lines_end(&l, one_event, &s));
            assert_int_equal(s.dies, 1);
            assert_int_equal(s.destroys, 1);
            assert_int_equal(s.exit_code, 137);
        }
    }
}

static err *count(void *arg, const char *p, size_t n)
{
    (void)p, (void)n;
    ++*(int *)arg;
    return NULL;
}

static void a_line_without_an_end_has_a_ceiling(void **state)
{
    CLEANUP(docker_lines_done) docker_lines l = {0};
    CLEANUP(freep) char *p = xmalloc(DOCKER_LINE_MAX);
    int n = 0;

    (void)state;
    memset(p, 'x', DOCKER_LINE_MAX);
    assert_ok(docker_lines_feed(&l, p, DOCKER_LINE_MAX, count, &n));
    assert_err(docker_lines_feed(&l, "y", 1, count, &n), ERR_TOO_LARGE);
    assert_err(docker_lines_feed(&l, "y\n", 2, count, &n), ERR_TOO_LARGE);
    assert_int_equal(n, 0);
}

static void what_a_pull_says_is_progress_or_an_error(void **state)
{
    static const char MOVING[] = "{\"status\":\"Downloading\",\"progressDetail\":{\"current\":5,"
                                 "\"total\":10},\"progress\":\"[==> ]\",\"id\":\"abc\"}";
    CLEANUP(buf_done) buf b = answer("podman", "pull");
    docker_progress r;

    (void)state;
    assert_ok(docker_parse_progress(MOVING, strlen(MOVING), &r));
    assert_string_equal(r.layer, "abc");
    assert_string_equal(r.status, "Downloading");
    assert_true(r.current == 5 && r.total == 10 && !*r.error);
    assert_ok(docker_parse_progress(b.p, b.len, &r));
    assert_non_null(strstr(r.error, "connection refused"));
}

/* ---- errors ---- */

static void refusals_have_their_message(void **state)
{
    char text[DOCKER_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ENGINES); i++) {
        CLEANUP(buf_done) buf missing = answer(ENGINES[i], "missing");
        assert_non_null(strcasestr(docker_parse_message(missing.p, missing.len, text), "no such"));
    }
    assert_null(docker_parse_message("Not Found\n", 10, text));
    assert_null(docker_parse_message("", 0, text));
    assert_null(docker_parse_message("{\"message\":7}", 13, text));
}

static void what_has_another_form_is_the_engines_fault(void **state)
{
    static const char *const ODD[] = {"", "[]", "7", "{", "{\"Id\":\"x\"}", "null"};
    docker_container c;
    docker_engine e;
    docker_stats s;
    docker_image image;
    docker_event event;
    char id[DOCKER_ID_LEN + 1];
    int code;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ODD); i++) {
        size_t n = strlen(ODD[i]);
        assert_err(docker_parse_container(ODD[i], n, &c), ERR_INTERNAL);
        assert_err(docker_parse_version(ODD[i], n, &e), ERR_INTERNAL);
        assert_err(docker_parse_stats(ODD[i], n, &s), ERR_INTERNAL);
        assert_err(docker_parse_image(ODD[i], n, &image), ERR_INTERNAL);
        assert_err(docker_parse_made(ODD[i], n, id), ERR_INTERNAL);
        assert_err(docker_parse_wait(ODD[i], n, &code), ERR_INTERNAL);
    }
    assert_err(docker_parse_event("x", 1, &event), ERR_INTERNAL);
    assert_ok(docker_parse_event("{}", 2, &event)); /* of no container */
    assert_int_equal(event.action, DOCKER_OTHER);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_are_told_apart),
        cmocka_unit_test(containers_have_a_state),
        cmocka_unit_test(lists_are_of_what_has_an_id),
        cmocka_unit_test(usage_is_counted),
        cmocka_unit_test(images_are_described),
        cmocka_unit_test(volumes_have_names),
        cmocka_unit_test(events_tell_ends_however_they_are_cut),
        cmocka_unit_test(a_line_without_an_end_has_a_ceiling),
        cmocka_unit_test(what_a_pull_says_is_progress_or_an_error),
        cmocka_unit_test(refusals_have_their_message),
        cmocka_unit_test(what_has_another_form_is_the_engines_fault),
    };

    if (argc != 2)
        return 2;
    answers = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The client of the Engine API against a real engine: usage: live URL IMAGE (with sh, cat, sleep).
 * tests/docker/run starts engines and this. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "backend/docker_api.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "base/thread.h"

#include "../unit/unit.h"

#define LABEL   "dev.bothy.test"
#define WAIT_MS 60000

static docker_api *api;
static const char *image;
static char label[64]; /* of this run */

static json_t *body_of(const char *command)
{
    json_t *o = json_pack("{s:s,s:[s,s,s],s:s,s:{s:s},s:{s:s}}", "Image", image, "Cmd", "sh", "-c",
                          command, "User", "0", "Labels", LABEL, label + sizeof LABEL, "HostConfig",
                          "NetworkMode", "none");
    assert_non_null(o);
    return o;
}

static void run_container(const char *command, char id[DOCKER_ID_LEN + 1])
{
    CLEANUP(json_decrefp) json_t *o = body_of(command);

    assert_ok(docker_create(api, NULL, o, id));
    assert_ok(docker_start(api, id));
}

/* Ends what a test has made, also when it failed. */
static int remove_all(void **state)
{
    docker_list l = {0};

    (void)state;
    assert_ok(docker_list_labelled(api, label, &l));
    for (size_t i = 0; i < l.n; i++)
        err_drop(docker_remove(api, l.c[i].id), "remove");
    docker_list_done(&l);
    return 0;
}

static void the_engine_says_what_it_is(void **state)
{
    const docker_engine *e = docker_api_engine(api);

    (void)state;
    print_message("%s %s, api 1.%u, cgroup v%u, %s, limits:%s%s%s%s\n", e->name, e->version, e->api,
                  e->cgroup, e->rootless ? "rootless" : "as root", e->memory_limit ? " memory" : "",
                  e->swap_limit ? " swap" : "", e->cpu_limit ? " cpu" : "",
                  e->pids_limit ? " pids" : "");
    assert_true(e->api >= 24 && *e->version && str_eq(e->os, "linux"));
    assert_int_equal(e->podman, str_eq(e->name, "podman"));
    assert_true(e->cgroup == 1 || e->cgroup == 2);
}

static enum docker_state state_of(const char *id)
{
    docker_container c;

    assert_ok(docker_inspect(api, id, &c));
    docker_container_done(&c);
    return c.state;
}

static void a_container_lives_and_dies(void **state)
{
    char id[DOCKER_ID_LEN + 1], name[64];
    CLEANUP(docker_container_done) docker_container c = {0};
    CLEANUP(docker_list_done) docker_list l = {0};

    (void)state;
    run_container("trap 'exit 7' TERM; while :; do sleep 0.1; done", id);
    assert_ok(docker_start(api, id)); /* again */
    snprintf(name, sizeof name, "bothy-live-%.8s", id);
    assert_ok(docker_rename(api, id, name));
    assert_ok(docker_inspect(api, name, &c));
    assert_string_equal(c.name, name);
    assert_string_equal(docker_label(c.labels, LABEL), label + sizeof LABEL);
    assert_int_equal(c.state, DOCKER_RUNNING);
    assert_ok(docker_list_labelled(api, label, &l));
    assert_int_equal(l.n, 1);
    assert_string_equal(l.c[0].id, id);
    assert_string_equal(l.c[0].name, name);
    assert_int_equal(l.c[0].state, DOCKER_RUNNING);

    int code = -1;
    /* By then its trap is set: without one, pid 1 does not hear the signal. */
    assert_err(docker_wait(api, id, 2000, &code), ERR_TIMEOUT);
    assert_ok(docker_kill(api, id, "TERM"));
    assert_ok(docker_wait(api, id, WAIT_MS, &code));
    assert_int_equal(code, 7);
    assert_int_equal(state_of(id), DOCKER_DEAD);
    assert_err(docker_kill(api, id, "TERM"), ERR_CONFLICT);
    assert_ok(docker_remove(api, id));
    assert_ok(docker_remove(api, id)); /* again */
    assert_err(docker_inspect(api, id, &c), ERR_NOT_FOUND);
}

static void a_paused_one_stands_still(void **state)
{
    char id[DOCKER_ID_LEN + 1];

    (void)state;
    run_container("sleep 1000", id);
    assert_ok(docker_pause(api, id));
    assert_int_equal(state_of(id), DOCKER_PAUSED);
    assert_ok(docker_unpause(api, id));
    assert_int_equal(state_of(id), DOCKER_RUNNING);
}

static void usage_is_told(void **state)
{
    char id[DOCKER_ID_LEN + 1];
    docker_stats s;

    (void)state;
    run_container("while :; do :; done", id);
    uint64_t until = now_mono_ns() + 10 * NS_PER_S;
    do
        assert_ok(docker_usage(api, id, &s));
    while (!s.cpu_us && now_mono_ns() < until);
    print_message("cpu %llu us, memory %llu, peak %llu, limit %llu, pids %u\n",
                  (unsigned long long)s.cpu_us, (unsigned long long)s.memory,
                  (unsigned long long)s.memory_peak, (unsigned long long)s.memory_limit, s.pids);
    assert_true(s.cpu_us);
}

static void limits_are_set_and_changed(void **state)
{
    const docker_engine *e = docker_api_engine(api);
    char id[DOCKER_ID_LEN + 1];
    CLEANUP(json_decrefp) json_t *o = body_of("sleep 1000");
    CLEANUP(json_decrefp)
    json_t *more = json_pack("{s:I,s:I,s:I,s:I}", "Memory", (json_int_t)256 << 20, "MemorySwap",
                             (json_int_t)256 << 20, "NanoCpus", (json_int_t)1500000000, "PidsLimit",
                             (json_int_t)77);
    docker_container c;

    (void)state;
    if (!e->memory_limit || !e->cpu_limit || !e->pids_limit) {
        print_message("skipped: this engine's user was not given the controllers\n");
        skip();
    }
    json_t *host = json_object_get(o, "HostConfig");
    json_object_set_new(host, "Memory", json_integer(128 << 20));
    json_object_set_new(host, "MemorySwap", json_integer(128 << 20));
    json_object_set_new(host, "NanoCpus", json_integer(500000000));
    json_object_set_new(host, "PidsLimit", json_integer(55));
    assert_ok(docker_create(api, NULL, o, id));
    assert_ok(docker_start(api, id));
    assert_ok(docker_inspect(api, id, &c));
    docker_container_done(&c);
    assert_int_equal(c.memory, 128 << 20);
    assert_int_equal(c.cpu_milli, 500);
    assert_int_equal(c.pids, 55);
    assert_ok(docker_update(api, id, more));
    assert_ok(docker_inspect(api, id, &c));
    docker_container_done(&c);
    assert_int_equal(c.memory, 256 << 20);
    assert_int_equal(c.cpu_milli, 1500);
    assert_int_equal(c.pids, 77);
}

/* ---- commands as streams ---- */

static void wait_for(docker_exec *x, short events)
{
    struct pollfd p = {.fd = docker_exec_fd(x), .events = events};

    assert_int_not_equal(poll(&p, 1, WAIT_MS), 0);
}

static void read_to_end(docker_exec *x, buf *out)
{
    char p[8192];
    ssize_t n;

    while ((n = docker_exec_read(x, p, sizeof p)) != 0) {
        if (n > 0)
            buf_append(out, p, (size_t)n);
        else if (errno == EAGAIN)
            wait_for(x, POLLIN);
        else
            fail();
    }
}

static void a_command_is_a_stream(void **state)
{
    enum {
        SIZE = 4 << 20
    };
    char id[DOCKER_ID_LEN + 1];
    const char *argv[] = {"cat", NULL};
    CLEANUP(docker_exec_closep) docker_exec *x = NULL;
    CLEANUP(freep) char *out = xmalloc(SIZE), *back = xmalloc(SIZE);
    size_t sent = 0, got = 0;

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (char)(i * 7 + i / 251);
    run_container("sleep 1000", id);
    assert_ok(docker_exec_open(api, id, argv, WAIT_MS, &x));
    while (got < SIZE) {
        ssize_t w = sent < SIZE ? docker_exec_write(x, out + sent, SIZE - sent) : 0;
        ssize_t r = docker_exec_read(x, back + got, SIZE - got);
        assert_true(r != 0);
        sent += w > 0 ? (size_t)w : 0;
        got += r > 0 ? (size_t)r : 0;
        if (w <= 0 && r < 0)
            wait_for(x, sent < SIZE ? POLLIN | POLLOUT : POLLIN);
    }
    assert_memory_equal(out, back, SIZE);
}

static void what_a_command_complains_of_is_its_why(void **state)
{
    char id[DOCKER_ID_LEN + 1];
    const char *argv[] = {"sh", "-c", "echo good; echo bad >&2; exit 3", NULL};
    CLEANUP(docker_exec_closep) docker_exec *x = NULL;
    CLEANUP(buf_done) buf out = {0};

    (void)state;
    run_container("sleep 1000", id);
    assert_ok(docker_exec_open(api, id, argv, WAIT_MS, &x));
    read_to_end(x, &out);
    assert_string_equal(buf_cstr(&out), "good\n");
    CLEANUP(freep) char *why = docker_exec_why(x);
    assert_string_equal(why, "bad");
}

static void a_program_that_is_not_there_says_so(void **state)
{
    char id[DOCKER_ID_LEN + 1];
    const char *argv[] = {"/no/such/program", NULL};
    CLEANUP(docker_exec_closep) docker_exec *x = NULL;
    CLEANUP(buf_done) buf out = {0};

    (void)state;
    run_container("sleep 1000", id);
    err *e = docker_exec_open(api, id, argv, WAIT_MS, &x);
    CLEANUP(freep) char *why = NULL;
    if (!e) {
        read_to_end(x, &out);
        buf_str(&out, " ");
        why = docker_exec_why(x);
        buf_str(&out, str_or(why, ""));
    } else {
        buf_printf(&out, "%s: %s", e->message, str_or(e->cause, ""));
        err_free(e);
    }
    print_message("told: %s\n", buf_cstr(&out));
    assert_non_null(strcasestr(buf_cstr(&out), "no such file"));
}

static void commands_of_a_dead_container_are_refused(void **state)
{
    char id[DOCKER_ID_LEN + 1];
    const char *argv[] = {"cat", NULL};
    docker_exec *x;
    int code;

    (void)state;
    run_container("exit 5", id);
    assert_ok(docker_wait(api, id, WAIT_MS, &code));
    assert_int_equal(code, 5);
    assert_err(docker_exec_open(api, id, argv, WAIT_MS, &x), ERR_CONFLICT);
    assert_ok(docker_remove(api, id));
    assert_err(docker_exec_open(api, id, argv, WAIT_MS, &x), ERR_NOT_FOUND);
}

static void a_command_ends_with_its_stream(void **state)
{
    char id[DOCKER_ID_LEN + 1];
    const char *argv[] = {"sh", "-c", "cat; touch /ended", NULL};
    const char *look[] = {
        "sh", "-c",
        "i=0; while [ $i -lt 100 ]; do [ -e /ended ] && echo yes && exit; i=$((i+1)); sleep 0.3; "
        "done; echo no",
        NULL};
    docker_exec *x;
    CLEANUP(buf_done) buf out = {0};

    (void)state;
    run_container("sleep 1000", id);
    assert_ok(docker_exec_open(api, id, argv, WAIT_MS, &x));
    docker_exec_close(x);
    assert_ok(docker_exec_open(api, id, look, WAIT_MS, &x));
    read_to_end(x, &out);
    docker_exec_close(x);
    assert_string_equal(buf_cstr(&out), "yes\n");
}

/* ---- events ---- */

typedef struct seen {
    char id[DOCKER_ID_LEN + 1];
    enum docker_action want, action;
    int exit_code;
    uint64_t time_ns, until;
} seen;

static bool on_event(void *arg, const docker_event *e)
{
    seen *s = arg;

    assert_true(e->action == DOCKER_OTHER || docker_label(e->labels, LABEL));
    if (e->action != s->want || !str_eq(e->id, s->id))
        return true;
    s->action = e->action;
    s->exit_code = e->exit_code;
    s->time_ns = e->time_ns;
    return false;
}

static bool on_tick(void *arg)
{
    return now_mono_ns() < ((seen *)arg)->until;
}

static void *kill_soon(void *arg)
{
    struct timespec t = {.tv_sec = 3}; /* until the watch is there */

    nanosleep(&t, NULL);
    assert_ok(docker_kill(api, arg, "KILL"));
    return NULL;
}

static void watch(seen *s, uint64_t since_ns)
{
    docker_watch w = {
        .label = label, .since_ns = since_ns, .on_event = on_event, .on_tick = on_tick, .arg = s};

    s->until = now_mono_ns() + 10 * NS_PER_S;
    assert_ok(docker_events(api, &w));
    assert_int_equal(s->action, s->want);
}

static void an_end_is_an_event_now_and_later(void **state)
{
    seen s = {.want = DOCKER_DIE}, again = {.want = DOCKER_DIE}, gone = {.want = DOCKER_DESTROY};
    uint64_t before = now_real_ns() - NS_PER_S;

    (void)state;
    run_container("sleep 1000", s.id);
    memcpy(again.id, s.id, sizeof s.id);
    memcpy(gone.id, s.id, sizeof s.id);
    pthread_t t = thread_start("kill", kill_soon, s.id);
    watch(&s, 0);
    pthread_join(t, NULL);
    assert_int_equal(s.exit_code, 137);
    watch(&again, before);
    assert_int_equal(again.exit_code, 137);
    assert_true(again.time_ns == s.time_ns);
    assert_ok(docker_remove(api, s.id));
    watch(&gone, before);
}

/* ---- volumes, images ---- */

/* One file of a tar: "hello" with "there\n". */
static void tar_of(char tar[2048])
{
    unsigned sum = 0;

    memset(tar, 0, 2048);
    memcpy(tar, "hello", 5);
    memcpy(tar + 100, "0000555", 7);
    memcpy(tar + 108, "0000000", 7);
    memcpy(tar + 116, "0000000", 7);
    memcpy(tar + 124, "00000000006", 11);
    memcpy(tar + 136, "00000000000", 11);
    memset(tar + 148, ' ', 8);
    tar[156] = '0';
    memcpy(tar + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)tar[i];
    snprintf(tar + 148, 8, "%06o", sum);
    memcpy(tar + 512, "there\n", 6);
}

static json_t *with_volume(const char *command, const char *volume, bool read_only)
{
    json_t *o = body_of(command);
    json_t *mount =
        json_pack("{s:s,s:s,s:s,s:b,s:{s:b}}", "Type", "volume", "Source", volume, "Target",
                  "/.bothy", "ReadOnly", read_only, "VolumeOptions", "NoCopy", 1);

    assert_non_null(mount);
    json_object_set_new(json_object_get(o, "HostConfig"), "Mounts", json_pack("[o]", mount));
    return o;
}

static void a_volume_is_filled_before_anything_runs(void **state)
{
    char id[DOCKER_ID_LEN + 1], name[64], tar[2048];
    int code = -1;

    (void)state;
    snprintf(name, sizeof name, "bothy-live-%s", label + sizeof LABEL);
    tar_of(tar);
    assert_err(docker_volume_inspect(api, name), ERR_NOT_FOUND);
    assert_ok(docker_volume_make(api, name, LABEL));
    assert_ok(docker_volume_inspect(api, name));
    CLEANUP(json_decrefp) json_t *helper = with_volume("true", name, false);
    assert_ok(docker_create(api, NULL, helper, id));
    assert_ok(docker_put(api, id, "/.bothy", tar, sizeof tar));
    assert_ok(docker_remove(api, id));
    CLEANUP(json_decrefp)
    json_t *user = with_volume(
        "[ \"$(cat /.bothy/hello)\" = there ] || exit 1; touch /.bothy/x && exit 2; exit 42", name,
        true);
    assert_ok(docker_create(api, NULL, user, id));
    assert_ok(docker_start(api, id));
    assert_ok(docker_wait(api, id, WAIT_MS, &code));
    assert_int_equal(code, 42);
    assert_ok(docker_remove(api, id));
    assert_ok(docker_volume_remove(api, name));
    assert_ok(docker_volume_remove(api, name));
}

static void images_are_shown(void **state)
{
    CLEANUP(docker_image_done) docker_image i = {0};
    CLEANUP(docker_images_done) docker_images l = {0};
    bool listed = false;

    (void)state;
    assert_ok(docker_image_inspect(api, image, &i));
    assert_true(str_eq(i.os, "linux") && i.size && i.names);
    assert_non_null(strv_env_get(i.env, "PATH"));
    assert_ok(docker_image_list(api, &l));
    for (size_t n = 0; n < l.n; n++)
        listed |= str_eq(l.i[n].digest, i.digest);
    assert_true(listed);
    docker_image none;
    assert_err(docker_image_inspect(api, "docker.io/library/no-such-image:1", &none),
               ERR_NOT_FOUND);
}

static bool on_progress(void *arg, const docker_progress *p)
{
    ++*(int *)arg;
    print_message("  %s %s %llu/%llu\n", p->layer, p->status, (unsigned long long)p->current,
                  (unsigned long long)p->total);
    return true;
}

static void a_pull_that_fails_says_why(void **state)
{
    int lines = 0;
    err *e = docker_pull(api, &(docker_pull_request){.name = "127.0.0.1:1/no/such:1",
                                                     .on_progress = on_progress,
                                                     .arg = &lines});

    (void)state;
    assert_non_null(e);
    print_message("%s: %s\n", e->message, str_or(e->cause, "-"));
    assert_int_equal(e->code, ERR_IMAGE_PULL_FAILED);
    assert_non_null(e->cause);
    err_free(e);
}

/* BOTHY_TEST_PULL: an image of a registry that asks for user "alice" and password "secret". */
static void a_pull_shows_its_progress(void **state)
{
    const char *name = getenv("BOTHY_TEST_PULL");
    docker_login login = {"alice", "secret", "127.0.0.1"};
    CLEANUP(docker_image_done) docker_image i = {0};
    int lines = 0;

    (void)state;
    if (!name)
        skip();
    docker_pull_request rq = {.name = name, .on_progress = on_progress, .arg = &lines};
    assert_err(docker_pull(api, &rq), ERR_IMAGE_PULL_FAILED);
    lines = 0;
    rq.login = &login;
    assert_ok(docker_pull(api, &rq));
    assert_true(lines > 1);
    assert_ok(docker_image_inspect(api, name, &i));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_says_what_it_is),
        cmocka_unit_test_teardown(a_container_lives_and_dies, remove_all),
        cmocka_unit_test_teardown(a_paused_one_stands_still, remove_all),
        cmocka_unit_test_teardown(usage_is_told, remove_all),
        cmocka_unit_test_teardown(limits_are_set_and_changed, remove_all),
        cmocka_unit_test_teardown(a_command_is_a_stream, remove_all),
        cmocka_unit_test_teardown(what_a_command_complains_of_is_its_why, remove_all),
        cmocka_unit_test_teardown(a_program_that_is_not_there_says_so, remove_all),
        cmocka_unit_test_teardown(commands_of_a_dead_container_are_refused, remove_all),
        cmocka_unit_test_teardown(a_command_ends_with_its_stream, remove_all),
        cmocka_unit_test_teardown(an_end_is_an_event_now_and_later, remove_all),
        cmocka_unit_test_teardown(a_volume_is_filled_before_anything_runs, remove_all),
        cmocka_unit_test(images_are_shown),
        cmocka_unit_test(a_pull_that_fails_says_why),
        cmocka_unit_test(a_pull_shows_its_progress),
    };
    char word[9];

    if (argc < 3)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    id_random(word, 8);
    snprintf(label, sizeof label, LABEL "=%s", word);
    image = argv[2];
    err *e = docker_api_new(argv[1], &api);
    if (e) {
        print_error("%s: %s\n", e->message, str_or(e->cause, "-"));
        err_free(e);
        return 1;
    }
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    docker_api_free(api);
    return failed;
}

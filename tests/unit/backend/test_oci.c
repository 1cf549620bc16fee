/* The oci backend against a fake warden that hands out real inits. argv[1]: the init. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/oci.h"
#include "base/clock.h"
#include "base/sock.h"
#include "base/str.h"
#include "base/thread.h"

#include "../unit.h"
#include "fake_warden.h"

#define EXECS 512
#define ID_A  "testaaaaaaaaaaaaaaaa"
#define ID_B  "testbbbbbbbbbbbbbbbb"

static const char *program;
static fake_warden fw;
static backend *be;

/* ---- a receiver of events ---- */

typedef struct seen {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    err *failure;
    box *made;
    box_timing timing;
    unsigned attached, gone, exits, distrusted, newer;
    struct sp_hello hello;
    struct sp_rec recs[16];
    char why[256];
    struct {
        bool started, exited, signalled;
        unsigned starts;
        int errnum, signal_errnum;
        uint64_t cookie;
        int fd[SP_FDS_MAX];
        struct sp_rec rec;
    } x[EXECS];
} seen;
static seen ev_a, ev_b;

#define CHANGE(s)           \
    LOCK_SCOPE(&(s)->lock); \
    pthread_cond_broadcast(&(s)->cond)

static void on_attached(void *arg, const struct sp_hello *h, const struct sp_rec *recs)
{
    seen *s = arg;
    CHANGE(s);
    s->attached++;
    s->hello = *h;
    memcpy(s->recs, recs, (h->nrec < 16 ? h->nrec : 16) * sizeof *recs);
    for (uint32_t i = 0; i < h->nrec; i++)
        if (recs[i].state != SP_LIVE && recs[i].id < EXECS && !s->x[recs[i].id].exited) {
            s->x[recs[i].id].exited = true; /* it ended while nobody was connected */
            s->x[recs[i].id].rec = recs[i];
            s->exits++;
        }
}

static void on_started(void *arg, uint64_t id, int errnum, const struct sp_started *st,
                       int fd[SP_FDS_MAX])
{
    seen *s = arg;
    (void)st;
    CHANGE(s);
    for (int i = 0; i < SP_FDS_MAX; i++) {
        if (s->x[id].started)
            closep(&s->x[id].fd[i]);
        s->x[id].fd[i] = fd[i];
    }
    s->x[id].started = true;
    s->x[id].starts++;
    s->x[id].errnum = errnum;
}

static void on_exited(void *arg, const struct sp_rec *rec)
{
    seen *s = arg;
    CHANGE(s);
    assert_true(rec->id < EXECS);
    s->x[rec->id].exited = true;
    s->x[rec->id].rec = *rec;
    s->exits++;
}

static void on_signalled(void *arg, uint64_t id, uint64_t cookie, int errnum)
{
    seen *s = arg;
    CHANGE(s);
    s->x[id].signalled = true;
    s->x[id].cookie = cookie;
    s->x[id].signal_errnum = errnum;
}

static void on_distrusted(void *arg)
{
    seen *s = arg;
    LOCK_SCOPE(&s->lock);

    assert_int_equal(s->gone, 0);
    s->distrusted++;
}

static void on_newer(void *arg)
{
    seen *s = arg;
    CHANGE(s);
    s->newer++;
}

static void on_gone(void *arg, const char *why)
{
    seen *s = arg;
    CHANGE(s);
    s->gone++;
    strncpy(s->why, why, sizeof s->why - 1);
}

static const box_events events = {.attached = on_attached,
                                  .started = on_started,
                                  .exited = on_exited,
                                  .signalled = on_signalled,
                                  .distrusted = on_distrusted,
                                  .newer = on_newer,
                                  .gone = on_gone};

static void on_created(void *arg, err *failure, box *made, const box_timing *timing)
{
    seen *s = arg;
    CHANGE(s);
    s->done = true;
    s->failure = failure;
    s->made = made;
    if (timing)
        s->timing = *timing;
}

#define WAIT(s, condition)                                                      \
    do {                                                                        \
        uint64_t until_ = now_mono_ns() + 15 * NS_PER_S;                        \
        pthread_mutex_lock(&(s)->lock);                                         \
        while (!(condition) && cond_wait_until(&(s)->cond, &(s)->lock, until_)) \
            ;                                                                   \
        bool held_ = (condition);                                               \
        pthread_mutex_unlock(&(s)->lock);                                       \
        if (!held_)                                                             \
            fail_msg("waited in vain: %s", #condition);                         \
    } while (0)

static void seen_init(seen *s)
{
    memset(s, 0, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->cond);
}

static void seen_done(seen *s)
{
    for (size_t i = 0; i < EXECS; i++)
        if (s->x[i].started)
            for (int k = 0; k < SP_FDS_MAX; k++)
                closep(&s->x[i].fd[k]);
    err_free(s->failure);
}

static int setup_n(size_t n)
{
    seen_init(&ev_a);
    seen_init(&ev_b);
    fake_warden_start(&fw, program, n);
    assert_ok(backend_oci_new(fw.path, NULL, &be));
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_n(1);
}

static int setup_two(void **state)
{
    (void)state;
    return setup_n(2);
}

/* A warden of before wp_stats.size. */
static int setup_old(void **state)
{
    (void)state;
    seen_init(&ev_a);
    seen_init(&ev_b);
    fake_warden_start(&fw, program, 1);
    fw.old = true; /* nobody has connected */
    assert_ok(backend_oci_new(fw.path, NULL, &be));
    return 0;
}

static int setup_none(void **state)
{
    (void)state;
    return setup_n(0);
}

static int teardown(void **state)
{
    (void)state;
    if (be)
        be->ops->free(be);
    be = NULL;
    fake_warden_stop(&fw);
    seen_done(&ev_a);
    seen_done(&ev_b);
    return 0;
}

/* ---- verbs ---- */

static char *env_secret[] = {"SECRET=s3", NULL};

static void create(seen *s, const char *id)
{
    static const sandbox_spec plain = {0};
    box_spec spec = {
        .spec = &plain, .env = env_secret, .user = "", .cwd = "", .umask = 022, .queue_ms = 5000};
    snprintf(spec.id, sizeof spec.id, "%s", id);
    be->ops->create(be, &spec, &events, s, on_created);
    WAIT(s, s->done);
}

static box *create_ok(seen *s, const char *id)
{
    create(s, id);
    assert_ok(TAKE_PTR(s->failure));
    WAIT(s, s->attached == 1);
    return s->made;
}

static void start(box *x, uint64_t id, char *script)
{
    char *argv[] = {"sh", "-c", script, NULL};
    exec_spec e = {.argv = argv, .exec_fd = -1};
    assert_ok(be->ops->exec(x, id, &e, -1));
}

static const char *output(seen *s, uint64_t id)
{
    static char b[4096];
    size_t at = 0;
    ssize_t n;

    WAIT(s, s->x[id].exited && s->x[id].started);
    while ((n = read(s->x[id].fd[SP_FD_OUT], b + at, sizeof b - 1 - at)) > 0)
        at += (size_t)n;
    b[at] = 0;
    return b;
}

/* ---- tests ---- */

static void create_claims_and_runs(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);

    assert_int_equal(ev_a.timing.build_ns, 7);
    assert_true(ev_a.timing.claim_ns > 0);
    start(x, 1, "echo $SECRET; exit 3");
    assert_string_equal(output(&ev_a, 1), "s3\n");
    assert_int_equal(WEXITSTATUS(ev_a.x[1].rec.status), 3);
    be->ops->ack(x, 1, 15);
    assert_true(fcntl(ev_a.x[1].fd[SP_FD_OUT], F_GETFL) & O_NONBLOCK);
    assert_int_equal(ev_a.x[1].fd[SP_FD_IN], -1);
    be->ops->box_unref(x);
}

static void create_again_attaches(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);

    start(x, 1, "read x");
    WAIT(&ev_a, ev_a.x[1].started);
    be->ops->box_unref(x);
    box *y = create_ok(&ev_b, ID_A);
    assert_true(ev_b.hello.flags & SP_HELLO_CLAIMED);
    assert_int_equal(ev_b.hello.high, 1);
    assert_int_equal(fake_warden_count(&fw, WP_ATTACH), 1);
    start(y, 2, "echo $SECRET");
    assert_string_equal(output(&ev_b, 2), "s3\n");
    be->ops->box_unref(y);
}

static void create_errors_are_mapped(void **state)
{
    (void)state;
    static const struct {
        int errnum;
        const char *text;
        err_code code;
        int retry;
    } cases[] = {
        {EAGAIN, "no slot was free in time", ERR_POOL_EXHAUSTED, 3},
        {ETIMEDOUT, "", ERR_POOL_EXHAUSTED, 5},
        {ENOTSUP, "no quotas here", ERR_UNSUPPORTED, 0},
        {ENOENT, "no such image", ERR_NOT_FOUND, 0},
        {EIO, "the overlay does not mount", ERR_CREATE_FAILED, 0},
        {WP_EWALL, "cannot limit memory", ERR_WALL_FAILED, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pthread_mutex_lock(&fw.lock);
        fw.claim_errnum = cases[i].errnum;
        fw.claim_text = cases[i].text;
        fw.claim_retry = cases[i].retry == 3 ? 3 : 0;
        pthread_mutex_unlock(&fw.lock);
        ev_a.done = false;
        create(&ev_a, ID_A);
        assert_non_null(ev_a.failure);
        assert_int_equal(ev_a.failure->code, cases[i].code);
        assert_int_equal(ev_a.failure->retry_after, cases[i].retry);
        if (*cases[i].text)
            assert_non_null(strstr(ev_a.failure->cause, cases[i].text));
        if (cases[i].errnum == ENOENT)
            assert_string_equal(ev_a.failure->kind, "image");
        err_free(TAKE_PTR(ev_a.failure));
    }
    assert_int_equal(ev_a.gone, 0);
}

static void oversized_env_fails_the_create(void **state)
{
    (void)state;
    static const sandbox_spec plain = {0};
    char *big = xmalloc(SP_PAYLOAD_MAX + 1), *env[] = {big, NULL};
    box_spec spec = {.id = ID_A, .spec = &plain, .env = env};

    memset(big, 'x', SP_PAYLOAD_MAX);
    big[SP_PAYLOAD_MAX] = 0;
    be->ops->create(be, &spec, &events, &ev_a, on_created);
    WAIT(&ev_a, ev_a.done);
    assert_err(TAKE_PTR(ev_a.failure), ERR_TOO_LARGE);
    assert_int_equal(fake_warden_count(&fw, WP_CLAIM), 0);
    free(big);
}

static void claim_lost_with_the_warden_is_sent_again(void **state)
{
    (void)state;
    pthread_mutex_lock(&fw.lock);
    fw.cut_on = WP_CLAIM;
    pthread_mutex_unlock(&fw.lock);
    box *x = create_ok(&ev_a, ID_A);
    assert_int_equal(fake_warden_count(&fw, WP_CLAIM), 2);
    assert_int_equal(fw.connections, 2);
    assert_true(fw.last_deadline > 0 && fw.last_deadline < 5000);
    be->ops->box_unref(x);
}

/* A create does not outlast its place in the queue when the warden stays away; when it comes back,
 * it is told to destroy what it may have made. */
static void claim_of_no_warden_ends_with_its_queue(void **state)
{
    (void)state;
    static const sandbox_spec plain = {0};
    box_spec spec = {.id = ID_A, .spec = &plain, .user = "", .cwd = "", .queue_ms = 300};
    char away[sizeof fw.path + 8];

    snprintf(away, sizeof away, "%s.away", fw.path);
    assert_int_equal(rename(fw.path, away), 0);
    pthread_mutex_lock(&fw.lock);
    fw.cut_on = WP_CLAIM;
    pthread_mutex_unlock(&fw.lock);
    uint64_t begun = now_mono_ns();
    be->ops->create(be, &spec, &events, &ev_a, on_created);
    WAIT(&ev_a, ev_a.done);
    assert_int_equal(ev_a.failure->code, ERR_UNAVAILABLE);
    assert_true(now_mono_ns() - begun < 5 * NS_PER_S);
    err_free(TAKE_PTR(ev_a.failure));
    assert_int_equal(rename(away, fw.path), 0);
    for (int i = 0; i < 1000 && !fake_warden_count(&fw, WP_DESTROY); i++)
        usleep(10000);
    assert_int_equal(fake_warden_count(&fw, WP_DESTROY), 1);
}

/* The warden made it and died before it could say so. */
static void claim_done_by_a_dead_warden_is_attached(void **state)
{
    (void)state;
    pthread_mutex_lock(&fw.lock);
    fw.cut_on = WP_CLAIM;
    fw.cut_after = true;
    pthread_mutex_unlock(&fw.lock);
    box *x = create_ok(&ev_a, ID_A);
    start(x, 1, "echo $SECRET");
    assert_string_equal(output(&ev_a, 1), "s3\n"); /* CLAIM's record was sent all the same */
    be->ops->box_unref(x);
}

static void broken_connection_comes_back(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);

    start(x, 1, "read x; echo got");
    WAIT(&ev_a, ev_a.x[1].started);
    pthread_mutex_lock(&fw.lock);
    fw.attach_errnum = EBUSY; /* not dead: it is tried again */
    fw.attach_fails = 2;
    pthread_mutex_unlock(&fw.lock);
    int other = guest_connect(&fw.slot[0].vm); /* the newest wins */
    start(x, 2, "echo two");
    WAIT(&ev_a, ev_a.attached == 2);
    assert_int_equal(ev_a.recs[0].id, 1);
    assert_string_equal(output(&ev_a, 2), "two\n");
    assert_true(fake_warden_count(&fw, WP_ATTACH) >= 3);
    assert_ok(be->ops->fetch(x, 1));
    WAIT(&ev_a, ev_a.x[1].starts == 2);
    assert_int_equal(ev_a.gone, 0);
    close(other);
    be->ops->box_unref(x);
}

static void death_of_init_is_told_once(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);

    start(x, 1, "read x");
    WAIT(&ev_a, ev_a.x[1].started);
    kill(fw.slot[0].vm.pid, SIGKILL);
    WAIT(&ev_a, ev_a.gone == 1);
    exec_spec e = {.argv = (char *[]){"true", NULL}, .exec_fd = -1};
    assert_err(be->ops->exec(x, 2, &e, -1), ERR_SANDBOX_GONE);
    assert_err(be->ops->fetch(x, 1), ERR_SANDBOX_GONE);
    be->ops->ack(x, 1, 15);
    usleep(50000);
    assert_int_equal(ev_a.gone, 1);
    be->ops->box_unref(x);
}

static void destroy_ends_the_box(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);

    assert_ok(be->ops->destroy(be, ID_A));
    WAIT(&ev_a, ev_a.gone == 1);
    assert_ok(be->ops->destroy(be, ID_A));
    assert_ok(be->ops->destroy(be, ID_B));
    be->ops->box_unref(x);
}

static void attach_after_a_restart(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A), *y, *z;

    start(x, 1, "echo early; sleep 1000; echo late");
    WAIT(&ev_a, ev_a.x[1].started);
    struct pollfd out = {ev_a.x[1].fd[SP_FD_OUT], POLLIN, 0};
    assert_int_equal(poll(&out, 1, 10000), 1); /* not read: it must be there later */
    const backend_ops *ops = be->ops;
    ops->free(be); /* the daemon ends, the sandbox does not */
    ops->box_unref(x);
    assert_ok(backend_oci_new(fw.path, NULL, &be));
    assert_ok(be->ops->attach(be, ID_A, &events, &ev_b, &y));
    WAIT(&ev_b, ev_b.attached == 1);
    assert_int_equal(ev_b.hello.nrec, 1);
    assert_int_equal(ev_b.recs[0].state, SP_LIVE);
    assert_ok(be->ops->fetch(y, 1));
    WAIT(&ev_b, ev_b.x[1].started);
    assert_ok(be->ops->signal(
        y, &(signal_spec){.exec = 1, .cookie = 77, .signo = SIGKILL, .scope = SP_TO_TREE}));
    WAIT(&ev_b, ev_b.x[1].signalled);
    assert_int_equal(ev_b.x[1].cookie, 77);
    assert_string_equal(output(&ev_b, 1), "early\n");
    be->ops->box_unref(y);
    ev_a.gone = 0;
    assert_ok(be->ops->attach(be, ID_B, &events, &ev_a, &z)); /* nobody's */
    WAIT(&ev_a, ev_a.gone == 1);
    be->ops->box_unref(z);
    assert_err(be->ops->attach(be, "../x", &events, &ev_a, &z), ERR_NOT_FOUND);
}

/* Nothing here stands still but the box's queue. */
static void a_frozen_box_sends_nothing_until_it_is_thawed(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);

    assert_ok(be->ops->freeze(x));
    assert_ok(be->ops->freeze(x));
    start(x, 1, "echo one");
    start(x, 2, "echo two");
    usleep(200000);
    assert_false(ev_a.x[1].started);
    fw.cut_on = WP_THAW; /* lost with its connection, it is sent again */
    assert_ok(be->ops->thaw(x));
    assert_string_equal(output(&ev_a, 1), "one\n");
    assert_string_equal(output(&ev_a, 2), "two\n");
    assert_int_equal(fake_warden_count(&fw, WP_FREEZE), 2);
    assert_int_equal(fake_warden_count(&fw, WP_THAW), 2);
    be->ops->box_unref(x);
}

static void a_box_that_would_not_freeze_goes_on(void **state)
{
    static const struct {
        int errnum;
        err_code code;
    } TOLD[] = {{ETIMEDOUT, ERR_TIMEOUT}, {ESRCH, ERR_SANDBOX_GONE}, {EIO, ERR_INTERNAL}};
    (void)state;
    box *x = create_ok(&ev_a, ID_A);

    for (size_t i = 0; i < ARRAY_LEN(TOLD); i++) {
        fw.freeze_errnum = TOLD[i].errnum;
        assert_err(be->ops->freeze(x), TOLD[i].code);
    }
    fw.freeze_errnum = 0;
    start(x, 1, "echo on");
    assert_string_equal(output(&ev_a, 1), "on\n");
    be->ops->box_unref(x);
}

static void many_execs_in_order(void **state)
{
    (void)state;
    enum {
        N = 200
    };
    box *x = create_ok(&ev_a, ID_A);

    for (uint64_t i = 1; i <= N; i++)
        start(x, i, "exit 5");
    WAIT(&ev_a, ev_a.exits == N);
    for (uint64_t i = 1; i <= N; i++) {
        assert_true(ev_a.x[i].started);
        assert_int_equal(ev_a.x[i].errnum, 0);
        assert_int_equal(WEXITSTATUS(ev_a.x[i].rec.status), 5);
        be->ops->ack(x, i, 15);
    }
    start(x, N + 1, "echo on");
    assert_string_equal(output(&ev_a, N + 1), "on\n");
    be->ops->box_unref(x);
}

static void modes_descriptors_and_limits(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);
    char *sh[] = {"sh", "-c", "echo out; echo err >&2; ulimit -n", NULL};
    char *pf[] = {"printf", "by-fd", NULL};
    int prog = open("/usr/bin/printf", O_RDONLY | O_CLOEXEC), keep = open("/etc/passwd", O_RDONLY);
    exec_spec merged = {.argv = sh, .exec_fd = -1, .stdio = STDIO_MERGED, .nofile = 99};
    exec_spec byfd = {.argv = pf, .exec_fd = prog, .stdin_open = true};
    exec_spec pty = {.argv = sh, .exec_fd = -1, .stdio = STDIO_PTY, .rows = 5, .cols = 6};

    assert_ok(be->ops->exec(x, 1, &merged, -1));
    assert_string_equal(output(&ev_a, 1), "out\nerr\n99\n");
    assert_int_equal(ev_a.x[1].fd[SP_FD_ERR], -1);
    assert_ok(be->ops->exec(x, 2, &byfd, keep));
    assert_string_equal(output(&ev_a, 2), "by-fd");
    assert_true(ev_a.x[2].fd[SP_FD_IN] >= 0 && ev_a.x[2].fd[SP_FD_KEEP] >= 0);
    assert_ok(be->ops->exec(x, 3, &pty, -1));
    WAIT(&ev_a, ev_a.x[3].exited && ev_a.x[3].started);
    assert_true(isatty(ev_a.x[3].fd[SP_FD_IN]));
    merged.setuid = true; /* without the grant */
    assert_ok(be->ops->exec(x, 4, &merged, -1));
    WAIT(&ev_a, ev_a.x[4].started);
    assert_int_equal(ev_a.x[4].errnum, EPERM);
    close(prog);
    close(keep);
    be->ops->box_unref(x);
}

static void boxes_do_not_mix(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A), *y = create_ok(&ev_b, ID_B);

    for (uint64_t i = 1; i <= 40; i++) {
        start(x, i, "exit 1");
        start(y, i, "exit 2");
    }
    WAIT(&ev_a, ev_a.exits == 40);
    WAIT(&ev_b, ev_b.exits == 40);
    for (uint64_t i = 1; i <= 40; i++) {
        assert_int_equal(WEXITSTATUS(ev_a.x[i].rec.status), 1);
        assert_int_equal(WEXITSTATUS(ev_b.x[i].rec.status), 2);
    }
    ev_a.done = false;
    create(&ev_a, "testcccccccccccccccc"); /* there are two slots */
    assert_err(TAKE_PTR(ev_a.failure), ERR_POOL_EXHAUSTED);
    be->ops->box_unref(x);
    be->ops->box_unref(y);
}

/* Three frames, and what is not there is told apart. */
static void usage_of_many_in_few_frames(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);
    char ids[600][SANDBOX_ID_LEN + 1];
    box_usage u[600];

    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        snprintf(ids[i], sizeof ids[i], "testzzzzzzzzzzzzz%03zu", i);
    memcpy(ids[511], ID_A, sizeof ids[511]);
    assert_ok(be->ops->usage_many(be, ids, ARRAY_LEN(ids), u));
    assert_int_equal(fake_warden_count(&fw, WP_STATS), 3);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        assert_int_equal(u[i].known, i == 511);
    assert_int_equal(u[511].io_written, 8192);
    assert_ok(be->ops->usage_many(be, NULL, 0, NULL));
    be->ops->box_unref(x);
}

static void usage_of_an_older_warden(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A);
    box_usage u;

    assert_ok(be->ops->usage(be, ID_A, &u));
    assert_int_equal(u.memory, 4096);
    assert_int_equal(u.pids, 3);
    assert_int_equal(u.io_written, 0);
    be->ops->box_unref(x);
}

static void warden_answers_questions(void **state)
{
    (void)state;
    box *x = create_ok(&ev_a, ID_A), *y = create_ok(&ev_b, ID_B);
    box_status *list = NULL;
    box_usage u;
    size_t n;
    CLEANUP(buf_done) buf text = {0};

    assert_ok(be->ops->list(be, &list, &n));
    assert_int_equal(n, 2);
    assert_string_equal(list[1].id, ID_B);
    assert_int_equal(list[1].pid, 9);
    free(list);
    assert_ok(be->ops->usage(be, ID_A, &u));
    assert_int_equal(u.pids, 3);
    assert_err(be->ops->usage(be, "testcccccccccccccccc", &u), ERR_NOT_FOUND);
    assert_ok(be->ops->metrics(be, &text));
    assert_string_equal(buf_cstr(&text), "warden_up 1\n");
    assert_int_equal(be->caps.disk_limit, CAP_NATIVE);
    be->ops->box_unref(x);
    be->ops->box_unref(y);
}

/* Whoever scrapes comes again: it is told soon, and at once when nobody is there. */
static void metrics_do_not_wait_for_a_warden_that_is_away(void **state)
{
    CLEANUP(buf_done) buf text = {0};
    box_usage u;
    pool_status p;
    char away[sizeof fw.path + 1];
    uint64_t first = UINT64_MAX, then = UINT64_MAX;

    (void)state;
    snprintf(away, sizeof away, "%s-", fw.path);
    /* Both are measured again: a busy machine is late at times. */
    for (int i = 0; i < 10 && first >= 1500 * NS_PER_MS; i++) {
        if (i) {
            assert_false(rename(away, fw.path));
            assert_ok(be->ops->pool(be, NULL, &p)); /* waits for it */
        }
        pthread_mutex_lock(&fw.lock);
        fw.cut_on = WP_METRICS;
        pthread_mutex_unlock(&fw.lock);
        assert_false(rename(fw.path, away));
        uint64_t begun = now_mono_ns();
        assert_err(be->ops->metrics(be, &text), ERR_UNAVAILABLE);
        first = now_mono_ns() - begun;
    }
    assert_false(unlink(away));
    for (int i = 0; i < 10 && then >= 400 * NS_PER_MS; i++) {
        uint64_t begun = now_mono_ns();
        assert_err(be->ops->metrics(be, &text), ERR_UNAVAILABLE);
        assert_err(be->ops->usage_many(be, (const char(*)[SANDBOX_ID_LEN + 1]) & ID_A, 1, &u),
                   ERR_UNAVAILABLE);
        then = now_mono_ns() - begun;
    }
    assert_true(first < 1500 * NS_PER_MS);
    assert_true(then < 400 * NS_PER_MS);
}

static void watermarks_are_told_at_each_connection(void **state)
{
    (void)state;
    const backend_ops *ops = be->ops;
    pool_status p;

    assert_ok(ops->pool(be, NULL, &p));
    assert_int_equal(p.high, 0); /* none configured: the warden's own */
    ops->free(be);
    assert_ok(backend_oci_new(fw.path, &(pool_marks){2, 4}, &be));
    assert_ok(ops->pool(be, NULL, &p));
    assert_int_equal(p.low, 2);
    assert_int_equal(p.high, 4);
    assert_int_equal(p.refills_failed, 3);
    assert_non_null(p.state); /* one we do not know */
    assert_string_equal(p.last_error, "crun ended with status 1");
    assert_ok(ops->pool(be, &(pool_marks){5, 9}, &p));
    assert_int_equal(p.high, 9);
    assert_err(ops->pool(be, &(pool_marks){5, 2000}, &p), ERR_INVALID_REQUEST);
    pthread_mutex_lock(&fw.lock);
    fw.marks = (struct wp_watermarks){0}; /* a warden that was started again */
    fw.cut_on = WP_METRICS;
    pthread_mutex_unlock(&fw.lock);
    CLEANUP(buf_done) buf text = {0};
    assert_ok(ops->metrics(be, &text)); /* cut once, sent again on the next connection */
    assert_ok(ops->pool(be, NULL, &p));
    assert_int_equal(p.low, 5);
    assert_int_equal(p.high, 9);
}

static void missing_warden_is_said(void **state)
{
    (void)state;
    oci_warden *w;
    assert_err(oci_warden_new("/nonexistent/warden.sock", NULL, 200, &w), ERR_UNAVAILABLE);
}

/* ---- an init that lies ---- */

static struct sp_hello plain_hello(void)
{
    return (struct sp_hello){.h = {.type = SP_HELLO},
                             .version = SP_VERSION,
                             .capacity = SP_MAX_EXEC,
                             .flags = SP_HELLO_CLAIMED};
}

/* The next CLAIM gets a socket whose other end is returned. */
static int play_init(const struct sp_hello *h)
{
    int p[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p), 0);
    pthread_mutex_lock(&fw.lock);
    fw.give_fd = p[0];
    fw.give_hello = h;
    fw.give_n = sizeof *h;
    pthread_mutex_unlock(&fw.lock);
    return p[1];
}

static void say(int fd, const void *p, size_t n, const int *fds, size_t nfds)
{
    struct iovec v = {(void *)p, n};
    assert_int_equal(sock_send(fd, &v, 1, fds, nfds, 0), 0);
}

static void bad_hello_fails_the_create(void **state)
{
    (void)state;
    static struct sp_hello h;
    h = plain_hello();
    h.version = 9;
    int fd = play_init(&h);
    create(&ev_a, ID_A);
    assert_non_null(ev_a.failure);
    assert_non_null(strstr(ev_a.failure->cause, "newer version of the spine"));
    assert_err(TAKE_PTR(ev_a.failure), ERR_CREATE_FAILED);
    assert_int_equal(ev_a.gone, 0);
    for (int i = 0; i < 1000 && !fake_warden_count(&fw, WP_DESTROY); i++)
        usleep(10000);
    assert_int_equal(fake_warden_count(&fw, WP_DESTROY), 1);
    close(fd);
}

/* A bothyd that was taken back: what the newer one made lives on, and is reached again when its
 * init speaks what we know. */
static void a_newer_init_is_left_alone(void **state)
{
    (void)state;
    static struct sp_hello h, newer;
    box *x;
    char b[16];
    h = newer = plain_hello();
    newer.version = SP_VERSION + 1;
    int fd = play_init(&newer);
    assert_ok(be->ops->attach(be, ID_A, &events, &ev_a, &x));
    for (int i = 0; i < 1000 && !fake_warden_count(&fw, WP_ATTACH); i++)
        usleep(10000);
    pthread_mutex_lock(&fw.lock);
    fw.attach_errnum = EAGAIN; /* until we have looked */
    fw.attach_fails = UINT_MAX;
    pthread_mutex_unlock(&fw.lock);
    say(fd, &newer, sizeof newer, NULL, 0);
    assert_int_equal(recv(fd, b, sizeof b, 0), 0); /* it hung up */
    for (int i = 0; i < 1000 && fake_warden_count(&fw, WP_ATTACH) < 3; i++)
        usleep(10000); /* and asks again */
    assert_int_equal(ev_a.attached + ev_a.gone, 0);
    assert_int_equal(fake_warden_count(&fw, WP_DESTROY), 0);
    WAIT(&ev_a, ev_a.newer == 1);
    /* Nobody waits for an answer that does not come. */
    assert_err(be->ops->signal(x, &(signal_spec){.exec = 1, .signo = SIGTERM}), ERR_UNAVAILABLE);
    int again = play_init(&h);
    say(again, &h, sizeof h, NULL, 0);
    pthread_mutex_lock(&fw.lock);
    fw.attach_fails = 0;
    pthread_mutex_unlock(&fw.lock);
    WAIT(&ev_a, ev_a.attached == 1);
    assert_ok(be->ops->signal(x, &(signal_spec){.exec = 1, .signo = SIGTERM}));
    be->ops->box_unref(x);
    close(fd);
    close(again);
}

/* bothyd was out of descriptors when the answer came: the slot is claimed, and nobody has it. */
static void a_claim_whose_descriptor_is_lost_is_destroyed(void **state)
{
    (void)state;
    pthread_mutex_lock(&fw.lock);
    fw.lose_fd = true;
    pthread_mutex_unlock(&fw.lock);
    create(&ev_a, ID_A);
    assert_err(TAKE_PTR(ev_a.failure), ERR_CREATE_FAILED);
    for (int i = 0; i < 1000 && !fake_warden_count(&fw, WP_DESTROY); i++)
        usleep(10000);
    assert_int_equal(fake_warden_count(&fw, WP_DESTROY), 1);
}

static void refused_claim_fails_the_create(void **state)
{
    (void)state;
    static struct sp_hello h;
    struct sp_hdr refusal = {.type = SP_DONE, .err = ENOMEM};
    h = plain_hello();
    h.flags = 0;
    int fd = play_init(&h);
    say(fd, &refusal, sizeof refusal, NULL, 0); /* it lies in wait for CLAIM */
    create(&ev_a, ID_A);
    assert_err(TAKE_PTR(ev_a.failure), ERR_CREATE_FAILED);
    close(fd);
}

static void a_wall_that_fails_after_the_claim_is_named_and_told(void **state)
{
    (void)state;
    static struct sp_hello h;
    struct sp_hdr refusal = {
        .type = SP_DONE,
        .err = SP_EWALL,
        .id = SP_WALLS(WALLS_CLAIM_INSIDE, WALLS_CLAIM_INSIDE & ~WALL_BIT(PROCSYS))};
    h = plain_hello();
    h.flags = 0;
    int fd = play_init(&h);
    say(fd, &refusal, sizeof refusal, NULL, 0);
    create(&ev_a, ID_A);
    assert_non_null(ev_a.failure);
    assert_non_null(strstr(ev_a.failure->cause, "'procsys'"));
    assert_null(strstr(ev_a.failure->cause, "'root'"));
    assert_true(ev_a.failure->retryable);
    assert_err(TAKE_PTR(ev_a.failure), ERR_WALL_FAILED);
    for (int i = 0; i < 1000 && !fake_warden_count(&fw, WP_DESTROY); i++)
        usleep(10000);
    assert_int_equal(fake_warden_count(&fw, WP_DESTROY), 1); /* this one cannot count */
    close(fd);
}

static void lying_init_ends_the_box(void **state)
{
    (void)state;
    static struct sp_hello h;
    int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC), fifo[2];
    assert_int_equal(pipe2(fifo, O_CLOEXEC), 0);
    struct sp_started st = {.h = {SP_STARTED, 0, 1}, .pid = 5, .flags = SP_F_NOSTDIN, .fds = 2};
    struct sp_hdr done = {SP_DONE, 0, 1};
    const struct {
        const void *p;
        size_t n;
        const int *fds;
        size_t nfds;
        bool ask;
    } cases[] = {
        {&st, sizeof st, &file, 1, true},     /* a file for a pipe */
        {&st, sizeof st, &fifo[1], 1, true},  /* the wrong end */
        {&st, sizeof st, &fifo[0], 1, false}, /* not asked */
        {&st, sizeof st, NULL, 0, true},      /* fewer than it says */
        {&done, sizeof done, NULL, 0, true},  /* the answer to something else */
        {&h, sizeof h, NULL, 0, true},        /* greets twice */
        {"junk", 4, NULL, 0, true},
    };
    h = plain_hello();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd = play_init(&h);
        seen_init(&ev_a);
        box *x = create_ok(&ev_a, ID_A);
        if (cases[i].ask)
            start(x, 1, "true");
        say(fd, cases[i].p, cases[i].n, cases[i].fds, cases[i].nfds);
        WAIT(&ev_a, ev_a.gone == 1);
        assert_int_equal(ev_a.distrusted, 1);
        assert_false(ev_a.x[1].started);
        be->ops->box_unref(x);
        close(fd);
        for (int k = 0; k < 1000 && fake_warden_count(&fw, WP_DESTROY) <= i; k++)
            usleep(10000);
        assert_int_equal(fake_warden_count(&fw, WP_DESTROY), i + 1); /* it is not left running */
    }
    close(file);
    close(fifo[0]);
    close(fifo[1]);
}

/* One end of a TCP connection whose close waits an hour for the other end to read. */
static int lingering(int *ret_listener)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    static char fill[65536];
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(l, 1), 0);
    assert_int_equal(getsockname(l, (struct sockaddr *)&a, &n), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    while (send(fd, fill, sizeof fill, MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour), 0);
    *ret_listener = l;
    return fd;
}

/* Nobody else may wait for the close of what a lying init sent: as a descriptor that is looked at,
 * with a record that is too long, or unread in its connection. */
static void descriptors_that_linger_hold_up_nobody(void **state)
{
    (void)state;
    static struct sp_hello h;
    static char endless[SP_HELLO_MAX + 1];
    struct sp_started st = {.h = {SP_STARTED, 0, 1}, .pid = 5, .flags = SP_F_NOSTDIN, .fds = 2};
    int listener[3];

    h = plain_hello();
    box *other = create_ok(&ev_b, ID_B);
    for (int i = 0; i < 3; i++) {
        int bad = lingering(&listener[i]), fd = play_init(&h);
        if (i == 0)
            say(fd, &st, sizeof st, &bad, 1);
        if (i == 1)
            say(fd, endless, sizeof endless, &bad, 1);
        if (i == 2) {
            const int many[] = {bad, bad, bad, bad, bad, bad, bad, bad, bad};
            say(fd, "junk", 4, NULL, 0);
            say(fd, &st, sizeof st, many, sizeof many / sizeof *many);
        }
        close(bad); /* what was said is the last to have it */
        seen_init(&ev_a);
        box *x = create_ok(&ev_a, ID_A);
        WAIT(&ev_a, ev_a.gone == 1);
        be->ops->box_unref(x);
        start(other, (uint64_t)i + 1, "echo well");
        assert_string_equal(output(&ev_b, (uint64_t)i + 1), "well\n");
        close(fd);
    }
    be->ops->box_unref(other);
    for (int i = 0; i < 3; i++)
        close(listener[i]); /* the connections are reset, and the closes end */
}

/* A reader that stands still, far more than its queue holds, then a break: all is sent again in
 * order, but a signal that may have been delivered is reported instead. */
static void unanswered_requests_survive_a_break(void **state)
{
    (void)state;
    static struct sp_hello h;
    char b[SP_INLINE_MAX] __attribute__((aligned(8)));
    h = plain_hello();
    int fd = play_init(&h);
    box *x = create_ok(&ev_a, ID_A);
    for (uint64_t i = 1; i <= 300; i++)
        start(x, i, "true");
    assert_ok(be->ops->signal(x, &(signal_spec){.exec = 301, .signo = SIGTERM}));
    for (uint64_t i = 1; i <= SP_UNANSWERED; i++) {
        assert_true(recv(fd, b, sizeof b, 0) > 0);
        assert_int_equal(((struct sp_hdr *)b)->id, i);
    }
    assert_int_equal(recv(fd, b, sizeof b, MSG_DONTWAIT), -1); /* no more without answers */
    int again = play_init(&h);
    say(again, &h, sizeof h, NULL, 0);
    close(fd);
    WAIT(&ev_a, ev_a.attached == 2);
    for (uint64_t i = 1; i <= 300; i++) {
        struct sp_started st = {.h = {SP_STARTED, EAGAIN, i}};
        assert_true(recv(again, b, sizeof b, 0) > 0);
        assert_int_equal(((struct sp_hdr *)b)->id, i);
        say(again, &st, sizeof st, NULL, 0);
    }
    WAIT(&ev_a, ev_a.x[300].started);
    assert_int_equal(ev_a.x[300].errnum, EAGAIN);
    assert_true(recv(again, b, sizeof b, 0) > 0);
    assert_int_equal(((struct sp_hdr *)b)->type, SP_SIGNAL);
    /* Now it is sent; another break makes it uncertain. */
    int third = play_init(&h);
    say(third, &h, sizeof h, NULL, 0);
    close(again);
    WAIT(&ev_a, ev_a.x[301].signalled);
    assert_int_equal(ev_a.x[301].signal_errnum, ECONNRESET);
    WAIT(&ev_a, ev_a.attached == 3);
    be->ops->box_unref(x);
    close(third);
}

/* ---- a warden that is silent ---- */

static void fw_mute(bool mute)
{
    LOCK_SCOPE(&fw.lock);
    fw.mute = mute;
}

static void on_fate(void *arg, err *failure, const box_fate *fate)
{
    uint64_t *at = arg;
    (void)fate;

    assert_non_null(failure);
    assert_int_equal(failure->code, ERR_UNAVAILABLE);
    err_free(failure);
    CHANGE(&ev_a);
    *at = now_mono_ns();
}

/* Whether memory ran out is the only thing that a command's end waits for. */
static void fate_for_a_command_does_not_wait_long_for_a_silent_warden(void **state)
{
    (void)state;
    uint64_t began = now_mono_ns(), at = 0;

    fw_mute(true);
    be->ops->fate(be, ID_A, 0, on_fate, &at);
    WAIT(&ev_a, at != 0);
    assert_true(at - began < 10 * NS_PER_S);
    fw_mute(false);
}

/* Returns whether the warden answered, and how long that took. */
static bool ask_pool(uint64_t *ret_ns)
{
    uint64_t began = now_mono_ns();
    pool_status p;
    err *e = be->ops->pool(be, NULL, &p);
    bool ok = !e;

    err_free(e);
    *ret_ns = now_mono_ns() - began;
    return ok;
}

static void silent_warden_is_not_waited_for(void **state)
{
    (void)state;
    uint64_t took = 0, began = now_mono_ns();

    assert_true(ask_pool(&took));
    fw_mute(true);
    /* Not a look: it would wait for half a minute, and ends when the silence is noticed. */
    err *e = be->ops->limits(be, ID_A, &(limits){.pids = 5});
    assert_non_null(e);
    assert_int_equal(e->code, ERR_UNAVAILABLE);
    err_free(e);
    assert_true(now_mono_ns() - began < 15 * NS_PER_S);
    /* From then on nothing is sent: a hundred take less than one look did. */
    unsigned sent = fake_warden_count(&fw, WP_POOL);
    began = now_mono_ns();
    for (int i = 0; i < 100; i++)
        assert_false(ask_pool(&took));
    assert_true(now_mono_ns() - began < NS_PER_S);
    fw_mute(false);
    for (int i = 0; i < 1000 && !ask_pool(&took); i++)
        usleep(10000);
    assert_true(ask_pool(&took));
    assert_true(fake_warden_count(&fw, WP_POOL) <= sent + 3);
}

static void *one_look(void *arg)
{
    ask_pool(arg);
    return NULL;
}

/* A few may wait for their whole time, the others for a part of it: threads come back. */
static void a_crowd_of_looks_waits_for_less(void **state)
{
    (void)state;
    enum {
        CROWD = 64
    };
    pthread_t threads[CROWD];
    uint64_t took[CROWD];
    int whole = 0;

    fw_mute(true);
    for (int i = 0; i < CROWD; i++)
        threads[i] = thread_start("look", one_look, &took[i]);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CROWD; i++)
        whole += took[i] >= 1900 * NS_PER_MS;
    assert_true(whole >= 1);
    assert_true(whole <= CROWD / 2);
    fw_mute(false);
}

static void unref_ends_events(void **state)
{
    (void)state;
    static struct sp_hello h;
    char b[16];
    h = plain_hello();
    int fd = play_init(&h);
    box *x = create_ok(&ev_a, ID_A);
    be->ops->box_unref(x);
    assert_int_equal(recv(fd, b, sizeof b, 0), 0); /* it hung up */
    assert_int_equal(ev_a.gone, 0);
    close(fd);
}

#define T(f, s) cmocka_unit_test_setup_teardown(f, s, teardown)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        T(create_claims_and_runs, setup),
        T(create_again_attaches, setup),
        T(create_errors_are_mapped, setup_none),
        T(oversized_env_fails_the_create, setup_none),
        T(claim_lost_with_the_warden_is_sent_again, setup),
        T(claim_of_no_warden_ends_with_its_queue, setup),
        T(claim_done_by_a_dead_warden_is_attached, setup),
        T(broken_connection_comes_back, setup),
        T(death_of_init_is_told_once, setup),
        T(destroy_ends_the_box, setup),
        T(attach_after_a_restart, setup),
        T(a_frozen_box_sends_nothing_until_it_is_thawed, setup),
        T(a_box_that_would_not_freeze_goes_on, setup),
        T(many_execs_in_order, setup),
        T(modes_descriptors_and_limits, setup),
        T(boxes_do_not_mix, setup_two),
        T(warden_answers_questions, setup_two),
        T(metrics_do_not_wait_for_a_warden_that_is_away, setup_two),
        T(usage_of_many_in_few_frames, setup),
        T(usage_of_an_older_warden, setup_old),
        T(bad_hello_fails_the_create, setup_none),
        T(a_newer_init_is_left_alone, setup_none),
        T(a_claim_whose_descriptor_is_lost_is_destroyed, setup),
        T(refused_claim_fails_the_create, setup_none),
        T(a_wall_that_fails_after_the_claim_is_named_and_told, setup_none),
        T(lying_init_ends_the_box, setup_none),
        T(descriptors_that_linger_hold_up_nobody, setup),
        T(unanswered_requests_survive_a_break, setup_none),
        T(fate_for_a_command_does_not_wait_long_for_a_silent_warden, setup),
        T(silent_warden_is_not_waited_for, setup),
        T(a_crowd_of_looks_waits_for_less, setup_none),
        T(unref_ends_events, setup_none),
        cmocka_unit_test_setup_teardown(watermarks_are_told_at_each_connection, setup, teardown),
        cmocka_unit_test(missing_warden_is_said),
    };
    const char *why;

    if (argc < 2)
        return 2;
    program = argv[1];
    if (!guest_possible(&why)) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    if (!guest_runs(program, &why)) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The link and the real init in container mode: `bothy-init serve` in namespaces of its own, and
 * `bothy-init attach` as the dialled stream. argv[1]: the init. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/id.h"
#include "base/sock.h"

#include "../unit.h"
#include "guest.h"
#include "link_keeper.h"

#define ID     "testaaaaaaaaaaaaaaaa"
#define OTHER  "testbbbbbbbbbbbbbbbb"
#define HANDLE "guest"

static const char *program;

typedef struct world {
    guest g;
    pthread_mutex_t lock;
    int control; /* to the process that starts attach inside: it has no threads */
    pid_t starter;
    int current; /* our end of the last stream, while it is open */
    bool dead;
    unsigned dials, condemned;
    link_host *host;
    keeper *k;
} world;

/* ---- dialling ---- */

static ssize_t end_read(void *s, void *p, size_t n)
{
    return recv(*(int *)s, p, n, MSG_DONTWAIT);
}

static ssize_t end_write(void *s, const void *p, size_t n)
{
    return send(*(int *)s, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int end_fd(void *s)
{
    return *(int *)s;
}

static world *here; /* one at a time */

static void end_close(void *s)
{
    int *fd = s;

    LOCK_SCOPE(&here->lock);
    if (here->current == *fd)
        here->current = -1;
    close(*fd);
    free(fd);
}

static const link_stream_ops END_OPS = {
    .read = end_read, .write = end_write, .fd = end_fd, .close = end_close};

static void starter(const guest *g, int control)
{
    char *argv[] = {"/init", "attach", NULL};
    guest_serve as = {0};
    char c;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (recv(control, &c, 1, 0) == 1) {
        pid_t pid;
        int fd = guest_exec(g, &as, argv, &pid);
        struct iovec v = {&c, 1};
        waitpid(pid, NULL, 0);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
        sock_send(control, &v, 1, &fd, 1, 0);
        close(fd);
    }
    _exit(0);
}

static err *dial(void *arg, const char *handle, unsigned timeout_ms, link_stream *ret_stream)
{
    world *w = arg;
    char c = 0;
    int fds[SOCK_FDS_MAX];
    size_t nfds = 0;

    (void)timeout_ms;
    LOCK_SCOPE(&w->lock);
    w->dials++;
    if (w->dead)
        return err_because(err_new(ERR_NOT_FOUND, "cannot dial %s", handle), "it has died");
    if (send(w->control, &c, 1, MSG_NOSIGNAL) != 1 ||
        sock_recv_all(w->control, &c, 1, fds, &nfds, 0) != 1 || nfds != 1)
        return err_new(ERR_UNAVAILABLE, "no stream");
    int *fd = xmalloc(sizeof *fd);
    w->current = *fd = fds[0];
    *ret_stream = (link_stream){&END_OPS, fd};
    return NULL;
}

static void condemned(void *arg, const char *handle, const char *why)
{
    world *w = arg;

    (void)handle;
    (void)why;
    LOCK_SCOPE(&w->lock);
    w->condemned++;
}

static void cut(world *w)
{
    LOCK_SCOPE(&w->lock);
    if (w->current >= 0)
        shutdown(w->current, SHUT_RDWR);
}

/* ---- a container and a bothyd ---- */

static void start_bothyd(world *w, uint8_t key)
{
    link_options o = {.name = "test",
                      .dial = dial,
                      .condemned = condemned,
                      .arg = w,
                      .key = {key},
                      .ping_ms = 300,
                      .pong_ms = 1500};

    assert_ok(link_host_new(&o, &w->host));
    w->k = xcalloc(1, sizeof *w->k);
    keeper_init(w->k);
}

/* As kill -9 does: nobody says goodbye. */
static void end_bothyd(world *w)
{
    if (w->k->b)
        link_box_unref(w->k->b);
    link_host_free(TAKE_PTR(w->host));
    keeper_done(w->k);
    free(TAKE_PTR(w->k));
}

static int setup(void **state)
{
    world *w = xcalloc(1, sizeof *w);
    guest_serve as = {0};
    int pair[2];

    *state = here = w;
    pthread_mutex_init(&w->lock, NULL);
    w->current = -1;
    guest_start_serve(&w->g, program, &as);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    w->starter = fork(); /* no thread is there now */
    if (!w->starter) {
        close(pair[0]);
        starter(&w->g, pair[1]);
    }
    close(pair[1]);
    w->control = pair[0];
    start_bothyd(w, 1);
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;

    end_bothyd(w);
    close(w->control);
    waitpid(w->starter, NULL, 0);
    guest_stop(&w->g);
    free(w);
    return 0;
}

static const link_container CONTAINER = {.handle = HANDLE, .nonce = {1, 2, 3}};

static void ask_claim(world *w, const char *id)
{
    static const link_warm_events none = {0};
    static sandbox_spec spec;
    static char *env[] = {"GREETING=hello", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    box_spec b = {.spec = &spec, .env = env, .user = "", .cwd = "/", .umask = 022};
    link_warm *warm;

    str_copy(b.id, sizeof b.id, id);
    assert_ok(link_warm_new(w->host, &CONTAINER, &none, NULL, &warm));
    assert_ok(link_claim(warm, &b, 10000, &KEEPER_BOX, w->k, keeper_claimed, w->k));
    assert_true(SEEN_WAIT(&w->k->s, w->k->s.done == 1));
}

static keeper *claim(void **state)
{
    world *w = *state;

    ask_claim(w, ID);
    assert_null(w->k->s.failure);
    assert_true(SEEN_WAIT(&w->k->s, w->k->s.attached == 1));
    return w->k;
}

static void run_as(keeper *k, uint64_t id, char *script, enum stdio_mode stdio, bool stdin_open)
{
    char *argv[] = {"/bin/sh", "-c", script, NULL};
    exec_spec s = {.argv = argv,
                   .exec_fd = -1,
                   .stdio = stdio,
                   .stdin_open = stdin_open,
                   .rows = 10,
                   .cols = 20};

    assert_ok(link_exec(k->b, id, &s, -1));
}

static void run(keeper *k, uint64_t id, char *script)
{
    run_as(k, id, script, STDIO_PIPES, false);
}

static int status(keeper *k, uint64_t id)
{
    assert_true(SEEN_WAIT(&k->s, k->s.x[id].exits));
    LOCK_SCOPE(&k->s.lock);
    assert_int_equal(k->s.x[id].rec.state, SP_EXITED);
    return k->s.x[id].rec.status;
}

static void check_out(keeper *k, uint64_t id, int stream, const char *text, size_t n)
{
    assert_true(SEEN_WAIT(&k->s, k->s.x[id].eof[stream - 1]));
    LOCK_SCOPE(&k->s.lock);
    const buf *b = &k->s.x[id].out[stream - 1];
    assert_int_equal(b->len, n);
    assert_memory_equal(b->p, text, n);
}

static void check_seq(keeper *k, uint64_t id, unsigned last)
{
    CLEANUP(buf_done) buf want = {0};

    for (unsigned i = 1; i <= last; i++)
        buf_printf(&want, "%u\n", i);
    check_out(k, id, 1, want.p, want.len);
}

/* Each stream is cut a little after it stood, until the command has ended. */
static void cut_until_exit(world *w, uint64_t id, unsigned ms)
{
    keeper *k = w->k;
    unsigned streams = 1;
    bool over = false;

    while (!over) {
        usleep(ms * 1000);
        cut(w);
        streams++;
        assert_true(SEEN_WAIT(&k->s, k->s.attached >= streams || k->s.x[id].exits));
        LOCK_SCOPE(&k->s.lock);
        over = k->s.x[id].exits;
    }
}

/* ---- tests ---- */

static void a_claimed_container_runs_commands(void **state)
{
    keeper *k = claim(state);

    run(k, 1, "echo $GREETING $HOSTNAME; echo oops >&2; exit 3");
    assert_int_equal(status(k, 1), 3 << 8);
    check_out(k, 1, 1, "hello " ID "\n", 7 + strlen(ID));
    check_out(k, 1, 2, "oops\n", 5);
    assert_int_equal(k->s.x[1].starts, 1);
    link_ack(k->b, 1, 15);
    run(k, 2, "exit 0");
    assert_int_equal(status(k, 2), 0);
}

static void sixty_at_once(void **state)
{
    keeper *k = claim(state);

    for (uint64_t id = 1; id <= 60; id++)
        run(k, id, "echo $$ >/dev/null; exit 7");
    for (uint64_t id = 1; id <= 60; id++) {
        assert_int_equal(status(k, id), 7 << 8);
        assert_int_equal(k->s.x[id].starts, 1);
        link_ack(k->b, id, 15);
    }
}

static void output_is_whole_over_cuts(void **state)
{
    keeper *k = claim(state);
    world *w = *state;

    run(k, 1,
        "for i in 1 2 3 4 5 6 7 8 9 10; do seq $((i*20000-19999)) $((i*20000)); sleep 0.1; "
        "done; exit 4");
    cut_until_exit(w, 1, 100);
    assert_int_equal(status(k, 1), 4 << 8);
    check_seq(k, 1, 200000);
    assert_true(k->s.attached > 1);
    assert_int_equal(w->condemned, 0);
}

static void stdin_is_whole_over_cuts(void **state)
{
    keeper *k = claim(state);
    world *w = *state;
    size_t n = 2u << 20;
    CLEANUP(freep) char *bytes = xmalloc(n);

    random_bytes(bytes, n);
    k->in[1].bytes = bytes;
    k->in[1].n = n;
    run_as(k, 1, "for i in 1 2 3 4 5; do head -c 100000; sleep 0.2; done; exec cat", STDIO_PIPES,
           true);
    cut_until_exit(w, 1, 60);
    assert_int_equal(status(k, 1), 0);
    check_out(k, 1, 1, bytes, n);
    assert_true(k->s.attached > 1);
}

/* Commands go on without a bothyd; the next one takes their output from where its spool ends. */
static void commands_outlive_bothyd(void **state)
{
    keeper *k = claim(state);
    world *w = *state;
    CLEANUP(buf_done) buf spool = {0};
    box *b;

    run(k, 1, "seq 1 1000; sleep 2; seq 1001 30000; exit 5");
    assert_true(SEEN_WAIT(&k->s, k->s.x[1].out[0].len == 3893));
    buf_append(&spool, k->s.x[1].out[0].p, k->s.x[1].out[0].len);
    end_bothyd(w);
    usleep(2200000);
    start_bothyd(w, 1);
    k = w->k;
    buf_append(&k->s.x[1].out[0], spool.p, spool.len);
    pthread_mutex_lock(&k->lock);
    assert_ok(link_attach(w->host, ID, &CONTAINER, &KEEPER_BOX, k, &b));
    k->b = b;
    pthread_mutex_unlock(&k->lock);
    assert_true(SEEN_WAIT(&k->s, k->s.attached == 1));
    assert_int_equal(k->s.hello.nrec, 1);
    assert_int_equal(status(k, 1), 5 << 8);
    check_seq(k, 1, 30000);
}

static void a_claim_is_found_by_the_next_bothyd(void **state)
{
    keeper *k = claim(state);
    world *w = *state;

    run(k, 1, "sleep 100");
    assert_true(SEEN_WAIT(&k->s, k->s.x[1].starts == 1));
    end_bothyd(w);
    start_bothyd(w, 1);
    ask_claim(w, ID);
    assert_null(w->k->s.failure);
    assert_true(SEEN_WAIT(&w->k->s, w->k->s.attached == 1));
    assert_int_equal(w->k->s.hello.nrec, 1);
    end_bothyd(w);
    start_bothyd(w, 1);
    ask_claim(w, OTHER);
    assert_non_null(w->k->s.failure);
    assert_int_equal(w->k->s.failure->errnum, EALREADY);
}

static void another_key_proves_nothing(void **state)
{
    claim(state);
    world *w = *state;

    end_bothyd(w);
    start_bothyd(w, 2);
    ask_claim(w, ID);
    assert_non_null(w->k->s.failure);
    assert_non_null(strstr(w->k->s.failure->cause, "tainted"));
    assert_int_equal(w->condemned, 1);
}

/* A tenant stops our process inside, and everything else it can. */
static void a_stopped_attach_process_is_left_behind(void **state)
{
    keeper *k = claim(state);

    run(k, 1, "seq 1 1000; sleep 0.2; pkill -STOP -f '^/init attach'; sleep 0.2; seq 1001 20000");
    assert_int_equal(status(k, 1), 0);
    check_seq(k, 1, 20000);
    assert_true(k->s.attached >= 2);
    link_stats st;
    link_host_stats(((world *)*state)->host, &st);
    assert_true(st.silent >= 1);
}

static void terminals_have_a_size(void **state)
{
    keeper *k = claim(state);

    k->in[1].bytes = "\n";
    k->in[1].more = true;
    run_as(k, 1, "stty -echo; stty size; read x; stty size", STDIO_PTY, true);
    assert_true(SEEN_WAIT(&k->s, k->s.x[1].out[0].len >= 7));
    assert_ok(link_resize(k->b, 1, 30, 40));
    {
        LOCK_SCOPE(&k->lock);
        k->in[1].n = 1;
    }
    keeper_feed(k, 1);
    assert_int_equal(status(k, 1), 0);
    LOCK_SCOPE(&k->s.lock);
    buf_char(&k->s.x[1].out[0], 0);
    assert_non_null(strstr(k->s.x[1].out[0].p, "10 20"));
    assert_non_null(strstr(k->s.x[1].out[0].p, "30 40"));
}

static void signals_arrive(void **state)
{
    keeper *k = claim(state);

    run(k, 1, "sleep 1000");
    assert_true(SEEN_WAIT(&k->s, k->s.x[1].starts == 1));
    assert_ok(link_signal(
        k->b, &(signal_spec){.exec = 1, .cookie = 6, .signo = SIGKILL, .scope = SP_TO_TREE}));
    assert_true(SEEN_WAIT(&k->s, k->s.signals == 1));
    assert_int_equal(k->s.x[1].cookie, 6);
    assert_int_equal(status(k, 1), SIGKILL);
}

static void a_container_that_dies_is_gone(void **state)
{
    keeper *k = claim(state);
    world *w = *state;

    {
        LOCK_SCOPE(&w->lock);
        w->dead = true;
    }
    kill(w->g.pid, SIGKILL);
    assert_true(SEEN_WAIT(&k->s, k->s.gone == 1));
    assert_string_equal(k->s.why, "it has died");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_claimed_container_runs_commands),
        TEST(sixty_at_once),
        TEST(output_is_whole_over_cuts),
        TEST(stdin_is_whole_over_cuts),
        TEST(commands_outlive_bothyd),
        TEST(a_claim_is_found_by_the_next_bothyd),
        TEST(another_key_proves_nothing),
        TEST(a_stopped_attach_process_is_left_behind),
        TEST(terminals_have_a_size),
        TEST(signals_arrive),
        TEST(a_container_that_dies_is_gone),
    };

    const char *why;

    if (argc < 2) {
        fprintf(stderr, "usage: %s bothy-init [TEST]\n", argv[0]);
        return 2;
    }
    program = argv[1];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!guest_possible(&why)) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

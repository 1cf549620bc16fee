/* Tunnels over both forms: bytes both ways, the ends of either side, what is kept of one that is
 * not read, what a restart and a cut connection leave. With OVER_LINK frames are those of the link
 * and the real init in container mode, argv[1], which take stdin by credit. */
#include <poll.h>
#include <sys/socket.h>

#include "exec/internal.h"

#include "pipes.h"
#ifdef OVER_LINK
#    include "guest_backend.h"
#endif

#define MIB (1u << 20)

static const struct form {
    const char *name;
    bool frames;
    unsigned cut, repeat;
} PIPES = {"pipes", false, 0, 0}, FRAMES = {"frames", true, 0, 0}, CUTS = {"cuts", true, 5, 3};

typedef struct place {
    world w;
    box pipes;
    const struct form *form;
} place;

static world *the_world;

static void on_created(void *arg, err *failure, box *made, const box_timing *timing)
{
    world *w = the_world;

    (void)timing;
    if (made)
        exec_table_bind(arg, w->backend, made, world_on_gone, w);
    LOCK_SCOPE(&w->lock);
    w->box = made;
    w->failure = failure;
    w->created = true;
    pthread_cond_broadcast(&w->cond);
}

#ifdef OVER_LINK
static err *make_backend(place *p)
{
    return guest_backend_new(p->form->cut, &p->w.backend);
}
#else
static err *make_backend(place *p)
{
    fake_options o = {.dir = p->w.dir,
                      .node_program = FAKE_NODE,
                      .cut_every = p->form->cut,
                      .repeat_every = p->form->repeat};

    return backend_fake_new(&o, &p->w.backend);
}
#endif

static void frames_start(place *p)
{
    world *w = &p->w;

    the_world = w;
    assert_ok(exec_hub_new(&w->options, &w->hub));
    assert_ok(make_backend(p));
    assert_ok(exec_table_open(w->hub, SANDBOX, &w->table));
}

static void begin(place *p, const struct form *form)
{
    box_spec spec = {.id = SANDBOX, .user = "", .cwd = "", .umask = 022};
    world *w = &p->w;

    p->form = form;
    pipes_init(w, &p->pipes);
    if (!form->frames) {
        pipes_attach(w, &p->pipes);
        return;
    }
    frames_start(p);
    w->backend->ops->create(w->backend, &spec, &EXEC_BOX_EVENTS, w->table, on_created);
    world_wait(w, &w->created);
    assert_ok(w->failure);
}

/* A new daemon over what the old one left. */
static void again(place *p)
{
    world *w = &p->w;

    if (!p->form->frames) {
        world_stop(w);
        pipes_attach(w, &p->pipes);
        return;
    }
    w->backend->ops->box_unref(w->box);
    world_stop(w);
    frames_start(p);
    assert_ok(w->backend->ops->attach(w->backend, SANDBOX, &EXEC_BOX_EVENTS, w->table, &w->box));
    exec_table_bind(w->table, w->backend, w->box, world_on_gone, w);
}

static void end(place *p)
{
    world *w = &p->w;

    if (p->form->frames) {
        assert_ok(w->backend->ops->destroy(w->backend, SANDBOX));
        world_wait(w, &w->gone);
        w->backend->ops->box_unref(w->box);
        world_stop(w);
        world_done(w);
        return;
    }
    world_stop(w);
    while (p->pipes.procs) {
        pproc *x = p->pipes.procs;
        p->pipes.procs = x->next;
        if (x->rec.state == SP_LIVE) {
            kill(-x->pid, SIGKILL);
            waitpid(x->pid, NULL, 0);
        }
        for (int i = 0; i < SP_FDS_MAX; i++)
            closep(&x->fd[i]);
        free(x);
    }
    world_done(w);
}

/* ---- one tunnel ---- */

typedef struct ask {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool came;
    err *failure;
    int fd;
} ask;

static void on_done(void *arg, err *failure, int fd)
{
    ask *a = arg;

    LOCK_SCOPE(&a->lock);
    assert_false(a->came);
    a->came = true;
    a->failure = failure;
    a->fd = fd;
    pthread_cond_signal(&a->cond);
}

static err *open_as(place *p, exec_spec *s, size_t first, int *ret_fd)
{
    ask a = {.fd = -1};
    uint64_t stop = now_mono_ns() + 20 * NS_PER_S;

    pthread_mutex_init(&a.lock, NULL);
    cond_init(&a.cond);
    if (!s->timeout_ms)
        s->timeout_ms = 10000;
    TRY(exec_tunnel(p->w.table, s, first, on_done, &a));
    LOCK_SCOPE(&a.lock);
    while (!a.came && now_mono_ns() < stop)
        cond_wait_until(&a.cond, &a.lock, stop);
    assert_true(a.came);
    *ret_fd = a.fd;
    return a.failure;
}

/* A shell that says "hello" first. */
static int opened(place *p, char *command)
{
    exec_spec s = spec_sh(command);
    char said[5];
    int fd = -1;

    s.stdin_open = true;
    assert_ok(open_as(p, &s, sizeof said, &fd));
    assert_int_equal(recv(fd, said, sizeof said, 0), sizeof said);
    assert_memory_equal(said, "hello", sizeof said);
    return fd;
}

static short wait_fd(int fd, short events, int ms)
{
    struct pollfd p = {.fd = fd, .events = events};

    return poll(&p, 1, ms) == 1 ? p.revents : 0;
}

/* To the end of it. */
static size_t drain(int fd, uint64_t *ret_sum)
{
    static char chunk[65536];
    size_t n = 0;

    *ret_sum = 0;
    for (;;) {
        assert_true(wait_fd(fd, POLLIN, 20000));
        ssize_t r = recv(fd, chunk, sizeof chunk, 0);
        if (r <= 0)
            return n;
        for (ssize_t i = 0; i < r; i++)
            *ret_sum += (uint64_t)(unsigned char)chunk[i] * (++n);
    }
}

static bool hung_up(int fd)
{
    return wait_fd(fd, 0, 0) & POLLHUP;
}

static bool becomes(bool (*is)(place *p), place *p)
{
    for (int i = 0; i < 2000; i++) {
        if (is(p))
            return true;
        usleep(10000);
    }
    return false;
}

static bool is_empty(place *p)
{
    LOCK_SCOPE(&p->w.table->lock);
    return !p->w.table->tunnels.count && !atomic_load(&p->w.table->ntunnels);
}

static bool box_has_none(place *p)
{
    LOCK_SCOPE(&p->pipes.lock);
    return !p->pipes.procs;
}

static void all_over(place *p)
{
    assert_true(becomes(is_empty, p));
    assert_int_equal(atomic_load(&p->w.hub->tunnel_bytes), 0);
    if (!p->form->frames)
        assert_true(becomes(box_has_none, p)); /* it was acknowledged */
}

/* ---- */

struct sender {
    int fd;
    size_t n;
};

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 31 + (i >> 11));
}

static void *send_all(void *arg)
{
    const struct sender *s = arg;
    char chunk[10000];

    for (size_t at = 0; at < s->n;) {
        size_t k = s->n - at < sizeof chunk ? s->n - at : sizeof chunk;
        for (size_t i = 0; i < k; i++)
            chunk[i] = (char)byte_at(at + i);
        ssize_t r = send(s->fd, chunk, k, MSG_NOSIGNAL);
        if (r < 0 && errno == EAGAIN && wait_fd(s->fd, POLLOUT, 20000))
            continue;
        if (r <= 0)
            break;
        at += (size_t)r;
    }
    shutdown(s->fd, SHUT_WR);
    return NULL;
}

static uint64_t sum_of(size_t n)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (uint64_t)byte_at(i) * (i + 1);
    return sum;
}

static void an_echo(const struct form *form, size_t n)
{
    place p;
    uint64_t sum;

    begin(&p, form);
    int fd = opened(&p, "printf hello; cat; printf . >&2");
    struct sender s = {fd, n};
    pthread_t t = thread_start("sender", send_all, &s);
    assert_int_equal(drain(fd, &sum), n);
    assert_true(sum == sum_of(n));
    pthread_join(t, NULL);
    close(fd);
    all_over(&p);
    end(&p);
}

static void bytes_go_both_ways(void **state)
{
    (void)state;
    an_echo(&PIPES, 5 * MIB);
    an_echo(&FRAMES, 5 * MIB);
}

static void nothing_is_lost_or_repeated_over_cut_connections(void **state)
{
    (void)state;
    an_echo(&CUTS, 3 * MIB);
}

static void an_end_is_whole_or_a_cut(const struct form *form)
{
    place p;
    uint64_t sum;

    begin(&p, form);
    int fd = opened(&p, "printf hello; printf more; printf . >&2; exec >&-; cat >/dev/null");
    assert_int_equal(drain(fd, &sum), 4);
    assert_false(hung_up(fd));
    assert_int_equal(send(fd, "late", 4, 0), 4); /* it still listens */
    close(fd);
    all_over(&p);
    fd = opened(&p, "printf hello; printf half");
    assert_int_equal(drain(fd, &sum), 4);
    assert_true(hung_up(fd));
    close(fd);
    fd = opened(&p, "printf hello; printf half; kill -9 $$");
    assert_int_equal(drain(fd, &sum), 4);
    assert_true(hung_up(fd));
    close(fd);
    all_over(&p);
    end(&p);
}

static void whole_and_cut_are_told_apart(void **state)
{
    (void)state;
    an_end_is_whole_or_a_cut(&PIPES);
    an_end_is_whole_or_a_cut(&FRAMES);
}

static void *send_some(void *arg)
{
    struct sender *s = arg;
    static char bytes[65536];

    for (s->n = 0; s->n < 4 * MIB;) {
        ssize_t r = send(s->fd, bytes, sizeof bytes, MSG_NOSIGNAL);
        if (r < 0 && errno == EAGAIN && wait_fd(s->fd, POLLOUT, 20000))
            continue;
        if (r <= 0)
            break;
        s->n += (size_t)r;
    }
    return NULL;
}

/* It says all it has to say, though its peer goes on speaking; but not for ever. */
static void one_takes_no_more(const struct form *form, char *command, bool wait)
{
    place p;
    uint64_t sum;

    begin(&p, form);
    int fd = opened(&p, command);
    struct sender s = {fd, 0};
    pthread_t t = thread_start("sender", send_some, &s);
    pthread_join(t, NULL);
    assert_true(s.n >= 4 * MIB);
    assert_int_equal(drain(fd, &sum), 4);
    assert_false(hung_up(fd));
    if (wait) {
        usleep(5200000);
        assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), 1);
        assert_true(wait_fd(fd, 0, 5000) & POLLHUP);
    }
    close(fd);
    all_over(&p);
    end(&p);
}

static void what_a_command_does_not_take_is_dropped(void **state)
{
    (void)state;
    one_takes_no_more(&PIPES, "printf hello; exec <&-; sleep 0.5; printf more; printf . >&2",
                      false);
    one_takes_no_more(&FRAMES, "printf hello; exec <&-; sleep 0.5; printf more; printf . >&2",
                      true);
    one_takes_no_more(&PIPES, "printf hello; printf more; printf . >&2", false);
    one_takes_no_more(&FRAMES, "printf hello; printf more; printf . >&2", false);
}

/* Of a file where the commands run; -1: there is none. */
static long size_inside(place *p, const char *path)
{
    CLEANUP(freep) char *command = str_printf("wc -c <%s", path);
    CLEANUP(buf_done) buf said = {0};
    exec_spec s = spec_sh(command);
    exec *x = start(&p->w, &s);
    bool there = !wait_end(x).end.exit_code;

    read_stream(x, 1, &said);
    exec_unref(x);
    return there ? strtol(buf_cstr(&said), NULL, 10) : -1;
}

static char got_path[128];

static bool got_all(place *p)
{
    return size_inside(p, got_path) == 100000 + 4;
}

static void who_leaves(const struct form *form)
{
    place p;
    char command[512];
    static char bytes[100000];

    begin(&p, form);
    snprintf(got_path, sizeof got_path, "%s/got", p.w.dir);
    snprintf(command, sizeof command, "mkdir -p %s; printf hello; cat >%s; printf done >>%s",
             p.w.dir, got_path, got_path);
    int fd = opened(&p, command);
    assert_int_equal(send(fd, bytes, sizeof bytes, 0), sizeof bytes);
    close(fd);
    assert_true(becomes(got_all, &p));
    all_over(&p);
    /* One that goes on writing notices that nobody reads. */
    fd = opened(&p, "printf hello; exec yes");
    close(fd);
    all_over(&p);
    end(&p);
}

static void what_was_said_before_leaving_arrives(void **state)
{
    (void)state;
    who_leaves(&PIPES);
    who_leaves(&FRAMES);
}

static size_t files_of(const world *w)
{
    CLEANUP(freep) char *path = str_printf("%s/spool/" SANDBOX, w->dir);
    CLEANUP(freep) char *command = str_printf("ls %s | wc -l", path);
    FILE *f = popen(command, "r"); /* NOLINT(cert-env33-c) */
    char line[32] = "";

    assert_non_null(fgets(line, sizeof line, f));
    pclose(f);
    return (size_t)strtoul(line, NULL, 10);
}

static void a_slow_reader(const struct form *form, bool short_of_memory)
{
    place p;
    uint64_t sum, most = 0, other = 0;

    begin(&p, form);
    if (short_of_memory)
        atomic_fetch_add(&p.w.hub->tunnel_bytes, other = 64 * MIB);
    int fd = opened(&p, "printf hello; yes | head -c 20000000; printf . >&2");
    for (int i = 0; i < 50; i++) {
        uint64_t now = atomic_load(&p.w.hub->tunnel_bytes) - other;
        most = now > most ? now : most;
        usleep(10000);
    }
    assert_true(most <= (short_of_memory ? 4096 : 256 * 1024));
    assert_int_equal(files_of(&p.w), 1); /* the journal */
    assert_int_equal(drain(fd, &sum), 20000000);
    assert_false(hung_up(fd));
    close(fd);
    atomic_fetch_sub(&p.w.hub->tunnel_bytes, other);
    all_over(&p);
    end(&p);
}

static void who_does_not_read_holds_the_command_back(void **state)
{
    (void)state;
    a_slow_reader(&PIPES, false);
    a_slow_reader(&FRAMES, false);
    a_slow_reader(&FRAMES, true);
}

static void failures(const struct form *form)
{
    place p;
    int fd = -1;

    begin(&p, form);
    exec_spec silent = spec_sh("exit 3"), slow = spec_sh("printf 1234; exec sleep 600");
    assert_err(open_as(&p, &silent, 1, &fd), ERR_UNAVAILABLE);
    slow.timeout_ms = 300;
    assert_err(open_as(&p, &slow, 5, &fd), ERR_TIMEOUT);
    all_over(&p); /* it was killed */
    assert_int_equal(fd, -1);
    if (form->frames) {
        exec_spec none = spec_sh("x");
        none.argv[0] = "/no/such/program";
        assert_err(open_as(&p, &none, 1, &fd), ERR_EXEC_FAILED);
    } else {
        p.pipes.refuse = EAGAIN;
        assert_err(open_as(&p, &silent, 1, &fd), ERR_SANDBOX_EXHAUSTED);
    }
    all_over(&p);
    end(&p);
}

static void what_says_too_little_is_an_error(void **state)
{
    (void)state;
    failures(&PIPES);
    failures(&FRAMES);
}

static void many(const struct form *form)
{
    place p;
    int fd[TUNNELS_MAX], none = -1;
    exec_spec s = spec_sh("printf hello; cat");

    begin(&p, form);
    for (unsigned i = 0; i < TUNNELS_MAX; i++)
        fd[i] = opened(&p, "printf hello; cat");
    assert_err(open_as(&p, &s, 5, &none), ERR_SANDBOX_EXHAUSTED);
    exec *x = start(&p.w, &(exec_spec){.argv = (char *[]){"/bin/true", NULL}, .exec_fd = -1});
    assert_int_equal(wait_end(x).end.exit_code, 0); /* beside them */
    exec_unref(x);
    for (unsigned i = 0; i < TUNNELS_MAX; i++)
        close(fd[i]);
    all_over(&p);
    close(opened(&p, "printf hello; cat"));
    all_over(&p);
    end(&p);
}

static void there_is_a_ceiling_beside_the_commands(void **state)
{
    (void)state;
    many(&FRAMES);
}

static bool is_settled(place *p)
{
    LOCK_SCOPE(&p->w.table->lock);
    return p->w.table->attached && !p->w.table->tunnels.count;
}

static void a_restart(const struct form *form)
{
    place p;
    char beat[128], command[512];

    begin(&p, form);
    snprintf(beat, sizeof beat, "%s/beat", p.w.dir);
    snprintf(command, sizeof command,
             "mkdir -p %s; printf hello; while :; do echo x >>%s; sleep 0.05; done", p.w.dir, beat);
    exec *x = start(&p.w, &(exec_spec){.argv = (char *[]){"/bin/true", NULL}, .exec_fd = -1});
    exec_unref(x);
    int fd = opened(&p, command), other = opened(&p, "printf hello; printf . >&2");
    while (size_inside(&p, beat) <= 0)
        usleep(10000);
    again(&p);
    assert_true(becomes(is_settled, &p)); /* nobody has its other end any more: it was killed */
    assert_int_equal(wait_fd(fd, POLLIN, 5000) & POLLHUP, POLLHUP);
    close(fd);
    close(other);
    long before = size_inside(&p, beat);
    usleep(300000);
    assert_int_equal(size_inside(&p, beat), before);
    assert_int_equal(exec_table_start(p.w.table, false), EXEC_START_DUE); /* no record is missing */
    x = start(&p.w, &(exec_spec){.argv = (char *[]){"/bin/true", NULL}, .exec_fd = -1});
    assert_int_equal(wait_end(x).end.exit_code, 0);
    assert_true(exec_id(x) > 3);
    exec_unref(x);
    fd = opened(&p, "printf hello; cat");
    close(fd);
    all_over(&p);
    end(&p);
}

static void a_restart_ends_them_and_loses_no_id(void **state)
{
    (void)state;
    a_restart(&PIPES);
    a_restart(&FRAMES);
}

static void the_sandbox_ends(const struct form *form)
{
    place p;
    uint64_t sum;

    begin(&p, form);
    int fd = opened(&p, "printf hello; exec sleep 600"), no = -1;
    exec_table_end(p.w.table);
    assert_int_equal(drain(fd, &sum), 0);
    assert_true(hung_up(fd));
    close(fd);
    exec_spec s = spec_sh("true");
    assert_err(open_as(&p, &s, 1, &no), ERR_SANDBOX_GONE);
    end(&p);
}

static void they_end_with_the_sandbox(void **state)
{
    (void)state;
    the_sandbox_ends(&PIPES);
    the_sandbox_ends(&FRAMES);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(bytes_go_both_ways),
        WORLD_TEST(nothing_is_lost_or_repeated_over_cut_connections),
        WORLD_TEST(whole_and_cut_are_told_apart),
        WORLD_TEST(what_a_command_does_not_take_is_dropped),
        WORLD_TEST(what_was_said_before_leaving_arrives),
        WORLD_TEST(who_does_not_read_holds_the_command_back),
        WORLD_TEST(what_says_too_little_is_an_error),
        WORLD_TEST(there_is_a_ceiling_beside_the_commands),
        WORLD_TEST(a_restart_ends_them_and_loses_no_id),
        WORLD_TEST(they_end_with_the_sandbox),
    };

    signal(SIGPIPE, SIG_IGN);
#ifdef OVER_LINK
    const char *why;
    if (argc > 1 && !guest_backend_prepare(argv[1], &why)) {
        print_message("skipped: %s\n", why);
        return 77;
    }
#endif
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

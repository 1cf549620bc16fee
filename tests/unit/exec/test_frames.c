/* The exec layer and frames that a test sends itself: what was on its way when they were asked for
 * once more. */
#include <poll.h>
#include <sys/socket.h>

#include "drive.h"

struct box {
    backend b;
    world w;
    _Atomic int fetches;
    _Atomic int refuse;              /* so many fetches */
    _Atomic uint64_t limit, written; /* of stdin */
};

static err *do_exec(box *x, uint64_t id, const exec_spec *s, int keep)
{
    (void)x, (void)id, (void)s, (void)keep;
    return NULL;
}

static err *do_fetch(box *x, uint64_t id)
{
    (void)id;
    if (atomic_load(&x->refuse)) {
        atomic_fetch_sub(&x->refuse, 1);
        return err_new(ERR_SANDBOX_EXHAUSTED, "requests wait");
    }
    atomic_fetch_add(&x->fetches, 1);
    return NULL;
}

static err *do_signal(box *x, const signal_spec *s)
{
    (void)x, (void)s;
    return NULL;
}

static void do_mask(box *x, uint64_t id, uint32_t mask)
{
    (void)x, (void)id, (void)mask;
}

static void do_received(box *x, uint64_t id, int stream, uint64_t offset)
{
    (void)x, (void)id, (void)stream, (void)offset;
}

static err *do_stdin(box *x, uint64_t id, uint64_t offset, const void *p, size_t n, bool eof)
{
    (void)id, (void)p, (void)eof;
    if (offset + n > atomic_load(&x->limit))
        return err_sys(ERR_UNAVAILABLE, EAGAIN, "no credit");
    atomic_store(&x->written, offset + n);
    return NULL;
}

static void do_ref(box *x)
{
    (void)x;
}

static void do_free(backend *b)
{
    (void)b;
}

static const backend_ops OPS = {
    .exec = do_exec,
    .fetch = do_fetch,
    .signal = do_signal,
    .close = do_mask,
    .ack = do_mask,
    .received = do_received,
    .stdin_write = do_stdin,
    .box_ref = do_ref,
    .box_unref = do_ref,
    .free = do_free,
};

static void begin(box *x)
{
    struct sp_hello h = {.h.type = SP_HELLO, .version = 1, .capacity = 1024};

    *x = (box){.b = {.ops = &OPS, .caps = {.name = "test", .frames = true}}};
    world_init(&x->w);
    assert_ok(exec_hub_new(&x->w.options, &x->w.hub));
    assert_ok(exec_table_open_box(x->w.hub, SANDBOX, SANDBOX, &x->w.table));
    x->w.backend = &x->b;
    x->w.box = x;
    exec_table_bind(x->w.table, &x->b, x, world_on_gone, &x->w);
    EXEC_BOX_EVENTS.attached(x->w.table, &h, NULL);
}

static void end(box *x)
{
    world_stop(&x->w);
    world_done(&x->w);
}

/* ---- what init would say ---- */

static void say_started(box *x, uint64_t id, uint32_t type)
{
    struct sp_started st = {.h = {type, 0, id}, .pid = 7};
    int fd[SP_FDS_MAX] = {-1, -1, -1, -1};

    EXEC_BOX_EVENTS.started(x->w.table, id, 0, &st, fd);
}

static void say(box *x, uint64_t id, uint64_t offset, const char *bytes)
{
    EXEC_BOX_EVENTS.frame(x->w.table, id, 1, offset, bytes, strlen(bytes));
}

static void say_exited(box *x, uint64_t id)
{
    struct sp_rec rec = {.id = id, .state = SP_EXITED, .pid = 7, .end_real = now_real_ns()};

    EXEC_BOX_EVENTS.exited(x->w.table, &rec);
}

static void wait_fetch(box *x)
{
    uint64_t stop = now_mono_ns() + 20 * NS_PER_S;

    while (!atomic_load(&x->fetches) && now_mono_ns() < stop)
        usleep(1000);
    assert_int_equal(atomic_load(&x->fetches), 1);
}

/* A frame is missing, it is asked for, and what follows was sent before that came. */
static void ask_again(box *x, uint64_t id)
{
    say_started(x, id, SP_STARTED);
    say(x, id, 5, "later");
    wait_fetch(x);
    say(x, id, 5, "later");
    say_exited(x, id);
}

static void answer(box *x, uint64_t id)
{
    say_started(x, id, SP_FDS);
    say(x, id, 0, "firstlater");
    say_exited(x, id);
}

/* ---- the tests ---- */

static void an_exit_before_the_bytes_counts_behind_them(void **state)
{
    exec_spec s = spec_sh("true");
    exec_state st;
    box b;

    (void)state;
    begin(&b);
    exec *x = start(&b.w, &s);
    exec_get(x, &st);
    ask_again(&b, st.id);
    answer(&b, st.id);
    assert_int_equal(wait_end(x).end.out_bytes, 10);
    assert_stream(x, 1, "firstlater");
    exec_unref(x);
    end(&b);
}

static void a_fetch_that_was_refused_is_tried_again(void **state)
{
    exec_spec s = spec_sh("true");
    exec_state st;
    box b;

    (void)state;
    begin(&b);
    atomic_store(&b.refuse, 1);
    exec *x = start(&b.w, &s);
    exec_get(x, &st);
    say_started(&b, st.id, SP_STARTED);
    say(&b, st.id, 5, "later");
    while (atomic_load(&b.refuse))
        usleep(100);
    say_exited(&b, st.id);
    wait_fetch(&b);
    answer(&b, st.id);
    assert_int_equal(wait_end(x).end.out_bytes, 10);
    exec_unref(x);
    end(&b);
}

/* It says that it has taken more than was sent to it on this connection. */
static void stdin_goes_on_behind_what_was_taken(void **state)
{
    exec_spec s = spec_sh("cat");
    static const char BYTES[5000];
    uint64_t stop = now_mono_ns() + 20 * NS_PER_S;
    exec_state st;
    box b;

    (void)state;
    begin(&b);
    s.stdin_open = true;
    exec *x = start(&b.w, &s);
    exec_get(x, &st);
    assert_ok(exec_stdin(x, BYTES, sizeof BYTES, 0, false));
    atomic_store(&b.limit, 4096);
    say_started(&b, st.id, SP_STARTED);
    EXEC_BOX_EVENTS.stdin_taken(b.w.table, st.id, 0);
    while (!atomic_load(&b.written) && now_mono_ns() < stop)
        usleep(1000);
    usleep(50000); /* as much as the credit allows */
    assert_in_range(atomic_load(&b.written), 1, 4095);
    atomic_store(&b.limit, 8192);
    EXEC_BOX_EVENTS.stdin_taken(b.w.table, st.id, 4096);
    while (atomic_load(&b.written) < sizeof BYTES && now_mono_ns() < stop)
        usleep(1000);
    assert_int_equal(atomic_load(&b.written), sizeof BYTES);
    exec_unref(x);
    end(&b);
}

static void take_socket(void *arg, err *failure, int fd)
{
    assert_null(failure);
    atomic_store((_Atomic int *)arg, fd);
}

static void a_tunnels_exit_before_its_bytes_counts_behind_them(void **state)
{
    exec_spec s = spec_sh("true");
    _Atomic int fd = -1;
    char said[16] = "";
    size_t n = 0;
    ssize_t r;
    box b;

    (void)state;
    begin(&b);
    s.timeout_ms = 20000;
    assert_ok(exec_tunnel(b.w.table, &s, 0, take_socket, &fd));
    ask_again(&b, 1);
    answer(&b, 1);
    while (atomic_load(&fd) < 0)
        usleep(1000);
    while (n < sizeof said) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        r = recv(fd, said + n, sizeof said - n, 0);
        if (r <= 0)
            break;
        n += (size_t)r;
    }
    assert_int_equal(n, 10);
    assert_memory_equal(said, "firstlater", n);
    close(fd);
    end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(an_exit_before_the_bytes_counts_behind_them),
        WORLD_TEST(a_fetch_that_was_refused_is_tried_again),
        WORLD_TEST(stdin_goes_on_behind_what_was_taken),
        WORLD_TEST(a_tunnels_exit_before_its_bytes_counts_behind_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

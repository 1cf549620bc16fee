/* The exec layer over the fake backend: a real node process, bytes as frames, with and without cut
 * connections and repeated frames. With OVER_LINK: over the link and the real init in container
 * mode, argv[1], where nothing can be repeated. */
#include "exec/internal.h"

#include "drive.h"
#ifdef OVER_LINK
#    include "guest_backend.h"
#    define FREE_IDS 1 /* root without a user namespace: every number is somebody */
#else
#    define FREE_IDS 0
#endif

static void on_created(void *arg, err *failure, box *made, const box_timing *timing);

/* The create's argument is the table; the tests run one world at a time. */
static world *the_world;

static void on_created(void *arg, err *failure, box *made, const box_timing *timing)
{
    world *w = the_world;

    (void)timing;
    if (made) {
        exec_table_bind(arg, w->backend, made, world_on_gone, w);
        made = (w->box = made);
    }
    LOCK_SCOPE(&w->lock);
    w->failure = failure;
    w->created = true;
    pthread_cond_broadcast(&w->cond);
}

#ifdef OVER_LINK
static err *make_backend(world *w, unsigned cut, unsigned repeat)
{
    (void)repeat;
    return guest_backend_new(cut, &w->backend);
}
#else
static err *make_backend(world *w, unsigned cut, unsigned repeat)
{
    fake_options o = {
        .dir = w->dir, .node_program = FAKE_NODE, .cut_every = cut, .repeat_every = repeat};

    return backend_fake_new(&o, &w->backend);
}
#endif

static void world_start(world *w, unsigned cut, unsigned repeat)
{
    the_world = w;
    assert_ok(exec_hub_new(&w->options, &w->hub));
    assert_ok(make_backend(w, cut, repeat));
    assert_ok(exec_table_open(w->hub, SANDBOX, &w->table));
}

static void world_create(world *w, unsigned cut, unsigned repeat)
{
    char *env[] = {"CLAIMED=yes", NULL};
    box_spec spec = {.id = SANDBOX, .env = env, .user = "", .cwd = "", .umask = 022};

    world_init(w);
    world_start(w, cut, repeat);
    w->backend->ops->create(w->backend, &spec, &EXEC_BOX_EVENTS, w->table, on_created);
    world_wait(w, &w->created);
    assert_ok(w->failure);
}

/* A new daemon over what the old one left. */
static void world_again(world *w, unsigned cut, unsigned repeat)
{
    w->backend->ops->box_unref(w->box);
    world_stop(w);
    world_start(w, cut, repeat);
    assert_ok(w->backend->ops->attach(w->backend, SANDBOX, &EXEC_BOX_EVENTS, w->table, &w->box));
    exec_table_bind(w->table, w->backend, w->box, world_on_gone, w);
}

static void world_end(world *w)
{
    assert_ok(w->backend->ops->destroy(w->backend, SANDBOX));
    world_wait(w, &w->gone);
    w->backend->ops->box_unref(w->box);
    world_stop(w);
    world_done(w);
}

static void streams_and_exit_status_come_apart(void **state)
{
    world w;
    exec_spec s = spec_sh("echo out; echo err >&2; echo $CLAIMED $EXTRA; exit 3");
    char *env[] = {"EXTRA=too", NULL};

    (void)state;
    world_create(&w, 0, 0);
    s.env = env;
    exec *x = start(&w, &s);
    exec_state st = wait_end(x);
    assert_int_equal(st.end.how, EXEC_EXITED);
    assert_int_equal(st.end.exit_code, 3);
    assert_int_equal(st.end.out_bytes, strlen("out\nyes too\n"));
    assert_int_equal(st.end.err_bytes, 4);
    assert_stream(x, 1, "out\nyes too\n");
    assert_stream(x, 2, "err\n");
    assert_true(wait_for(x, is_over, 0, 10, &st));
    exec_unref(x);
    world_end(&w);
}

static void run_modes(unsigned cut, unsigned repeat)
{
    world w;
    CLEANUP(buf_done) buf want = {0}, tty = {0}, merged = {0};
    exec_spec big = spec_sh("seq 1 300000; seq 1 3000 >&2");
    exec_spec merge = spec_sh("for i in 1 2 3 4 5 6 7 8; do echo o$i; echo e$i >&2; done");
    exec_spec pty = spec_sh("seq 1 5000; exit 7");

    world_create(&w, cut, repeat);
    merge.stdio = STDIO_MERGED;
    pty.stdio = STDIO_PTY;
    exec *x[3] = {start(&w, &big), start(&w, &merge), start(&w, &pty)};
    put_seq(&want, 1, 300000, "\n");
    assert_int_equal(wait_end(x[0]).end.how, EXEC_EXITED);
    assert_bytes(x[0], 1, &want);
    assert_int_equal(wait_end(x[0]).end.out_bytes, want.len);
    buf_clear(&want);
    put_seq(&want, 1, 3000, "\n");
    assert_bytes(x[0], 2, &want);
    assert_int_equal(wait_end(x[1]).end.exit_code, 0);
    for (int i = 1; i <= 8; i++)
        buf_printf(&merged, "o%d\ne%d\n", i, i);
    assert_bytes(x[1], 1, &merged);
    assert_int_equal(wait_end(x[2]).end.exit_code, 7);
    put_seq(&tty, 1, 5000, "\r\n");
    assert_bytes(x[2], 1, &tty);
    for (int i = 0; i < 3; i++)
        exec_unref(x[i]);
    world_end(&w);
}

static void known_output_in_all_modes(void **state)
{
    (void)state;
    run_modes(0, 0);
}

static void known_output_with_cuts_and_repeats(void **state)
{
    (void)state;
    run_modes(3, 2);
    run_modes(5, 0);
}

static void feed(exec *x, const char *p, size_t n)
{
    exec_state s;

    for (uint64_t at = 0; at < n;) {
        size_t k = n - at < 100000 ? n - at : 100000;
        err *e = exec_stdin(x, p + at, k, at, false);
        if (e && e->code == ERR_QUOTA_EXCEEDED) { /* pushed back: the command reads slowly */
            err_free(e);
            usleep(2000);
            exec_get(x, &s);
            continue;
        }
        assert_ok(e);
        at += k;
    }
    assert_ok(exec_stdin(x, NULL, 0, n, true));
}

static void run_stdin(unsigned cut, unsigned repeat)
{
    world w;
    CLEANUP(buf_done) buf in = {0};
    exec_spec s = spec_sh("exec cat");

    world_create(&w, cut, repeat);
    s.stdin_open = true;
    put_seq(&in, 1, 700000, "\n"); /* beyond the 1 MiB that may wait unread */
    exec *x = start(&w, &s);
    feed(x, in.p, in.len);
    assert_err(exec_stdin(x, "x", 1, UINT64_MAX, false), ERR_CONFLICT);
    assert_int_equal(wait_end(x).end.exit_code, 0);
    assert_bytes(x, 1, &in);
    exec_unref(x);
    world_end(&w);
}

static void stdin_arrives_once_and_whole(void **state)
{
    (void)state;
    run_stdin(0, 0);
    run_stdin(4, 3);
}

static void stdin_is_appended_only_at_its_length(void **state)
{
    world w;
    exec_spec s = spec_sh("exec cat");

    (void)state;
    world_create(&w, 0, 0);
    s.stdin_open = true;
    exec *x = start(&w, &s);
    assert_ok(exec_stdin(x, "abc", 3, 0, false));
    err *e = exec_stdin(x, "abc", 3, 0, false);
    assert_non_null(e);
    assert_string_equal(e->kind, "offset");
    assert_non_null(strstr(e->message, "3"));
    assert_err(e, ERR_CONFLICT);
    assert_ok(exec_stdin(x, "d", 1, UINT64_MAX, true));
    assert_int_equal(exec_stdin_length(x), 4);
    assert_ok(exec_stdin(x, "d", 1, 3, true)); /* once more: its answer was lost */
    assert_ok(exec_stdin(x, NULL, 0, UINT64_MAX, true));
    assert_err(exec_stdin(x, "cd", 2, 3, true), ERR_CONFLICT);
    assert_err(exec_stdin(x, "d", 1, UINT64_MAX, true), ERR_CONFLICT);
    assert_int_equal(exec_stdin_length(x), 4);
    assert_int_equal(wait_end(x).end.how, EXEC_EXITED);
    assert_stream(x, 1, "abcd");
    assert_ok(exec_stdin(x, "d", 1, 3, true));
    exec_unref(x);

    exec_spec none = spec_sh("cat");
    x = start(&w, &none);
    assert_err(exec_stdin(x, "a", 1, 0, false), ERR_CONFLICT);
    assert_int_equal(wait_end(x).end.exit_code, 0);
    exec_unref(x);
    world_end(&w);
}

static void all_of_stdin_comes_once_or_the_end_says_why(void **state)
{
    world w;
    exec_spec ends = spec_sh("exit 4"), reads = spec_sh("cat");
    CLEANUP(freep) char *much = xcalloc(1, 2 << 20);

    (void)state;
    world_create(&w, 0, 0);
    ends.stdin_open = reads.stdin_open = true;
    exec *x = start(&w, &ends);
    assert_int_equal(wait_end(x).end.exit_code, 4);
    assert_ok(exec_stdin_all(x, "late", 4)); /* nobody reads it */
    exec_unref(x);

    x = start(&w, &reads);
    assert_ok(exec_stdin(x, "one ", 4, 0, false)); /* as far as an earlier life of ours came */
    assert_ok(exec_stdin_all(x, "one two", 7));
    assert_ok(exec_stdin_all(x, "one two", 7));
    assert_int_equal(wait_end(x).end.exit_code, 0);
    assert_stream(x, 1, "one two");
    exec_unref(x);

    x = start(&w, &reads);
    assert_err(exec_stdin_all(x, much, 2 << 20), ERR_TOO_LARGE);
    assert_int_equal(wait_end(x).end.how, EXEC_KILLED); /* it would wait for ever */
    exec_unref(x);
    world_end(&w);
}

static void failures_name_their_stage(void **state)
{
    world w;
    char *missing[] = {"/no/such/program", NULL};
    exec_spec s[4] = {
        {.argv = missing, .exec_fd = -1}, spec_sh("true"), spec_sh("true"), spec_sh("true")};
    const err_code want[4] = {ERR_EXEC_FAILED, ERR_CWD_NOT_FOUND, ERR_USER_NOT_FOUND,
                              ERR_USER_NOT_MAPPED};

    (void)state;
    world_create(&w, 0, 0);
    s[1].cwd = "/no/such/directory";
    s[2].user = "nobody-of-that-name";
    s[3].user = "4000000";
    for (int i = 0; i < 4 - FREE_IDS; i++) {
        exec *x = start(&w, &s[i]);
        exec_state st = wait_end(x);
        assert_int_equal(st.end.how, EXEC_NOT_STARTED);
        err *e = exec_end_error(&st.end);
        assert_non_null(e);
        if (!i) {
            assert_int_equal(e->errnum, ENOENT);
            assert_non_null(strstr(e->cause, "ENOENT"));
        }
        assert_err(e, want[i]);
        exec_unref(x);
    }
    exec_spec fd = spec_sh("true");
    exec *x = NULL;
    bool replay;
    fd.exec_fd = 0;
    assert_err(exec_start(w.table, &fd, NULL, &x, &replay), ERR_UNSUPPORTED);
    world_end(&w);
}

static void kills_are_told_from_deaths(void **state)
{
    world w;
    exec_spec sleeps = spec_sh("echo up; exec sleep 100"), dies = spec_sh("kill -9 $$");
    exec_state st;

    (void)state;
    world_create(&w, 0, 0);
    exec *x = start(&w, &sleeps), *y = start(&w, &dies);
    assert_true(wait_for(x, has_out, 3, 10, &st));
    assert_ok(exec_signal(x, SIGKILL, SP_TO_TREE));
    st = wait_end(x);
    assert_int_equal(st.end.how, EXEC_KILLED);
    assert_int_equal(st.end.signal, SIGKILL);
    st = wait_end(y);
    assert_int_equal(st.end.how, EXEC_SIGNALLED);
    assert_int_equal(st.end.signal, SIGKILL);
    assert_true(wait_for(x, is_over, 0, 10, &st));
    assert_err(exec_signal(x, SIGKILL, SP_TO_TREE), ERR_CONFLICT);
    assert_err(exec_signal(x, 99, SP_TO_TREE), ERR_INVALID_REQUEST);
    exec_unref(x);
    exec_unref(y);
    world_end(&w);
}

static void time_limits_reach_the_whole_tree(void **state)
{
    world w;
    exec_spec soft = spec_sh("sleep 100 & sleep 100");
    exec_spec hard = spec_sh("trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & wait");
    exec_state st;
    exec *x = NULL;

    (void)state;
    world_create(&w, 0, 0);
    soft.timeout_ms = 300;
    hard.timeout_ms = 4000; /* its traps are set by then */
    uint64_t begun = now_mono_ns(), took = UINT64_MAX;
    exec *y = start(&w, &hard);
    for (int i = 0; i < 10 && took >= 2 * NS_PER_S; i++) { /* a busy machine is late at times */
        uint64_t since = now_mono_ns();
        if (x)
            exec_unref(x);
        x = start(&w, &soft);
        st = wait_end(x);
        assert_int_equal(st.end.how, EXEC_TIMED_OUT);
        assert_int_equal(st.end.signal, SIGTERM);
        took = now_mono_ns() - since;
    }
    assert_true(took < 2 * NS_PER_S);
    st = wait_end(y);
    assert_int_equal(st.end.how, EXEC_TIMED_OUT);
    assert_int_equal(st.end.signal, SIGKILL);
    assert_true(now_mono_ns() - begun > 5700 * NS_PER_MS);
    /* Nothing of it is left to hold the streams. */
    assert_true(wait_for(x, is_over, 0, 10, &st));
    assert_true(wait_for(y, is_over, 0, 10, &st));
    exec_unref(x);
    exec_unref(y);
    world_end(&w);
}

static void a_journal_has_one_table_and_lists_the_newest(void **state)
{
    world w;
    exec_spec s = spec_sh("exit 0");
    exec_table *again = NULL;
    exec **list = NULL;
    size_t n = 0;
    bool replay;

    (void)state;
    world_create(&w, 0, 0);
    for (int i = 0; i < 3; i++) {
        CLEANUP(exec_unrefp) exec *x = NULL;
        assert_ok(exec_start(w.table, &s, NULL, &x, &replay));
    }
    assert_ok(exec_table_open(w.hub, SANDBOX, &again));
    assert_ptr_equal(again, w.table);
    exec_table_unref(again);
    exec_list(w.table, 2, &list, &n);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        exec_state st;
        exec_get(list[i], &st);
        assert_int_equal(st.id, i + 2);
        exec_unref(list[i]);
    }
    free(list);
    for (int i = 0; i < 500 && exec_count_running(w.table); i++)
        usleep(10000);
    assert_int_equal(exec_count_running(w.table), 0);
    world_end(&w);
}

static size_t journals_left(world *w)
{
    LOCK_SCOPE(&w->hub->lock);
    return w->hub->nleft;
}

/* A table that goes before the next look at the journals leaves its own to it. */
static void a_journal_is_synced_though_its_table_is_gone(void **state)
{
    world w;
    size_t seen = 0;

    (void)state;
    world_create(&w, 0, 0);
    for (int i = 0; i < 5 && !seen; i++) { /* the look may come in between */
        exec_table *t = NULL;
        assert_ok(exec_table_open(w.hub, "other", &t));
        exec_table_pause(t, now_real_ns());
        assert_ok(exec_table_note_pause(t, now_real_ns() + 1));
        exec_table_unref(t);
        seen = journals_left(&w);
    }
    assert_int_equal(seen, 1);
    for (int i = 0; i < 500 && journals_left(&w); i++)
        usleep(10000);
    assert_int_equal(journals_left(&w), 0);
    world_end(&w);
}

static void a_key_runs_once(void **state)
{
    world w;
    exec_spec s = spec_sh("echo once");
    exec_key key = {.key = {1, 2, 3}, .body = {9}}, other = {.key = {1, 2, 3}, .body = {8}};
    exec *x = NULL, *y = NULL;
    bool replay = true;

    (void)state;
    world_create(&w, 0, 0);
    assert_ok(exec_start(w.table, &s, &key, &x, &replay));
    assert_false(replay);
    assert_ok(exec_start(w.table, &s, &key, &y, &replay));
    assert_true(replay);
    assert_ptr_equal(x, y);
    exec_unref(y);
    assert_err(exec_start(w.table, &s, &other, &y, &replay), ERR_IDEMPOTENCY_MISMATCH);
    wait_end(x);
    exec_unref(x);
    world_again(&w, 0, 0); /* the index comes back from the journal */
    assert_ok(exec_start(w.table, &s, &key, &x, &replay));
    assert_true(replay);
    assert_stream(x, 1, "once\n");
    exec_unref(x);
    world_end(&w);
}

static void live_execs_have_a_limit(void **state)
{
    world w;
    exec_spec s = spec_sh("exec sleep 100");
    exec *x[2], *more = NULL;
    exec_state st;
    bool replay;

    (void)state;
    world_init(&w);
    w.options.live_max = 2;
    world_start(&w, 0, 0);
    box_spec spec = {.id = SANDBOX, .user = "", .cwd = "", .umask = 022};
    w.backend->ops->create(w.backend, &spec, &EXEC_BOX_EVENTS, w.table, on_created);
    world_wait(&w, &w.created);
    for (int i = 0; i < 2; i++)
        x[i] = start(&w, &s);
    assert_err(exec_start(w.table, &s, NULL, &more, &replay), ERR_SANDBOX_EXHAUSTED);
    assert_ok(exec_signal(x[0], SIGTERM, SP_TO_TREE));
    assert_true(wait_for(x[0], is_over, 0, 10, &st));
    more = start(&w, &s);
    exec_unref(more);
    exec_table_limit(w.table, 3); /* the sandbox's own */
    more = start(&w, &s);
    exec_unref(more);
    assert_err(exec_start(w.table, &s, NULL, &more, &replay), ERR_SANDBOX_EXHAUSTED);
    exec_unref(x[0]);
    exec_unref(x[1]);
    world_end(&w);
}

static void on_news(void *arg)
{
    world *w = arg;
    LOCK_SCOPE(&w->lock);

    w->created = true;
    pthread_cond_broadcast(&w->cond);
}

/* Whoever waits for a command to run is woken, though it never writes a byte. */
static void a_silent_start_is_told(void **state)
{
    world w;
    exec_spec s = spec_sh("exec sleep 100");
    exec_watch watch = {.notify = on_news, .arg = &w};
    exec_state st;
    exec *x = NULL;
    bool replay;

    (void)state;
    world_create(&w, 0, 0);
    w.created = false;
    assert_ok(exec_start(w.table, &s, NULL, &x, &replay));
    exec_watch_add(x, &watch);
    for (exec_get(x, &st); !st.started; exec_get(x, &st)) {
        world_wait(&w, &w.created);
        w.created = false;
    }
    exec_unwatch(x, &watch);
    exec_unref(x);
    world_end(&w);
}

static void late_output_never_changes_the_end(void **state)
{
    world w;
    exec_spec s = spec_sh("echo now; (until [ -e go ]; do sleep 0.02; done; echo late) &");
    exec_spec go = spec_sh(": >go");
    exec_state st;

    (void)state;
    world_create(&w, 0, 0);
    exec *x = start(&w, &s);
    st = wait_end(x);
    assert_int_equal(st.end.out_bytes, 4);
    assert_true(st.lingering);
    exec *y = start(&w, &go);
    assert_int_equal(wait_end(y).end.exit_code, 0);
    exec_unref(y);
    assert_true(wait_for(x, is_over, 0, 10, &st));
    assert_int_equal(st.length[0], 9);
    assert_int_equal(st.end.out_bytes, 4);
    assert_stream(x, 1, "now\nlate\n");
    exec_unref(x);
    world_end(&w);
}

static void a_new_daemon_goes_on(void **state)
{
    world w;
    CLEANUP(buf_done) buf want = {0};
    exec_spec slow = spec_sh("for i in $(seq 1 60); do echo $i; sleep 0.01; done; exit 5");
    exec_spec quick = spec_sh("echo done"), cat = spec_sh("exec cat");
    exec *x[3];
    exec_state st;

    (void)state;
    world_create(&w, 0, 0);
    cat.stdin_open = true;
    x[0] = start(&w, &slow);
    x[1] = start(&w, &quick);
    x[2] = start(&w, &cat);
    assert_ok(exec_stdin(x[2], "one ", 4, 0, false));
    wait_end(x[1]);
    for (int i = 0; i < 3; i++)
        exec_unref(x[i]);
    world_again(&w, 0, 0);
    world_again(&w, 0, 0);
    for (uint64_t i = 0; i < 3; i++)
        assert_ok(exec_find(w.table, i + 1, &x[i]));
    assert_ok(exec_stdin(x[2], "two", 3, 4, true));
    put_seq(&want, 1, 60, "\n");
    st = wait_end(x[0]);
    assert_int_equal(st.end.exit_code, 5);
    assert_bytes(x[0], 1, &want);
    assert_stream(x[1], 1, "done\n");
    assert_int_equal(wait_end(x[2]).end.exit_code, 0);
    assert_stream(x[2], 1, "one two");
    assert_non_null(strstr(st.command, "/bin/sh -c for i in"));
    for (int i = 0; i < 3; i++)
        exec_unref(x[i]);
    world_end(&w);
}

static void a_time_limit_outlives_the_daemon(void **state)
{
    world w;
    exec_spec s = spec_sh("exec sleep 100");
    exec *x;

    (void)state;
    world_create(&w, 0, 0);
    s.timeout_ms = 500;
    exec_unref(start(&w, &s));
    world_again(&w, 0, 0);
    assert_ok(exec_find(w.table, 1, &x));
    assert_int_equal(wait_end(x).end.how, EXEC_TIMED_OUT);
    exec_unref(x);
    world_end(&w);
}

static void a_dead_box_leaves_unknown_ends(void **state)
{
    world w;
    exec_spec s = spec_sh("echo before; exec sleep 100");
    exec *x, *more = NULL;
    exec_state st;
    bool replay;

    (void)state;
    world_create(&w, 0, 0);
    x = start(&w, &s);
    assert_true(wait_for(x, has_out, 7, 10, &st));
    assert_ok(w.backend->ops->destroy(w.backend, SANDBOX));
    world_wait(&w, &w.gone);
    st = wait_end(x);
    assert_true(st.end.how == EXEC_UNKNOWN || st.end.how == EXEC_SIGNALLED);
    assert_stream(x, 1, "before\n");
    assert_err(exec_start(w.table, &s, NULL, &more, &replay), ERR_SANDBOX_GONE);
    assert_err(exec_stdin(x, "a", 1, 0, false), ERR_SANDBOX_GONE);
    exec_unref(x);
    world_end(&w);
}

/* ---- transient execs ---- */

static bool has_file(const world *w, const exec *x, const char *ending)
{
    exec_state st;
    char path[64];

    exec_get((exec *)x, &st);
    snprintf(path, sizeof path, SANDBOX "/%lu.%s", st.id, ending);
    return !faccessat(w->spool, path, F_OK, 0);
}

static void wait_no_file(const world *w, const exec *x, const char *ending)
{
    uint64_t end = now_mono_ns() + 10 * NS_PER_S;

    while (has_file(w, x, ending) && now_mono_ns() < end)
        usleep(1000);
    assert_false(has_file(w, x, ending));
}

static exec *start_transient(world *w, char *command, bool input)
{
    exec_spec s = spec_sh(command);

    s.transient = true;
    s.stdin_open = input;
    return start(w, &s);
}

static void a_transient_exec_is_its_verbs_alone(void **state)
{
    world w;
    exec_spec plain = spec_sh("echo caller");
    exec **list, *other = NULL;
    exec_state st;
    size_t n;

    (void)state;
    world_create(&w, 0, 0);
    exec *before = start(&w, &plain), *x = start_transient(&w, "echo verb; exec sleep 100", false),
         *after = start(&w, &plain);
    assert_true(wait_for(x, has_out, 5, 10, &st));
    wait_end(before);
    wait_end(after);
    exec_list(w.table, 10, &list, &n);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++)
        exec_unref(list[i]);
    free(list);
    exec_list(w.table, 1, &list, &n);
    assert_int_equal(n, 1);
    exec_unref(list[0]);
    free(list);
    assert_int_equal(exec_count_running(w.table), 0);
    assert_err(exec_find(w.table, st.id, &other), ERR_NOT_FOUND);
    assert_true(has_file(&w, x, "out"));
    exec_discard(x, DISCARD_KILL);
    assert_int_not_equal(wait_end(x).end.how, EXEC_RUNNING);
    wait_no_file(&w, x, "out");
    exec_unref(before);
    exec_unref(x);
    exec_unref(after);
    world_end(&w);
}

static void a_transient_exec_may_clean_up(void **state)
{
    world w;
    exec_state st;

    (void)state;
    world_create(&w, 0, 0);
    /* Told by the end of its stdin, and by TERM. */
    exec *reads = start_transient(&w, "cat >/dev/null; : >ended", true),
         *traps = start_transient(
             &w, "trap ': >trapped; exit' TERM; echo up; while :; do sleep 0.05; done", false);
    assert_true(wait_for(traps, has_out, 3, 10, &st));
    exec_discard(reads, DISCARD_END);
    exec_discard(traps, DISCARD_TERM);
    assert_int_equal(wait_end(reads).end.how, EXEC_EXITED);
    wait_end(traps);
    exec_spec look = spec_sh("ls ended trapped");
    exec *x = start(&w, &look);
    assert_int_equal(wait_end(x).end.exit_code, 0);
    exec_unref(x);
    exec_unref(reads);
    exec_unref(traps);
    world_end(&w);
}

static void transient_execs_have_a_ceiling_of_their_own(void **state)
{
    world w;
    exec *x[TRANSIENT_MAX], *more = NULL;
    exec_spec plain = spec_sh("true"), s = spec_sh("read -r line");
    bool replay;

    (void)state;
    world_create(&w, 0, 0);
    exec_table_limit(w.table, 1);
    for (unsigned i = 0; i < TRANSIENT_MAX; i++)
        x[i] = start_transient(&w, "read -r line", true);
    s.transient = true;
    assert_err(exec_start(w.table, &s, NULL, &more, &replay), ERR_SANDBOX_EXHAUSTED);
    more = start(&w, &plain); /* the caller's one is not taken by them */
    wait_end(more);
    exec_unref(more);
    for (unsigned i = 0; i < TRANSIENT_MAX; i++) {
        exec_discard(x[i], DISCARD_KILL);
        wait_end(x[i]);
        exec_unref(x[i]);
    }
    world_end(&w);
}

/* Who may only read cannot use up the sandbox for who may run. */
static void file_requests_leave_room_for_commands(void **state)
{
    world w;
    exec_spec plain = spec_sh("true"), s = spec_sh("true");
    exec *x = NULL;
    bool replay;

    (void)state;
    world_create(&w, 0, 0);
    s.transient = true;
    size_t before = w.table->npast;
    w.table->npast = VERBS_MAX; /* only looked at: it is refused */
    err *refused = exec_start(w.table, &s, NULL, &x, &replay);
    w.table->npast = before;
    assert_err(refused, ERR_SANDBOX_EXHAUSTED);
    assert_true(VERBS_MAX < EXECS_MAX);
    x = start(&w, &plain);
    wait_end(x);
    exec_unref(x);
    world_end(&w);
}

static void a_held_transient_stream_keeps_little_and_loses_nothing(void **state)
{
    world w;
    uint64_t at = 0, gap = 0, total = UINT64_C(40) << 20;
    CLEANUP(freep) char *chunk = xmalloc(65536);
    struct stat file;
    exec_state st;
    size_t n;

    (void)state;
    world_create(&w, 0, 0);
    exec *x = start_transient(&w, "yes | head -c 41943040", false);
    exec_hold *h = exec_hold_new(x, 1, 0);
    while (at < total) {
        assert_true(wait_for(x, has_out, at + 1, 20, &st));
        assert_ok(exec_read(x, 1, at, chunk, 65536, &n, &gap));
        assert_int_equal(gap, 0);
        at += n;
        exec_hold_move(h, at);
    }
    char path[64];
    snprintf(path, sizeof path, SANDBOX "/%lu.out", st.id);
    assert_int_equal(fstatat(w.spool, path, &file, 0), 0);
    assert_true((uint64_t)file.st_blocks * 512 <= TRANSIENT_STREAM_MAX + (1 << 20));
    exec_hold_free(h);
    exec_discard(x, DISCARD_END);
    wait_end(x);
    wait_no_file(&w, x, "out");
    exec_unref(x);
    world_end(&w);
}

/* Whoever starts it and follows is not there with the first byte. */
static void an_awaited_stream_waits_for_its_follower(void **state)
{
    world w;
    uint64_t at = 0, gap = 0, total = UINT64_C(20) << 20;
    CLEANUP(freep) char *chunk = xmalloc(65536);
    exec_spec s = spec_sh("yes | head -c 20971520");
    exec_state st;
    size_t n;

    (void)state;
    world_create(&w, 0, 0);
    s.transient = s.awaited = true;
    exec *x = start(&w, &s);
    assert_true(wait_for(x, has_out, TRANSIENT_STREAM_MAX, 20, &st));
    usleep(300000);
    exec_hold *h = exec_hold_new(x, 1, 0);
    while (at < total) {
        assert_true(wait_for(x, has_out, at + 1, 20, &st));
        assert_ok(exec_read(x, 1, at, chunk, 65536, &n, &gap));
        assert_int_equal(gap, 0);
        at += n;
        exec_hold_move(h, at);
    }
    exec_hold_free(h);
    exec_discard(x, DISCARD_END);
    wait_end(x);
    exec_unref(x);
    world_end(&w);
}

/* What they wrote in another life was not counted in this one, and is not taken off. */
static void what_a_restart_ends_takes_no_others_output_along(void **state)
{
    world w;
    exec_spec first = spec_sh("echo kept"),
              flood = spec_sh("yes | head -c 3000000; exec sleep 100"), next = spec_sh("true");
    exec_state st;

    (void)state;
    world_create(&w, 0, 0);
    exec *x = start(&w, &first);
    uint64_t id = wait_end(x).id;
    assert_true(wait_for(x, is_over, 0, 10, &st));
    exec_unref(x);
    exec *verb = start_transient(&w, "yes | head -c 3000000; exec sleep 100", false);
    exec *command = start(&w, &flood);
    uint64_t flooding = 0;
    assert_true(wait_for(verb, has_out, 3000000, 20, &st));
    assert_true(wait_for(command, has_out, 3000000, 20, &st));
    flooding = st.id;
    char path[64];
    snprintf(path, sizeof path, SANDBOX "/%lu.out", flooding - 1);
    exec_unref(verb);
    exec_unref(command);
    world_again(&w, 0, 0);
    uint64_t end = now_mono_ns() + 10 * NS_PER_S;
    while (!faccessat(w.spool, path, F_OK, 0) && now_mono_ns() < end)
        usleep(1000);
    assert_int_not_equal(faccessat(w.spool, path, F_OK, 0), 0);
    x = start(&w, &next); /* looks whether too much is kept */
    wait_end(x);
    assert_true(wait_for(x, is_over, 0, 10, &st));
    exec_unref(x);
    assert_ok(exec_find(w.table, id, &x));
    assert_stream(x, 1, "kept\n");
    exec_unref(x);
    world_end(&w);
}

static void a_transient_exec_dies_with_its_daemon(void **state)
{
    world w;
    exec_state st;
    exec **list;
    size_t n;

    (void)state;
    world_create(&w, 0, 0);
    exec *x = start_transient(&w, "echo up; exec sleep 100", false);
    assert_true(wait_for(x, has_out, 3, 10, &st));
    exec_unref(x);
    world_again(&w, 0, 0);
    char path[64];
    snprintf(path, sizeof path, SANDBOX "/%lu.out", st.id);
    uint64_t end = now_mono_ns() + 10 * NS_PER_S;
    while (!faccessat(w.spool, path, F_OK, 0) && now_mono_ns() < end)
        usleep(1000);
    assert_int_not_equal(faccessat(w.spool, path, F_OK, 0), 0);
    exec_list(w.table, 10, &list, &n);
    assert_int_equal(n, 0);
    free(list);
    world_end(&w);
}

static void terminals_take_input_and_sizes(void **state)
{
    world w;
    exec_spec s = spec_sh("read line; stty size; echo got $line");
    exec_state st;

    (void)state;
    world_create(&w, 0, 0);
    s.stdio = STDIO_PTY;
    s.stdin_open = true;
    exec *x = start(&w, &s);
    assert_ok(exec_resize(x, 33, 99));
    assert_ok(exec_stdin(x, "hi\n", 3, UINT64_MAX, false));
    st = wait_end(x);
    assert_int_equal(st.end.exit_code, 0);
    assert_stream(x, 1, "hi\r\n33 99\r\ngot hi\r\n");
    exec_unref(x);
    world_end(&w);
}

static void a_start_command_is_begun_once(void **state)
{
    exec_spec s = spec_sh("exec sleep 60");
    exec *x = NULL, *y = NULL;
    bool replay = true;
    world w;

    (void)state;
    s.start = true;
    world_create(&w, 0, 0);
    assert_ok(exec_start(w.table, &s, NULL, &x, &replay));
    assert_false(replay);
    assert_ok(exec_start(w.table, &s, NULL, &y, &replay)); /* whoever saw too early that none was */
    assert_true(replay);
    assert_ptr_equal(x, y);
    exec_unref(x);
    exec_unref(y);
    world_end(&w);
}

static bool start_becomes(world *w, enum exec_start wanted)
{
    for (int i = 0; i < 2000 && exec_table_start(w->table, false) != wanted; i++)
        usleep(10000);
    return exec_table_start(w->table, false) == wanted;
}

/* In this life as in the next. */
static void a_start_command_that_never_ran_is_due_again(void **state)
{
    exec_spec refused = spec_sh("true"), s = refused;
    exec *x = NULL;
    bool replay;
    world w;

    (void)state;
    s.start = refused.start = true;
    refused.exec_fd = 0;
    world_create(&w, 0, 0);
    assert_err(exec_start(w.table, &refused, NULL, &x, &replay), ERR_UNSUPPORTED);
    assert_true(start_becomes(&w, EXEC_START_DUE));
    world_again(&w, 0, 0);
    assert_true(start_becomes(&w, EXEC_START_DUE));
    x = start(&w, &s);
    wait_end(x);
    exec_unref(x);
    assert_int_equal(exec_table_start(w.table, true), EXEC_START_BEGUN);
    world_end(&w);
}

static void a_lost_journal_begins_no_start_command(void **state)
{
    exec_spec s = spec_sh("true");
    world w;

    (void)state;
    s.start = true;
    world_create(&w, 0, 0);
    exec *x = start(&w, &s);
    wait_end(x);
    exec_unref(x);
    w.backend->ops->box_unref(w.box);
    world_stop(&w);
    assert_int_equal(unlinkat(w.spool, SANDBOX "/journal", 0), 0);
    world_start(&w, 0, 0);
    assert_int_equal(exec_table_start(w.table, false), EXEC_START_EARLY);
    assert_ok(w.backend->ops->attach(w.backend, SANDBOX, &EXEC_BOX_EVENTS, w.table, &w.box));
    exec_table_bind(w.table, w.backend, w.box, world_on_gone, &w);
    assert_true(start_becomes(&w, EXEC_START_UNSURE));
    world_end(&w);
}

#ifndef OVER_LINK
static bool runs(pid_t pid)
{
    char path[32], line[256] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f && !fgets(line, sizeof line, f))
        line[0] = 0;
    if (f)
        fclose(f);
    return line[0] && !strstr(line, ") Z ");
}

static void what_left_every_tree_ends_with_the_node(void **state)
{
    world w;
    exec_spec s = spec_sh("setsid sleep 600 </dev/null >/dev/null 2>&1 & echo $!");
    uint64_t stop = now_mono_ns() + 20 * NS_PER_S;
    CLEANUP(buf_done) buf said = {0};

    (void)state;
    world_create(&w, 0, 0);
    exec *x = start(&w, &s);
    wait_end(x);
    read_stream(x, 1, &said);
    pid_t pid = (pid_t)strtol(buf_cstr(&said), NULL, 10);
    assert_true(pid > 1 && runs(pid));
    exec_unref(x);
    world_end(&w);
    while (runs(pid) && now_mono_ns() < stop)
        usleep(10000);
    assert_false(runs(pid));
}
#endif

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(streams_and_exit_status_come_apart),
        WORLD_TEST(known_output_in_all_modes),
        WORLD_TEST(known_output_with_cuts_and_repeats),
        WORLD_TEST(stdin_arrives_once_and_whole),
        WORLD_TEST(stdin_is_appended_only_at_its_length),
        WORLD_TEST(all_of_stdin_comes_once_or_the_end_says_why),
        WORLD_TEST(failures_name_their_stage),
        WORLD_TEST(kills_are_told_from_deaths),
        WORLD_TEST(time_limits_reach_the_whole_tree),
        WORLD_TEST(a_journal_has_one_table_and_lists_the_newest),
        WORLD_TEST(a_journal_is_synced_though_its_table_is_gone),
        WORLD_TEST(a_key_runs_once),
        WORLD_TEST(a_start_command_is_begun_once),
        WORLD_TEST(a_start_command_that_never_ran_is_due_again),
        WORLD_TEST(a_lost_journal_begins_no_start_command),
        WORLD_TEST(live_execs_have_a_limit),
        WORLD_TEST(a_silent_start_is_told),
        WORLD_TEST(late_output_never_changes_the_end),
        WORLD_TEST(a_new_daemon_goes_on),
        WORLD_TEST(a_time_limit_outlives_the_daemon),
        WORLD_TEST(a_dead_box_leaves_unknown_ends),
        WORLD_TEST(terminals_take_input_and_sizes),
        WORLD_TEST(a_transient_exec_is_its_verbs_alone),
        WORLD_TEST(a_transient_exec_may_clean_up),
        WORLD_TEST(transient_execs_have_a_ceiling_of_their_own),
        WORLD_TEST(file_requests_leave_room_for_commands),
        WORLD_TEST(a_held_transient_stream_keeps_little_and_loses_nothing),
        WORLD_TEST(an_awaited_stream_waits_for_its_follower),
        WORLD_TEST(what_a_restart_ends_takes_no_others_output_along),
        WORLD_TEST(a_transient_exec_dies_with_its_daemon),
#ifndef OVER_LINK
        WORLD_TEST(what_left_every_tree_ends_with_the_node),
#endif
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

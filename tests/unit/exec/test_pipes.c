/* The exec layer over descriptors: splice, ptys, stdin by position, what lingers, ceilings, a full
 * disk, and going on after the daemon's side was forgotten. */
#include <sys/mount.h>

#include "exec/internal.h"

#include "pipes.h"

static void kill_procs(box *x)
{
    while (x->procs) {
        pproc *p = x->procs;
        x->procs = p->next;
        if (p->rec.state == SP_LIVE) {
            kill(-p->pid, SIGKILL);
            waitpid(p->pid, NULL, 0);
        }
        for (int i = 0; i < SP_FDS_MAX; i++)
            closep(&p->fd[i]);
        free(p);
    }
}

static void end(world *w, box *x)
{
    world_stop(w);
    kill_procs(x);
    world_done(w);
}

static void begin(world *w, box *x)
{
    pipes_init(w, x);
    pipes_attach(w, x);
}

static void bytes_are_spliced_in_all_modes(void **state)
{
    world w;
    box b;
    CLEANUP(buf_done) buf want = {0}, tty = {0}, merged = {0};
    exec_spec big = spec_sh("seq 1 300000; seq 1 3000 >&2; exit 4"), pty = spec_sh("seq 1 20000");
    exec_spec merge = spec_sh("for i in 1 2 3 4; do echo o$i; echo e$i >&2; done");
    exec_state st;

    (void)state;
    begin(&w, &b);
    pty.stdio = STDIO_PTY;
    merge.stdio = STDIO_MERGED;
    exec *x = start(&w, &big), *y = start(&w, &pty), *z = start(&w, &merge);
    put_seq(&want, 1, 300000, "\n");
    put_seq(&tty, 1, 20000, "\r\n");
    for (int i = 1; i <= 4; i++)
        buf_printf(&merged, "o%d\ne%d\n", i, i);
    assert_int_equal(wait_end(x).end.exit_code, 4);
    assert_bytes(x, 1, &want);
    assert_int_equal(wait_end(x).end.out_bytes, want.len);
    buf_clear(&want);
    put_seq(&want, 1, 3000, "\n");
    assert_bytes(x, 2, &want);
    assert_int_equal(wait_end(y).end.how, EXEC_EXITED);
    assert_bytes(y, 1, &tty);
    wait_end(z);
    assert_bytes(z, 1, &merged);
    assert_true(wait_for(y, is_over, 0, 10, &st));
    assert_true(wait_for(z, is_over, 0, 10, &st));
    exec_unref(x);
    exec_unref(y);
    exec_unref(z);
    end(&w, &b);
}

#define OTHER "t000bbbbbbbbbbbbbbbb"

/* One that runs, the start command, and a reset that has come as far as the journal. */
static exec *half_reset(world *w, const exec_key *key, uint64_t *ret_first)
{
    exec_spec sleeps = spec_sh("echo said; exec sleep 600"), begins = spec_sh("exec sleep 600");
    exec_spec refused = spec_sh("true");
    exec_state st;
    exec *none = NULL;
    bool replay;

    begins.start = true;
    exec *x = start(w, &sleeps);
    exec_unref(start(w, &begins));
    assert_true(wait_for(x, has_out, 5, 10, &st));
    assert_ok(exec_table_reset_begin(w->table, OTHER, key, ret_first));
    assert_err(exec_start(w->table, &refused, NULL, &none, &replay), ERR_UNAVAILABLE);
    return x;
}

static void a_reset_that_no_record_knows_counts_for_nothing(void **state)
{
    const exec_key key = {{1}, {2}};
    exec_spec s = spec_sh("echo lives");
    uint64_t first = 0;
    exec_state st;
    bool was = true;
    world w;
    box b;

    (void)state;
    begin(&w, &b);
    exec_unref(half_reset(&w, &key, &first));
    world_stop(&w);
    pipes_attach(&w, &b);
    assert_int_equal(exec_table_reset_id(w.table), 0);
    assert_ok(exec_table_reset_was(w.table, &key, &was));
    assert_false(was);
    assert_int_equal(exec_table_start_id(w.table), 2);
    exec *x = NULL;
    assert_ok(exec_find(w.table, 1, &x));
    exec_get(x, &st);
    assert_int_equal(st.end.how, EXEC_RUNNING);
    exec_unref(x);
    x = start(&w, &s);
    assert_int_equal(wait_end(x).end.how, EXEC_EXITED);
    exec_unref(x);
    end(&w, &b);
}

static void what_ran_before_a_reset_was_killed(void **state)
{
    const exec_key key = {{1}, {2}}, other = {{1}, {3}};
    exec_spec s = spec_sh("echo new");
    uint64_t first = 0;
    bool was = false;
    world w;
    box b, fresh = {0};

    (void)state;
    begin(&w, &b);
    exec_unref(half_reset(&w, &key, &first));
    world_stop(&w);
    pthread_mutex_init(&fresh.lock, NULL);
    pthread_mutex_init(&fresh.order, NULL);
    pipes_attach_as(&w, &fresh, OTHER);
    assert_int_equal(exec_table_reset_id(w.table), first);
    assert_int_equal(exec_table_start_id(w.table), 0);
    assert_ok(exec_table_reset_was(w.table, &key, &was));
    assert_true(was);
    assert_err(exec_table_reset_was(w.table, &other, &was), ERR_IDEMPOTENCY_MISMATCH);
    for (uint64_t id = 1; id < first; id++) {
        exec *x = NULL;
        assert_ok(exec_find(w.table, id, &x));
        exec_state st = wait_end(x);
        assert_int_equal(st.end.how, EXEC_KILLED);
        assert_int_equal(st.end.signal, SIGKILL);
        assert_int_equal(st.end.out_bytes, id == 1 ? 5 : 0);
        exec_unref(x);
    }
    exec *x = start(&w, &s);
    assert_int_equal(exec_id(x), first);
    assert_int_equal(wait_end(x).end.how, EXEC_EXITED);
    exec_unref(x);
    end(&w, &fresh);
    kill_procs(&b); /* the box that was left */
}

static void an_empty_stream_has_no_file(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("echo only out");
    struct stat st;

    (void)state;
    begin(&w, &b);
    exec *x = start(&w, &s);
    wait_end(x);
    assert_int_equal(fstatat(w.spool, SANDBOX "/1.out", &st, 0), 0);
    assert_int_equal(fstatat(w.spool, SANDBOX "/1.err", &st, 0), -1);
    assert_int_equal(fstatat(w.spool, SANDBOX "/1.in", &st, 0), -1);
    exec_unref(x);
    end(&w, &b);
}

static void feed(exec *x, const buf *in, size_t from)
{
    for (size_t at = from; at < in->len;) {
        size_t k = in->len - at < 65536 ? in->len - at : 65536;
        err *e = exec_stdin(x, in->p + at, k, at, false);
        if (e && e->code == ERR_QUOTA_EXCEEDED) {
            err_free(e);
            usleep(1000);
            continue;
        }
        assert_ok(e);
        at += k;
    }
    assert_ok(exec_stdin(x, NULL, 0, in->len, true));
}

static void stdin_goes_on_where_the_last_daemon_stopped(void **state)
{
    world w;
    box b;
    CLEANUP(buf_done) buf in = {0};
    exec_spec s = spec_sh("sleep 0.2; exec cat");
    exec *x;

    (void)state;
    begin(&w, &b);
    put_seq(&in, 1, 2000000, "\n"); /* more than 12 MiB: some of it is punched on the way */
    s.stdin_open = true;
    x = start(&w, &s);
    assert_ok(exec_stdin(x, in.p, 500000, 0, false));
    exec_unref(x);
    world_stop(&w);
    pipes_attach(&w, &b);
    assert_ok(exec_find(w.table, 1, &x));
    assert_int_equal(exec_stdin_length(x), 500000);
    feed(x, &in, 500000);
    assert_int_equal(wait_end(x).end.exit_code, 0);
    assert_bytes(x, 1, &in);
    exec_unref(x);
    end(&w, &b);
}

static void stdin_that_nobody_reads_pushes_back(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("exec sleep 100"), closes = spec_sh("exec <&-; echo up; exec sleep 100");
    char *much = xcalloc(1, 1 << 20);
    err *e = NULL;
    exec_state st;

    (void)state;
    begin(&w, &b);
    s.stdin_open = closes.stdin_open = true;
    exec *x = start(&w, &s), *y = start(&w, &closes);
    for (int i = 0; i < 4 && !e; i++)
        e = exec_stdin(x, much, 1 << 20, UINT64_MAX, false);
    assert_err(e, ERR_QUOTA_EXCEEDED);
    e = NULL;
    assert_err(exec_stdin(x, much, (1 << 20) + 1, UINT64_MAX, false), ERR_TOO_LARGE);
    /* Whoever closes its stdin is told apart. */
    assert_true(wait_for(y, has_out, 3, 10, &st));
    for (int i = 0; i < 1000 && !e; i++) {
        e = exec_stdin(y, "x", 1, UINT64_MAX, false);
        usleep(1000);
    }
    assert_err(e, ERR_CONFLICT);
    free(much);
    assert_ok(exec_signal(x, SIGKILL, SP_TO_TREE));
    assert_ok(exec_signal(y, SIGTERM, SP_TO_TREE));
    assert_int_equal(wait_end(x).end.how, EXEC_KILLED);
    assert_int_equal(wait_end(y).end.how, EXEC_KILLED);
    exec_unref(x);
    exec_unref(y);
    end(&w, &b);
}

static void late_bytes_go_on_into_the_spool(void **state)
{
    world w;
    box b;
    char command[256];
    exec_state st;
    exec *x;

    (void)state;
    begin(&w, &b);
    snprintf(command, sizeof command,
             "echo now; (while [ -d %s ] && [ ! -e %s/go ]; do sleep 0.02; done; echo late) &",
             w.dir, w.dir);
    exec_spec s = spec_sh(command);
    x = start(&w, &s);
    st = wait_end(x);
    assert_int_equal(st.end.out_bytes, 4);
    assert_true(st.lingering);
    exec_unref(x);
    /* Also across a restart: HELLO still names it. */
    world_stop(&w);
    pipes_attach(&w, &b);
    assert_ok(exec_find(w.table, 1, &x));
    exec_get(x, &st);
    assert_true(st.lingering);
    assert_int_equal(mkdirat(w.dirfd, "go", 0700), 0);
    assert_true(wait_for(x, is_over, 0, 10, &st));
    assert_int_equal(st.length[0], 9);
    assert_int_equal(st.end.out_bytes, 4);
    assert_stream(x, 1, "now\nlate\n");
    assert_true(wait_for(x, is_over, 0, 10, &st));
    exec_unref(x);
    end(&w, &b);
}

static void a_pty_survives_with_what_is_in_its_relay(void **state)
{
    world w;
    box b;
    CLEANUP(buf_done) buf want = {0};
    exec_spec s = spec_sh("read go; seq 1 3000; read end; exit 9");
    exec_state st;
    exec *x;

    (void)state;
    begin(&w, &b);
    s.stdio = STDIO_PTY;
    s.stdin_open = true;
    x = start(&w, &s);
    assert_ok(exec_stdin(x, "go\n", 3, UINT64_MAX, false));
    /* A terminal's input is not durable: it must have arrived before the daemon goes. */
    assert_true(wait_for(x, has_out, 4, 10, &st));
    exec_unref(x);
    for (int i = 0; i < 3; i++) {
        usleep(2000);
        world_stop(&w);
        pipes_attach(&w, &b);
    }
    assert_ok(exec_find(w.table, 1, &x));
    buf_str(&want, "go\r\n");
    put_seq(&want, 1, 3000, "\r\n");
    assert_true(wait_for(x, has_out, want.len, 10, &st));
    assert_bytes(x, 1, &want);
    assert_ok(exec_stdin(x, "\n", 1, UINT64_MAX, false));
    assert_int_equal(wait_end(x).end.exit_code, 9);
    exec_unref(x);
    end(&w, &b);
}

static void the_middle_is_punched_out_at_the_ceiling(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("head -c 20000000 /dev/zero | tr '\\0' x; echo END");
    exec_state st;
    char chunk[65536];
    size_t n;
    uint64_t gap;
    struct stat file;

    (void)state;
    pipes_init(&w, &b);
    w.options.stream_max = 4 << 20;
    pipes_attach(&w, &b);
    exec *x = start(&w, &s);
    st = wait_end(x);
    assert_int_equal(st.end.out_bytes, 20000004);
    assert_true(st.end.out_dropped >= 20000004 - (4 << 20));
    /* Whole MiB go, the head stays, and a reader is told. */
    assert_int_equal(st.end.out_dropped % (1 << 20), 0);
    assert_ok(exec_read(x, 1, (1 << 20) - 10, chunk, sizeof chunk, &n, &gap));
    assert_int_equal(n, 10);
    assert_memory_equal(chunk, "xxxxxxxxxx", 10);
    assert_ok(exec_read(x, 1, 1 << 20, chunk, sizeof chunk, &n, &gap));
    assert_int_equal(n, 0);
    assert_int_equal(gap, (1 << 20) + st.end.out_dropped);
    assert_ok(exec_read(x, 1, gap, chunk, 1, &n, &gap));
    assert_int_equal(n, 1);
    assert_int_equal(chunk[0], 'x');
    assert_ok(exec_read(x, 1, 20000000, chunk, sizeof chunk, &n, &gap));
    assert_memory_equal(chunk, "END\n", 4);
    assert_err(exec_read(x, 1, 20000005, chunk, 1, &n, &gap), ERR_RANGE);
    assert_int_equal(fstatat(w.spool, SANDBOX "/1.out", &file, 0), 0);
    assert_int_equal(file.st_size, 20000004);
    assert_true((uint64_t)file.st_blocks * 512 <= (5 << 20));
    exec_unref(x);
    /* The marks come back from the journal. */
    world_stop(&w);
    pipes_attach(&w, &b);
    assert_ok(exec_find(w.table, 1, &x));
    exec_state again;
    exec_get(x, &again);
    assert_int_equal(again.end.out_dropped, st.end.out_dropped);
    assert_ok(exec_read(x, 1, 1 << 20, chunk, sizeof chunk, &n, &gap));
    assert_int_equal(gap, (1 << 20) + st.end.out_dropped);
    exec_unref(x);
    end(&w, &b);
}

static void old_streams_go_first_when_a_sandbox_has_too_many(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("head -c 1000000 /dev/zero");
    exec_state st;
    exec *x;

    (void)state;
    pipes_init(&w, &b);
    w.options.sandbox_max = 2500000;
    pipes_attach(&w, &b);
    for (int i = 0; i < 4; i++) {
        x = start(&w, &s);
        assert_true(wait_for(x, is_over, 0, 10, &st));
        exec_unref(x);
    }
    assert_ok(exec_find(w.table, 1, &x));
    exec_get(x, &st);
    assert_int_equal(st.end.out_bytes, 1000000);
    assert_int_equal(st.end.out_dropped, 1000000);
    char c;
    size_t n;
    uint64_t gap;
    assert_ok(exec_read(x, 1, 5, &c, 1, &n, &gap));
    assert_int_equal(gap, 1000000);
    exec_unref(x);
    assert_ok(exec_find(w.table, 4, &x));
    exec_get(x, &st);
    assert_int_equal(st.end.out_dropped, 0);
    exec_unref(x);
    end(&w, &b);
}

static void a_refused_spawn_is_not_started_and_frees_its_key(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("echo ran");
    exec_key key = {.key = {7}, .body = {7}};
    exec *x = NULL;
    bool replay = true;

    (void)state;
    begin(&w, &b);
    b.refuse = EAGAIN;
    assert_ok(exec_start(w.table, &s, &key, &x, &replay));
    exec_state st = wait_end(x);
    assert_int_equal(st.end.how, EXEC_NOT_STARTED);
    assert_int_equal(st.end.errnum, EAGAIN);
    assert_err(exec_end_error(&st.end), ERR_SANDBOX_EXHAUSTED);
    exec_unref(x);
    b.refuse = 0;
    assert_ok(exec_start(w.table, &s, &key, &x, &replay));
    assert_false(replay);
    wait_end(x);
    assert_stream(x, 1, "ran\n");
    exec_unref(x);
    end(&w, &b);
}

/* A BEGIN that never reached init: not started, the key free, and nothing is sent again. */
static void a_begin_without_a_spawn_is_not_started(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("echo ran");
    exec_key key = {.key = {5}, .body = {5}};
    exec *x = NULL;
    exec_state st;
    bool replay = true;

    (void)state;
    begin(&w, &b);
    /* Refused by a backend that is then forgotten, with the END cut off: what a kill leaves. */
    b.refuse = EAGAIN;
    assert_ok(exec_start(w.table, &s, &key, &x, &replay));
    wait_end(x);
    exec_unref(x);
    world_stop(&w);
    int fd = openat(w.spool, SANDBOX "/journal", O_RDWR);
    assert_int_equal(ftruncate(fd, 256), 0);
    assert_int_equal(pwrite(fd, "torn", 4, 256), 4);
    close(fd);
    b.refuse = 0;
    pipes_attach(&w, &b);
    assert_ok(exec_find(w.table, 1, &x));
    st = wait_end(x);
    /* A torn record may have been its END: then nobody can say. */
    assert_int_equal(st.end.how, EXEC_UNKNOWN);
    exec_unref(x);
    world_stop(&w);
    fd = openat(w.spool, SANDBOX "/journal", O_RDWR);
    assert_int_equal(ftruncate(fd, 256), 0);
    close(fd);
    pipes_attach(&w, &b);
    assert_ok(exec_find(w.table, 1, &x));
    st = wait_end(x);
    assert_int_equal(st.end.how, EXEC_NOT_STARTED);
    assert_err(exec_end_error(&st.end), ERR_UNAVAILABLE);
    exec_unref(x);
    assert_ok(exec_start(w.table, &s, &key, &x, &replay));
    assert_false(replay);
    wait_end(x);
    assert_stream(x, 1, "ran\n");
    exec_unref(x);
    end(&w, &b);
}

static void descriptors_of_a_stranger_are_looked_at(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("echo hello");

    (void)state;
    begin(&w, &b);
    b.evil = true;
    exec *x = start(&w, &s);
    exec_state st = wait_end(x);
    assert_int_equal(st.end.how, EXEC_EXITED);
    assert_int_equal(st.length[0], 0); /* not /etc/passwd */
    exec_unref(x);
    end(&w, &b);
}

static void a_full_disk_makes_commands_wait(void **state)
{
    world w;
    box b;
    CLEANUP(buf_done) buf want = {0};
    exec_spec s = spec_sh("seq 1 400000");
    char path[128];
    exec_state st;

    (void)state;
    pipes_init(&w, &b);
    snprintf(path, sizeof path, "%s/spool", w.dir);
    if (mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m")) {
        print_message("skipped: a small tmpfs needs root (%s)\n", strerrordesc_np(errno));
        world_done(&w);
        skip();
    }
    close(w.spool);
    w.options.spool_dir = w.spool = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pipes_attach(&w, &b);
    exec *x = start(&w, &s); /* 2.7 MB */
    bool stuck = wait_for(x, is_ended, 0, 1, &st);
    bool full = exec_hub_is_full(w.hub);
    for (int i = 0; i < 2000 && !full; i++) { /* a busy machine fills it later */
        usleep(10000);
        full = exec_hub_is_full(w.hub);
    }
    bool grown = !mount("tmpfs", path, "tmpfs", MS_REMOUNT | MS_NOSUID | MS_NODEV, "size=16m");
    bool ended = wait_for(x, is_ended, 0, 20, &st);
    put_seq(&want, 1, 400000, "\n");
    buf got = {0};
    if (ended)
        read_stream(x, 1, &got);
    bool same = got.len == want.len && !memcmp(got.p, want.p, got.len);
    bool calm = !exec_hub_is_full(w.hub);
    buf_done(&got);
    exec_unref(x);
    world_stop(&w);
    close(TAKE_FD(w.spool));
    umount2(path, MNT_DETACH); /* before anything can fail */
    w.spool = open("/", O_PATH | O_CLOEXEC);
    world_done(&w);
    for (pproc *p = b.procs; p; p = b.procs) {
        b.procs = p->next;
        free(p);
    }
    assert_false(stuck);
    assert_true(full);
    assert_true(grown);
    assert_true(ended);
    assert_int_equal(st.end.exit_code, 0);
    assert_true(same);
    assert_true(calm);
}

static void floods_do_not_starve_others(void **state)
{
    world w;
    box b;
    exec_spec flood = spec_sh("exec cat /dev/zero"), quick = spec_sh("echo hi");
    exec_state st;

    (void)state;
    pipes_init(&w, &b);
    w.options.stream_max = 4 << 20;
    pipes_attach(&w, &b);
    exec *x = start(&w, &flood), *y = start(&w, &flood);
    assert_true(wait_for(x, has_out, 64 << 20, 20, &st));
    for (int i = 0; i < 20; i++) {
        uint64_t took = UINT64_MAX;
        for (int k = 0; k < 10 && took >= 3 * NS_PER_S; k++) { /* a busy machine is late at times */
            uint64_t begun = now_mono_ns();
            exec *q = start(&w, &quick);
            wait_end(q);
            assert_stream(q, 1, "hi\n");
            exec_unref(q);
            took = now_mono_ns() - begun;
        }
        assert_true(took < 3 * NS_PER_S);
    }
    assert_ok(exec_signal(x, SIGKILL, SP_TO_TREE));
    assert_ok(exec_signal(y, SIGKILL, SP_TO_TREE));
    assert_int_equal(wait_end(x).end.how, EXEC_KILLED);
    assert_int_equal(wait_end(y).end.how, EXEC_KILLED);
    exec_unref(x);
    exec_unref(y);
    end(&w, &b);
}

/* The command itself runs on here: only what the table does about it is looked at. */
static void time_limits_stand_still_while_it_is_paused(void **state)
{
    world w;
    box b;
    exec_spec limited = spec_sh("sleep 100"), other = spec_sh("true");
    exec *refused = NULL;
    exec_state st;
    bool replay;

    (void)state;
    begin(&w, &b);
    limited.timeout_ms = 1000;
    exec *x = start(&w, &limited);
    uint64_t since = now_real_ns(), clock = exec_table_clock(w.table);
    exec_table_pause(w.table, since);
    exec_table_pause(w.table, since + NS_PER_S); /* the first one holds */
    assert_true(exec_table_is_paused(w.table));
    assert_err(exec_start(w.table, &other, NULL, &refused, &replay), ERR_SANDBOX_PAUSED);
    assert_err(exec_signal(x, SIGTERM, SP_TO_TREE), ERR_SANDBOX_PAUSED);
    assert_false(wait_for(x, is_ended, 0, 2, &st));
    assert_true(exec_table_clock(w.table) - clock < NS_PER_S / 2);
    assert_true(exec_table_left(w.table, since - NS_PER_S, 1500) == NS_PER_S / 2);
    assert_ok(exec_table_note_pause(w.table, now_real_ns()));
    assert_int_equal(exec_table_pauses(w.table), 1);
    exec_table_resume(w.table);
    uint64_t resumed = now_mono_ns();
    assert_int_equal(wait_end(x).end.how, EXEC_TIMED_OUT);
    assert_true(now_mono_ns() - resumed > NS_PER_S / 3); /* not what fired meanwhile */
    exec_unref(x);
    end(&w, &b);
}

/* As above: the command itself runs on. */
static void time_limits_stand_still_while_it_is_held(void **state)
{
    world w;
    box b;
    exec_spec limited = spec_sh("sleep 100"), other = spec_sh("true");
    exec_state st;

    (void)state;
    begin(&w, &b);
    limited.timeout_ms = 1000;
    exec *x = start(&w, &limited);
    exec_table_hold(w.table);
    assert_false(exec_table_is_paused(w.table));
    exec *y = start(&w, &other);
    assert_false(wait_for(x, is_ended, 0, 2, &st));
    assert_true(exec_held_ns(x) >= 2 * NS_PER_S);
    exec_table_let_go(w.table, UINT64_MAX);
    assert_int_equal(exec_table_pauses(w.table), 1);
    uint64_t going = now_mono_ns();
    assert_int_equal(wait_end(x).end.how, EXEC_TIMED_OUT);
    assert_true(now_mono_ns() - going > NS_PER_S / 3);
    assert_int_equal(wait_end(y).end.how, EXEC_EXITED);
    exec_table_hold(w.table);
    exec_table_let_go(w.table, 0);
    assert_int_equal(exec_table_pauses(w.table), 1); /* it counts for nobody */
    exec_table_pause(w.table, now_real_ns());
    exec_table_hold(w.table);
    exec_table_let_go(w.table, UINT64_MAX);
    assert_true(exec_table_is_paused(w.table)); /* that is another's */
    exec_table_resume(w.table);
    exec_unref(x);
    exec_unref(y);
    end(&w, &b);
}

/* It runs until the files are copied, so the time before it began is not its own. */
static void a_time_limit_that_begins_in_a_hold_is_whole(void **state)
{
    static const uint64_t STILL[] = {0, NS_PER_S / 2, UINT64_MAX};
    exec_spec limited = spec_sh("sleep 100");

    (void)state;
    limited.timeout_ms = 1000;
    for (size_t i = 0; i < ARRAY_LEN(STILL); i++) {
        world w;
        box b;
        begin(&w, &b);
        exec_table_hold(w.table);
        usleep(1500000);
        uint64_t began = now_mono_ns();
        exec *x = start(&w, &limited);
        exec_table_let_go(w.table, STILL[i]);
        assert_int_equal(wait_end(x).end.how, EXEC_TIMED_OUT);
        assert_true(now_mono_ns() - began >= NS_PER_S * 9 / 10);
        exec_unref(x);
        end(&w, &b);
    }
}

static void a_journal_tells_how_long_it_was_paused(void **state)
{
    world w;
    box b;
    exec_spec limited = spec_sh("sleep 100");

    (void)state;
    begin(&w, &b);
    limited.timeout_ms = 2000;
    exec *x = start(&w, &limited);
    uint64_t since = now_real_ns();
    exec_table_pause(w.table, since);
    assert_ok(exec_table_note_pause(w.table, since + 5 * NS_PER_S));  /* never came to be */
    assert_ok(exec_table_note_pause(w.table, since + 60 * NS_PER_S)); /* the last one holds */
    exec_unref(x);
    world_stop(&w);
    pipes_attach(&w, &b);
    assert_int_equal(exec_table_pauses(w.table), 1);
    uint64_t left = exec_table_left(w.table, since - NS_PER_S, 2000);
    assert_true(left > 0 && left <= NS_PER_S); /* as much of the minute as is over counts */
    assert_ok(exec_find(w.table, 1, &x));
    assert_ok(exec_signal(x, SIGKILL, SP_TO_TREE));
    wait_end(x);
    exec_unref(x);
    end(&w, &b);
}

/* ---- shares ---- */

/* The newest bytes of a live command's output stay. */
static void assert_ends_with(exec *x, const exec_state *st, const char *want)
{
    char got[64];
    uint64_t gap = 0;
    size_t n = 0;

    assert_ok(exec_read(x, 1, st->length[0] - strlen(want), got, sizeof got, &n, &gap));
    assert_int_equal(n, strlen(want));
    assert_memory_equal(got, want, n);
}

static bool is_below(_Atomic int64_t *bytes, int64_t max)
{
    for (uint64_t end = now_mono_ns() + 20 * NS_PER_S; now_mono_ns() < end; usleep(1000))
        if (atomic_load(bytes) <= max)
            return true;
    return false;
}

static void live_output_keeps_to_its_sandboxs_share(void **state)
{
    world w;
    box b;
    exec_spec flood = spec_sh("head -c 30000000 /dev/zero; echo end; exec sleep 100");
    exec_state st;
    exec *x[3];

    (void)state;
    pipes_init(&w, &b);
    w.options.sandbox_max = 8 << 20;
    pipes_attach(&w, &b);
    for (int i = 0; i < 3; i++)
        x[i] = start(&w, &flood);
    for (int i = 0; i < 3; i++) {
        assert_true(wait_for(x[i], has_out, 30000004, 20, &st));
        assert_ends_with(x[i], &st, "end\n");
    }
    assert_true(is_below(&w.table->spool_bytes, 8 << 20));
    for (int i = 0; i < 3; i++) {
        exec_get(x[i], &st);
        assert_true(st.end.out_dropped > 20000000);
        assert_ends_with(x[i], &st, "end\n");
        exec_unref(x[i]);
    }
    end(&w, &b);
}

/* A sandbox whose one command has ended with so many bytes. */
static exec_table *kept_output(world *w, const char *sandbox, const char *owner, size_t n)
{
    journal_rec begun = {.type = JOURNAL_BEGIN, .exec = 1}, over = {.type = JOURNAL_END, .exec = 1};
    static const char zeros[1 << 20];
    char path[64];
    exec_table *t;
    int fd;

    over.end = (struct journal_end){
        .rec = {.id = 1, .state = SP_EXITED}, .how = EXEC_EXITED, .length = {n}};
    assert_int_equal(mkdirat(w->spool, sandbox, 0700), 0);
    journal_seal(&begun);
    journal_seal(&over);
    snprintf(path, sizeof path, "%s/journal", sandbox);
    assert_true((fd = openat(w->spool, path, O_WRONLY | O_CREAT, 0600)) >= 0);
    assert_int_equal(write(fd, &begun, sizeof begun), sizeof begun);
    assert_int_equal(write(fd, &over, sizeof over), sizeof over);
    close(fd);
    snprintf(path, sizeof path, "%s/1.out", sandbox);
    assert_true((fd = openat(w->spool, path, O_WRONLY | O_CREAT, 0600)) >= 0);
    for (size_t at = 0; at < n; at += sizeof zeros)
        assert_int_equal(write(fd, zeros, sizeof zeros), sizeof zeros);
    close(fd);
    assert_ok(exec_table_open(w->hub, sandbox, &t));
    exec_table_own(t, owner);
    return t;
}

static exec_hub *small_disk;

/* 64 MiB, of which output is all that is there. */
static uint64_t space_of_small_disk(int root, uint64_t *ret_kept)
{
    int64_t used = atomic_load(&small_disk->spool_bytes);

    (void)root;
    *ret_kept = 4 << 20;
    return used < 64 << 20 ? (uint64_t)((64 << 20) - used) : 0;
}

static uint64_t dropped_of(exec_table *t)
{
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st;

    assert_ok(exec_find(t, 1, &x));
    exec_get(x, &st);
    return st.end.out_dropped;
}

static void an_owner_who_floods_pays_alone(void **state)
{
    world w;
    box b;
    exec_spec flood = spec_sh("head -c 60000000 /dev/zero; echo end; exec sleep 100");
    exec_state st;
    exec *x[2];

    (void)state;
    pipes_init(&w, &b);
    pipes_attach(&w, &b);
    small_disk = w.hub;
    w.hub->spools.space = space_of_small_disk;
    exec_table_own(w.table, "mallory");
    exec_table *other = kept_output(&w, "otheraaaaaaaaaaaaaaa", "mallory", 4 << 20);
    exec_table *victim = kept_output(&w, "victimaaaaaaaaaaaaaa", "victim", 8 << 20);
    for (int i = 0; i < 2; i++)
        x[i] = start(&w, &flood);
    for (int i = 0; i < 2; i++)
        assert_true(wait_for(x[i], has_out, 60000004, 20, &st));
    struct exec_account *a = atomic_load(&w.table->account);
    assert_true(is_below(&a->bytes, 16 << 20));
    for (int i = 0; i < 2; i++) {
        exec_get(x[i], &st);
        assert_ends_with(x[i], &st, "end\n");
        exec_unref(x[i]);
    }
    assert_int_equal(dropped_of(other), 4 << 20);
    assert_int_equal(dropped_of(victim), 0);
    assert_int_equal(atomic_load(&w.hub->full), 0);
    exec_table_unref(other);
    exec_table_unref(victim);
    end(&w, &b);
}

/* A reader who is still at the beginning: nothing may go, so the command waits, with its minimum. */
static void a_flood_that_is_followed_waits_at_its_share(void **state)
{
    world w;
    box b;
    exec_spec flood = spec_sh("head -c 30000000 /dev/zero; exec sleep 100"),
              small = spec_sh("echo small");
    exec_state st;

    (void)state;
    pipes_init(&w, &b);
    w.options.sandbox_max = 8 << 20;
    pipes_attach(&w, &b);
    exec *x = start(&w, &flood);
    exec_hold *h = exec_hold_new(x, 1, 0);
    assert_true(wait_for(x, has_out, 8 << 20, 20, &st));
    assert_false(wait_for(x, has_out, 12 << 20, 1, &st));
    exec_get(x, &st);
    assert_int_equal(st.end.out_dropped, 0);
    exec *y = start(&w, &small);
    wait_end(y);
    assert_stream(y, 1, "small\n");
    exec_unref(y);
    exec_hold_free(h);
    assert_true(wait_for(x, has_out, 30000000, 20, &st));
    exec_unref(x);
    end(&w, &b);
}

/* ---- the disk: these come before libc's ---- */

static struct {
    pthread_mutex_t lock;
    char call[4096][32];
    unsigned n;
    bool fails;
} synced = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_sync(const char *call, int fd)
{
    char path[64], name[256] = "";

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof name - 1) < 0)
        return;
    LOCK_SCOPE(&synced.lock);
    if (synced.n < ARRAY_LEN(synced.call))
        snprintf(synced.call[synced.n++], sizeof synced.call[0], "%s %.20s", call,
                 strrchr(name, '/') + 1);
}

int fdatasync(int fd)
{
    note_sync("sync", fd);
    LOCK_SCOPE(&synced.lock);
    if (!synced.fails)
        return 0;
    errno = EIO;
    return -1;
}

int sync_file_range(int fd, off64_t from, off64_t n, unsigned flags)
{
    assert_int_equal(from, 0);
    assert_int_equal(n, 0);
    if (flags & SYNC_FILE_RANGE_WAIT_AFTER)
        note_sync("wait", fd);
    return 0;
}

/* Waits for the call, from the n-th on; returns the place behind it. */
static unsigned wait_synced(const char *call, unsigned from)
{
    for (uint64_t end = now_mono_ns() + 30 * NS_PER_S; now_mono_ns() < end; usleep(5000)) {
        LOCK_SCOPE(&synced.lock);
        for (unsigned i = from; i < synced.n; i++)
            if (!strcmp(synced.call[i], call))
                return i + 1;
    }
    fail_msg("no %s", call);
    return 0;
}

static void output_is_on_the_disk_before_its_end(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("echo hi");

    (void)state;
    synced.n = 0;
    begin(&w, &b);
    exec *x = start(&w, &s);
    wait_end(x);
    exec_unref(x);
    wait_synced("sync journal", wait_synced("wait 1.out", 0));
    end(&w, &b);
}

static void a_journal_that_could_not_be_written_is_written_again(void **state)
{
    world w;
    box b;
    exec_spec s = spec_sh("true");

    (void)state;
    synced.n = 0;
    begin(&w, &b);
    synced.fails = true;
    exec *x = start(&w, &s);
    wait_end(x);
    exec_unref(x);
    unsigned at = wait_synced("sync journal", wait_synced("sync journal", 0));
    {
        LOCK_SCOPE(&synced.lock);
        synced.fails = false;
    }
    wait_synced("sync journal", at);
    {
        LOCK_SCOPE(&w.table->lock);
        assert_true(w.table->journal.damaged);
    }
    end(&w, &b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(bytes_are_spliced_in_all_modes),
        WORLD_TEST(an_empty_stream_has_no_file),
        WORLD_TEST(a_reset_that_no_record_knows_counts_for_nothing),
        WORLD_TEST(what_ran_before_a_reset_was_killed),
        WORLD_TEST(stdin_goes_on_where_the_last_daemon_stopped),
        WORLD_TEST(stdin_that_nobody_reads_pushes_back),
        WORLD_TEST(late_bytes_go_on_into_the_spool),
        WORLD_TEST(a_pty_survives_with_what_is_in_its_relay),
        WORLD_TEST(the_middle_is_punched_out_at_the_ceiling),
        WORLD_TEST(old_streams_go_first_when_a_sandbox_has_too_many),
        WORLD_TEST(a_refused_spawn_is_not_started_and_frees_its_key),
        WORLD_TEST(a_begin_without_a_spawn_is_not_started),
        WORLD_TEST(descriptors_of_a_stranger_are_looked_at),
        WORLD_TEST(a_full_disk_makes_commands_wait),
        WORLD_TEST(floods_do_not_starve_others),
        WORLD_TEST(time_limits_stand_still_while_it_is_paused),
        WORLD_TEST(time_limits_stand_still_while_it_is_held),
        WORLD_TEST(a_time_limit_that_begins_in_a_hold_is_whole),
        WORLD_TEST(a_journal_tells_how_long_it_was_paused),
        WORLD_TEST(live_output_keeps_to_its_sandboxs_share),
        WORLD_TEST(an_owner_who_floods_pays_alone),
        WORLD_TEST(a_flood_that_is_followed_waits_at_its_share),
        WORLD_TEST(output_is_on_the_disk_before_its_end),
        WORLD_TEST(a_journal_that_could_not_be_written_is_written_again),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

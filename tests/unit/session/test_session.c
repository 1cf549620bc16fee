/* Sessions over the fake backend: real shells, bytes as frames, and new daemons over what the old
 * ones left. */
#include <sys/syscall.h>

#include "exec/internal.h"
#include "session/session.h"

#include "../exec/drive.h"

static world *the_world;

static void on_created(void *arg, err *failure, box *made, const box_timing *timing)
{
    world *w = the_world;

    (void)timing;
    if (made) {
        exec_table_bind(arg, w->backend, made, world_on_gone, w);
        w->box = made;
    }
    LOCK_SCOPE(&w->lock);
    w->failure = failure;
    w->created = true;
    pthread_cond_broadcast(&w->cond);
}

static void world_start(world *w, unsigned cut)
{
    fake_options o = {.dir = w->dir, .node_program = FAKE_NODE, .cut_every = cut};

    the_world = w;
    assert_ok(exec_hub_new(&w->options, &w->hub));
    assert_ok(backend_fake_new(&o, &w->backend));
    assert_ok(exec_table_open(w->hub, SANDBOX, &w->table));
}

static session_table *world_create(world *w, unsigned cut)
{
    char *env[] = {NULL};
    box_spec spec = {.id = SANDBOX, .env = env, .user = "", .cwd = "", .umask = 022};
    session_table *t = NULL;

    world_init(w);
    world_start(w, cut);
    w->backend->ops->create(w->backend, &spec, &EXEC_BOX_EVENTS, w->table, on_created);
    world_wait(w, &w->created);
    assert_ok(w->failure);
    assert_ok(session_table_open(w->table, &t));
    return t;
}

static session_table *world_again(world *w, session_table *t, unsigned cut)
{
    session_table *again = NULL;

    session_table_close(t);
    w->backend->ops->box_unref(w->box);
    world_stop(w);
    world_start(w, cut);
    assert_ok(w->backend->ops->attach(w->backend, SANDBOX, &EXEC_BOX_EVENTS, w->table, &w->box));
    exec_table_bind(w->table, w->backend, w->box, world_on_gone, w);
    assert_ok(session_table_open(w->table, &again));
    return again;
}

static void world_end(world *w, session_table *t)
{
    session_table_close(t);
    assert_ok(w->backend->ops->destroy(w->backend, SANDBOX));
    world_wait(w, &w->gone);
    w->backend->ops->box_unref(w->box);
    world_stop(w);
    world_done(w);
}

static session *open_mode(session_table *t, const char *shell, enum session_mode mode)
{
    session_spec spec = {.shell = shell, .mode = mode};
    session *s = NULL;
    bool replay;

    assert_ok(session_new(t, &spec, NULL, &s, &replay));
    return s;
}

static session *open_session(session_table *t, const char *shell)
{
    return open_mode(t, shell, SESSION_ATTACHED);
}

/* Sends it, however long the shell takes to be there. */
static uint64_t give(session *s, const char *text, uint64_t timeout_ms)
{
    command_spec c = {.text = text, .n = strlen(text), .timeout_ms = timeout_ms};
    uint64_t seq = 0, until = now_mono_ns() + 20 * NS_PER_S;
    bool replay;

    for (;;) {
        err *e = session_run(s, &c, NULL, &seq, &replay);
        if (!session_is_busy(e) || now_mono_ns() > until) {
            assert_ok(e);
            return seq;
        }
        err_free(e);
        usleep(2000);
    }
}

static command_state end_of(session *s, uint64_t seq)
{
    uint64_t until = now_mono_ns() + 20 * NS_PER_S;
    command_state st;

    for (;;) {
        assert_ok(session_command(s, seq, &st));
        if (st.kind != COMMAND_RUNNING || now_mono_ns() > until)
            return st;
        command_state_done(&st);
        usleep(2000);
    }
}

static void assert_run(session *s, const char *text, enum command_kind kind, int status,
                       const char *out)
{
    uint64_t seq = give(s, text, 0), gap;
    command_state st = end_of(s, seq);
    char got[256] = {0};
    size_t n = 0;

    assert_int_equal(st.kind, kind);
    assert_int_equal(st.status, status);
    assert_ok(session_read(s, seq, 1, 0, got, sizeof got - 1, &n, &gap));
    assert_string_equal(got, out);
    command_state_done(&st);
}

static void end_session(session *s)
{
    uint64_t until = now_mono_ns() + 20 * NS_PER_S;
    session_state st;

    assert_ok(session_close(s));
    do {
        usleep(2000);
        session_get(s, &st);
        session_state_done(&st);
    } while (st.life != SESSION_ENDED && now_mono_ns() < until);
    assert_int_equal(st.life, SESSION_ENDED);
    session_unref(s);
}

static void state_is_kept_in(const char *shell, enum session_mode mode)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_mode(t, shell, mode);

    assert_run(s, "V=1; cd /usr; echo a", COMMAND_ENDED, 0, "a\n");
    assert_run(s, "echo $V; pwd; false", COMMAND_ENDED, 1, "1\n/usr\n");
    assert_run(s, "if (", COMMAND_ENDED, 2, "");
    assert_run(s, "exit 3", COMMAND_EXITED, 3, "");
    assert_run(s, "exec echo gone", COMMAND_RESUMED, 0, "gone\n");
    assert_run(s, "echo $V", COMMAND_ENDED, 0, "1\n");
    end_session(s);
    world_end(&w, t);
}

static void state_is_kept(void **state)
{
    (void)state;
    state_is_kept_in("bash", SESSION_ATTACHED);
    state_is_kept_in("sh", SESSION_ATTACHED);
    state_is_kept_in("bash", SESSION_DETACHED);
    state_is_kept_in("sh", SESSION_DETACHED);
}

static void a_second_command_is_refused(void **state)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_session(t, "sh");
    uint64_t seq = give(s, "sleep 30", 1000), other;
    command_spec c = {.text = "true", .n = 4};
    bool replay;

    (void)state;
    assert_err(session_run(s, &c, NULL, &other, &replay), ERR_CONFLICT);
    command_state st = end_of(s, seq);
    assert_int_equal(st.status, 130);
    assert_int_equal(st.rung, RUNG_INT);
    assert_true(st.flags & COMMAND_F_TIMED_OUT);
    command_state_done(&st);
    assert_run(s, "echo ok", COMMAND_ENDED, 0, "ok\n");
    session_unref(s);
    world_end(&w, t);
}

static void a_killed_shell_comes_back(void **state)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_session(t, "bash");
    session_state st;

    (void)state;
    assert_run(s, "export V=7; cd /usr", COMMAND_ENDED, 0, "");
    assert_run(s, "kill -9 $$", COMMAND_RESUMED, 137, "");
    assert_run(s, "echo $V; pwd", COMMAND_ENDED, 0, "7\n/usr\n");
    session_get(s, &st);
    assert_int_equal(st.restarts, 1);
    session_state_done(&st);
    session_unref(s);
    world_end(&w, t);
}

static void a_new_daemon_finds_the_command(void **state)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_session(t, "bash");

    (void)state;
    assert_run(s, "V=5; echo one", COMMAND_ENDED, 0, "one\n");
    uint64_t seq = give(s, "sleep 0.5; echo two; exit 4", 0), gap;
    session_unref(s);
    t = world_again(&w, t, 0);
    assert_ok(session_find(t, "1", &s));
    command_state st = end_of(s, seq);
    assert_int_equal(st.kind, COMMAND_EXITED);
    assert_int_equal(st.status, 4);
    char got[16] = {0};
    size_t n = 0;
    assert_ok(session_read(s, seq, 1, 0, got, sizeof got, &n, &gap));
    assert_string_equal(got, "two\n");
    command_state_done(&st);
    assert_run(s, "echo $V", COMMAND_ENDED, 0, "5\n");
    session_unref(s);
    world_end(&w, t);
}

static void cut_connections_in(enum session_mode mode)
{
    world w;
    session_table *t = world_create(&w, 5);
    session *s = open_mode(t, "sh", mode);

    for (int i = 0; i < 20; i++)
        assert_run(s, "N=$((N+1)); echo $((N>0))", COMMAND_ENDED, 0, "1\n");
    assert_run(s, "echo $N", COMMAND_ENDED, 0, "20\n");
    end_session(s);
    world_end(&w, t);
}

static void cut_connections_change_nothing(void **state)
{
    (void)state;
    cut_connections_in(SESSION_ATTACHED);
    cut_connections_in(SESSION_DETACHED);
}

/* Kills every exec that runs, from outside, as a node would that cuts long streams. */
static size_t kill_carriers(world *w)
{
    exec **all = NULL;
    size_t n = 0, killed = 0;

    exec_list(w->table, 1000, &all, &n);
    for (size_t i = 0; i < n; i++) {
        exec_state st;
        exec_get(all[i], &st);
        if (st.end.how == EXEC_RUNNING && st.started) {
            err *e = exec_signal(all[i], SIGKILL, SP_TO_TREE);
            if (e && e->code == ERR_CONFLICT) { /* it has ended meanwhile */
                err_free(e);
            } else {
                assert_ok(e);
                killed++;
            }
        }
        exec_unref(all[i]);
    }
    free(all);
    return killed;
}

/* The command goes on when what carries it is killed, ends with all it wrote, and ran once. */
static void a_detached_command_is_asked_for_again(void **state)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_mode(t, "bash", SESSION_DETACHED);
    char got[64] = {0};
    uint64_t gap;
    size_t n = 0, killed = 0;

    (void)state;
    assert_run(s, "V=0", COMMAND_ENDED, 0, "");
    uint64_t seq = give(s, "V=$((V+1)); echo begin $V; sleep 2; echo end $V; (exit 6)", 0);
    for (int i = 0; i < 3; i++) {
        usleep(400 * 1000);
        killed += kill_carriers(&w);
    }
    assert_true(killed > 0);
    command_state st = end_of(s, seq);
    assert_int_equal(st.kind, COMMAND_ENDED);
    assert_int_equal(st.status, 6);
    assert_ok(session_read(s, seq, 1, 0, got, sizeof got - 1, &n, &gap));
    assert_string_equal(got, "begin 1\nend 1\n");
    command_state_done(&st);
    assert_run(s, "kill -9 $$", COMMAND_RESUMED, 137, "");
    assert_run(s, "echo back", COMMAND_ENDED, 0, "back\n");
    end_session(s);
    world_end(&w, t);
}

/* A command that begins while a snapshot holds its sandbox has its whole time limit. */
static void a_time_limit_that_begins_in_a_hold_is_whole(void **state)
{
    static const uint64_t STILL[] = {0, UINT64_MAX};
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_session(t, "sh");

    (void)state;
    assert_run(s, "echo first", COMMAND_ENDED, 0, "first\n");
    for (size_t i = 0; i < ARRAY_LEN(STILL); i++) {
        exec_table_hold(w.table);
        usleep(1500000);
        uint64_t begun = now_mono_ns();
        uint64_t seq = give(s, "sleep 100", 1000);
        exec_table_let_go(w.table, STILL[i]);
        session_table_wake(t);
        command_state st = end_of(s, seq);
        assert_true(now_mono_ns() - begun >= NS_PER_S * 9 / 10);
        assert_true(st.flags & COMMAND_F_TIMED_OUT);
        command_state_done(&st);
    }
    session_unref(s);
    world_end(&w, t);
}

static size_t set_logs(world *w, size_t n)
{
    LOCK_SCOPE(&w->table->lock);
    size_t before = w->table->nlogs;

    w->table->nlogs = n;
    return before;
}

/* All sessions of a sandbox together have a bound: its journal stays until its record goes. */
static void a_sandbox_has_so_many_records_of_sessions(void **state)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_session(t, "sh"), *other = NULL;
    session_spec spec = {.shell = "sh"};
    command_spec c = {.text = "true", .n = 4};
    uint64_t seq;
    bool replay;

    (void)state;
    assert_run(s, "echo first", COMMAND_ENDED, 0, "first\n");
    size_t logs = set_logs(&w, LOGS_MAX);
    err *command = session_run(s, &c, NULL, &seq, &replay);
    err *more = session_new(t, &spec, NULL, &other, &replay);
    set_logs(&w, logs);
    assert_err(command, ERR_SANDBOX_EXHAUSTED);
    assert_err(more, ERR_SANDBOX_EXHAUSTED);
    assert_run(s, "echo second", COMMAND_ENDED, 0, "second\n");
    session_unref(s);
    world_end(&w, t);
}

/* ---- a full disk: this comes before libc's ---- */

static _Atomic bool no_ends;

ssize_t write(int fd, const void *p, size_t n)
{
    const journal_rec *r = p;

    if (n == sizeof *r && r->magic == JOURNAL_MAGIC && r->type == JOURNAL_COMMAND_END &&
        atomic_load(&no_ends)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, p, n);
}

static uint64_t no_space(int root, uint64_t *ret_kept)
{
    (void)root;
    *ret_kept = 1;
    return 0;
}

static void full_disk(world *w, uint64_t (*space)(int, uint64_t *))
{
    w->hub->spools.space = space;
    atomic_store(&w->hub->spools.allowance, 0);
    atomic_store(&no_ends, space == no_space);
}

/* Its end and the frame find no room: with room again it reads `not_run`, and its key is free. */
static void refused(enum session_mode mode)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_mode(t, "sh", mode);
    uint64_t (*space)(int, uint64_t *) = w.hub->spools.space, seq = 0;
    command_spec c = {.text = "echo once", .n = 9};
    exec_key key = {{1}, {1}};
    bool replay;

    assert_run(s, "echo first", COMMAND_ENDED, 0, "first\n");
    full_disk(&w, no_space);
    assert_err(session_run(s, &c, &key, &seq, &replay), ERR_DISK_FULL);
    assert_err(session_run(s, &c, &key, &seq, &replay), ERR_DISK_FULL);
    full_disk(&w, space);
    command_state st = end_of(s, 2);
    assert_int_equal(st.kind, COMMAND_NOT_RUN);
    command_state_done(&st);
    assert_ok(session_run(s, &c, &key, &seq, &replay));
    assert_false(replay);
    assert_int_equal(seq, 3);
    st = end_of(s, 3);
    assert_int_equal(st.kind, COMMAND_ENDED);
    command_state_done(&st);
    if (mode ==
        SESSION_DETACHED) { /* its shell, and what carried command 3: it waits for nothing */
        uint64_t until = now_mono_ns() + 20 * NS_PER_S, last;
        while (exec_count_busy(w.table, &last) && now_mono_ns() < until)
            usleep(2000);
        assert_int_equal(exec_count_busy(w.table, &last), 0);
        CLEANUP(exec_unrefp) exec *x = NULL;
        exec_state carrier;
        assert_ok(exec_find(w.table, 3, &x)); /* of command 2, which got no frame */
        while (exec_get(x, &carrier), carrier.end.how == EXEC_RUNNING && now_mono_ns() < until)
            usleep(2000);
        assert_int_equal(carrier.end.exit_code, 122);
    }
    end_session(s);
    world_end(&w, t);
}

static void a_command_that_finds_no_room_was_not_run(void **state)
{
    (void)state;
    refused(SESSION_ATTACHED);
}

static void a_carrier_that_gets_no_frame_ends(void **state)
{
    (void)state;
    refused(SESSION_DETACHED);
}

/* The daemon ends before it could record that a command was not run, and the next one finds no room
 * for that either. With room again it reads `not_run`, and its key is free. */
static void what_was_not_run_is_said_after_a_restart_without_room(void **state)
{
    world w;
    session_table *t = world_create(&w, 0);
    session *s = open_session(t, "sh");
    command_spec c = {.text = "echo once", .n = 9};
    exec_key key = {{1}, {1}};
    uint64_t seq = 0;
    bool replay;

    (void)state;
    assert_run(s, "echo first", COMMAND_ENDED, 0, "first\n");
    full_disk(&w, no_space);
    assert_err(session_run(s, &c, &key, &seq, &replay), ERR_DISK_FULL);
    session_unref(s);
    t = world_again(&w, t, 0); /* ends find no room here, either */
    assert_ok(session_find(t, "1", &s));
    assert_err(session_run(s, &c, &key, &seq, &replay), ERR_DISK_FULL);
    atomic_store(&no_ends, false);
    command_state st = end_of(s, 2);
    assert_int_equal(st.kind, COMMAND_NOT_RUN);
    command_state_done(&st);
    assert_ok(session_run(s, &c, &key, &seq, &replay));
    assert_false(replay);
    assert_int_equal(seq, 3);
    st = end_of(s, 3);
    assert_int_equal(st.kind, COMMAND_ENDED);
    command_state_done(&st);
    session_unref(s);
    world_end(&w, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_is_kept),
        cmocka_unit_test(a_second_command_is_refused),
        cmocka_unit_test(a_killed_shell_comes_back),
        cmocka_unit_test(a_new_daemon_finds_the_command),
        cmocka_unit_test(cut_connections_change_nothing),
        cmocka_unit_test(a_detached_command_is_asked_for_again),
        cmocka_unit_test(a_time_limit_that_begins_in_a_hold_is_whole),
        cmocka_unit_test(a_sandbox_has_so_many_records_of_sessions),
        cmocka_unit_test(a_command_that_finds_no_room_was_not_run),
        cmocka_unit_test(a_carrier_that_gets_no_frame_ends),
        cmocka_unit_test(what_was_not_run_is_said_after_a_restart_without_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

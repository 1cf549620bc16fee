/* kill -9 of the daemon's process in a loop while commands run (over the fake backend). In the end
 * every command ran once, has one end record, the right status and byte-exact output.
 * BOTHY_KILLS sets how many kills. */
#include <sys/wait.h>

#include "base/log.h"
#include "base/spawn.h"
#include "exec/journal.h"

#include "drive.h"
#include "victim.h"

static void on_created(void *arg, err *failure, box *made, const box_timing *timing)
{
    world *w = arg;

    (void)timing;
    LOCK_SCOPE(&w->lock);
    w->box = made;
    w->failure = failure;
    w->created = true;
    pthread_cond_broadcast(&w->cond);
}

static void no_attached(void *arg, const struct sp_hello *h, const struct sp_rec *r)
{
    (void)arg, (void)h, (void)r;
}

static void make_box(world *w)
{
    static const box_events EVENTS = {.attached = no_attached, .gone = world_on_gone};
    fake_options o = {.dir = w->dir, .node_program = FAKE_NODE};
    box_spec spec = {.id = VICTIM_BOX, .user = "", .cwd = "", .umask = 022};

    assert_ok(backend_fake_new(&o, &w->backend));
    w->backend->ops->create(w->backend, &spec, &EVENTS, w, on_created);
    world_wait(w, &w->created);
    assert_ok(w->failure);
    w->backend->ops->box_unref(w->box);
    w->backend->ops->free(w->backend);
}

/* One life. kill_us 0: until it has ended by itself; its status is returned. */
static int live(const world *w, unsigned first, unsigned last, unsigned cut, unsigned crash,
                unsigned kill_us)
{
    char a[4][16];
    char *argv[] = {(char *)VICTIM, (char *)w->dir, a[0], a[1], a[2], a[3], NULL};
    const int fds[] = {-1, 1, 2};
    int status;
    pid_t pid;

    snprintf(a[0], sizeof a[0], "%u", first);
    snprintf(a[1], sizeof a[1], "%u", last);
    snprintf(a[2], sizeof a[2], "%u", cut);
    snprintf(a[3], sizeof a[3], "%u", crash);
    assert_ok(spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 3}, &pid));
    if (kill_us) {
        for (unsigned waited = 0; waited < kill_us; waited += 500) {
            if (waitpid(pid, &status, WNOHANG) == pid)
                return status;
            usleep(500);
        }
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return status;
    }
    assert_ok(spawn_wait(pid, 50000, &status));
    return status;
}

struct tally {
    uint64_t id[4096]; /* of number n's last exec */
    unsigned begins[4096], ends[4096];
    uint64_t last;
};

static unsigned number_of(const journal_rec *r)
{
    unsigned n;

    memcpy(&n, r->begin.key, sizeof n);
    return n;
}

static void count_record(void *arg, uint32_t index, const journal_rec *r)
{
    struct tally *t = arg;

    (void)index;
    assert_true(r->exec < 4096);
    if (r->type == JOURNAL_BEGIN) {
        t->begins[r->exec]++;
        t->id[number_of(r)] = r->exec;
        t->last = r->exec;
    } else if (r->type == JOURNAL_END) {
        t->ends[r->exec]++;
    }
}

static void check_journal(world *w, struct tally *t)
{
    journal j;

    assert_ok(journal_open(w->spool, VICTIM_BOX "/journal", &j, count_record, t));
    assert_false(j.damaged);
    journal_close(&j);
    for (uint64_t i = 1; i <= t->last; i++) {
        assert_int_equal(t->begins[i], 1);
        assert_int_equal(t->ends[i], 1);
    }
}

static void check_end(victim_plan p, const exec_state *s)
{
    unsigned code = p.kind == V_BOTH || p.kind == V_CODE || p.kind == V_PTY ? p.code : 0;

    if (p.kind == V_MISSING) {
        assert_int_equal(s->end.how, EXEC_NOT_STARTED);
        assert_int_equal(s->end.errnum, ENOENT);
    } else if (p.kind == V_SUICIDE) {
        assert_int_equal(s->end.how, EXEC_SIGNALLED);
        assert_int_equal(s->end.signal, SIGKILL);
    } else {
        assert_int_equal(s->end.how, EXEC_EXITED);
        assert_int_equal(s->end.exit_code, code);
    }
}

static void check_exec(world *w, unsigned n, uint64_t id)
{
    victim_plan p = victim_plan_of(n);
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(buf_done) buf want = {0};
    exec_state s;

    assert_ok(exec_find(w->table, id, &x));
    exec_get(x, &s);
    check_end(p, &s);
    for (int stream = 1; stream <= 2; stream++) {
        victim_output(p, stream, &want);
        assert_bytes(x, stream, &want);
        uint64_t told = stream == 1 ? s.end.out_bytes : s.end.err_bytes;
        if (p.kind == V_LATE && stream == 1)
            assert_true(told == 4 || told == 9);
        else
            assert_int_equal(told, want.len);
    }
}

static void check_ran_once(world *w, unsigned last)
{
    CLEANUP(buf_done) buf b = {0};
    unsigned *ran = xcalloc(last + 1, sizeof *ran);

    assert_ok(fs_read(w->dirfd, "box/" VICTIM_BOX "/ran", 1 << 20, &b));
    for (char *at = b.p, *end; at < b.p + b.len; at = end + 1) {
        unsigned long n = strtoul(at, &end, 10);
        assert_in_range(n, 0, last);
        ran[n]++;
    }
    for (unsigned n = 0; n <= last; n++)
        assert_int_equal(ran[n], victim_plan_of(n).kind != V_MISSING);
    free(ran);
}

static void check_all(world *w, unsigned last)
{
    struct tally *t = xcalloc(1, sizeof *t);

    check_journal(w, t);
    assert_ok(exec_hub_new(&w->options, &w->hub));
    assert_ok(exec_table_open(w->hub, VICTIM_BOX, &w->table));
    for (unsigned n = 0; n <= last; n++)
        check_exec(w, n, t->id[n]);
    check_ran_once(w, last);
    exec_table_unref(w->table);
    exec_hub_free(w->hub);
    free(t);
}

static void run_kills(unsigned cut)
{
    const char *wanted = getenv("BOTHY_KILLS"); /* NOLINT(concurrency-mt-unsafe): no threads yet */
    unsigned kills = wanted ? (unsigned)atoi(wanted) : 60, seed = (unsigned)now_mono_ns(), last = 0;
    world w;

    print_message("seed %u\n", seed);
    world_init(&w);
    make_box(&w);
    for (unsigned i = 0; i < kills; i++) {
        unsigned us = 1000 + (unsigned)rand_r(&seed) % 60000;
        last = i * 2 + 8 < 1200 ? i * 2 + 8 : 1200;
        /* By the clock, or at a random call to the backend (the clock then only as a backstop). */
        unsigned crash = i % 2 ? 10 + (unsigned)rand_r(&seed) % 100 : 0;
        int status = live(&w, last > 40 ? last - 40 : 0, last, cut, crash, crash ? us + 60000 : us);
        /* It may have come to its end before the kill; any other end is a fault. */
        assert_true((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) || !status);
    }
    assert_int_equal(live(&w, 0, last, cut, 0, 0), 0);
    check_all(&w, last);
    fake_options o = {.dir = w.dir, .node_program = FAKE_NODE};
    assert_ok(backend_fake_new(&o, &w.backend));
    assert_ok(w.backend->ops->destroy(w.backend, VICTIM_BOX));
    w.backend->ops->free(w.backend);
    world_done(&w);
}

static void execs_survive_the_daemon(void **state)
{
    (void)state;
    run_kills(0);
}

static void execs_survive_the_daemon_and_cut_connections(void **state)
{
    (void)state;
    run_kills(7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(execs_survive_the_daemon),
        WORLD_TEST(execs_survive_the_daemon_and_cut_connections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Group commit under many threads, and kill -9 of a writer. */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/metric.h"
#include "base/str.h"
#include "base/thread.h"
#include "store/internal.h"

#include "scratch.h"

#define THREADS    16
#define PER_THREAD 50

static uint64_t metric_of(const char *name)
{
    CLEANUP(buf_done) buf b = {0};
    uint64_t v = 0;

    metric_write(&b);
    CLEANUP(freep) char *line = str_printf("\n%s ", name);
    const char *at = strstr(buf_cstr(&b), line);
    assert_non_null(at);
    at += strlen(line);
    CLEANUP(freep) char *digits = xstrndup(at, strspn(at, "0123456789"));
    assert_true(str_to_u64(digits, UINT64_MAX, &v));
    return v;
}

typedef struct inserter {
    store *s;
    int number;
    int failed;
} inserter;

static void *insert_many(void *arg)
{
    inserter *in = arg;

    for (int i = 0; i < PER_THREAD; i++) {
        CLEANUP(sandbox_row_done) sandbox_row got = {0};
        char id[32];
        snprintf(id, sizeof id, "b000%04d%012d", in->number, i);
        sandbox_row r = row_of(id, "alice", NULL);
        err *e = store_sandbox_insert(in->s, &r);
        if (!e) /* a returned write is seen by the next read */
            e = store_sandbox_get(in->s, id, &got);
        in->failed += e != NULL;
        err_drop(e, "insert");
    }
    return NULL;
}

static bool event_is_there(store *s, const char *type)
{
    CLEANUP(store_read_end) store_read r = {0};
    sqlite3_stmt *st;

    assert_ok(store_read_begin(s, &r));
    assert_int_equal(
        sqlite3_prepare_v2(r.c->db, "SELECT 1 FROM events WHERE type = ?1", -1, &st, NULL),
        SQLITE_OK);
    sqlite3_bind_text(st, 1, type, -1, SQLITE_STATIC);
    bool there = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return there;
}

static void writes_nobody_waits_for_go_with_the_next_one(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    sandbox_row r = row_of("b0000000000000000001", "alice", NULL);
    uint64_t commits = 0;
    char id[32];

    (void)state;
    assert_ok(store_open(d.fd, "store.db", "full", &s));
    assert_ok(store_sandbox_insert(s, &r));
    for (int i = 2; i < 22 && commits != 1; i++) { /* they are put off for 5 ms only */
        snprintf(id, sizeof id, "b000%016d", i);
        sandbox_row other = row_of(id, "alice", NULL);
        uint64_t before = metric_of("bothy_store_commits_total");
        store_sandbox_state_queued(s, r.id, "first", NULL, 0);
        store_sandbox_state_queued(s, r.id, "second", NULL, 0);
        assert_ok(store_sandbox_insert(s, &other));
        commits = metric_of("bothy_store_commits_total") - before;
    }
    assert_int_equal(commits, 1);
    assert_true(event_is_there(s, "first") && event_is_there(s, "second"));
}

static void writes_nobody_waits_for_are_not_put_off_for_long(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    sandbox_row r = row_of("b0000000000000000001", "alice", NULL);
    uint64_t until = now_mono_ns() + 5 * NS_PER_S;

    (void)state;
    assert_ok(store_open(d.fd, "store.db", "full", &s));
    assert_ok(store_sandbox_insert(s, &r));
    store_sandbox_state_queued(s, r.id, "alone", NULL, 0);
    while (!event_is_there(s, "alone")) {
        assert_true(now_mono_ns() < until);
        usleep(5000);
    }
}

/* Who waits is told that the disk was full; what nobody waited for is there when it has room again,
 * and in the order it was said. */
static void writes_nobody_waits_for_outlast_a_full_disk(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    CLEANUP(sandbox_row_done) sandbox_row got = {0};
    sandbox_row r = row_of("b0000000000000000001", "alice", NULL);
    sandbox_row late = row_of("b0000000000000000002", "alice", NULL);
    struct rlimit all, none;

    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(store_open(d.fd, "store.db", "full", &s));
    assert_ok(store_sandbox_insert(s, &r));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    none = (struct rlimit){0, all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    store_sandbox_state_queued(s, r.id, "paused", NULL, 0);
    store_sandbox_state_queued(s, r.id, "gone", "{}", 5);
    err *full = store_sandbox_insert(s, &late);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_non_null(full);
    err_free(full);
    assert_ok(store_flush(s));
    assert_ok(store_sandbox_get(s, r.id, &got));
    assert_string_equal(got.state, "gone");
    assert_int_equal(got.ended_ns, 5);
    assert_int_equal(metric_of("bothy_store_writes_lost_total"), 0);
}

#define BACKLOG 1000

/* The disk refuses writes from here on, until disk_mend(). */
static struct rlimit disk_break(void)
{
    struct rlimit all, none;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    none = (struct rlimit){0, all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    return all;
}

static void disk_mend(struct rlimit all)
{
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
}

static void insert_backlog(store *s)
{
    for (int i = 0; i < BACKLOG; i++) {
        char id[32];
        snprintf(id, sizeof id, "b000%016d", i);
        sandbox_row r = row_of(id, "alice", NULL);
        assert_ok(store_sandbox_insert(s, &r));
    }
}

static void end_backlog(store *s)
{
    for (int i = 0; i < BACKLOG; i++) {
        char id[32];
        snprintf(id, sizeof id, "b000%016d", i);
        store_sandbox_state_queued(s, id, "gone", "{}", 5);
    }
}

static void assert_backlog_ended(store *s)
{
    for (int i = 0; i < BACKLOG; i++) {
        CLEANUP(sandbox_row_done) sandbox_row got = {0};
        char id[32];
        snprintf(id, sizeof id, "b000%016d", i);
        assert_ok(store_sandbox_get(s, id, &got));
        assert_string_equal(got.state, "gone");
    }
}

/* On a full disk with more queued writes than a batch has: an awaited write is answered within a
 * second, kept ones are tried twice a second and not in a loop, and none is lost. */
static void awaited_writes_overtake_kept_ones(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    sandbox_row late = row_of("b1000000000000000001", "alice", NULL);

    (void)state;
    assert_ok(store_open(d.fd, "store.db", "normal", &s));
    insert_backlog(s);
    uint64_t lost = metric_of("bothy_store_writes_lost_total");
    struct rlimit all = disk_break();
    end_backlog(s);
    usleep(100000); /* they are tried, and kept */
    uint64_t failed = metric_of("bothy_store_commits_failed_total"), begun = now_mono_ns();
    err *full[5], *unflushed;
    for (int i = 0; i < 5; i++)
        full[i] = store_sandbox_insert(s, &late);
    uint64_t took = now_mono_ns() - begun;
    unflushed = store_flush(s);
    uint64_t flushed = now_mono_ns() - begun;
    failed = metric_of("bothy_store_commits_failed_total") - failed;
    disk_mend(all);
    for (int i = 0; i < 5; i++) {
        assert_non_null(full[i]);
        err_free(full[i]);
    }
    assert_non_null(unflushed); /* what is queued is not committed */
    err_free(unflushed);
    assert_true(took < NS_PER_S);
    assert_true(failed <= 8 + 4 * flushed / NS_PER_S);
    assert_ok(store_flush(s));
    assert_ok(store_sandbox_insert(s, &late));
    assert_backlog_ended(s);
    assert_int_equal(metric_of("bothy_store_writes_lost_total"), lost);
}

/* With room again, an awaited write about a sandbox is not overtaken by an older kept one. */
static void writes_about_a_sandbox_stay_in_order(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    CLEANUP(sandbox_row_done) sandbox_row paused = {0};
    CLEANUP(sandbox_row_done) sandbox_row gone = {0};
    const char *one = "b0000000000000000001", *two = "b0000000000000000002";

    (void)state;
    assert_ok(store_open(d.fd, "store.db", "normal", &s));
    insert_backlog(s);
    struct rlimit all = disk_break();
    end_backlog(s);
    usleep(100000);
    sandbox_row r = row_of("b1000000000000000001", "alice", NULL);
    r.state = (char *)"creating";
    disk_mend(all);
    assert_ok(store_sandbox_insert(s, &r));
    all = disk_break();
    store_sandbox_running_queued(s, r.id, "running", NULL);
    usleep(100000);
    disk_mend(all);
    assert_ok(store_sandbox_pause(s, r.id, "paused", 7, 0));
    err *ended =
        store_sandbox_pause(s, one, "paused", 7, 0); /* its end was kept, and comes first */
    assert_err(ended, ERR_NOT_FOUND);
    store_sandbox_running_queued(s, two, "running", NULL); /* nor does it live again */
    err_drop(store_flush(s), "the last is refused");
    assert_ok(store_sandbox_get(s, r.id, &paused));
    assert_string_equal(paused.state, "paused");
    assert_ok(store_sandbox_get(s, two, &gone));
    assert_string_equal(gone.state, "gone");
    assert_backlog_ended(s);
}

typedef struct moody {
    _Atomic int runs, refused, settled, released;
} moody;

static err *run_moody(store_conn *c, void *arg)
{
    moody *m = arg;

    (void)c;
    return atomic_fetch_add(&m->runs, 1) < 2 ? err_new(ERR_DISK_FULL, "no room for it") : NULL;
}

static void release_moody(void *arg)
{
    ((moody *)arg)->released++;
}

static void told_moody(void *arg, bool settled)
{
    moody *m = arg;

    m->refused += !settled;
    m->settled += settled;
}

/* SQLite may refuse one write for want of room and keep the transaction. */
static void a_queued_write_that_fails_alone_is_tried_again(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    moody m = {0};

    (void)state;
    assert_ok(store_open(d.fd, "store.db", "normal", &s));
    uint64_t lost = metric_of("bothy_store_writes_lost_total");
    store_write_queued(
        s,
        &(store_queued){.run = run_moody, .arg = &m, .release = release_moody, .told = told_moody});
    for (int i = 0; i < 500 && !m.released; i++)
        usleep(10000);
    assert_int_equal(m.runs, 3);
    assert_int_equal(m.refused, 2);
    assert_int_equal(m.settled, 1);
    assert_int_equal(m.released, 1);
    assert_int_equal(metric_of("bothy_store_writes_lost_total"), lost);
}

typedef struct gated {
    sem_t entered, go;
    _Atomic int runs, released;
} gated;

/* Waits in its first run until the test lets it go, and fails then. */
static err *run_gated(store_conn *c, void *arg)
{
    gated *g = arg;

    (void)c;
    if (atomic_fetch_add(&g->runs, 1))
        return NULL;
    sem_post(&g->entered);
    while (sem_wait(&g->go))
        continue;
    return err_new(ERR_DISK_FULL, "no room for it");
}

static void release_gated(void *arg)
{
    ((gated *)arg)->released++;
}

typedef struct call {
    store *s;
    err *result;
    _Atomic bool done;
} call;

static void *flush_store(void *arg)
{
    call *f = arg;

    f->result = store_flush(f->s);
    f->done = true;
    return NULL;
}

static void *insert_late(void *arg)
{
    call *c = arg;
    sandbox_row late = row_of("b1000000000000000001", "alice", NULL);

    c->result = store_sandbox_insert(c->s, &late);
    c->done = true;
    return NULL;
}

/* Ends the program if a call is not answered within five seconds: its thread cannot be joined. */
static void assert_answered(const call *c, const char *what)
{
    for (int i = 0; i < 500 && !c->done; i++)
        usleep(10000);
    if (c->done)
        return;
    print_error("%s is not answered\n", what);
    exit(1);
}

/* A flush is queued alone while a batch of queued writes fails: it waits with these, and the writer
 * goes on. */
static void a_flush_behind_a_failing_batch_keeps_the_writer(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    gated g = {0};
    pthread_t flushing, inserting;

    (void)state;
    sem_init(&g.entered, 0, 0);
    sem_init(&g.go, 0, 0);
    assert_ok(store_open(d.fd, "store.db", "normal", &s));
    store_write_queued(s, &(store_queued){.run = run_gated, .arg = &g, .release = release_gated});
    while (sem_wait(&g.entered))
        continue;
    call flush = {.s = s}, insert = {.s = s};
    flushing = thread_start("flush", flush_store, &flush);
    for (bool queued = false; !queued; usleep(1000)) {
        pthread_mutex_lock(&s->writer.lock);
        queued = s->writer.fresh.n == 1;
        pthread_mutex_unlock(&s->writer.lock);
    }
    sem_post(&g.go);
    assert_answered(&flush, "the flush");
    pthread_join(flushing, NULL);
    assert_ok(flush.result);
    assert_int_equal(g.runs, 2);
    inserting = thread_start("insert", insert_late, &insert);
    assert_answered(&insert, "a write behind it");
    pthread_join(inserting, NULL);
    assert_ok(insert.result);
    assert_int_equal(g.released, 1);
}

/* The WAL has its full length from the start, and survives a kill with zeros behind its frames:
 * every_acknowledged_insert_survives_a_kill reads such a one. */
static void wal_does_not_grow_with_commits(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    struct stat before, after;
    char id[32];

    (void)state;
    assert_ok(store_open(d.fd, "store.db", "full", &s));
    assert_int_equal(fstatat(d.fd, "store.db-wal", &before, 0), 0);
    assert_true(before.st_size > 4 << 20);
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "b000%016d", i);
        sandbox_row r = row_of(id, "alice", NULL);
        assert_ok(store_sandbox_insert(s, &r));
    }
    assert_int_equal(fstatat(d.fd, "store.db-wal", &after, 0), 0);
    assert_int_equal(after.st_size, before.st_size);
}

static void a_wal_that_cannot_be_lengthened_keeps_no_zeros(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    struct rlimit all, some;
    struct stat st;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    some = (struct rlimit){2 << 20, all.rlim_max}; /* a write across it is cut short */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &some), 0);
    err *e = store_open(d.fd, "store.db", "full", &s);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_ok(e);
    assert_int_equal(fstatat(d.fd, "store.db-wal", &st, 0), 0);
    assert_true(st.st_size < 1 << 20);
}

/* Whether they were few. */
static bool write_together(void)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    inserter in[THREADS] = {0};
    pthread_t t[THREADS];
    sandbox_row *rows;
    size_t n;

    assert_ok(store_open(d.fd, "store.db", "full", &s));
    uint64_t commits = metric_of("bothy_store_commits_total");
    uint64_t writes = metric_of("bothy_store_writes_total");
    for (int i = 0; i < THREADS; i++) {
        in[i] = (inserter){s, i, 0};
        t[i] = thread_start("insert", insert_many, &in[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(in[i].failed, 0);
    }
    commits = metric_of("bothy_store_commits_total") - commits;
    writes = metric_of("bothy_store_writes_total") - writes;
    assert_ok(store_sandbox_list(s, &(sandbox_page){"", 10000}, &rows, &n));
    assert_int_equal(n, THREADS * PER_THREAD);
    for (size_t i = 0; i < n; i++)
        sandbox_row_done(&rows[i]);
    free(rows);
    print_message("%llu writes in %llu commits\n", (unsigned long long)writes,
                  (unsigned long long)commits);
    assert_int_equal(writes, THREADS * PER_THREAD);
    return commits < writes / 2;
}

static void many_writers_share_few_commits(void **state)
{
    bool few = false;

    (void)state;
    for (int i = 0; i < 10 && !few; i++) /* they meet as the scheduler has it */
        few = write_together();
    assert_true(few);
}

/* One that is refused must not take its neighbours in the batch with it. */
static void *insert_same(void *arg)
{
    inserter *in = arg;

    for (int i = 0; i < PER_THREAD; i++) {
        char id[32], name[32];
        snprintf(id, sizeof id, "b000%04d%012d", in->number, i);
        snprintf(name, sizeof name, "n%d", i);
        sandbox_row r = row_of(id, "alice", name);
        err *e = store_sandbox_insert(in->s, &r);
        in->failed += e != NULL;
        err_free(e);
    }
    return NULL;
}

static void exactly_one_of_many_gets_a_name(void **state)
{
    CLEANUP(scratch_done) scratch d = scratch_new();
    CLEANUP(store_closep_) store *s = NULL;
    inserter in[THREADS] = {0};
    pthread_t t[THREADS];
    int failed = 0;

    (void)state;
    assert_ok(store_open(d.fd, "store.db", "normal", &s));
    for (int i = 0; i < THREADS; i++) {
        in[i] = (inserter){s, i, 0};
        t[i] = thread_start("same", insert_same, &in[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
        failed += in[i].failed;
    }
    assert_int_equal(failed, (THREADS - 1) * PER_THREAD);
}

/* ---- kill -9 ---- */

typedef struct shared { /* of the child's threads */
    store *s;
    int out;
    _Atomic int next;
} shared;

static void *write_until_killed(void *arg)
{
    shared *sh = arg;

    for (;;) {
        int32_t i = atomic_fetch_add(&sh->next, 1);
        char id[32];
        snprintf(id, sizeof id, "b000%016d", i);
        sandbox_row r = row_of(id, "alice", NULL);
        err *e = store_sandbox_insert(sh->s, &r);
        if (e || write(sh->out, &i, sizeof i) != sizeof i)
            _exit(1);
    }
    return NULL;
}

static _Noreturn void child_main(int dirfd, int out)
{
    shared sh = {.out = out};

    if (store_open(dirfd, "store.db", "full", &sh.s))
        _exit(1);
    for (int i = 0; i < 8; i++)
        thread_detach("writer", write_until_killed, &sh);
    for (;;)
        pause();
}

static size_t read_acknowledged(int fd, int32_t *ids, size_t max)
{
    size_t n = 0;

    while (n < max && read(fd, &ids[n], sizeof *ids) == sizeof *ids)
        n++;
    return n;
}

static void every_acknowledged_insert_survives_a_kill(void **state)
{
    enum {
        MAX = 200000
    };
    CLEANUP(freep) int32_t *ids = xcalloc(MAX, sizeof *ids);
    size_t total = 0;

    (void)state;
    for (int round = 0; round < 5; round++) {
        CLEANUP(scratch_done) scratch d = scratch_new();
        CLEANUP(store_closep_) store *s = NULL;
        int p[2];
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        if (!pid)
            child_main(d.fd, p[1]);
        close(p[1]);
        int32_t first;
        assert_int_equal(read(p[0], &first, sizeof first), sizeof first);
        usleep(20000u + 17000u * (unsigned)round);
        kill(pid, SIGKILL);
        size_t n = read_acknowledged(p[0], ids, MAX);
        ids[n++] = first;
        close(p[0]);
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        assert_ok(store_open(d.fd, "store.db", "full", &s));
        for (size_t i = 0; i < n; i++) {
            CLEANUP(sandbox_row_done) sandbox_row got = {0};
            char id[32];
            snprintf(id, sizeof id, "b000%016d", ids[i]);
            assert_ok(store_sandbox_get(s, id, &got));
        }
        total += n;
    }
    print_message("%zu acknowledged inserts found\n", total);
    assert_true(total > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: it forks, and a thread of an earlier test would not be in the child */
        cmocka_unit_test(every_acknowledged_insert_survives_a_kill),
        cmocka_unit_test(writes_nobody_waits_for_go_with_the_next_one),
        cmocka_unit_test(writes_nobody_waits_for_are_not_put_off_for_long),
        cmocka_unit_test(writes_nobody_waits_for_outlast_a_full_disk),
        cmocka_unit_test(awaited_writes_overtake_kept_ones),
        cmocka_unit_test(writes_about_a_sandbox_stay_in_order),
        cmocka_unit_test(a_queued_write_that_fails_alone_is_tried_again),
        cmocka_unit_test(a_flush_behind_a_failing_batch_keeps_the_writer),
        cmocka_unit_test(wal_does_not_grow_with_commits),
        cmocka_unit_test(a_wal_that_cannot_be_lengthened_keeps_no_zeros),
        cmocka_unit_test(many_writers_share_few_commits),
        cmocka_unit_test(exactly_one_of_many_gets_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

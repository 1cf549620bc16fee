/* The pump: a run that blocks costs others nothing but the time until it is noticed, and its party
 * one thread. Blocks end when the test says so; times are only the most that is waited. */
#include <dirent.h>
#include <semaphore.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/lane.h"

#include "../unit.h"

#define OTHERS 24
#define MANY   64
#define CROWD  264 /* parties */
#define WAIT_S 20

typedef struct worked {
    pump_job job;
    _Atomic int refs, runs, inside;
    _Atomic int *crowd; /* in runs of the party; NULL */
    _Atomic int *most;
    _Atomic(sem_t *) gate; /* it blocks there; NULL: it does not */
    int fd;                /* read when there is something; -1 */
    struct worked *kicks;  /* kicked behind the gate; NULL */
} worked;

static worked *worked_of(pump_job *j)
{
    return (worked *)((char *)j - offsetof(worked, job));
}

static void worked_run(pump_job *j)
{
    worked *w = worked_of(j);
    char c;

    assert_int_equal(atomic_fetch_add(&w->inside, 1), 0); /* one thread at a time */
    int now = w->crowd ? atomic_fetch_add(w->crowd, 1) + 1 : 0;
    if (w->most && now > atomic_load(w->most))
        atomic_store(w->most, now);
    sem_t *gate = atomic_load(&w->gate);
    if (gate) {
        while (sem_wait(gate))
            continue;
        sem_post(gate); /* open for all */
    }
    if (w->kicks)
        pump_kick(&w->kicks->job);
    if (w->fd >= 0) {
        (void)!read(w->fd, &c, 1);
        assert_true(pump_watch(j, w->fd, EPOLLIN));
    }
    if (w->crowd)
        atomic_fetch_sub(w->crowd, 1);
    atomic_fetch_add(&w->runs, 1);
    atomic_fetch_sub(&w->inside, 1);
}

static void worked_ref(pump_job *j)
{
    atomic_fetch_add(&worked_of(j)->refs, 1);
}

static void worked_unref(pump_job *j)
{
    atomic_fetch_sub(&worked_of(j)->refs, 1);
}

static void worked_init(pump *p, worked *w, pump_party *party, unsigned spread)
{
    w->fd = -1;
    w->job =
        (pump_job){.run = worked_run, .ref = worked_ref, .unref = worked_unref, .party = party};
    pump_job_init(p, &w->job, spread);
}

/* Until it has run so many times, and nothing of the pump uses it. */
static bool runs(worked *w, int n)
{
    uint64_t end = now_mono_ns() + WAIT_S * NS_PER_S;

    while (atomic_load(&w->runs) < n || atomic_load(&w->refs)) {
        if (now_mono_ns() > end)
            return false;
        usleep(1000);
    }
    return true;
}

static void wait_inside(worked *w)
{
    while (!atomic_load(&w->inside))
        usleep(1000);
}

static void wait_alone(pump_party *party, bool alone)
{
    uint64_t end = now_mono_ns() + WAIT_S * NS_PER_S;

    while (pump_party_is_alone(party) != alone) {
        if (now_mono_ns() > end)
            fail_msg("the party is %s", alone ? "not alone" : "still alone");
        usleep(1000);
    }
}

static unsigned threads(void)
{
    DIR *d = opendir("/proc/self/task");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d)) /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        n++;
    closedir(d);
    return n;
}

static void a_run_that_blocks_holds_up_no_other_party(void **state)
{
    pump_party hostile = {.name = "hostile"}, calm = {.name = "calm"};
    worked bad[OTHERS] = {0}, good[OTHERS] = {0};
    pump *p = NULL;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    assert_ok(pump_new(&p));
    for (unsigned i = 0; i < OTHERS; i++) { /* on every lane */
        worked_init(p, &bad[i], &hostile, i);
        worked_init(p, &good[i], &calm, i);
        bad[i].gate = &gate;
        pump_kick(&bad[i].job);
    }
    wait_inside(&bad[0]);
    for (int n = 1; n <= 3; n++)
        for (unsigned i = 0; i < OTHERS; i++) {
            pump_kick(&good[i].job);
            if (!runs(&good[i], n))
                fail_msg("job %u waits behind another party's", i);
        }
    assert_false(pump_party_is_alone(&calm));
    assert_int_equal(atomic_load(&bad[0].runs), 0);
    sem_post(&gate);
    for (unsigned i = 0; i < OTHERS; i++)
        assert_true(runs(&bad[i], 1));
    assert_true(pump_stop(p));
    for (unsigned i = 0; i < OTHERS; i++)
        pump_job_done(&bad[i].job);
    pump_party_done(&hostile);
    pump_free(p);
}

static void a_party_that_blocks_has_one_thread(void **state)
{
    pump_party party = {.name = "hostile"};
    _Atomic int crowd = 0, most = 0;
    worked first = {0}, many[MANY] = {0};
    pump *p = NULL;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    assert_ok(pump_new(&p));
    worked_init(p, &first, &party, 0);
    first.gate = &gate;
    first.crowd = &crowd;
    first.most = &most;
    unsigned before = threads();
    pump_kick(&first.job);
    wait_alone(&party, true);
    for (unsigned i = 0; i < MANY; i++) {
        worked_init(p, &many[i], &party, i);
        many[i].gate = &gate;
        many[i].crowd = &crowd;
        many[i].most = &most;
        pump_kick(&many[i].job);
        pump_kick(&first.job); /* it is kicked while it blocks, and runs once more */
    }
    usleep(300000); /* several looks of the watch */
    assert_int_equal(atomic_load(&most), 1);
    assert_int_equal(threads(), before + 1);
    sem_post(&gate);
    for (unsigned i = 0; i < MANY; i++)
        assert_true(runs(&many[i], 1));
    assert_true(runs(&first, 2));
    assert_int_equal(atomic_load(&most), 1);
    assert_true(pump_stop(p));
    pump_job_done(&first.job);
    for (unsigned i = 0; i < MANY; i++)
        pump_job_done(&many[i].job);
    pump_party_done(&party);
    pump_free(p);
}

/* Bytes are seen before it blocks, while it has a lane to itself, and when it shares one again. */
static void a_job_keeps_its_descriptors_through_it_all(void **state)
{
    pump_party party = {.name = "now and then"};
    worked w = {0}, other = {0};
    int raw[2];
    pump *p = NULL;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    assert_int_equal(pipe(raw), 0);
    assert_ok(pump_new(&p));
    p->quiet_ns = 300 * NS_PER_MS;
    worked_init(p, &w, &party, 0);
    worked_init(p, &other, NULL, 0);
    w.fd = raw[0];
    assert_int_equal(write(raw[1], "ab", 2), 2);
    pump_kick(&w.job);
    assert_true(runs(&w, 2)); /* the second for what is left */
    atomic_store(&w.gate, &gate);
    int before = atomic_load(&w.runs);
    assert_int_equal(write(raw[1], "c", 1), 1);
    wait_alone(&party, true);
    assert_int_equal(write(raw[1], "d", 1), 1);
    pump_kick(&other.job); /* the lane is served, and not by events of the other's pipe */
    assert_true(runs(&other, 1));
    sem_post(&gate);
    assert_true(runs(&w, before + 2));
    before = atomic_load(&w.runs);
    assert_int_equal(write(raw[1], "e", 1), 1);
    assert_true(runs(&w, before + 1));
    wait_alone(&party, false);
    before = atomic_load(&w.runs);
    assert_int_equal(write(raw[1], "f", 1), 1);
    assert_true(runs(&w, before + 1));
    assert_false(pump_party_is_alone(&party));
    assert_true(pump_stop(p));
    pump_job_done(&w.job);
    pump_party_done(&party);
    pump_free(p);
    close(raw[0]);
    close(raw[1]);
}

/* More parties block than a few hundred threads could serve: each costs its lane a moment. */
static void many_parties_that_block_leave_lanes_to_others(void **state)
{
    static pump_party hostile[CROWD];
    static worked bad[CROWD];
    pump_party calm = {.name = "calm"};
    worked good[FAST_MAX] = {0};
    uint64_t end = now_mono_ns() + 60 * NS_PER_S;
    pump *p = NULL;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    assert_ok(pump_new(&p));
    for (unsigned i = 0; i < CROWD; i++) {
        worked_init(p, &bad[i], &hostile[i], i);
        bad[i].gate = &gate;
        pump_kick(&bad[i].job);
    }
    for (unsigned i = 0; i < p->nfast; i++) {
        worked_init(p, &good[i], &calm, i);
        pump_kick(&good[i].job); /* behind them */
        while (!atomic_load(&good[i].runs)) {
            if (now_mono_ns() > end)
                fail_msg("lane %u has no thread", i);
            usleep(1000);
        }
    }
    sem_post(&gate);
    for (unsigned i = 0; i < CROWD; i++)
        assert_true(runs(&bad[i], 1));
    assert_true(pump_stop(p));
    for (unsigned i = 0; i < CROWD; i++) {
        pump_job_done(&bad[i].job);
        pump_party_done(&hostile[i]);
    }
    pump_free(p);
}

/* A run that lost its lane wakes the thread that has it now. */
static void a_kick_wakes_the_lane_that_was_lost(void **state)
{
    pump_party party = {.name = "hostile"};
    worked first = {0}, other = {0};
    pump *p = NULL;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    assert_ok(pump_new(&p));
    worked_init(p, &first, &party, 0);
    worked_init(p, &other, NULL, 0);
    first.gate = &gate;
    first.kicks = &other;
    pump_kick(&first.job);
    wait_alone(&party, true);
    usleep(200000); /* the lane has nothing to do, and its new thread sleeps */
    sem_post(&gate);
    assert_true(runs(&other, 1));
    assert_true(runs(&first, 1));
    assert_true(pump_stop(p));
    pump_job_done(&first.job);
    pump_job_done(&other.job);
    pump_party_done(&party);
    pump_free(p);
}

static void a_stop_does_not_wait_for_a_run_that_blocks(void **state)
{
    pump_party party = {.name = "hostile"};
    worked w = {0};
    pump *p = NULL;
    sem_t gate;

    (void)state;
    sem_init(&gate, 0, 0);
    assert_ok(pump_new(&p));
    worked_init(p, &w, &party, 0);
    w.gate = &gate;
    pump_kick(&w.job);
    wait_alone(&party, true);
    assert_false(pump_stop(p));
    sem_post(&gate);
    assert_true(runs(&w, 1));
    assert_true(pump_stop(p));
    pump_job_done(&w.job);
    pump_party_done(&party);
    pump_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_blocks_holds_up_no_other_party),
        cmocka_unit_test(a_party_that_blocks_has_one_thread),
        cmocka_unit_test(a_job_keeps_its_descriptors_through_it_all),
        cmocka_unit_test(many_parties_that_block_leave_lanes_to_others),
        cmocka_unit_test(a_kick_wakes_the_lane_that_was_lost),
        cmocka_unit_test(a_stop_does_not_wait_for_a_run_that_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

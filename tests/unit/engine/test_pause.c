/* Pauses over a real store and a freezer that does what the test says; time is held still. */
#include <string.h>

#include "base/thread.h"
#include "engine/internal.h"

#include "node.h"

#define ID "t000aaaaaaaaaaaaaaaa"

struct box {
    const box_events *ev;
    void *arg;
};

static struct {
    backend b;
    box box;
    bool listed, frozen;                 /* as list() tells */
    _Atomic int freezes, thaws;          /* asked for */
    _Atomic err_code no_freeze, no_thaw; /* these fail */
    _Atomic int destroyed;
    _Atomic bool hold;      /* a freeze does not come back */
    const char *taken_by;   /* who ended the box; "": it did */
    char row_at_freeze[16]; /* the state the record had by then */
} hand;

static caller ann = {"ann", CALLER_USER}, eve = {"eve", CALLER_READ};

/* ---- the backend ---- */

static err *hand_attach(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box)
{
    (void)b, (void)id;
    hand.box = (box){ev, arg};
    *ret_box = &hand.box;
    return NULL;
}

static void die(void)
{
    const box_events *ev = hand.box.ev;

    hand.box.ev = NULL;
    if (ev)
        ev->gone(hand.box.arg, "killed");
}

static err *hand_destroy(backend *b, const char *id)
{
    (void)b, (void)id;
    die();
    hand.destroyed++;
    return NULL;
}

static err *hand_list(backend *b, box_status **ret_list, size_t *ret_n)
{
    (void)b;
    *ret_list = xcalloc(1, sizeof **ret_list);
    strcpy((*ret_list)->id, ID);
    (*ret_list)->frozen = hand.frozen;
    *ret_n = hand.listed;
    return NULL;
}

static void note_row(void)
{
    CLEANUP(sandbox_row_done) sandbox_row row = {0};

    assert_ok(store_sandbox_get(node.store, ID, &row));
    snprintf(hand.row_at_freeze, sizeof hand.row_at_freeze, "%s", row.state);
}

static err *hand_freeze(box *x)
{
    (void)x;
    hand.freezes++;
    while (hand.hold)
        usleep(1000);
    note_row();
    return hand.no_freeze ? err_new(hand.no_freeze, "it resists") : NULL;
}

static err *hand_thaw(box *x)
{
    (void)x;
    hand.thaws++;
    note_row();
    return hand.no_thaw ? err_new(hand.no_thaw, "the freezer is away") : NULL;
}

static void hand_ref(box *x)
{
    (void)x;
}

static void hand_fate(backend *b, const char *id, unsigned wait_ms, fate_done *done, void *arg)
{
    box_fate fate = {.dead = true};

    (void)b, (void)id, (void)wait_ms;
    snprintf(fate.by, sizeof fate.by, "%s", hand.taken_by);
    done(arg, NULL, &fate);
}

static const backend_ops HAND_OPS = {.attach = hand_attach,
                                     .fate = hand_fate,
                                     .destroy = hand_destroy,
                                     .list = hand_list,
                                     .freeze = hand_freeze,
                                     .thaw = hand_thaw,
                                     .box_ref = hand_ref,
                                     .box_unref = hand_ref};

/* ---- a node around it, with one sandbox that an earlier bothyd has left ---- */

static int setup(void **state)
{
    (void)state;
    memset(&hand, 0, sizeof hand);
    hand.b.ops = &HAND_OPS;
    hand.b.caps.name = "hand";
    hand.listed = true;
    hand.taken_by = "";
    node_open(&hand.b);
    node_open_engine(0, 60000);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    die();
    node_close();
    return 0;
}

static void later(uint64_t s)
{
    fake_now += s * NS_PER_S;
}

/* In the store with ten seconds of its ttl left, and taken up. */
static sandbox *adopt(const char *state, bool frozen)
{
    sandbox_row r = {.id = ID,
                     .owner = "ann",
                     .state = "running",
                     .image = "any",
                     .spec = "{}",
                     .created_ns = fake_now,
                     .ttl_ns = fake_now + 10 * NS_PER_S};
    sandbox *sb = NULL;

    assert_ok(store_sandbox_insert(node.store, &r));
    if (!strcmp(state, "paused"))
        assert_ok(store_sandbox_pause(node.store, ID, state, fake_now, r.ttl_ns));
    hand.frozen = frozen;
    assert_ok(engine_reconcile(node.engine));
    assert_ok(engine_find(node.engine, &ann, ID, &sb));
    return sb;
}

static sandbox_view look(sandbox *sb, const char *state)
{
    CLEANUP(sandbox_row_done) sandbox_row row = {0};
    sandbox_view v;

    assert_ok(store_sandbox_get(node.store, ID, &row));
    assert_string_equal(row.state, state);
    sandbox_get(sb, &v);
    assert_string_equal(v.state, state);
    return v;
}

static uint64_t left(sandbox *sb, const char *state)
{
    CLEANUP(sandbox_view_done) sandbox_view v = look(sb, state);

    return v.ttl_left_ns / NS_PER_S;
}

/* ---- the cases ---- */

static void the_record_comes_before_the_freezer(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    resumed r;

    (void)state;
    later(3);
    assert_err(engine_pause(node.engine, &eve, sb), ERR_FORBIDDEN);
    assert_ok(engine_pause(node.engine, &ann, sb));
    assert_int_equal(hand.freezes, 2); /* the first resume was tried */
    assert_int_equal(hand.thaws, 1);
    assert_string_equal(hand.row_at_freeze, "paused");
    later(30);
    assert_int_equal(left(sb, "paused"), 7);
    assert_err(engine_awake(sb), ERR_SANDBOX_PAUSED);
    assert_ok(engine_pause(node.engine, &ann, sb));
    assert_int_equal(hand.freezes, 2);
    assert_ok(engine_resume(node.engine, &ann, sb, &r));
    assert_string_equal(hand.row_at_freeze, "running");
    assert_int_equal(r.paused_ns, 30 * NS_PER_S);
    assert_int_equal(left(sb, "running"), 7);
    assert_ok(engine_resume(node.engine, &ann, sb, &r));
    assert_int_equal(r.took_ns, 0);
    assert_ok(engine_pause(node.engine, &ann, sb));
    assert_int_equal(hand.freezes, 3); /* no more trying */
}

static void a_freezer_that_resists_takes_the_record_back(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    resumed r;

    (void)state;
    hand.no_freeze = ERR_TIMEOUT;
    assert_err(engine_pause(node.engine, &ann, sb), ERR_TIMEOUT);
    assert_int_equal(left(sb, "running"), 10);
    hand.no_freeze = 0;
    assert_ok(engine_pause(node.engine, &ann, sb));
    later(5);
    hand.no_thaw = ERR_UNAVAILABLE;
    assert_err(engine_resume(node.engine, &ann, sb, &r), ERR_UNAVAILABLE);
    assert_int_equal(left(sb, "paused"), 10);
    hand.no_thaw = 0;
    later(5);
    assert_ok(engine_resume(node.engine, &ann, sb, &r));
    assert_int_equal(r.paused_ns, 10 * NS_PER_S);
    assert_int_equal(left(sb, "running"), 10);
}

static _Atomic int refused;

static void *pause_too(void *arg)
{
    err *e = engine_pause(node.engine, &ann, arg);

    refused += e && e->code == ERR_UNAVAILABLE && e->retry_after;
    err_free(e);
    return NULL;
}

static void few_wait_for_their_turn(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    pthread_t all[20];

    (void)state;
    hand.hold = true;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        all[i] = thread_start("pause", pause_too, sb);
    for (int i = 0; i < 5000 && refused < 3; i++)
        usleep(1000);
    assert_int_equal(refused, 3); /* one is at it, sixteen wait */
    hand.hold = false;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        pthread_join(all[i], NULL);
    assert_int_equal(refused, 3);
    assert_int_equal(left(sb, "paused"), 10);
}

static void a_pause_waits_for_others_of_its_owner(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    turns *t = &node.engine->freezes;
    uint64_t soon = now_mono_ns() + NS_PER_S;

    (void)state;
    for (unsigned i = 0; i < FREEZES_OWNER; i++)
        assert_true(turns_take(t, "ann", soon));
    pthread_t thread = thread_start("pause", pause_too, sb);
    usleep(100000);
    assert_int_equal(hand.freezes, 0);
    assert_true(turns_take(t, "eve", soon)); /* another one does not */
    turns_give(t, "ann");
    pthread_join(thread, NULL);
    assert_int_equal(left(sb, "paused"), 10);
    turns_give(t, "eve");
    for (unsigned i = 1; i < FREEZES_OWNER; i++)
        turns_give(t, "ann");
}

static void at_start_the_freezer_is_brought_to_the_record(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("paused", false);

    (void)state;
    assert_int_equal(hand.freezes, 1);
    later(30);
    assert_int_equal(left(sb, "paused"), 10);
}

static void at_start_what_runs_is_thawed(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", true);

    (void)state;
    assert_int_equal(hand.thaws, 1);
    assert_int_equal(left(sb, "running"), 10);
}

static void at_start_what_resists_runs(void **state)
{
    (void)state;
    hand.no_freeze = ERR_TIMEOUT;
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("paused", false);

    assert_int_equal(left(sb, "running"), 10);
    assert_null(engine_awake(sb));
}

static void one_that_nobody_resumes_ends(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("paused", true);

    (void)state;
    later(59);
    assert_int_equal(left(sb, "paused"), 10);
    later(2);
    for (int i = 0; i < 400 && !hand.destroyed; i++)
        usleep(10000);
    assert_int_equal(hand.destroyed, 1);
    assert_ok(store_flush(node.store));
    CLEANUP(sandbox_view_done) sandbox_view v = look(sb, "gone");
    assert_non_null(strstr(v.cause, "\"ttl\""));
    assert_non_null(strstr(v.cause, "paused"));
    assert_int_equal(v.paused_ns, 0);
    assert_err(engine_pause(node.engine, &ann, sb), ERR_SANDBOX_GONE);
}

static void a_paused_one_is_deleted_at_once(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("paused", true);
    resumed r;

    (void)state;
    assert_ok(engine_delete(node.engine, &ann, sb, CAUSE_REQUESTED, NULL));
    assert_int_equal(hand.destroyed, 1);
    assert_int_equal(hand.thaws, 0); /* the backend's own business */
    CLEANUP(sandbox_view_done) sandbox_view v = look(sb, "gone");
    assert_non_null(strstr(v.cause, "requested"));
    assert_err(engine_resume(node.engine, &ann, sb, &r), ERR_SANDBOX_GONE);
}

static bool becomes(sandbox *sb, enum lifecycle wanted)
{
    for (int i = 0; i < 400 && sandbox_state(sb) != wanted; i++)
        usleep(10000);
    return sandbox_state(sb) == wanted;
}

static void one_that_is_to_be_paused_when_its_time_is_over(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    const sandbox_patch pauses = {.has_ttl_pauses = true, .ttl_pauses = true};
    resumed r;

    (void)state;
    assert_ok(engine_update(node.engine, &ann, sb, &pauses));
    later(11);
    assert_true(becomes(sb, LIFE_PAUSED));
    assert_int_equal(hand.destroyed, 0);
    assert_int_equal(left(sb, "paused"), 0);
    later(20);
    assert_ok(engine_resume(node.engine, &ann, sb, &r));
    assert_int_equal(left(sb, "running"), 300); /* none was left */
    /* What says later only does not bring the end nearer. */
    assert_ok(
        engine_update(node.engine, &ann, sb,
                      &(sandbox_patch){.has_ttl = true, .ttl_ms = 5000, .ttl_only_later = true}));
    assert_int_equal(left(sb, "running"), 300);
    assert_ok(
        engine_update(node.engine, &ann, sb,
                      &(sandbox_patch){.has_ttl = true, .ttl_ms = 500000, .ttl_only_later = true}));
    assert_int_equal(left(sb, "running"), 500);
}

static void one_that_cannot_be_paused_then_ends(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    const sandbox_patch pauses = {.has_ttl_pauses = true, .ttl_pauses = true};

    (void)state;
    assert_ok(engine_update(node.engine, &ann, sb, &pauses));
    hand.no_freeze = ERR_TIMEOUT;
    later(11);
    for (int i = 0; i < 1000 && sandbox_state(sb) != LIFE_GONE; i++) {
        usleep(10000);
        fake_now += NS_PER_S / 10;
    }
    assert_int_equal(sandbox_state(sb), LIFE_GONE);
    assert_int_equal(hand.freezes, 3); /* a moment's resistance is forgiven */
    assert_ok(store_flush(node.store));
    CLEANUP(sandbox_view_done) sandbox_view v = look(sb, "gone");
    assert_non_null(strstr(v.cause, "\"ttl\""));
}

static void tries_until(int freezes)
{
    for (int i = 0; i < 1000 && hand.freezes < freezes; i++) {
        usleep(10000);
        fake_now += NS_PER_S / 10;
    }
    assert_int_equal(hand.freezes, freezes);
}

static void other_time_forgives_what_it_resisted(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    const sandbox_patch pauses = {.has_ttl_pauses = true, .ttl_pauses = true};
    const sandbox_patch more = {.has_ttl = true, .ttl_ms = 10000};

    (void)state;
    assert_ok(engine_update(node.engine, &ann, sb, &pauses));
    hand.no_freeze = ERR_TIMEOUT;
    later(11);
    tries_until(2);
    assert_ok(engine_update(node.engine, &ann, sb, &more));
    later(11);
    tries_until(3); /* at once, and the first of three again */
    hand.no_freeze = 0;
    later(40);
    assert_true(becomes(sb, LIFE_PAUSED));
}

static void what_is_only_in_the_way_of_a_pause_ends_nothing(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    const sandbox_patch pauses = {.has_ttl_pauses = true, .ttl_pauses = true};

    (void)state;
    assert_ok(engine_update(node.engine, &ann, sb, &pauses));
    hand.no_freeze = ERR_UNAVAILABLE; /* the warden is away */
    later(11);
    for (int i = 0; i < 1000 && hand.freezes < 5; i++) {
        usleep(10000);
        fake_now += NS_PER_S / 10;
    }
    assert_int_equal(hand.freezes, 5);
    assert_true(
        becomes(sb, LIFE_RUNNING)); /* the freezer is asked before the record is taken back */
    assert_int_equal(hand.destroyed, 0);
    hand.no_freeze = 0;
    later(40);
    assert_true(becomes(sb, LIFE_PAUSED));
}

static _Atomic int wanted; /* how often somebody asked for one that sleeps */

static void note_wanted(void *arg, const char *id)
{
    (void)arg;
    assert_string_equal(id, ID);
    wanted++;
}

static void *ask_sleeper(void *arg)
{
    exec_spec spec = {0};
    exec *x = NULL;
    bool replay;

    return engine_exec(node.engine, &ann, arg, &spec, &(idempotency){0}, &x, &replay);
}

static void other_time_wakes_no_sleeper(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    CLEANUP(sandbox_view_done) sandbox_view v = {0};

    (void)state;
    wanted = 0;
    engine_on_asleep(node.engine, note_wanted, NULL);
    assert_ok(engine_hibernate(node.engine, &ann, sb));
    uint64_t then = fake_now + 3600 * NS_PER_S;
    assert_ok(engine_end_at(node.engine, sb, then));
    sandbox_get(sb, &v);
    assert_string_equal(v.state, "hibernated");
    assert_int_equal(v.ends_ns, then);
    assert_int_equal(wanted, 0);
}

/* Nobody wakes it any more: who waits for that is told so while there is time. */
static void who_waits_for_a_sleeper_is_answered_at_the_stop(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);
    err *told = NULL;

    (void)state;
    wanted = 0;
    engine_on_asleep(node.engine, note_wanted, NULL);
    assert_ok(engine_hibernate(node.engine, &ann, sb));
    uint64_t began = now_mono_ns();
    pthread_t asker = thread_start("asker", ask_sleeper, sb);
    while (!wanted)
        usleep(1000);
    engine_let_go(node.engine);
    pthread_join(asker, (void **)&told);
    assert_true(now_mono_ns() - began < 30 * NS_PER_S);
    assert_true(told && told->retryable);
    assert_err(told, ERR_UNAVAILABLE);
    told = ask_sleeper(sb); /* nor does anybody wait anew */
    assert_true(now_mono_ns() - began < 30 * NS_PER_S);
    assert_err(told, ERR_UNAVAILABLE);
}

static _Atomic int slept;

static bool keeps_all(void *arg, const char *id, bool asleep)
{
    (void)arg;
    assert_string_equal(id, ID);
    slept += asleep;
    return true;
}

static void ends_as(sandbox *sb, const char *state)
{
    for (int i = 0; i < 5000; i++) {
        CLEANUP(sandbox_view_done) sandbox_view v = {0};
        sandbox_get(sb, &v);
        if (!strcmp(v.state, state))
            return;
        usleep(1000);
    }
    fail_msg("it is not %s", state);
}

/* Somebody outside has ended its box: with a disk that is kept it sleeps. */
static void one_whose_box_is_taken_away_sleeps_on_its_disk(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);

    (void)state;
    slept = 0;
    hand.taken_by = "somebody in the cluster";
    engine_on_taken(node.engine, keeps_all, NULL);
    die();
    ends_as(sb, "hibernated");
    while (!slept)
        usleep(1000);
    sandbox_view v = look(sb, "hibernated");
    assert_null(v.cause);
    sandbox_view_done(&v);
    engine_on_taken(node.engine, NULL, NULL);
    assert_ok(engine_delete(node.engine, &ann, sb, CAUSE_REQUESTED, NULL));
    ends_as(sb, "gone");
}

static void one_that_ended_by_itself_is_gone(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = adopt("running", false);

    (void)state;
    engine_on_taken(node.engine, keeps_all, NULL);
    die();
    ends_as(sb, "gone");
    assert_int_equal(slept, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_record_comes_before_the_freezer),
        CASE(a_freezer_that_resists_takes_the_record_back),
        CASE(few_wait_for_their_turn),
        CASE(a_pause_waits_for_others_of_its_owner),
        CASE(at_start_the_freezer_is_brought_to_the_record),
        CASE(at_start_what_runs_is_thawed),
        CASE(at_start_what_resists_runs),
        CASE(one_that_nobody_resumes_ends),
        CASE(a_paused_one_is_deleted_at_once),
        CASE(one_that_is_to_be_paused_when_its_time_is_over),
        CASE(one_that_cannot_be_paused_then_ends),
        CASE(other_time_forgives_what_it_resisted),
        CASE(what_is_only_in_the_way_of_a_pause_ends_nothing),
        CASE(other_time_wakes_no_sleeper),
        CASE(who_waits_for_a_sleeper_is_answered_at_the_stop),
        CASE(one_that_ended_by_itself_is_gone),
        CASE(one_whose_box_is_taken_away_sleeps_on_its_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

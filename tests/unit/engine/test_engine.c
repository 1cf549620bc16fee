/* The engine over a real store and a backend that does what the test says, when it says so. */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/thread.h"
#include "engine/build_internal.h"
#include "engine/internal.h"
#include "exec/internal.h"

#include "node.h"

/* ---- a backend in the test's hands ---- */

struct box {
    char id[SANDBOX_ID_LEN + 1];
    const box_events *ev;
    void *arg;
};

#define BOXES_MAX 16
static struct {
    backend b;
    box box[BOXES_MAX];
    _Atomic size_t nbox; /* counted when the box is complete: the keeper searches them */
    struct {
        box *x;
        create_done *done;
        void *arg;
    } asked[BOXES_MAX]; /* creates not answered yet */
    size_t nasked;
    char destroyed[BOXES_MAX][SANDBOX_ID_LEN + 1];
    _Atomic size_t ndestroyed;    /* the keeper ends sandboxes too */
    box_status listed[BOXES_MAX]; /* what list() tells */
    size_t nlisted;
    _Atomic size_t nlists; /* calls of list() */
    bool claimed;          /* the bit in the HELLO of attach */
    bool hello_in_attach;  /* deliver `attached` before attach returns */
    char last_env[256];
    const box_timing *timing; /* of what is answered; may be NULL */
    bool at_once;             /* create is answered before it returns: ahead of the record */
    bool dies_at_once;        /* and the box ends, too */
    int *told, told_at_once;  /* what a caller had heard by then */
} hand;

static void say_hello(box *x, bool claimed)
{
    struct sp_hello h = {.h = {.type = SP_HELLO},
                         .version = 1,
                         .instance = 1,
                         .flags = claimed ? SP_HELLO_CLAIMED : 0};

    x->ev->attached(x->arg, &h, NULL);
}

static box *box_new(const char *id, const box_events *ev, void *arg)
{
    box *x = &hand.box[hand.nbox];

    snprintf(x->id, sizeof x->id, "%s", id);
    x->ev = ev;
    x->arg = arg;
    hand.nbox++;
    return x;
}

static const box_timing COLD = {.klass = BOX_COLD};

static void answer_at_once(void);

static void hand_create(backend *b, const box_spec *spec, const box_events *ev, void *arg,
                        create_done *done)
{
    (void)b;
    hand.last_env[0] = 0;
    for (size_t i = 0; spec->env && spec->env[i]; i++)
        strncat(hand.last_env, spec->env[i], sizeof hand.last_env - strlen(hand.last_env) - 1);
    hand.asked[hand.nasked].x = box_new(spec->id, ev, arg);
    hand.asked[hand.nasked].done = done;
    hand.asked[hand.nasked++].arg = arg;
    if (hand.at_once)
        answer_at_once();
}

static void answer(size_t i, err *failure)
{
    if (failure)
        hand.asked[i].x->ev = NULL; /* a box that was not made says nothing */
    hand.asked[i].done(hand.asked[i].arg, failure, failure ? NULL : hand.asked[i].x, hand.timing);
}

static err *hand_attach(backend *b, const char *id, const box_events *ev, void *arg, box **ret_box)
{
    (void)b;
    *ret_box = box_new(id, ev, arg);
    if (hand.hello_in_attach)
        say_hello(*ret_box, hand.claimed);
    return NULL;
}

/* Every box ends with exactly one `gone`; the keeper may destroy it while a test ends. */
static void box_die(box *x, const char *why)
{
    const box_events *ev = __atomic_exchange_n(&x->ev, NULL, __ATOMIC_ACQ_REL);

    if (ev)
        ev->gone(x->arg, why);
}

static void answer_at_once(void)
{
    box *x = hand.asked[hand.nasked - 1].x;

    answer(hand.nasked - 1, NULL);
    say_hello(x, true);
    if (hand.dies_at_once)
        box_die(x, "out of memory");
    hand.told_at_once = hand.told ? *hand.told : 0;
}

static err *hand_destroy(backend *b, const char *id)
{
    (void)b;
    size_t n = hand.ndestroyed;

    snprintf(hand.destroyed[n], SANDBOX_ID_LEN + 1, "%s", id);
    for (size_t i = 0; i < hand.nbox; i++)
        if (!strcmp(hand.box[i].id, id))
            box_die(&hand.box[i], "destroyed");
    hand.ndestroyed = n + 1; /* last: who waits for it may look at the rest */
    return NULL;
}

static err *hand_list(backend *b, box_status **ret_list, size_t *ret_n)
{
    (void)b;
    hand.nlists++;
    *ret_list = xcalloc(BOXES_MAX, sizeof **ret_list);
    memcpy(*ret_list, hand.listed, sizeof hand.listed);
    *ret_n = hand.nlisted;
    return NULL;
}

static void hand_ref(box *x)
{
    (void)x;
}

static err *hand_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n,
                            box_usage *ret)
{
    (void)b, (void)ids, (void)n, (void)ret; /* none is known */
    return NULL;
}

static err *hand_limits(backend *b, const char *id, const limits *l)
{
    (void)b, (void)id, (void)l;
    return NULL;
}

static const backend_ops HAND_OPS = {.create = hand_create,
                                     .attach = hand_attach,
                                     .destroy = hand_destroy,
                                     .list = hand_list,
                                     .limits = hand_limits,
                                     .usage_many = hand_usage_many,
                                     .box_ref = hand_ref,
                                     .box_unref = hand_ref};

/* Of a node that is away: it hears of it later. */
static void hand_destroy_soon(backend *b, const char *id)
{
    err_free(hand_destroy(b, id));
}

static err *hand_destroy_slowly(backend *b, const char *id)
{
    sleep(30);
    return hand_destroy(b, id);
}

static const backend_ops AWAY_OPS = {.create = hand_create,
                                     .attach = hand_attach,
                                     .destroy = hand_destroy_slowly,
                                     .destroy_soon = hand_destroy_soon,
                                     .list = hand_list,
                                     .box_ref = hand_ref,
                                     .box_unref = hand_ref};

/* ---- a node around it ---- */

static caller ann = {"ann", CALLER_USER}, ben = {"ben", CALLER_USER},
              root = {"admin", CALLER_ADMIN}, eve = {"eve", CALLER_READ};

static void open_engine(void)
{
    node_open_engine(1000, 86400000);
}

static int setup(void **state)
{
    (void)state;
    memset(&hand, 0, sizeof hand);
    hand.b.ops = &HAND_OPS;
    hand.b.caps.name = "hand";
    node_open(&hand.b);
    open_engine();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < hand.nbox; i++)
        box_die(&hand.box[i], "end of the test");
    node_close();
    return 0;
}

/* ---- what a caller got ---- */

typedef struct got {
    int calls;
    err *failure;
    sandbox *sb;
    bool replay;
} got;

static void on_created(void *arg, err *failure, sandbox *sb, bool replay)
{
    got *g = arg;

    g->calls++;
    g->failure = failure;
    g->sb = sb;
    g->replay = replay;
}

static void got_done(got *g)
{
    err_free(g->failure);
    sandbox_unref(g->sb);
    *g = (got){0};
}

static void ask(const caller *c, const char *name, const char *key, const char *body, got *g)
{
    CLEANUP(sandbox_spec_done)
    sandbox_spec s = {.image = xstrdup("any"), .name = name ? xstrdup(name) : NULL};
    idempotency i = {.key = key, .body = body, .nbody = strlen(body)};

    strv_env_set(&s.secrets, "TOKEN", "s3cret");
    sandbox_unref(engine_create(node.engine, c, &s, PULL_MISSING, &i, on_created, g));
}

static void assert_state(sandbox *sb, const char *state, const char *why)
{
    CLEANUP(sandbox_view_done) sandbox_view v;

    sandbox_get(sb, &v);
    assert_string_equal(v.state, state);
    if (why)
        assert_non_null(strstr(str_or(v.cause, ""), why));
    else
        assert_null(v.cause);
}

/* ---- creating ---- */

static void second_caller_of_a_key_waits_for_the_first(void **state)
{
    got a = {0}, b = {0}, c = {0}, d = {0};

    (void)state;
    ask(&ann, NULL, "k1", "{}", &a);
    ask(&ann, NULL, "k1", "{}", &b);
    ask(&ann, NULL, "k1", "{\"other\":1}", &c);
    assert_int_equal(hand.nasked, 1);
    assert_int_equal(a.calls + b.calls, 0);
    assert_int_equal(c.calls, 1);
    assert_int_equal(c.failure->code, ERR_IDEMPOTENCY_MISMATCH);
    answer(0, NULL);
    assert_int_equal(a.calls, 1);
    assert_int_equal(b.calls, 1);
    assert_string_equal(sandbox_id(a.sb), sandbox_id(b.sb));
    assert_false(a.replay);
    assert_true(b.replay);
    ask(&ann, NULL, "k1", "{}", &d); /* long after: from the store */
    assert_int_equal(d.calls, 1);
    assert_true(d.replay);
    assert_string_equal(sandbox_id(d.sb), sandbox_id(a.sb));
    got_done(&a), got_done(&b), got_done(&c), got_done(&d);
}

static sandbox *by_key(const caller *c, const char *key)
{
    sandbox *sb = NULL;

    assert_ok(engine_find_by_key(node.engine, c,
                                 &(idempotency){.key = key, .body = "{}", .nbody = 2}, &sb));
    return sb;
}

static void assert_by_key(const char *key, const sandbox *wanted)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = by_key(&ann, key);

    assert_non_null(sb);
    assert_string_equal(sandbox_id(sb), sandbox_id(wanted));
}

static void a_sandbox_is_found_by_its_key_and_none_is_made(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *creating = NULL;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    got a = {0};

    (void)state;
    assert_null(by_key(&ann, "k1"));
    assert_int_equal(hand.nasked, 0);
    ask(&ann, NULL, "k1", "{}", &a);
    creating = by_key(&ann, "k1");
    assert_non_null(creating);
    answer(0, NULL);
    assert_by_key("k1", creating);
    assert_null(by_key(&(caller){.owner = (char *)"bob", .role = CALLER_USER}, "k1"));
    assert_err(engine_find_by_key(node.engine, &ann,
                                  &(idempotency){.key = "k1", .body = "[]", .nbody = 2}, &sb),
               ERR_IDEMPOTENCY_MISMATCH);
    assert_ok(engine_delete(node.engine, &ann, a.sb, CAUSE_REQUESTED, NULL));
    assert_by_key("k1", a.sb); /* also when it has ended */
    assert_int_equal(hand.nasked, 1);
    got_done(&a);
}

static void ask_limits(limits l, got *g)
{
    CLEANUP(sandbox_spec_done) sandbox_spec s = {.image = xstrdup("any"), .limits = l};

    sandbox_unref(engine_create(node.engine, &ann, &s, PULL_MISSING,
                                &(idempotency){.body = "", .nbody = 0}, on_created, g));
}

static void a_limit_that_is_not_held_is_refused_when_it_is_named(void **state)
{
    const limits asked[] = {{.memory = 64 << 20}, {.cpu_milli = 500}, {.pids = 50}};
    enum cap_level *caps[] = {&hand.b.caps.memory_limit, &hand.b.caps.cpu_limit,
                              &hand.b.caps.pids_limit};
    CLEANUP(sandbox_view_done) sandbox_view v = {0};

    (void)state;
    hand.at_once = true;
    hand.timing = &COLD;
    for (size_t i = 0; i < ARRAY_LEN(asked); i++) {
        got a = {0}, b = {0};
        ask_limits(asked[i], &a);
        assert_int_equal(a.calls, 1);
        assert_non_null(a.failure);
        assert_int_equal(a.failure->code, ERR_UNSUPPORTED);
        *caps[i] = CAP_NATIVE;
        ask_limits(asked[i], &b);
        assert_null(b.failure);
        got_done(&a), got_done(&b);
    }
    *caps[0] = CAP_ABSENT;
    got c = {0};
    ask_limits((limits){.nofile = 100}, &c); /* what nobody named is told by the receipt */
    assert_null(c.failure);
    sandbox_get(c.sb, &v);
    assert_int_equal(v.receipt.open, RECEIPT_OPEN_DISK | RECEIPT_OPEN_SWAP | RECEIPT_OPEN_MEMORY);
    assert_int_equal(v.limits.memory, LIMITS_DEFAULT.memory);
    got_done(&c);
}

static void assert_refused(got *g, err_code code, const char *words)
{
    assert_int_equal(g->calls, 1);
    assert_non_null(g->failure);
    assert_int_equal(g->failure->code, code);
    assert_non_null(strstr(g->failure->message, words));
    got_done(g);
}

static void hold_all_limits(void)
{
    hand.at_once = true;
    hand.timing = &COLD;
    hand.b.caps.memory_limit = hand.b.caps.cpu_limit = hand.b.caps.pids_limit = CAP_NATIVE;
}

static void create_limited(const caller *c, const char *template, limits l, got *g)
{
    CLEANUP(sandbox_spec_done)
    sandbox_spec s = {.image = template ? NULL : xstrdup("any"),
                      .template = template ? xstrdup(template) : NULL,
                      .limits = l};

    sandbox_unref(engine_create(node.engine, c, &s, PULL_MISSING,
                                &(idempotency){.body = "", .nbody = 0}, on_created, g));
}

static err *template_limited(const caller *c, const char *name, bool public, uint32_t pids)
{
    CLEANUP(template_view_done)
    template_view t = {.name = xstrdup(name),
                       .public = public,
                       .spec = {.image = xstrdup("any"), .limits.pids = pids}};
    CLEANUP(template_view_done) template_view made = {0};

    return engine_template_create(node.engine, c, &t, &made);
}

static err *patch_pids(const caller *c, sandbox *sb, uint32_t pids)
{
    return engine_update(node.engine, c, sb, &(sandbox_patch){.limits.pids = pids});
}

static void limits_above_the_ceiling_are_an_administrators(void **state)
{
    CLEANUP(build_row_done) build_row row = {0};
    const limits many = {.pids = 4097};
    caller granted = ann;
    got a = {0}, b = {0}, c = {0}, d = {0}, e = {0};

    (void)state;
    hold_all_limits();
    node.engine->o.most = (limits){.pids = 4096, .memory = 2ull << 30};
    create_limited(&ann, NULL, many, &a);
    assert_refused(&a, ERR_FORBIDDEN, "limits.pids: this node allows at most 4096, not 4097");
    create_limited(&ann, NULL, (limits){.memory = 3ull << 30}, &a);
    assert_refused(&a, ERR_FORBIDDEN, "limits.memory");
    create_limited(&ann, NULL, (limits){.pids = 4096}, &a);
    create_limited(&root, NULL, many, &b);
    granted.granted = true;
    create_limited(&granted, NULL, many, &c);
    assert_non_null(a.sb), assert_non_null(b.sb), assert_non_null(c.sb);
    assert_err(patch_pids(&ann, a.sb, 4097), ERR_FORBIDDEN);
    assert_ok(patch_pids(&ann, a.sb, 4095));
    assert_ok(patch_pids(&root, a.sb, 5000));
    assert_err(template_limited(&ann, "own", false, 4097), ERR_FORBIDDEN);
    assert_err(engine_build_new(node.engine, &ann, "name", NULL, &many, &row), ERR_FORBIDDEN);
    /* A template for everybody is an administrator's word for its limits, and for no others. */
    assert_ok(template_limited(&root, "large", true, 5000));
    create_limited(&ann, "large", (limits){0}, &d);
    assert_non_null(d.sb);
    create_limited(&ann, "large", (limits){.pids = 5000}, &e);
    assert_refused(&e, ERR_FORBIDDEN, "limits.pids");
    got_done(&a), got_done(&b), got_done(&c), got_done(&d);
}

static void limits_of_an_owner_add_up_to_its_quota(void **state)
{
    got a = {0}, b = {0}, c = {0}, d = {0};
    const sandbox_patch larger = {.limits.memory = 3ull << 30},
                        most = {.limits.memory = 2ull << 30};

    (void)state;
    hold_all_limits();
    node.engine->o.quota = (quota){.memory = 3ull << 30, .cpu_milli = 2500};
    create_limited(&ann, NULL, (limits){.memory = 1ull << 30}, &a);
    create_limited(&ann, NULL, (limits){.memory = (2ull << 30) + 1}, &b);
    assert_refused(&b, ERR_QUOTA_EXCEEDED, "quota.max_memory");
    create_limited(&ann, NULL, (limits){.cpu_milli = 1501}, &b);
    assert_refused(&b, ERR_QUOTA_EXCEEDED, "quota.max_cpu");
    create_limited(&ben, NULL, (limits){.memory = 3ull << 30}, &c);
    create_limited(&root, NULL, (limits){.memory = 30ull << 30}, &d);
    create_limited(&ann, NULL, (limits){.memory = 1ull << 30}, &b);
    assert_non_null(b.sb), assert_non_null(c.sb), assert_non_null(d.sb);
    assert_err(engine_update(node.engine, &ann, a.sb, &larger), ERR_QUOTA_EXCEEDED);
    assert_ok(engine_update(node.engine, &ann, a.sb, &most));
    assert_err(engine_update(node.engine, &ann, b.sb, &most), ERR_QUOTA_EXCEEDED);
    got_done(&a), got_done(&b), got_done(&c), got_done(&d);
}

static void nobody_hears_of_a_box_before_its_record(void **state)
{
    got a = {0};

    (void)state;
    hand.at_once = true;
    hand.told = &a.calls;
    ask(&ann, NULL, "k1", "{}", &a);
    assert_int_equal(hand.told_at_once, 0);
    assert_int_equal(a.calls, 1);
    assert_null(a.failure);
    assert_state(a.sb, "running", NULL);
    got_done(&a);
}

static void box_that_ends_before_its_record_is_a_failed_create(void **state)
{
    CLEANUP(sandbox_row_done) sandbox_row row = {0};
    got a = {0};

    (void)state;
    hand.at_once = hand.dies_at_once = true;
    ask(&ann, NULL, NULL, "", &a);
    assert_int_equal(a.calls, 1);
    assert_non_null(a.failure);
    assert_int_equal(a.failure->code, ERR_CREATE_FAILED);
    assert_ok(store_flush(node.store));
    assert_ok(store_sandbox_get(node.store, hand.box[0].id, &row));
    assert_string_equal(row.state, "gone");
    assert_non_null(strstr(row.cause, "out of memory"));
    got_done(&a);
}

static void delete_while_creating_is_durable_and_takes_the_claim_back(void **state)
{
    CLEANUP(sandbox_row_done) sandbox_row row = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    got a = {0};

    (void)state;
    ask(&ann, "hut", NULL, "", &a);
    assert_ok(engine_find(node.engine, &ann, "hut", &sb));
    for (int i = 0; i < 2; i++) /* the second caller finds it done */
        assert_ok(engine_delete(node.engine, &ann, sb, CAUSE_REQUESTED, NULL));
    assert_int_equal(hand.ndestroyed, 1);
    assert_ok(store_sandbox_get(node.store, hand.box[0].id, &row));
    assert_string_equal(row.state, "gone");
    assert_non_null(strstr(row.cause, "requested"));
    answer(0, err_new(ERR_CONFLICT, "taken out of the queue"));
    assert_int_equal(a.calls, 1);
    assert_int_equal(a.failure->code, ERR_SANDBOX_GONE);
    assert_state(sb, "gone", "requested");
    got_done(&a);
}

/* In either order: the box waits for the record, or the record for the box. */
static void create_without_a_spool_fails_and_its_box_goes(void **state)
{
    (void)state;
    assert_int_equal(unlinkat(node.fd, "spool", AT_REMOVEDIR), 0);
    for (int early = 0; early < 2; early++) {
        CLEANUP(sandbox_row_done) sandbox_row row = {0};
        got a = {0};
        hand.at_once = early;
        ask(&ann, "hut", "k1", "{}", &a);
        size_t i = hand.nasked - 1;
        assert_string_equal(hand.destroyed[hand.ndestroyed - 1], hand.box[i].id);
        if (!early)
            answer(i, err_new(ERR_CONFLICT, "destroyed"));
        assert_int_equal(a.calls, 1);
        assert_non_null(a.failure);
        assert_non_null(strstr(a.failure->message, "spool"));
        assert_ok(store_flush(node.store));
        assert_ok(store_sandbox_get(node.store, hand.box[i].id, &row));
        assert_string_equal(row.state, "gone");
        got_done(&a);
    }
}

static void keys_of_different_owners_do_not_meet(void **state)
{
    got a = {0}, b = {0};

    (void)state;
    ask(&ann, NULL, "k1", "{}", &a);
    ask(&ben, NULL, "k1", "{}", &b);
    assert_int_equal(hand.nasked, 2);
    answer(0, NULL);
    answer(1, NULL);
    assert_string_not_equal(sandbox_id(a.sb), sandbox_id(b.sb));
    got_done(&a), got_done(&b);
}

static void failed_create_frees_its_key_and_name(void **state)
{
    got a = {0}, b = {0};

    (void)state;
    ask(&ann, "hut", "k1", "{}", &a);
    answer(0, err_new(ERR_POOL_EXHAUSTED, "no slot"));
    assert_int_equal(a.failure->code, ERR_POOL_EXHAUSTED);
    ask(&ann, "hut", "k1", "{}", &b);
    assert_int_equal(hand.nasked, 2);
    answer(1, NULL);
    assert_null(b.failure);
    assert_false(b.replay);
    got_done(&a), got_done(&b);
}

/* The end of the one before is still on its way to the store. */
static void failed_creates_are_retried_without_a_pause(void **state)
{
    (void)state;
    for (size_t i = 0; i < BOXES_MAX; i++) {
        got a = {0};
        ask(&ann, "hut", "k1", "{}", &a);
        assert_int_equal(hand.nasked, i + 1);
        answer(i, err_new(ERR_POOL_EXHAUSTED, "no slot"));
        assert_int_equal(a.calls, 1);
        assert_int_equal(a.failure->code, ERR_POOL_EXHAUSTED);
        got_done(&a);
    }
}

static void key_is_good_for_a_day(void **state)
{
    got a = {0}, b = {0}, c = {0};

    (void)state;
    ask(&ann, NULL, "k1", "{}", &a);
    answer(0, NULL);
    fake_now += (24 * 3600 - 1) * NS_PER_S;
    ask(&ann, NULL, "k1", "{}", &b);
    assert_int_equal(b.calls, 1);
    assert_true(b.replay);
    fake_now += NS_PER_S;
    ask(&ann, NULL, "k1", "{}", &c);
    assert_int_equal(hand.nasked, 2);
    answer(1, NULL);
    assert_false(c.replay);
    assert_string_not_equal(sandbox_id(a.sb), sandbox_id(c.sb));
    got_done(&a), got_done(&b), got_done(&c);
}

static void name_is_unique_among_the_owners_live_ones(void **state)
{
    got a = {0}, b = {0}, c = {0};

    (void)state;
    ask(&ann, "hut", NULL, "", &a);
    answer(0, NULL);
    ask(&ann, "hut", NULL, "", &b);
    assert_int_equal(b.failure->code, ERR_CONFLICT);
    assert_string_equal(b.failure->kind, "name");
    ask(&ben, "hut", NULL, "", &c);
    assert_int_equal(hand.nasked, 2);
    answer(1, NULL);
    assert_null(c.failure);
    got_done(&a), got_done(&b), got_done(&c);
}

static void secrets_reach_the_backend_and_no_file(void **state)
{
    got a = {0};
    CLEANUP(buf_done) buf db = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    assert_string_equal(hand.last_env, "TOKEN=s3cret");
    answer(0, NULL);
    assert_ok(store_sandbox_state(node.store, sandbox_id(a.sb), "running", NULL, 0));
    static const char *const FILES[] = {"store.db", "store.db-wal"};
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        err *e = fs_read(node.fd, FILES[i], 64 << 20, &db);
        if (!e)
            assert_null(memmem(db.p, db.len, "s3cret", 6));
        err_free(e);
        buf_done(&db);
    }
    got_done(&a);
}

static void a_reader_may_not_create(void **state)
{
    got a = {0};

    (void)state;
    ask(&eve, NULL, NULL, "", &a);
    assert_int_equal(a.failure->code, ERR_FORBIDDEN);
    assert_int_equal(hand.nasked, 0);
    got_done(&a);
}

/* ---- seeing and ending ---- */

static err *list_after(const caller *c, const char *id, size_t *ret_n)
{
    sandbox_filter f = {.after = id, .max = 10};
    CLEANUP(freep) sandbox_view *views = NULL;
    CLEANUP(freep) char *next = NULL;

    TRY(engine_list(node.engine, c, &f, &views, ret_n, &next));
    for (size_t i = 0; i < *ret_n; i++)
        sandbox_view_done(&views[i]);
    return NULL;
}

static void a_list_goes_on_only_after_ones_own(void **state)
{
    got a = {0};
    size_t n = 9;

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    assert_err(list_after(&ann, "../../x", &n), ERR_NOT_FOUND);
    assert_err(list_after(&ann, "zzzzzzzzzzzzzzzzzzzz", &n), ERR_NOT_FOUND);
    assert_err(list_after(&ben, sandbox_id(a.sb), &n), ERR_NOT_FOUND);
    assert_ok(list_after(&ann, sandbox_id(a.sb), &n));
    assert_int_equal(n, 0);
    assert_ok(list_after(&ann, "", &n));
    assert_int_equal(n, 1);
    got_done(&a);
}

static void what_is_not_yours_is_not_found(void **state)
{
    got a = {0};
    CLEANUP(sandbox_unrefp) sandbox *mine = NULL;
    CLEANUP(sandbox_unrefp) sandbox *admins = NULL;
    sandbox *other = NULL;

    (void)state;
    ask(&ann, "hut", NULL, "", &a);
    answer(0, NULL);
    assert_err(engine_find(node.engine, &ben, sandbox_id(a.sb), &other), ERR_NOT_FOUND);
    assert_err(engine_find(node.engine, &ben, "hut", &other), ERR_NOT_FOUND);
    assert_ok(engine_find(node.engine, &ann, "hut", &mine));
    assert_ok(engine_find(node.engine, &root, sandbox_id(a.sb), &admins));
    got_done(&a);
}

static void delete_is_kept_and_the_kill_is_sent(void **state)
{
    got a = {0};
    CLEANUP(sandbox_unrefp) sandbox *gone = NULL;
    exec *x = NULL;
    bool replay;
    char *argv[] = {"true", NULL};
    exec_spec s = {.argv = argv, .exec_fd = -1};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    assert_ok(engine_delete(node.engine, &ann, a.sb, CAUSE_REQUESTED, NULL));
    assert_int_equal(hand.ndestroyed, 1);
    assert_ok(engine_find(node.engine, &ann, sandbox_id(a.sb), &gone));
    assert_state(gone, "gone", "\"requested\"");
    assert_err(engine_exec(node.engine, &ann, gone, &s, &(idempotency){0}, &x, &replay),
               ERR_SANDBOX_GONE);
    assert_ok(
        engine_delete(node.engine, &ann, gone, CAUSE_REQUESTED, NULL)); /* again: nothing happens */
    assert_int_equal(hand.ndestroyed, 1);
    got_done(&a);
}

/* What a caller may not say, who watches over the node may. */
static void who_watches_over_them_ends_one_for_any_cause(void **state)
{
    static const cause LOST = {.kind = CAUSE_NODE_LOST, .by = "operator", .detail = "it is away"};
    got a = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    assert_err(engine_delete(node.engine, &root, a.sb, CAUSE_NODE_LOST, NULL), ERR_INVALID_REQUEST);
    assert_state(a.sb, "running", NULL);
    assert_ok(engine_end_for(node.engine, a.sb, &LOST));
    assert_int_equal(hand.ndestroyed, 1);
    assert_state(a.sb, "gone", "{\"kind\":\"node_lost\",\"detail\":\"it is away\"}");
    assert_ok(engine_end_for(node.engine, a.sb, &LOST)); /* again: nothing happens */
    got_done(&a);
}

static void time_to_live_ends_it_with_its_cause(void **state)
{
    got a = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    fake_now += 2 * NS_PER_S;
    for (int i = 0; i < 400; i++) {
        CLEANUP(sandbox_view_done) sandbox_view v;
        sandbox_get(a.sb, &v);
        if (!strcmp(v.state, "gone"))
            break;
        usleep(10000);
    }
    assert_state(a.sb, "gone", "\"ttl\"");
    got_done(&a);
}

/* Who is told its time elsewhere: the keeper ends it, for that cause. */
static void another_time_ends_it_with_its_cause(void **state)
{
    got a = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    assert_ok(engine_end_at(node.engine, a.sb, fake_now + 60 * NS_PER_S));
    fake_now += 2 * NS_PER_S; /* its first time is over */
    usleep(1200000);
    assert_state(a.sb, "running", NULL);
    assert_ok(engine_end_at(node.engine, a.sb, fake_now - NS_PER_S));
    for (int i = 0; i < 400 && sandbox_state(a.sb) != LIFE_GONE; i++)
        usleep(10000);
    assert_state(a.sb, "gone", "\"ttl\"");
    assert_err(engine_end_at(node.engine, a.sb, fake_now + NS_PER_S), ERR_SANDBOX_GONE);
    got_done(&a);
}

static void *look_for_idle(void *arg)
{
    idle_look(arg);
    return NULL;
}

/* Locks: the engine's, the sandbox's, its commands'. Whoever waits for the last one does not hold
 * the first. */
static void looking_for_idle_ones_holds_up_nobody(void **state)
{
    pthread_t looker;
    bool free_meanwhile = false;
    got a = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    pthread_mutex_lock(&a.sb->lock);
    sandbox_set_idle(a.sb, 3600000);
    pthread_mutex_unlock(&a.sb->lock);
    pthread_mutex_lock(&a.sb->table->lock);
    pthread_create(&looker, NULL, look_for_idle, node.engine);
    for (int i = 0; i < 100; i++) { /* until the looker waits for the commands' lock */
        usleep(2000);
        if (pthread_mutex_trylock(&a.sb->lock))
            break;
        pthread_mutex_unlock(&a.sb->lock);
    }
    for (int i = 0; i < 200 && !free_meanwhile; i++) {
        free_meanwhile = !pthread_mutex_trylock(&node.engine->lock);
        usleep(free_meanwhile ? 0 : 2000);
    }
    if (free_meanwhile)
        pthread_mutex_unlock(&node.engine->lock);
    pthread_mutex_unlock(&a.sb->table->lock);
    pthread_join(looker, NULL);
    assert_true(free_meanwhile);
    got_done(&a);
}

static err *quiet_usage_many(backend *b, const char (*ids)[SANDBOX_ID_LEN + 1], size_t n,
                             box_usage *ret)
{
    (void)b, (void)ids;
    for (size_t i = 0; i < n; i++)
        ret[i] = (box_usage){.known = true};
    return NULL;
}

static bool puts_to_sleep(void *arg, const char *id)
{
    (void)id;
    ++*(_Atomic int *)arg;
    return true;
}

static void an_idle_one_that_is_put_to_sleep_is_not_ended(void **state)
{
    static backend_ops quiet;
    _Atomic int told = 0;
    got a = {0};

    (void)state;
    quiet = HAND_OPS;
    quiet.usage_many = quiet_usage_many;
    hand.b.ops = &quiet;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    assert_ok(engine_end_at(node.engine, a.sb, fake_now + 3600 * NS_PER_S));
    pthread_mutex_lock(&a.sb->lock);
    sandbox_set_idle(a.sb, 16000);
    pthread_mutex_unlock(&a.sb->lock);
    engine_on_idle(node.engine, puts_to_sleep, (void *)&told);
    for (int i = 0; i < 40 && !told; i++) {
        assert_true(i > 15 || !told);
        idle_look(node.engine);
        fake_now += NS_PER_S;
    }
    assert_true(told > 0);
    assert_state(a.sb, "running", NULL);
    engine_on_idle(node.engine, NULL, NULL);
    fake_now += NS_PER_S;
    idle_look(node.engine);
    for (int i = 0; i < 400 && sandbox_state(a.sb) != LIFE_GONE; i++)
        usleep(10000);
    assert_state(a.sb, "gone", "\"idle\"");
    got_done(&a);
}

/* The keeper has others to end, too. */
static void an_end_of_ours_does_not_wait_for_the_node(void **state)
{
    got a = {0}, b = {0};

    (void)state;
    hand.b.ops = &AWAY_OPS;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    ask(&ann, NULL, NULL, "", &b);
    answer(1, NULL);
    fake_now += 2 * NS_PER_S;
    for (int i = 0; i < 400 && atomic_load(&hand.ndestroyed) < 2; i++)
        usleep(10000);
    assert_int_equal(atomic_load(&hand.ndestroyed), 2);
    got_done(&a);
    got_done(&b);
}

static void death_of_pid_1_is_an_end_with_its_cause(void **state)
{
    got a = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    box_die(&hand.box[0], "pid 1 has ended");
    assert_state(a.sb, "gone", "\"exited\"");
    got_done(&a);
}

/* Found by its record before that says so: nothing can be run in it. */
static void ended_one_is_gone_before_the_store_knows(void **state)
{
    char *argv[] = {"true", NULL};
    exec_spec s = {.argv = argv, .exec_fd = -1};

    (void)state;
    for (size_t i = 0; i < BOXES_MAX; i++) {
        CLEANUP(sandbox_unrefp) sandbox *again = NULL;
        exec *x = NULL;
        bool replay;
        got a = {0};
        ask(&ann, NULL, NULL, "", &a);
        answer(i, NULL);
        const box_events *ev = hand.box[i].ev;
        hand.box[i].ev = NULL;
        ev->gone(hand.box[i].arg, "pid 1 has ended");
        assert_ok(engine_find(node.engine, &ann, sandbox_id(a.sb), &again));
        assert_state(again, "gone", "\"exited\"");
        assert_err(engine_exec(node.engine, &ann, again, &s, &(idempotency){0}, &x, &replay),
                   ERR_SANDBOX_GONE);
        got_done(&a);
    }
}

/* ---- on a full disk ---- */

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

static void has_cause(const char *id, char why[64])
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(sandbox_view_done) sandbox_view v = {0};
    err *e = engine_find(node.engine, &ann, id, &sb);

    if (!e)
        sandbox_get(sb, &v);
    snprintf(why, 64, "%s", e ? e->message : str_or(v.cause, "none"));
    err_free(e);
}

static void row_says(const char *id, const char *why)
{
    CLEANUP(sandbox_row_done) sandbox_row row = {0};

    assert_ok(store_flush(node.store));
    assert_ok(store_sandbox_get(node.store, id, &row));
    assert_string_equal(row.state, "gone");
    assert_non_null(strstr(str_or(row.cause, ""), why));
}

static size_t destroyed_within(unsigned ms, size_t wanted)
{
    for (unsigned i = 0; i < ms / 10 && atomic_load(&hand.ndestroyed) < wanted; i++)
        usleep(10000);
    return atomic_load(&hand.ndestroyed);
}

/* Its cause is known before its row is, and its box does not run on. */
static void an_end_by_time_is_known_while_the_disk_is_full(void **state)
{
    char why[64];
    got a = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    assert_ok(store_flush(node.store));
    struct rlimit all = disk_break();
    fake_now += 2 * NS_PER_S;
    size_t destroyed = destroyed_within(10000, 1);
    has_cause(sandbox_id(a.sb), why);
    disk_mend(all);
    assert_int_equal(destroyed, 1);
    assert_string_equal(why, "{\"kind\":\"ttl\"}");
    row_says(sandbox_id(a.sb), "ttl");
    assert_int_equal(destroyed_within(1500, 2), 1); /* once */
    got_done(&a);
}

/* A row cannot tell that it was idle: a start after a kill finds it alive, and ends it then. */
static void an_idle_end_is_written_before_its_box_goes(void **state)
{
    char why[64];
    got a = {0};

    (void)state;
    ask(&ann, NULL, NULL, "", &a);
    answer(0, NULL);
    assert_ok(store_flush(node.store));
    struct rlimit all = disk_break();
    engine_end(a.sb, &(cause){.kind = CAUSE_IDLE});
    size_t destroyed = destroyed_within(1500, 1);
    has_cause(sandbox_id(a.sb), why);
    disk_mend(all);
    assert_int_equal(destroyed, 0);
    assert_string_equal(why, "{\"kind\":\"idle\"}");
    assert_int_equal(destroyed_within(10000, 1), 1);
    row_says(sandbox_id(a.sb), "idle");
    got_done(&a);
}

/* ---- after a crash ---- */

static void put_row(const char *id, const char *state, uint8_t key)
{
    sandbox_row r = {.owner = "ann",
                     .state = (char *)state,
                     .image = "any",
                     .spec = "{\"limits\":{}}",
                     .created_ns = fake_now,
                     .key = {key},
                     .body = {key}};

    snprintf(r.id, sizeof r.id, "%s", id);
    assert_ok(store_sandbox_insert(node.store, &r));
}

static void put_box(const char *id)
{
    snprintf(hand.listed[hand.nlisted++].id, SANDBOX_ID_LEN + 1, "%s", id);
}

static void found(const char *id, const char *state, const char *why)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    assert_ok(engine_find(node.engine, &ann, id, &sb));
    assert_state(sb, state, why);
}

#define ID_A "t000aaaaaaaaaaaaaaaa"
#define ID_B "t000bbbbbbbbbbbbbbbb"
#define ID_C "t000cccccccccccccccc"

static void reconcile_settles_rows_and_boxes(void **state)
{
    (void)state;
    hand.hello_in_attach = true;
    hand.claimed = true;
    put_row(ID_A, "running", 1);
    put_box(ID_A);
    put_row(ID_B, "running", 2); /* its box is lost */
    put_box(ID_C);               /* nobody knows it */
    assert_ok(engine_reconcile(node.engine));
    found(ID_A, "running", NULL);
    found(ID_B, "gone", "node_lost");
    assert_int_equal(hand.ndestroyed, 1);
    assert_string_equal(hand.destroyed[0], ID_C);
}

static void put_row_of_time(const char *id, const char *spec, uint64_t ttl_ns)
{
    sandbox_row r = {.owner = "ann",
                     .state = "running",
                     .image = "any",
                     .spec = (char *)spec,
                     .created_ns = fake_now,
                     .ttl_ns = ttl_ns};

    snprintf(r.id, sizeof r.id, "%s", id);
    assert_ok(store_sandbox_insert(node.store, &r));
}

/* A kill came between the destroy of its box and its row. */
static void a_lost_box_whose_time_is_over_has_ended_by_time(void **state)
{
    (void)state;
    put_row_of_time(ID_A, "{}", fake_now - 1);
    put_row_of_time(ID_B, "{}", fake_now + NS_PER_S * 1000);
    put_row_of_time(ID_C, "{}", fake_now - 1);
    assert_ok(store_sandbox_pause(node.store, ID_C, "paused", fake_now - NS_PER_S, fake_now - 1));
    assert_ok(engine_reconcile(node.engine));
    found(ID_A, "gone", "ttl");
    found(ID_B, "gone", "node_lost");
    found(ID_C, "gone", "node_lost"); /* its time stood still */
}

/* A dead box holds its exit status, which another start may need. */
static void a_dead_box_stays_until_its_end_is_written(void **state)
{
    (void)state;
    put_row(ID_A, "running", 1);
    put_box(ID_A);
    hand.listed[0].dead = true;
    struct rlimit all = disk_break();
    err *failure = engine_reconcile(node.engine);
    size_t destroyed = destroyed_within(1500, 1);
    disk_mend(all);
    assert_ok(failure);
    assert_int_equal(destroyed, 0);
    assert_int_equal(destroyed_within(10000, 1), 1);
    row_says(ID_A, "exited");
}

static void a_template_that_cannot_be_read_hides_no_other(void **state)
{
    const template_row bad = {
        .id = ID_A, .owner = (char *)"ann", .name = (char *)"bad", .spec = (char *)"{"};
    const template_row good = {
        .id = ID_B, .owner = (char *)"ann", .name = (char *)"good", .spec = (char *)"{}"};
    caller c = {"ann", CALLER_USER};
    template_view *all = NULL, one = {0};
    size_t n = 0;

    (void)state;
    assert_ok(store_template_insert(node.store, &bad, 9));
    assert_ok(store_template_insert(node.store, &good, 9));
    assert_ok(engine_template_list(node.engine, &c, &all, &n));
    assert_int_equal(n, 1);
    assert_string_equal(all[0].name, "good");
    template_view_done(&all[0]);
    free(all);
    CLEANUP(err_freep) err *e = engine_template_find(node.engine, &c, "bad", &one);
    assert_non_null(e);
    assert_ok(engine_template_remove(node.engine, &c, "bad"));
    assert_err(engine_template_remove(node.engine, &c, "bad"), ERR_NOT_FOUND);
}

/* Its destroy was refused, or lost. */
static void a_box_of_no_sandbox_goes_at_the_second_look(void **state)
{
    (void)state;
    hand.hello_in_attach = true;
    put_row(ID_A, "running", 1);
    put_box(ID_A);
    assert_ok(engine_reconcile(node.engine));
    put_box(ID_B);
    for (int look = 0; look < 20 && !destroyed_within(1500, 1); look++)
        fake_now += 61 * NS_PER_S;
    assert_int_equal(destroyed_within(10000, 1), 1);
    assert_string_equal(hand.destroyed[0], ID_B);
    found(ID_A, "running", NULL);
}

/* Its list may wait for a cluster, and the sweeper has to make room meanwhile. */
static void a_backend_that_removes_strays_is_listed_at_the_start_only(void **state)
{
    (void)state;
    hand.b.caps.removes_strays = true;
    assert_ok(engine_reconcile(node.engine));
    put_box(ID_B);
    for (int look = 0; look < 3; look++) {
        fake_now += 61 * NS_PER_S;
        assert_int_equal(destroyed_within(1500, 1), 0);
    }
    assert_int_equal(hand.nlists, 1);
}

static void put_template(const char *id, const char *owner, const char *name)
{
    const template_row row = {.owner = (char *)owner, .name = (char *)name, .spec = (char *)"{}"};
    template_row r = row;

    snprintf(r.id, sizeof r.id, "%s", id);
    assert_ok(store_template_insert(node.store, &r, 9));
}

/* A list shows it, so that showing and removing must find it; a create must not take it by chance. */
static void an_administrator_manages_others_templates_by_name(void **state)
{
    template_view t = {0};

    (void)state;
    put_template(ID_A, "ann", "hers");
    put_template(ID_B, "ben", "both");
    put_template(ID_C, "ann", "both");
    assert_err(engine_template_manage(node.engine, &ben, "hers", &t), ERR_NOT_FOUND);
    assert_err(engine_template_find(node.engine, &root, "hers", &t), ERR_NOT_FOUND);
    assert_ok(engine_template_manage(node.engine, &root, "hers", &t));
    assert_string_equal(t.id, ID_A);
    template_view_done(&t);
    assert_err(engine_template_manage(node.engine, &root, "both", &t), ERR_CONFLICT);
    assert_err(engine_template_remove(node.engine, &root, "both"), ERR_CONFLICT);
    assert_ok(engine_template_remove(node.engine, &root, ID_B));
    assert_ok(engine_template_remove(node.engine, &root, "both"));
    assert_ok(engine_template_remove(node.engine, &root, "hers"));
    assert_err(engine_template_manage(node.engine, &root, "hers", &t), ERR_NOT_FOUND);
}

static void spools_of_nobody_go_at_the_start(void **state)
{
    (void)state;
    put_row(ID_A, "gone", 1);
    assert_int_equal(mkdirat(node.spool, ID_A, 0700), 0);
    assert_int_equal(mkdirat(node.spool, ID_B, 0700), 0);
    assert_ok(engine_reconcile(node.engine));
    for (int i = 0; i < 1000 && !faccessat(node.spool, ID_B, F_OK, 0); i++)
        usleep(10000); /* behind the start */
    assert_int_equal(faccessat(node.spool, ID_B, F_OK, 0), -1);
    assert_int_equal(faccessat(node.spool, ID_A, F_OK, 0), 0);
}

static void interrupted_create_is_settled_by_the_claimed_bit(void **state)
{
    sandbox_row row = {0};

    (void)state;
    hand.claimed = true;
    put_row(ID_A, "creating", 1);
    put_box(ID_A);
    put_row(ID_B, "creating", 2); /* no box: nothing was claimed */
    assert_ok(engine_reconcile(node.engine));
    found(ID_A, "creating", NULL);
    say_hello(&hand.box[0], true); /* it answers later */
    found(ID_A, "running", NULL);
    found(ID_B, "gone", "create_failed");
    assert_ok(store_flush(node.store));
    assert_ok(store_sandbox_by_key(node.store, (uint8_t[16]){1}, &row));
    sandbox_row_done(&row);
    assert_err(store_sandbox_by_key(node.store, (uint8_t[16]){2}, &row), ERR_NOT_FOUND);
}

static void *wait_for(void *sb)
{
    return engine_wait_awake(sb);
}

/* Somebody may have been told of it before the restart. */
static void who_asks_for_an_interrupted_create_waits_for_its_word(void **state)
{
    CLEANUP(sandbox_unrefp) sandbox *a = NULL, *b = NULL;
    err *told = NULL;

    (void)state;
    hand.claimed = true;
    put_row(ID_A, "creating", 1);
    put_box(ID_A);
    put_row(ID_B, "creating", 2);
    put_box(ID_B);
    assert_ok(engine_reconcile(node.engine));
    assert_ok(engine_find(node.engine, &ann, ID_A, &a));
    assert_ok(engine_find(node.engine, &ann, ID_B, &b));
    pthread_t asker = thread_start("asker", wait_for, a),
              other = thread_start("other", wait_for, b);
    usleep(100000);
    say_hello(&hand.box[0], true);
    pthread_join(asker, (void **)&told);
    assert_ok(told);
    box_die(&hand.box[1], "killed");
    pthread_join(other, (void **)&told);
    assert_err(told, ERR_SANDBOX_GONE);
}

static void interrupted_create_without_claim_is_destroyed(void **state)
{
    sandbox_row row = {0};

    (void)state;
    hand.hello_in_attach = true;
    hand.claimed = false;
    put_row(ID_A, "creating", 1);
    put_box(ID_A);
    assert_ok(engine_reconcile(node.engine));
    found(ID_A, "gone", "create_failed");
    assert_int_equal(destroyed_within(10000, 1), 1);
    assert_ok(store_flush(node.store));
    assert_err(store_sandbox_by_key(node.store, (uint8_t[16]){1}, &row), ERR_NOT_FOUND);
}

static void interrupted_create_whose_box_ends_unheard_frees_its_key(void **state)
{
    sandbox_row row = {0};

    (void)state;
    put_row(ID_A, "creating", 1);
    put_box(ID_A);
    assert_ok(engine_reconcile(node.engine));
    box_die(&hand.box[0], "tainted: it knows no secret");
    found(ID_A, "gone", "create_failed");
    assert_ok(store_flush(node.store));
    assert_err(store_sandbox_by_key(node.store, (uint8_t[16]){1}, &row), ERR_NOT_FOUND);
}

static void interrupted_create_of_a_newer_release_waits(void **state)
{
    (void)state;
    put_row(ID_A, "creating", 1);
    put_box(ID_A);
    assert_ok(engine_reconcile(node.engine));
    hand.box[0].ev->newer(hand.box[0].arg);
    fake_now += 61 * NS_PER_S;
    usleep(2500000); /* two rounds of the keeper */
    found(ID_A, "creating", NULL);
    assert_int_equal(hand.ndestroyed, 0);
    hand.claimed = true;
    say_hello(&hand.box[0], true);
    found(ID_A, "running", NULL);
}

static void a_start_command_without_a_program_is_none(void **state)
{
    sandbox_row r = {.owner = "ann",
                     .state = "running",
                     .image = "any",
                     .spec = "{\"limits\":{},\"start\":{\"user\":\"ann\"}}",
                     .created_ns = fake_now};

    (void)state;
    snprintf(r.id, sizeof r.id, "%s", ID_A);
    assert_ok(store_sandbox_insert(node.store, &r));
    put_box(ID_A);
    assert_ok(engine_reconcile(node.engine));
    say_hello(&hand.box[0], true);
    found(ID_A, "running", NULL);
}

static void interrupted_create_is_given_up_in_the_end(void **state)
{
    sandbox_row row = {0};
    int tries = 1000;

    (void)state;
    put_row(ID_A, "creating", 1);
    put_box(ID_A);
    assert_ok(engine_reconcile(node.engine));
    found(ID_A, "creating", NULL); /* its init says nothing */
    fake_now += 61 * NS_PER_S;
    for (bool gone = false; !gone && tries--;) {
        CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
        CLEANUP(sandbox_view_done) sandbox_view v;
        usleep(10000);
        assert_ok(engine_find(node.engine, &ann, ID_A, &sb));
        sandbox_get(sb, &v);
        gone = !strcmp(v.state, "gone");
    }
    found(ID_A, "gone", "create_failed");
    assert_ok(store_flush(node.store));
    assert_err(store_sandbox_by_key(node.store, (uint8_t[16]){1}, &row), ERR_NOT_FOUND);
}

/* A template of the cluster's administrator gives it to a user, who stays one otherwise. */
static void a_network_may_be_granted_to_a_user(void **state)
{
    caller granted = ann;

    (void)state;
    granted.granted = true;
    assert_err(engine_check_network(node.engine, &ann), ERR_FORBIDDEN);
    assert_err(engine_check_network(node.engine, &granted),
               ERR_UNSUPPORTED); /* the node has none */
}

static void a_build_that_a_restart_has_lost_says_so(void **state)
{
    const caller c = {.owner = (char *)"alice", .role = CALLER_USER};
    CLEANUP(build_row_done) build_row row = {0};
    CLEANUP(build_row_done) build_row after = {0};

    (void)state;
    assert_ok(engine_build_new(node.engine, &c, "name", NULL, &(limits){0}, &row));
    assert_string_equal(row.state, "waiting");
    free(row.state);
    row.state = xstrdup("building");
    assert_ok(store_build_update(node.store, &row, 1));
    assert_ok(engine_reconcile(node.engine));
    assert_ok(engine_build_find(node.engine, &c, row.template, row.id, &after));
    assert_string_equal(after.state, "error");
    assert_non_null(strstr(after.reason, "lost by a restart"));
}

static void builds_of_one_name_are_of_one_template(void **state)
{
    const caller c = {.owner = (char *)"alice", .role = CALLER_USER};
    const caller other = {.owner = (char *)"bob", .role = CALLER_USER};
    char *tags[] = {(char *)"v1", (char *)"v2", NULL};
    CLEANUP(build_row_done) build_row a = {0};
    CLEANUP(build_row_done) build_row b = {0};
    CLEANUP(build_row_done) build_row o = {0};
    build_recipe r = {0};

    (void)state;
    assert_ok(engine_build_new(node.engine, &c, "name", NULL, &(limits){0}, &a));
    assert_ok(engine_build_new(node.engine, &c, "name", tags, &(limits){0}, &b));
    assert_ok(engine_build_new(node.engine, &other, "name", NULL, &(limits){0}, &o));
    assert_string_equal(a.template, b.template);
    assert_string_not_equal(a.template, o.template);
    assert_string_not_equal(a.id, b.id);
    assert_string_equal(a.tags, "[\"default\"]");
    assert_string_equal(b.tags, "[\"v1\",\"v2\"]");
    assert_err(engine_build_find(node.engine, &other, a.template, a.id, &o), ERR_NOT_FOUND);
    assert_err(engine_build_new(node.engine, &c, "a b", NULL, &(limits){0}, &o),
               ERR_INVALID_REQUEST);
    /* this backend takes no snapshots */
    assert_err(engine_build_start(node.engine, &c, a.template, a.id, &r), ERR_UNSUPPORTED);
}

static pthread_barrier_t at_once;

static void *begin_one(void *arg)
{
    build_row *row = arg;
    char *name = TAKE_PTR(row->name);

    pthread_barrier_wait(&at_once);
    assert_ok(engine_build_new(node.engine, &ann, name, NULL, &(limits){0}, row));
    free(name);
    return NULL;
}

static void builds_of_one_new_name_at_once_are_of_one_template(void **state)
{
    build_row rows[4] = {0};
    pthread_t threads[ARRAY_LEN(rows)];

    (void)state;
    pthread_barrier_init(&at_once, NULL, ARRAY_LEN(rows));
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            rows[i].name = str_printf("name-%d", round);
            assert_int_equal(pthread_create(&threads[i], NULL, begin_one, &rows[i]), 0);
        }
        for (size_t i = 0; i < ARRAY_LEN(rows); i++)
            pthread_join(threads[i], NULL);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            assert_string_equal(rows[i].template, rows[0].template);
            if (i)
                build_row_done(&rows[i]);
        }
        build_row_done(&rows[0]);
    }
    pthread_barrier_destroy(&at_once);
}

/* ---- the desk of builds ---- */

static build *put_build(const char *owner, unsigned number)
{
    build *b = xcalloc(1, sizeof *b);

    snprintf(b->id, sizeof b->id, "%s-%u", owner, number);
    b->e = node.engine;
    b->who.owner = xstrdup(owner);
    pthread_mutex_init(&b->lock, NULL);
    map_put_str(&node.engine->builds->known, b->id, b);
    return b;
}

static void end_build(const char *owner, unsigned number, size_t bytes)
{
    static char line[BUILD_LOG_LINE];
    build *b = put_build(owner, number);

    memset(line, 'x', sizeof line);
    for (size_t n = 0; n < bytes; n += sizeof line)
        build_say_line(b, "info", line, sizeof line);
    b->recipe = (build_recipe){.steps = xcalloc(1, sizeof(build_step)), .nsteps = 1};
    strv_push(&b->recipe.steps[0].args, xstrdup("make"));
    LOCK_SCOPE(&node.engine->builds->lock);
    build_retire(node.engine->builds, b);
}

static bool has_log(const char *id)
{
    build_line *lines = NULL;
    size_t n = 0;

    engine_build_log(node.engine, id, 0, 1, &lines, &n);
    build_lines_free(lines, n);
    return n;
}

static void builds_that_are_over_keep_logs_within_a_budget(void **state)
{
    (void)state;
    end_build("ben", 0, 1 << 20);
    for (unsigned i = 0; i < 6; i++)
        end_build("ann", i, 5 << 20);
    assert_false(has_log("ann-0"));
    assert_false(has_log("ann-2"));
    assert_true(has_log("ann-3") && has_log("ann-5"));
    assert_true(has_log("ben-0"));
    for (const build *b = node.engine->builds->old; b; b = b->next)
        assert_int_equal(b->recipe.nsteps, 0);
    for (unsigned i = 0; i < 20; i++) {
        char owner[16];
        snprintf(owner, sizeof owner, "other%u", i);
        end_build(owner, 0, 5 << 20);
    }
    assert_false(has_log("ben-0"));
    assert_true(has_log("other19-0"));
    assert_true(node.engine->builds->old_bytes <= 64 << 20);
}

static void a_log_ends_where_lines_take_too_much(void **state)
{
    build *b = put_build("ann", 0);

    (void)state;
    for (int i = 0; i < 1000000; i++)
        build_say_line(b, "info", "", 0);
    assert_true(b->nlines < BUILD_LOG_MAX / sizeof(build_line));
    assert_string_equal(b->lines[b->nlines - 1].level, "warn");
}

static err *no_snapshot(backend *b, const char *id, const uint8_t layer[32], box_snapshot *ret)
{
    (void)b, (void)id, (void)layer, (void)ret;
    return err_new(ERR_UNAVAILABLE, "none");
}

/* With a backend that takes snapshots, as far as a start can know. */
static void starts_not(const caller *c, const char *name, err_code code)
{
    backend_ops ops = HAND_OPS;
    CLEANUP(build_row_done) build_row row = {0};
    CLEANUP(build_row_done) build_row after = {0};
    build_recipe r = {0};

    ops.snapshot = no_snapshot;
    hand.b.ops = &ops;
    hand.b.caps.snapshot = hand.b.caps.files = CAP_NATIVE;
    node.engine->o.kit_fd = node.fd;
    assert_ok(engine_build_new(node.engine, c, name, NULL, &(limits){0}, &row));
    assert_err(engine_build_start(node.engine, c, row.template, row.id, &r), code);
    assert_ok(engine_build_find(node.engine, c, row.template, row.id, &after));
    assert_string_equal(after.state, "waiting");
    hand.b.ops = &HAND_OPS;
}

static void a_build_that_may_not_start_yet_waits(void **state)
{
    (void)state;
    for (unsigned i = 0; i < BUILDS_OWNER; i++)
        put_build("ann", i);
    starts_not(&ann, "name", ERR_QUOTA_EXCEEDED);
}

static void make_template(const caller *c, const char *name, bool public)
{
    CLEANUP(template_view_done)
    template_view t = {.name = xstrdup(name), .public = public, .spec = {.image = xstrdup("any")}};
    CLEANUP(template_view_done) template_view made = {0};

    assert_ok(engine_template_create(node.engine, c, &t, &made));
}

static void a_build_that_could_not_be_published_is_not_begun(void **state)
{
    const caller user = {root.owner, CALLER_USER};
    snapshot_row files = {.owner = ben.owner, .image = (char *)"any"};

    (void)state;
    make_template(&root, "everybodys", true);
    starts_not(&user, "everybodys", ERR_FORBIDDEN);
    for (unsigned i = 0; i < TEMPLATES_MAX; i++) {
        char name[32];
        snprintf(name, sizeof name, "one-%u", i);
        make_template(&ann, name, false);
    }
    starts_not(&ann, "one-more", ERR_QUOTA_EXCEEDED);
    for (unsigned i = 0; i < SNAPSHOTS_MAX; i++) {
        snprintf(files.id, sizeof files.id, "t000%016u", i);
        assert_ok(store_snapshot_insert(node.store, &files, SNAPSHOTS_MAX));
    }
    starts_not(&ben, "name", ERR_QUOTA_EXCEEDED);
}

static void a_template_for_everybody_is_built_by_an_administrator(void **state)
{
    CLEANUP(build_row_done) build_row row = {0};
    snapshot_row files = {.owner = root.owner, .image = (char *)"any"};

    (void)state;
    make_template(&root, "everybodys", true);
    snprintf(files.id, sizeof files.id, "%s", ID_A);
    assert_ok(store_snapshot_insert(node.store, &files, SNAPSHOTS_MAX));
    assert_ok(engine_build_new(node.engine, &root, "everybodys", NULL, &(limits){0}, &row));
    row.snapshot = xstrdup(ID_A);
    assert_ok(store_build_update(node.store, &row, 1));
    assert_err(build_take_tags(node.engine, CALLER_USER, &row), ERR_FORBIDDEN);
    assert_ok(build_take_tags(node.engine, CALLER_ADMIN, &row));
}

/* ---- uploads ---- */

typedef struct sending {
    size_t left;
    void (*before)(void); /* the first piece is asked for */
} sending;

static err *send_piece(void *arg, void *p, size_t max, size_t *ret_n)
{
    sending *s = arg;
    void (*before)(void) = TAKE_PTR(s->before);

    if (before)
        before();
    *ret_n = s->left < max ? s->left : max;
    memset(p, 'x', *ret_n);
    s->left -= *ret_n;
    return NULL;
}

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static err *upload(const char *owner, const char *hash, size_t n, void (*before)(void))
{
    sending s = {n, before};

    node.engine->o.state_dir = node.fd;
    return engine_upload(node.engine, owner, hash, send_piece, &s);
}

static void another_of_ann(void)
{
    assert_ok(upload("ann", HASH_B, 60000, NULL));
}

static void another_of_ben(void)
{
    assert_ok(upload("ben", HASH_B, 60000, NULL));
}

static void uploads_at_a_time_share_the_room_there_is(void **state)
{
    build_desk *d = node.engine->builds;

    (void)state;
    d->upload_owner_max = 100000;
    assert_err(upload("ann", HASH_A, 60000, another_of_ann), ERR_QUOTA_EXCEEDED);
    assert_false(engine_upload_present(node.engine, "ann", HASH_A));
    assert_true(engine_upload_present(node.engine, "ann", HASH_B));
    assert_ok(upload("ann", HASH_A, 40000, NULL)); /* what failed takes no room */
    assert_err(upload("ann", HASH_A, 40001, NULL), ERR_QUOTA_EXCEEDED);
    d->upload_node_max = 200000;
    assert_err(upload("cid", HASH_A, 60000, another_of_ben), ERR_DISK_FULL);
    assert_ok(upload("cid", HASH_A, 40000, NULL));
    assert_null(d->accounts);
}

static void an_upload_that_takes_the_place_of_another_takes_its_room(void **state)
{
    (void)state;
    assert_ok(upload("ann", HASH_A, 1000, NULL));
    assert_ok(upload("ann", HASH_A, 3000, NULL));
    assert_int_equal(node.engine->builds->upload_bytes, 3000);
}

static void uploads_leave_the_store_its_disk(void **state)
{
    (void)state;
    node.engine->builds->upload_floor = UINT64_MAX;
    assert_err(upload("ann", HASH_A, 1, NULL), ERR_DISK_FULL);
    assert_false(engine_upload_present(node.engine, "ann", HASH_A));
}

static unsigned deep;

static void one_more(void)
{
    unsigned at = ++deep;
    err *failure = upload("ann", HASH_A, 1, one_more);

    assert_int_equal(failure ? failure->code == ERR_QUOTA_EXCEEDED : 2, at > UPLOADS_OWNER ? 1 : 2);
    err_free(failure);
}

static void few_uploads_of_an_owner_at_a_time(void **state)
{
    (void)state;
    deep = 0;
    one_more();
    assert_int_equal(deep, UPLOADS_OWNER + 1);
}

static void what_is_copied_goes_below_the_root(void **state)
{
    static const struct {
        const char *cwd, *path, *want;
    } TARGETS[] = {
        {"/srv", "a", "srv/a"}, {"/srv", "/a/b/", "a/b"},         {"/srv", "..", ""},
        {"", "x", "x"},         {"/srv", "./../../a/./b", "a/b"}, {"/a/b", "../c", "a/c"}};
    static const struct {
        const char *pattern, *want;
    } SOURCES[] = {{"a", "a"},     {"a/b/", "a/b"}, {".", ""},         {"*", ""},
                   {"a/*.c", "a"}, {"a/b*", "a"},   {"a/b[1]/c", "a"}, {"./a/../b", "b"}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(TARGETS); i++) {
        CLEANUP(freep) char *path = build_copy_target(TARGETS[i].cwd, TARGETS[i].path);
        assert_string_equal(path, TARGETS[i].want);
    }
    for (size_t i = 0; i < ARRAY_LEN(SOURCES); i++) {
        CLEANUP(freep) char *path = build_copy_source(SOURCES[i].pattern);
        assert_string_equal(path, SOURCES[i].want);
    }
}

/* ---- keys ---- */

static caller boss = {"boss", CALLER_ADMIN};

/* A key and the caller that came with it. */
static caller *come_with(const char *owner, const char *role, uint64_t ttl_ms)
{
    CLEANUP(key_row_done) key_row row = {0};
    CLEANUP(secret_freep) char *secret = NULL;
    const key_request k = {.owner = owner, .role = role, .ttl_ms = ttl_ms};
    caller *c = NULL;

    assert_ok(engine_key_create(node.engine, &boss, &k, &row, &secret));
    assert_ok(caller_by_key(node.engine, secret, &c));
    return c;
}

static void a_caller_lapses_with_the_key(void **state)
{
    caller *hers = come_with("ann", "user", 0), *other = come_with("ann", "user", 0),
           *brief = come_with("ann", "user", 1000);

    (void)state;
    assert_false(caller_has_lapsed(node.engine, hers));
    assert_ok(engine_key_remove(node.engine, &boss, hers->key));
    assert_true(caller_has_lapsed(node.engine, hers));
    assert_true(caller_has_lapsed(node.engine, hers));
    assert_false(caller_has_lapsed(node.engine, other));
    assert_false(caller_has_lapsed(node.engine, brief));
    assert_false(caller_has_lapsed(node.engine, &ann)); /* by peer */
    fake_now += NS_PER_S;
    assert_true(caller_has_lapsed(node.engine, brief));
    assert_false(caller_has_lapsed(node.engine, other));
    caller_free(hers), caller_free(other), caller_free(brief);
}

/* An administrator's may have read everybody's tokens. */
static void a_token_lapses_with_a_key_that_could_read_it(void **state)
{
    caller *hers = come_with("ann", "user", 0), *his = come_with("ben", "user", 0),
           *admins = come_with("boss", "admin", 0);
    caller token = {.owner = (char *)"ann", .role = CALLER_USER, .by_token = true};

    (void)state;
    assert_int_equal(engine_key_epoch(node.engine, "ann"), 0);
    assert_ok(engine_key_remove(node.engine, &boss, his->key));
    assert_int_equal(engine_key_epoch(node.engine, "ann"), 0);
    assert_int_equal(engine_key_epoch(node.engine, "ben"), 1);
    assert_false(caller_has_lapsed(node.engine, &token));
    assert_ok(engine_key_remove(node.engine, &boss, hers->key));
    assert_true(caller_has_lapsed(node.engine, &token));
    token.epoch = engine_key_epoch(node.engine, "ann");
    assert_false(caller_has_lapsed(node.engine, &token));
    assert_ok(engine_key_remove(node.engine, &boss, admins->key));
    assert_true(caller_has_lapsed(node.engine, &token));
    engine_free(node.engine);
    node.engine = NULL;
    open_engine();
    assert_int_equal(engine_key_epoch(node.engine, "ann"), 2);
    assert_int_equal(engine_key_epoch(node.engine, "ben"), 2);
    caller_free(hers), caller_free(his), caller_free(admins);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(second_caller_of_a_key_waits_for_the_first),
        CASE(a_sandbox_is_found_by_its_key_and_none_is_made),
        CASE(a_limit_that_is_not_held_is_refused_when_it_is_named),
        CASE(limits_above_the_ceiling_are_an_administrators),
        CASE(limits_of_an_owner_add_up_to_its_quota),
        CASE(nobody_hears_of_a_box_before_its_record),
        CASE(box_that_ends_before_its_record_is_a_failed_create),
        CASE(delete_while_creating_is_durable_and_takes_the_claim_back),
        CASE(create_without_a_spool_fails_and_its_box_goes),
        CASE(keys_of_different_owners_do_not_meet),
        CASE(failed_create_frees_its_key_and_name),
        CASE(failed_creates_are_retried_without_a_pause),
        CASE(key_is_good_for_a_day),
        CASE(name_is_unique_among_the_owners_live_ones),
        CASE(secrets_reach_the_backend_and_no_file),
        CASE(a_reader_may_not_create),
        CASE(what_is_not_yours_is_not_found),
        CASE(a_list_goes_on_only_after_ones_own),
        CASE(delete_is_kept_and_the_kill_is_sent),
        CASE(who_watches_over_them_ends_one_for_any_cause),
        CASE(time_to_live_ends_it_with_its_cause),
        CASE(another_time_ends_it_with_its_cause),
        CASE(looking_for_idle_ones_holds_up_nobody),
        CASE(an_idle_one_that_is_put_to_sleep_is_not_ended),
        CASE(an_end_of_ours_does_not_wait_for_the_node),
        CASE(death_of_pid_1_is_an_end_with_its_cause),
        CASE(ended_one_is_gone_before_the_store_knows),
        CASE(an_end_by_time_is_known_while_the_disk_is_full),
        CASE(an_idle_end_is_written_before_its_box_goes),
        CASE(a_lost_box_whose_time_is_over_has_ended_by_time),
        CASE(a_dead_box_stays_until_its_end_is_written),
        CASE(an_administrator_manages_others_templates_by_name),
        CASE(a_box_of_no_sandbox_goes_at_the_second_look),
        CASE(a_backend_that_removes_strays_is_listed_at_the_start_only),
        CASE(reconcile_settles_rows_and_boxes),
        CASE(a_template_that_cannot_be_read_hides_no_other),
        CASE(spools_of_nobody_go_at_the_start),
        CASE(interrupted_create_is_settled_by_the_claimed_bit),
        CASE(who_asks_for_an_interrupted_create_waits_for_its_word),
        CASE(interrupted_create_without_claim_is_destroyed),
        CASE(interrupted_create_whose_box_ends_unheard_frees_its_key),
        CASE(interrupted_create_of_a_newer_release_waits),
        CASE(a_start_command_without_a_program_is_none),
        CASE(interrupted_create_is_given_up_in_the_end),
        CASE(a_network_may_be_granted_to_a_user),
        CASE(a_build_that_a_restart_has_lost_says_so),
        CASE(builds_of_one_name_are_of_one_template),
        CASE(builds_of_one_new_name_at_once_are_of_one_template),
        CASE(builds_that_are_over_keep_logs_within_a_budget),
        CASE(a_log_ends_where_lines_take_too_much),
        CASE(a_build_that_may_not_start_yet_waits),
        CASE(a_build_that_could_not_be_published_is_not_begun),
        CASE(a_template_for_everybody_is_built_by_an_administrator),
        CASE(uploads_at_a_time_share_the_room_there_is),
        CASE(an_upload_that_takes_the_place_of_another_takes_its_room),
        CASE(uploads_leave_the_store_its_disk),
        CASE(few_uploads_of_an_owner_at_a_time),
        CASE(what_is_copied_goes_below_the_root),
        CASE(a_caller_lapses_with_the_key),
        CASE(a_token_lapses_with_a_key_that_could_read_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/clock.h"
#include "operator/plan_sandbox.h"
#include "operator/status.h"

#include "make.h"

#define S(n) ((uint64_t)(n)*NS_PER_S)
#define BORN UINT64_C(1767322800000000000) /* 2026-01-02T03:00:00Z */
#define NOW  (BORN + S(1000))

#define ID      "'id':'abcd0123456789abcdef'"
#define FIN     ",'finalizers':['bothy.dev/sandbox']"
#define DELETED FIN ",'deletionTimestamp':'2026-01-02T03:16:00Z'"
#define POOL    "{'poolRef':'p'}"
#define DISK    "{'image':'i','workspace':{'mountPath':'/w','size':'1Gi'}}"
#define KEPT    "{'image':'i','workspace':{'mountPath':'/w','size':'1Gi','reclaim':'Retain'}}"
#define ASLEEP(reason)                                                                        \
    "{'phase':'Hibernated','observedGeneration':2," ID ",'conditions':[{'type':'Hibernated'," \
    "'status':'True','reason':'" reason "'}]}"
#define RUNNING  "{'phase':'Running'," ID "}"
#define LOST(at) "{'phase':'Terminated'," ID ",'cause':{'code':'node_lost','at':'" at "'}}"
#define ENDED    "{'phase':'Terminated'," ID ",'cause':{'code':'ttl','at':'2026-01-02T03:10:00Z'}}"

static const struct situation {
    const char *name;
    const char *spec, *meta, *status, *template; /* NULL: of a pool, finalized, none, plain */
    sandbox_world w;                             /* without the objects; active: seconds ago */
    enum sandbox_act act;
    const char *end;
    bool want_running;
    const char *phase; /* of the status; NULL: it is not written */
    const char *ready, *asleep, *finished;
    uint64_t again_s; /* from now; 0: none */
    uint64_t ends_s;  /* likewise: what the engine is told */
} SITUATIONS[] = {
    /* Running / Pending (kubectl-created) */
    {"a new one gets its finalizer first", .meta = "", .act = SANDBOX_ADD_FINALIZER},
    {"then it is claimed", .act = SANDBOX_CLAIM, .phase = "Pending", .ready = "Claiming",
     .again_s = 85400},
    {"once", .w = {.claiming = true}, .phase = "Arming", .ready = "Claiming"},
    {"without room it waits", .w = {.refused = "the pool is empty", .retry_ns = NOW + S(5)},
     .phase = "Pending", .ready = "NoCapacity", .again_s = 5},
    {"and is tried again", .w = {.refused = "the pool is empty", .retry_ns = NOW},
     .act = SANDBOX_CLAIM, .phase = "Pending", .ready = "NoCapacity", .again_s = 85400},
    {"without its pool it waits", .w = {.pool_missing = true}, .phase = "Pending",
     .ready = "PoolMissing", .again_s = 85400},
    {"or its template", .w = {.template_missing = true}, .phase = "Pending",
     .ready = "TemplateMissing", .again_s = 85400},
    {"a wrong one is told why", "{}", .w = {.invalid = "spec must have a poolRef"},
     .phase = "Pending", .ready = "InvalidSpec"},
    {"its time may be over before", "{'poolRef':'p','expiresAt':'2026-01-02T03:16:00Z'}",
     .phase = "Terminated", .finished = "ttl"},
    {"one that is to sleep is not claimed", "{'poolRef':'p','desiredState':'Hibernated'}",
     .phase = "Pending", .ready = "Hibernated", .again_s = 85400},
    {"while it is made it is arming", .status = "{" ID "}",
     .w = {.has_id = true, .life = LIFE_BEING_MADE}, .phase = "Arming"},
    {"and then runs", .status = "{" ID "}", .w = {.has_id = true, .life = LIFE_LIVE},
     .phase = "Running", .ready = "Running", .again_s = 85400},
    {"one of the API gets its finalizer, too", .meta = "", .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_LIVE}, .act = SANDBOX_ADD_FINALIZER},

    /* Hibernated / Running */
    {"sleep is desired", "{'poolRef':'p','desiredState':'Hibernated'}", .status = RUNNING,
     .template = DISK, .w = {.has_id = true, .life = LIFE_LIVE}, .act = SANDBOX_HIBERNATE,
     .phase = "Hibernating", .asleep = "DiskKept", .again_s = 85400},
    {"without a disk it cannot", "{'poolRef':'p','desiredState':'Hibernated'}", .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_LIVE}, .phase = "Running", .asleep = "NoWorkspace",
     .again_s = 85400},
    {"a drained node puts it to sleep", .status = RUNNING, .template = DISK,
     .w = {.has_id = true, .life = LIFE_LIVE, .node_draining = true}, .act = SANDBOX_HIBERNATE,
     .phase = "Hibernating", .asleep = "Drained", .again_s = 85400},
    {"its pod goes before it sleeps", "{'poolRef':'p','desiredState':'Hibernated'}",
     .status = RUNNING, .template = DISK,
     .w = {.has_id = true, .life = LIFE_ASLEEP, .pod_there = true}, .act = SANDBOX_DELETE_POD,
     .phase = "Hibernating"},
    {"and is waited for", "{'poolRef':'p','desiredState':'Hibernated'}", .status = RUNNING,
     .template = DISK,
     .w = {.has_id = true, .life = LIFE_ASLEEP, .pod_there = true, .pod_going = true},
     .phase = "Hibernating"},
    {"then it sleeps", "{'poolRef':'p','desiredState':'Hibernated'}", .status = RUNNING,
     .template = DISK, .w = {.has_id = true, .life = LIFE_ASLEEP}, .phase = "Hibernated",
     .ready = "Hibernated", .asleep = "DiskKept", .again_s = 85400},

    /* Running / Hibernated, or traffic */
    {"running is desired again", .status = ASLEEP("DiskKept"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_ASLEEP}, .act = SANDBOX_RESUME, .phase = "Resuming",
     .again_s = 85400},
    {"a request wakes it, and what is desired follows",
     "{'poolRef':'p','desiredState':'Hibernated'}", .status = ASLEEP("DiskKept"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_ASLEEP, .wanted_now = true}, .act = SANDBOX_RESUME,
     .want_running = true, .phase = "Resuming", .again_s = 85400},
    {"one that idleness put to sleep sleeps on", .meta = FIN ",'generation':2",
     .status = ASLEEP("Idle"), .template = DISK, .w = {.has_id = true, .life = LIFE_ASLEEP},
     .phase = "Hibernated", .asleep = "Idle", .again_s = 85400},
    {"until a request comes", .meta = FIN ",'generation':2", .status = ASLEEP("Idle"),
     .template = DISK, .w = {.has_id = true, .life = LIFE_ASLEEP, .wanted_now = true},
     .act = SANDBOX_RESUME, .phase = "Resuming", .again_s = 85400},
    {"or its spec changes", .meta = FIN ",'generation':3", .status = ASLEEP("Idle"),
     .template = DISK, .w = {.has_id = true, .life = LIFE_ASLEEP}, .act = SANDBOX_RESUME,
     .phase = "Resuming", .again_s = 85400},
    {"one that a drain put to sleep wakes elsewhere", .meta = FIN ",'generation':2",
     .status = ASLEEP("Drained"), .template = DISK, .w = {.has_id = true, .life = LIFE_ASLEEP},
     .act = SANDBOX_RESUME, .phase = "Resuming", .again_s = 85400},
    {"no disk is in two pods", .status = ASLEEP("DiskKept"), .template = DISK,
     .w = {.has_id = true,
           .life = LIFE_ASLEEP,
           .pod_there = true,
           .pod_going = true,
           .wanted_now = true},
     .phase = "Hibernating"},
    {"a resume that was refused is tried later", .status = ASLEEP("DiskKept"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_ASLEEP, .refused = "full", .retry_ns = NOW + S(9)},
     .phase = "Hibernated", .again_s = 9},
    {"while it wakes", .status = ASLEEP("DiskKept"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_BEING_MADE}, .phase = "Resuming"},

    /* expired or idle */
    {"what runs is ended by the engine", "{'poolRef':'p','expiresAt':'2026-01-02T03:16:00Z'}",
     .status = RUNNING, .w = {.has_id = true, .life = LIFE_LIVE, .ends_ns = NOW - S(40)},
     .phase = "Running", .again_s = 5},
    {"not before the API wants it", "{'poolRef':'p','expiresAt':'2026-01-02T03:16:00Z'}",
     .status = RUNNING, .w = {.has_id = true, .life = LIFE_LIVE, .ends_ns = NOW + S(300)},
     .phase = "Running", .again_s = 300},
    {"kubectl gives it other time", "{'poolRef':'p','expiresAt':'2026-01-02T03:20:00Z'}",
     .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_LIVE, .ends_ns = NOW + S(60), .retimed = true},
     .act = SANDBOX_TIME, .ends_s = 200, .phase = "Running"},
    {"never later than the template says", "{'poolRef':'p','expiresAt':'2030-01-01T00:00:00Z'}",
     .status = RUNNING, .template = "{'image':'i','timeouts':{'max':'20m'}}",
     .w = {.has_id = true, .life = LIFE_LIVE, .ends_ns = NOW + S(60), .retimed = true},
     .act = SANDBOX_TIME, .ends_s = 200, .phase = "Running"},
    {"nor for the API", .status = RUNNING, .template = "{'image':'i','timeouts':{'max':'20m'}}",
     .w = {.has_id = true, .life = LIFE_LIVE, .ends_ns = NOW + S(9000)}, .act = SANDBOX_TIME,
     .ends_s = 200, .phase = "Running"},
    {"asleep the operator ends it", .status = ASLEEP("Idle"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_ASLEEP, .ends_ns = NOW - S(1)}, .act = SANDBOX_END,
     .end = "ttl", .phase = "Hibernated"},
    {"not before its other time", "{'poolRef':'p','expiresAt':'2026-01-02T03:20:00Z'}",
     .status = ASLEEP("Idle"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_ASLEEP, .ends_ns = NOW - S(1), .retimed = true},
     .act = SANDBOX_TIME, .ends_s = 200},
    {"idle without a disk it ends", "{'poolRef':'p','idleSeconds':60}", .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_LIVE, .active_ns = 61}, .act = SANDBOX_END, .end = "idle",
     .phase = "Running", .again_s = 85400},
    {"idle with one it sleeps", "{'poolRef':'p','idleSeconds':60}", .status = RUNNING,
     .template = DISK, .w = {.has_id = true, .life = LIFE_LIVE, .active_ns = 61},
     .act = SANDBOX_HIBERNATE, .end = "idle", .phase = "Hibernating", .asleep = "Idle",
     .again_s = 85400},
    {"busy is not idle", "{'poolRef':'p','idleSeconds':60}", .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_LIVE, .active_ns = 61, .busy = true}, .phase = "Running",
     .again_s = 85400},
    {"not idle yet", "{'poolRef':'p','idleSeconds':60}", .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_LIVE, .active_ns = 50}, .phase = "Running", .again_s = 10},
    {"the template's idle time", .status = RUNNING,
     .template = "{'image':'i','timeouts':{'idle':'1m'}}",
     .w = {.has_id = true, .life = LIFE_LIVE, .active_ns = 61}, .act = SANDBOX_END, .end = "idle",
     .phase = "Running", .again_s = 85400},
    {"0 is never", "{'poolRef':'p','idleSeconds':0}", .status = RUNNING,
     .template = "{'image':'i','timeouts':{'idle':'1m'}}",
     .w = {.has_id = true, .life = LIFE_LIVE, .active_ns = 61}, .phase = "Running",
     .again_s = 85400},

    /* its end */
    {"an end has its cause", .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_ENDED, .end = {"oom", "the limit is 1 GiB", 137}},
     .phase = "Terminated", .ready = "Finished", .finished = "oom"},
    {"one that bothyd lost", .status = RUNNING, .w = {.has_id = true, .life = LIFE_UNKNOWN},
     .phase = "Terminated", .finished = "node_lost"},
    {"its pod goes", .status = ENDED, .w = {.has_id = true, .life = LIFE_ENDED, .pod_there = true},
     .act = SANDBOX_DELETE_POD},
    {"then its disk", .status = ENDED, .template = DISK,
     .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true}, .act = SANDBOX_DELETE_VOLUME},
    {"unless it is to stay", .status = ENDED, .template = KEPT,
     .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true}, .again_s = 3200},
    {"an end that nobody wanted leaves it", .status = RUNNING, .template = DISK,
     .w = {.has_id = true,
           .life = LIFE_ENDED,
           .end = {"killed", NULL, 137},
           .volume = "ws-pod",
           .volume_there = true},
     .phase = "Terminated", .asleep = "DiskKept", .finished = "killed"},
    {"also where the operator called it so", .status = RUNNING, .template = DISK,
     .w = {.has_id = true,
           .life = LIFE_ENDED,
           .end = {"node_lost", "its node does not answer", 0},
           .volume = "ws-pod",
           .volume_there = true},
     .phase = "Terminated", .asleep = "DiskKept"},
    {"one that was wanted does not", .status = RUNNING, .template = DISK,
     .w = {.has_id = true,
           .life = LIFE_ENDED,
           .end = {"ttl", NULL, 0},
           .volume = "ws-pod",
           .volume_there = true},
     .phase = "Terminated", .asleep = "NotHibernated"},
    {"then it stays for as long as the sandbox had", .status = LOST("2026-01-02T03:10:00Z"),
     .template = DISK, .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true},
     .again_s = 85400},
    {"also when others are forgotten", .status = LOST("2026-01-02T02:10:00Z"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true}, .again_s = 85400},
    {"and goes with the object", "{'poolRef':'p','expiresAt':'2026-01-02T03:16:00Z'}",
     .status = LOST("2026-01-02T02:10:00Z"), .template = DISK,
     .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true}, .act = SANDBOX_FORGET},
    {"whoever deletes that decides it", .meta = DELETED, .status = LOST("2026-01-02T03:10:00Z"),
     .template = DISK, .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true},
     .act = SANDBOX_DELETE_VOLUME},
    {"nothing is left: its object may go without bothyd", .status = ENDED,
     .w = {.has_id = true, .life = LIFE_ENDED}, .act = SANDBOX_DROP_FINALIZER, .again_s = 3200},
    {"the object is kept for an hour", .meta = ",'generation':1", .status = ENDED,
     .w = {.has_id = true, .life = LIFE_ENDED}, .again_s = 3200},
    {"and then forgotten",
     .status = "{'phase':'Terminated'," ID ",'cause':{'code':'ttl','at':'2026-01-02T02:10:00Z'}}",
     .w = {.has_id = true, .life = LIFE_ENDED}, .act = SANDBOX_FORGET},

    /* deletion */
    {"deleted while it lives", .meta = DELETED, .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_LIVE}, .act = SANDBOX_END, .end = "requested"},
    {"deleted while it sleeps", .meta = DELETED, .status = ASLEEP("Idle"),
     .w = {.has_id = true, .life = LIFE_ASLEEP}, .act = SANDBOX_END, .end = "requested"},
    {"deleted while it is claimed: that is waited for", .meta = DELETED, .w = {.claiming = true}},
    {"its pod", .meta = DELETED, .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_ENDED, .pod_there = true}, .act = SANDBOX_DELETE_POD},
    {"which is waited for", .meta = DELETED, .status = RUNNING, .template = DISK,
     .w = {.has_id = true,
           .life = LIFE_ENDED,
           .pod_there = true,
           .pod_going = true,
           .volume_there = true}},
    {"its disk", .meta = DELETED, .status = RUNNING, .template = DISK,
     .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true}, .act = SANDBOX_DELETE_VOLUME},
    {"which may be told to stay", .meta = DELETED, .status = RUNNING, .template = KEPT,
     .w = {.has_id = true, .life = LIFE_ENDED, .volume_there = true},
     .act = SANDBOX_DROP_FINALIZER},
    {"then it is let go", .meta = DELETED, .status = RUNNING,
     .w = {.has_id = true, .life = LIFE_ENDED}, .act = SANDBOX_DROP_FINALIZER},
    {"one that never lived", .meta = DELETED, .act = SANDBOX_DROP_FINALIZER},
};

static crd_sandbox make_sandbox(const char *spec, const char *meta, const char *status)
{
    CLEANUP(freep)
    char *text = str_printf("{'metadata':{'name':'s','namespace':'ns','uid':'u',"
                            "'creationTimestamp':'2026-01-02T03:00:00Z'%s},'spec':%s%s%s}",
                            meta, spec, status ? ",'status':" : "", str_or(status, ""));
    CLEANUP(json_decrefp) json_t *j = parse(text);
    crd_sandbox s;

    assert_ok(crd_sandbox_decode(j, &s));
    return s;
}

static void check(const struct situation *s, const sandbox_orders *o)
{
    const char *phase = o->status ? json_str(o->status, "phase") : NULL;
    uint64_t again = o->again_ns > NOW ? (o->again_ns - NOW) / NS_PER_S : 0;

    if (o->act != s->act || !str_eq(o->end, s->end) || o->want_running != s->want_running ||
        !str_eq(phase, s->phase) || again != s->again_s ||
        o->ends_ns != (s->ends_s ? NOW + S(s->ends_s) : 0))
        fail_msg("%s: %s, end %s, phase %s, again in %d s, wake %d, its time %llu", s->name,
                 SANDBOX_ACT_NAMES[o->act], str_or(o->end, "-"), str_or(phase, "-"), (int)again,
                 o->want_running, (unsigned long long)o->ends_ns);
    if (s->ready && !str_eq(condition_of(o->status, "Ready", "reason"), s->ready))
        fail_msg("%s: Ready %s", s->name, condition_of(o->status, "Ready", "reason"));
    if (s->asleep && !str_eq(condition_of(o->status, "Hibernated", "reason"), s->asleep))
        fail_msg("%s: Hibernated %s", s->name, condition_of(o->status, "Hibernated", "reason"));
    if (s->finished && !str_eq(condition_of(o->status, "Finished", "reason"), s->finished))
        fail_msg("%s: Finished %s", s->name, condition_of(o->status, "Finished", "reason"));
}

static void every_row_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SITUATIONS); i++) {
        const struct situation *s = &SITUATIONS[i];
        crd_sandbox x = make_sandbox(s->spec ? s->spec : POOL, s->meta ? s->meta : FIN, s->status);
        crd_template t = make_template(s->template ? s->template : "{'image':'i'}");
        sandbox_world w = s->w;
        w.sandbox = &x;
        w.template = &t;
        w.now = NOW;
        w.id = w.has_id ? "abcd0123456789abcdef" : NULL;
        w.active_ns = w.active_ns ? NOW - S(w.active_ns) : 0;
        w.ends_ns = w.ends_ns ? w.ends_ns : BORN + S(86400);
        sandbox_orders o = plan_sandbox(&w);
        check(s, &o);
        sandbox_orders_done(&o);
        crd_sandbox_done(&x);
        crd_template_done(&t);
    }
}

static void the_status_says_where_it_is(void **state)
{
    crd_sandbox x = make_sandbox(POOL, FIN, "{" ID ",'epoch':1}");
    crd_template t = make_template(DISK);
    sandbox_world w = {.sandbox = &x,
                       .template = &t,
                       .has_id = true,
                       .life = LIFE_LIVE,
                       .id = "abcd0123456789abcdef",
                       .pod = "pod",
                       .pod_uid = "uid",
                       .node = "n",
                       .class = "exact",
                       .volume = "ws-pod",
                       .claimed_ns = BORN + S(5),
                       .active_ns = NOW - S(1),
                       .ends_ns = BORN + S(3600),
                       .now = NOW};
    sandbox_orders o = plan_sandbox(&w);

    (void)state;
    assert_string_equal(json_str(o.status, "id"), "abcd0123456789abcdef");
    assert_string_equal(json_str(o.status, "podName"), "pod");
    assert_string_equal(json_str(o.status, "podUID"), "uid");
    assert_string_equal(json_str(o.status, "node"), "n");
    assert_string_equal(json_str(o.status, "claimClass"), "exact");
    assert_string_equal(json_str(o.status, "workspaceClaim"), "ws-pod");
    assert_string_equal(json_str(o.status, "claimedAt"), "2026-01-02T03:00:05Z");
    assert_string_equal(json_str(o.status, "lastActiveAt"), "2026-01-02T03:16:39Z");
    assert_string_equal(json_str(o.status, "expiresAt"), "2026-01-02T04:00:00Z");
    assert_string_equal(condition_of(o.status, "Ready", "status"), "True");
    sandbox_orders_done(&o);
    w.life = LIFE_ASLEEP; /* a sleeping one is nowhere, and keeps its disk */
    o = plan_sandbox(&w);
    assert_int_equal(o.act, SANDBOX_RESUME);
    assert_int_equal(json_int(o.status, "epoch", 0), 2);
    sandbox_orders_done(&o);
    x.spec.desired = DESIRED_HIBERNATED;
    o = plan_sandbox(&w);
    assert_null(json_str(o.status, "podName"));
    assert_string_equal(json_str(o.status, "workspaceClaim"), "ws-pod");
    sandbox_orders_done(&o);
    crd_sandbox_done(&x);
    crd_template_done(&t);
}

/* A harness that makes a new one behind `node_lost` must read it. */
static void the_engine_is_told_the_cause_it_was(void **state)
{
    static const struct {
        const char *code;
        enum cause_kind kind;
    } ROWS[] = {{"requested", CAUSE_REQUESTED}, {"ttl", CAUSE_TTL},
                {"idle", CAUSE_IDLE},           {"node_lost", CAUSE_NODE_LOST},
                {"killed", CAUSE_KILLED},       {"internal", CAUSE_INTERNAL},
                {"unknown", CAUSE_NODE_LOST},   {"image_mismatch", CAUSE_POLICY}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++)
        assert_int_equal(status_cause_kind(ROWS[i].code), ROWS[i].kind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_table),
        cmocka_unit_test(the_status_says_where_it_is),
        cmocka_unit_test(the_engine_is_told_the_cause_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

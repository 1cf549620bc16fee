#include "base/clock.h"
#include "operator/plan_pool.h"

#include "make.h"

#define S(n) ((uint64_t)(n)*NS_PER_S)
#define T0   S(100000)
#define REAL UINT64_C(1767322800000000000) /* 2026-01-02T03:00:00Z */

/* ---- situations ---- */

enum shape {
    NO_POD,
    WARM,     /* of the current template */
    OLD,      /* warm, of another one */
    STARTING, /* since `age` */
    OLD_STARTING,
    CLAIMED,
    CLAIMED_UNSEEN, /* init says so, its label does not yet */
    ENDED,
    EVICTED,
    NODE_GONE,
    TAINTED,
    LOST, /* it was reached before */
    NO_IMAGE,
    OLD_NO_IMAGE,
    NO_CONFIG,
    CRASHING,
    NO_NODE,
    UNPLACED, /* no scheduler has looked at it */
    PLACED,   /* a second ago, after a long time */
    GOING
};

typedef struct group {
    enum shape shape;
    unsigned n, age_s;
} group;

static const struct situation {
    const char *name;
    const char *spec, *meta; /* NULL: replicas 3; nothing */
    const char *template;    /* NULL: a plain one */
    const char *template_error;
    bool no_template;
    enum policy_state policy;
    group pods[4];
    uint32_t coming, pending;
    uint64_t rate, refill_ms;
    uint64_t quiet_s; /* since the last claim */
    /* before */
    uint32_t batch, failures;
    uint64_t paused_s;
    enum pool_trouble why;
    uint32_t target;
    bool has_target;
    uint64_t lowered_ago_s; /* 0: never */
    unsigned good;          /* pods that came up lately */
    /* after */
    uint32_t create, removed;
    enum removal_why removal;
    uint32_t want_target;
    enum pool_trouble trouble;
    bool add_finalizer, drop_finalizer, conflict;
    const char *progressing, *available;
} SITUATIONS[] = {
    /* warm+starting < replicas and total < maxSandboxes */
    {"an empty pool begins with one", .create = 1, .want_target = 3, .progressing = "ScalingUp",
     .available = "NoPodsReady"},
    {"and goes on by doubling", .batch = 2, .pods = {{STARTING, 1}}, .create = 2, .want_target = 3},
    {"what was created and is not seen counts", .batch = 50, .coming = 3, .want_target = 3},
    {"a full one is left alone", .batch = 50, .pods = {{WARM, 3}}, .want_target = 3,
     .progressing = "Stable", .available = "PodsReady"},
    {"claimed ones do not count as replicas", .batch = 50, .pods = {{WARM, 2}, {CLAIMED, 9}},
     .create = 1, .want_target = 3},
    {"nor do those whose label is behind", .batch = 50, .pods = {{WARM, 2}, {CLAIMED_UNSEEN, 1}},
     .create = 1, .want_target = 3},
    {"nor those that are going", .batch = 50, .pods = {{WARM, 2}, {GOING, 2}}, .create = 1,
     .want_target = 3},
    {"one whose stream is lost does", .batch = 50, .pods = {{WARM, 2}, {LOST, 1, 9999}},
     .want_target = 3},
    {"the cap is of all of them", "{'templateRef':'t','replicas':3,'maxSandboxes':5}", .batch = 50,
     .pods = {{WARM, 1}, {CLAIMED, 3}}, .create = 1, .want_target = 3},
    {"at the cap nothing is created", "{'templateRef':'t','replicas':3,'maxSandboxes':4}",
     .batch = 50, .pods = {{WARM, 1}, {CLAIMED, 3}}, .want_target = 3},
    {"a batch is the most at once", "{'templateRef':'t','replicas':500}", .batch = 50, .create = 50,
     .want_target = 500},
    {"a new pool gets its finalizer", .meta = "", .batch = 8, .create = 3, .want_target = 3,
     .add_finalizer = true},

    /* deletionTimestamp */
    {"a deleted pool gives up its unclaimed pods",
     .meta = ",'deletionTimestamp':"
             "'2026-01-02T03:00:00Z','finalizers':['bothy.dev/pool']",
     .batch = 50, .pods = {{WARM, 2}, {STARTING, 1}, {CLAIMED, 1}}, .removed = 3,
     .removal = REMOVE_DRAINING, .progressing = "Draining"},
    {"it waits for the claimed ones",
     .meta = ",'deletionTimestamp':"
             "'2026-01-02T03:00:00Z','finalizers':['bothy.dev/pool']",
     .pods = {{CLAIMED, 1}}, .progressing = "Draining"},
    {"unless it is forced",
     .meta = ",'deletionTimestamp':'2026-01-02T03:00:00Z','finalizers':"
             "['bothy.dev/pool'],'annotations':{'bothy.dev/force':'true'}",
     .pods = {{CLAIMED, 2}}, .removed = 2, .removal = REMOVE_DRAINING},
    {"it waits for what is going",
     .meta = ",'deletionTimestamp':'2026-01-02T03:00:00Z',"
             "'finalizers':['bothy.dev/pool']",
     .pods = {{GOING, 1}}},
    {"and for what may come",
     .meta = ",'deletionTimestamp':'2026-01-02T03:00:00Z','finalizers':"
             "['bothy.dev/pool']",
     .coming = 1},
    {"and then lets go",
     .meta = ",'deletionTimestamp':'2026-01-02T03:00:00Z','finalizers':"
             "['bothy.dev/pool']",
     .drop_finalizer = true},

    /* template missing / not to be used */
    {"without a template pods stay and none are made", .no_template = true, .batch = 50,
     .pods = {{WARM, 1}}, .want_target = 3, .trouble = TROUBLE_TEMPLATE_MISSING},
    {"with a wrong one too", .template_error = "timeouts.max is wrong", .batch = 50,
     .pods = {{WARM, 1}}, .want_target = 3, .trouble = TROUBLE_TEMPLATE_INVALID},
    {"or one for other namespaces", .template = "{'image':'i','allowedNamespaces':['other']}",
     .batch = 50, .want_target = 3, .trouble = TROUBLE_NAMESPACE},

    /* the self-test of the NetworkPolicy */
    {"without walls nothing is kept", .policy = POLICY_NOT_ENFORCED, .batch = 50,
     .pods = {{WARM, 2}}, .removed = 2, .removal = REMOVE_EXCESS, .trouble = TROUBLE_POLICY,
     .available = "PodsReady"},
    {"unless none are wanted", .template = "{'image':'i','network':{'egress':'All'}}",
     .policy = POLICY_NOT_ENFORCED, .batch = 50, .create = 3, .want_target = 3},
    {"or somebody vouches for them", .policy = POLICY_VOUCHED, .batch = 50, .create = 3,
     .want_target = 3},
    {"before it was tried they are made", .policy = POLICY_UNKNOWN, .batch = 50, .create = 3,
     .want_target = 3},

    /* 403 quota exceeded */
    {"out of quota it pauses", .batch = 1, .why = TROUBLE_QUOTA, .paused_s = 20, .want_target = 3,
     .trouble = TROUBLE_QUOTA},
    {"and tries again with one", .batch = 1, .why = TROUBLE_QUOTA, .create = 1, .want_target = 3,
     .trouble = TROUBLE_QUOTA},

    /* warm > replicas */
    {"those that are not ready go first", "{'templateRef':'t','replicas':2}",
     .pods = {{WARM, 2}, {STARTING, 1}}, .removed = 1, .removal = REMOVE_EXCESS, .want_target = 2},
    {"to zero", "{'templateRef':'t','replicas':0}", .pods = {{WARM, 3}, {CLAIMED, 1}}, .removed = 3,
     .removal = REMOVE_EXCESS, .available = "PodsReady"},
    {"zero is as it should be", "{'templateRef':'t','replicas':0}", .available = "ScaledToZero"},

    /* pod hash differs, unclaimed */
    {"a roll takes a fifth, at least one", .batch = 50, .pods = {{OLD, 3}}, .create = 1,
     .removed = 1, .removal = REMOVE_STALE, .want_target = 3, .progressing = "Rolling"},
    {"and waits for its successor", .batch = 50, .pods = {{OLD, 2}, {STARTING, 1}},
     .want_target = 3, .progressing = "Rolling"},
    {"then takes the next", .batch = 50, .pods = {{OLD, 2}, {WARM, 1}}, .create = 1, .removed = 1,
     .removal = REMOVE_STALE, .want_target = 3},
    {"old ones that do not even run go at once", .batch = 50, .pods = {{OLD_STARTING, 3}},
     .create = 3, .removed = 3, .removal = REMOVE_STALE, .want_target = 3},
    {"an old image that is not there holds nobody", .batch = 50, .pods = {{OLD_NO_IMAGE, 3}},
     .create = 3, .removed = 3, .removal = REMOVE_STALE, .want_target = 3},
    {"claimed pods are not rolled", "{'templateRef':'t','replicas':1}", .batch = 50,
     .pods = {{WARM, 1}, {CLAIMED, 4}}, .want_target = 1},
    {"as many as it says", "{'templateRef':'t','replicas':10,'update':{'maxUnavailable':'50%'}}",
     .batch = 50, .pods = {{OLD, 10}}, .create = 5, .removed = 5, .removal = REMOVE_STALE,
     .want_target = 10},
    {"OnReplenish leaves them",
     "{'templateRef':'t','replicas':3,'update':{'strategy':"
     "'OnReplenish'}}",
     .batch = 50, .pods = {{OLD, 3}}, .want_target = 3, .progressing = "Stable"},
    {"what could not be made again is not rolled", .batch = 50,
     .pods = {{OLD, 3, 0}, {NO_IMAGE, 1, 0}}, .removed = 1, .removal = REMOVE_EXCESS,
     .want_target = 3, .trouble = TROUBLE_IMAGE},

    /* pod Failed/Succeeded/evicted, unclaimed */
    {"what has ended is removed, never used again", .batch = 50, .good = 8,
     .pods = {{WARM, 2}, {ENDED, 1}}, .create = 1, .removed = 1, .removal = REMOVE_ENDED,
     .want_target = 3},
    {"also when it was evicted", .batch = 50, .good = 8, .pods = {{WARM, 2}, {EVICTED, 1}},
     .create = 1, .removed = 1, .removal = REMOVE_ENDED, .want_target = 3},
    {"or its node is gone", .batch = 50, .good = 8, .pods = {{WARM, 2}, {NODE_GONE, 1}},
     .create = 1, .removed = 1, .removal = REMOVE_ENDED, .want_target = 3},
    {"or its init is another", .batch = 50, .good = 8, .pods = {{WARM, 2}, {TAINTED, 1}},
     .create = 1, .removed = 1, .removal = REMOVE_TAINTED, .want_target = 3},
    {"when most of them fail it pauses", .batch = 50, .pods = {{ENDED, 2}}, .removed = 2,
     .removal = REMOVE_ENDED, .want_target = 3, .trouble = TROUBLE_CRASH},
    {"in the pause nothing is created", .why = TROUBLE_CRASH, .failures = 3, .paused_s = 1,
     .want_target = 3, .trouble = TROUBLE_CRASH},
    {"after it one", .why = TROUBLE_CRASH, .failures = 3, .batch = 1, .create = 1, .want_target = 3,
     .trouble = TROUBLE_CRASH},

    /* starting > startup timeout */
    {"what is still young is waited for", .batch = 50, .pods = {{STARTING, 3, 119}},
     .want_target = 3},
    {"what does not come up is removed", .batch = 50, .good = 8,
     .pods = {{WARM, 2}, {STARTING, 1, 121}}, .create = 1, .removed = 1, .removal = REMOVE_STUCK,
     .want_target = 3},
    {"one that no scheduler has looked at waits", .batch = 50, .pods = {{UNPLACED, 3, 9999}},
     .want_target = 3},
    {"its time begins on its node", .batch = 50, .pods = {{PLACED, 3, 9999}}, .want_target = 3},
    {"where many start they take turns", "{'templateRef':'t','replicas':20}", .batch = 50,
     .good = 1, .pods = {{WARM, 1}, {STARTING, 19, 400}}, .want_target = 20},
    {"but not for ever", "{'templateRef':'t','replicas':20}", .batch = 50, .good = 19,
     .pods = {{WARM, 10}, {STARTING, 10, 601}}, .create = 10, .removed = 10,
     .removal = REMOVE_STUCK, .want_target = 20},
    {"late ones are no crash", .batch = 50, .pods = {{STARTING, 3, 121}}, .removed = 3,
     .removal = REMOVE_STUCK, .want_target = 3, .trouble = TROUBLE_STARTUP},
    {"an image that is not there is told at once", .batch = 50, .pods = {{NO_IMAGE, 1, 2}},
     .want_target = 3, .trouble = TROUBLE_IMAGE},
    {"and is given up in the end", .batch = 50, .pods = {{NO_IMAGE, 1, 121}}, .removed = 1,
     .removal = REMOVE_STUCK, .want_target = 3, .trouble = TROUBLE_IMAGE},
    {"so is what the kubelet cannot make", .batch = 50, .pods = {{NO_CONFIG, 1, 2}},
     .want_target = 3, .trouble = TROUBLE_CONFIG},
    {"and what does not stay up", .batch = 50, .pods = {{CRASHING, 1, 2}}, .want_target = 3,
     .trouble = TROUBLE_CRASH},
    {"its template says how long", .template = "{'image':'i','timeouts':{'startup':'10s'}}",
     .batch = 50, .good = 8, .pods = {{WARM, 2}, {STARTING, 1, 11}}, .create = 1, .removed = 1,
     .removal = REMOVE_STUCK, .want_target = 3},

    /* Unschedulable > 60 s */
    {"a pod without a node may get one", .batch = 50, .pods = {{NO_NODE, 1, 59}}, .create = 2,
     .want_target = 3},
    {"after a minute it is told, and held", .batch = 50, .pods = {{NO_NODE, 1, 61}},
     .want_target = 3, .trouble = TROUBLE_UNSCHEDULABLE},
    {"and never churned", .batch = 50, .pods = {{NO_NODE, 1, 9999}}, .want_target = 3,
     .trouble = TROUBLE_UNSCHEDULABLE},

    /* pendingClaims > 0 and warm = 0; autoscale */
    {"who waits wakes a pool at zero", "{'templateRef':'t','autoscale':{'max':20}}", .batch = 50,
     .pending = 4, .quiet_s = 99999, .has_target = true, .create = 4, .want_target = 4},
    {"up to its max", "{'templateRef':'t','autoscale':{'max':3}}", .batch = 50, .pending = 40,
     .has_target = true, .create = 3, .want_target = 3},
    {"without autoscale replicas hold", "{'templateRef':'t','replicas':1}", .batch = 50,
     .pending = 9, .create = 1, .want_target = 1},
    {"demand times refill and headroom", "{'templateRef':'t','autoscale':{'max':200}}", .batch = 50,
     .rate = 2000, .refill_ms = 5000, .has_target = true, .target = 10, .create = 50,
     .want_target = 50},
    {"a rare claim keeps one", "{'templateRef':'t','autoscale':{'max':200}}", .batch = 50,
     .has_target = true, .quiet_s = 300, .create = 1, .want_target = 1},
    {"never below its min", "{'templateRef':'t','autoscale':{'min':2,'max':9}}", .batch = 50,
     .has_target = true, .quiet_s = 99999, .create = 2, .want_target = 2},
    {"nobody for idleAfter: to zero at once", "{'templateRef':'t','autoscale':{'max':200}}",
     .pods = {{WARM, 10}}, .has_target = true, .target = 10, .quiet_s = 601, .removed = 10,
     .removal = REMOVE_EXCESS},
    {"less demand: a fifth in a minute", "{'templateRef':'t','autoscale':{'max':200}}",
     .pods = {{WARM, 50}}, .has_target = true, .target = 50, .rate = 40, .refill_ms = 5000,
     .removed = 10, .removal = REMOVE_EXCESS, .want_target = 40},
    {"not before the minute is over", "{'templateRef':'t','autoscale':{'max':200}}",
     .pods = {{WARM, 50}}, .has_target = true, .target = 50, .rate = 40, .lowered_ago_s = 59,
     .want_target = 50},
    {"an operator that begins keeps what is there", "{'templateRef':'t','autoscale':{'max':200}}",
     .pods = {{WARM, 10}}, .removed = 2, .removal = REMOVE_EXCESS, .want_target = 8},

    /* autoscale set and spec.replicas owned by another */
    {"two that scale are one too many", "{'templateRef':'t','replicas':2,'autoscale':{'max':9}}",
     .meta = ",'finalizers':['bothy.dev/pool'],'managedFields':[{'manager':'hpa','subresource':"
             "'scale','fieldsV1':{'f:spec':{'f:replicas':{}}}}]",
     .batch = 50, .pending = 7, .create = 2, .want_target = 2, .conflict = true},
};

static pod_view shaped(enum shape s, const char *name)
{
    static const char CURRENT[] =
        ",'bothy.dev/template-hash':'" HASH_A "','bothy.dev/state':'warm'";
    static const char STALE[] = ",'bothy.dev/template-hash':'" HASH_B "','bothy.dev/state':'warm'";
    static const char HELD[] = ",'bothy.dev/template-hash':'" HASH_B
                               "','bothy.dev/state':'claimed','bothy.dev/sandbox':'x'";

    switch (s) {
    case OLD:
    case OLD_STARTING:
        return make_pod(name, STALE, "", STATUS_RUNNING);
    case CLAIMED:
        return make_pod(name, HELD, "", STATUS_RUNNING);
    case ENDED:
        return make_pod(name, CURRENT, "", STATUS_ENDED("Error", "1"));
    case EVICTED:
        return make_pod(name, CURRENT, "", ",'status':{'phase':'Failed','reason':'Evicted'}");
    case NODE_GONE:
        return make_pod(name, CURRENT, "", ",'status':{'phase':'Unknown','reason':'NodeLost'}");
    case NO_IMAGE:
        return make_pod(name, CURRENT, "", STATUS_WAITING("ImagePullBackOff", "no such image"));
    case OLD_NO_IMAGE:
        return make_pod(name, STALE, "", STATUS_WAITING("ErrImagePull", "no such image"));
    case NO_CONFIG:
        return make_pod(name, CURRENT, "", STATUS_WAITING("CreateContainerConfigError", "root"));
    case CRASHING:
        return make_pod(name, CURRENT, "", STATUS_WAITING("CrashLoopBackOff", "back-off"));
    case NO_NODE:
        return make_pod(name, CURRENT, "", STATUS_UNSCHEDULABLE);
    case UNPLACED:
        return make_pod(name, CURRENT, "", ",'status':{'phase':'Pending'}");
    case PLACED:
        return make_pod(name, CURRENT, "", ",'spec':{'nodeName':'n'},'status':{'phase':'Pending'}");
    case GOING:
        return make_pod(name, CURRENT, ",'deletionTimestamp':'2026-01-02T03:00:00Z'",
                        STATUS_RUNNING);
    default:
        return make_pod(name, CURRENT, "", STATUS_RUNNING);
    }
}

static enum init_state init_of(enum shape s)
{
    switch (s) {
    case WARM:
    case OLD:
        return INIT_WARM;
    case CLAIMED:
    case CLAIMED_UNSEEN:
        return INIT_CLAIMED;
    case TAINTED:
        return INIT_TAINTED;
    case LOST:
        return INIT_UNREACHABLE;
    default:
        return INIT_UNKNOWN;
    }
}

#define PODS_MAX 64

typedef struct made {
    pod_view pod[PODS_MAX];
    pool_pod seen[PODS_MAX];
    size_t n;
} made;

static void make_pods(const group g[4], made *m)
{
    m->n = 0;
    for (size_t i = 0; i < 4; i++)
        for (unsigned k = 0; k < g[i].n; k++, m->n++) {
            char name[16];
            snprintf(name, sizeof name, "x%zu", m->n);
            m->pod[m->n] = shaped(g[i].shape, name);
            m->seen[m->n] = (pool_pod){
                .pod = &m->pod[m->n], .init = init_of(g[i].shape), .seen_ns = T0 - S(g[i].age_s)};
            if (g[i].shape == PLACED)
                m->seen[m->n].placed_ns = T0 - S(1);
        }
}

static void free_pods(made *m)
{
    for (size_t i = 0; i < m->n; i++)
        pod_view_done(&m->pod[i]);
}

static void look(const struct situation *s, const pool_world *w, pool_memory *m, pool_orders *o)
{
    for (unsigned i = 0; i < s->good; i++)
        pool_note_warm(m, T0 - S(10));
    m->batch = s->batch;
    m->failures = s->failures;
    m->why = s->why;
    m->target = s->target;
    m->has_target = s->has_target;
    m->not_before_ns = s->paused_s ? T0 + S(s->paused_s) : 0;
    m->lowered_ns = s->lowered_ago_s ? T0 - S(s->lowered_ago_s) : 0;
    plan_pool(w, m, o);
}

static void check(const struct situation *s, const pool_orders *o)
{
    const char *progressing = condition_of(o->status, "Progressing", "reason");
    const char *available = condition_of(o->status, "Available", "reason");

    if (o->create != s->create || o->nremovals != s->removed || o->target != s->want_target ||
        o->trouble != s->trouble)
        fail_msg("%s: create %u, remove %zu, target %u, %s", s->name, o->create, o->nremovals,
                 o->target, pool_trouble_reason(o->trouble));
    for (size_t i = 0; i < o->nremovals; i++)
        if (o->removals[i].why != s->removal)
            fail_msg("%s: removed as %s", s->name, removal_text(o->removals[i].why));
    if (o->add_finalizer != s->add_finalizer || o->drop_finalizer != s->drop_finalizer ||
        o->scaling_conflict != s->conflict)
        fail_msg("%s: add %d, drop %d, conflict %d", s->name, o->add_finalizer, o->drop_finalizer,
                 o->scaling_conflict);
    if (s->progressing && !str_eq(s->progressing, progressing))
        fail_msg("%s: Progressing is %s", s->name, progressing);
    if (s->available && !str_eq(s->available, available))
        fail_msg("%s: Available is %s", s->name, available);
    assert_string_equal(condition_of(o->status, "Degraded", "reason"),
                        pool_trouble_reason(s->trouble));
    assert_string_equal(condition_of(o->status, "ScalingConflict", "status"),
                        s->conflict ? "True" : "False");
}

static void every_row_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SITUATIONS); i++) {
        const struct situation *s = &SITUATIONS[i];
        crd_pool p = make_pool(s->spec ? s->spec : "{'templateRef':'t','replicas':3}",
                               s->meta ? s->meta : ",'finalizers':['bothy.dev/pool']");
        crd_template t = make_template(s->template ? s->template : "{'image':'i'}");
        pool_memory m = {.hash = HASH_A};
        pool_orders o;
        made pods;

        make_pods(s->pods, &pods);
        pool_world w = {.pool = &p,
                        .template = s->no_template ? NULL : &t,
                        .template_error = s->template_error,
                        .hash = s->no_template || s->template_error ? NULL : HASH_A,
                        .policy = s->policy,
                        .pods = pods.seen,
                        .npods = pods.n,
                        .coming = s->coming,
                        .pending = s->pending,
                        .rate = s->rate,
                        .refill_ms = s->refill_ms,
                        .claimed_ago = S(s->quiet_s),
                        .now = T0,
                        .now_real = REAL};
        look(s, &w, &m, &o);
        check(s, &o);
        pool_orders_done(&o);
        pool_memory_done(&m);
        free_pods(&pods);
        crd_pool_done(&p);
        crd_template_done(&t);
    }
}

/* ---- in which order, and what is asked first ---- */

static void the_newest_and_least_ready_go_first(void **state)
{
    crd_pool p =
        make_pool("{'templateRef':'t','replicas':1,'update':{'strategy':'OnReplenish'}}", "");
    const group g[4] = {{WARM, 1, 50}, {WARM, 1, 10}, {OLD, 1, 90}, {STARTING, 1, 5}};
    pool_memory m = {.hash = HASH_A};
    pool_orders o;
    made pods;

    (void)state;
    make_pods(g, &pods);
    plan_pool(&(pool_world){.pool = &p,
                            .hash = HASH_A,
                            .pods = pods.seen,
                            .npods = pods.n,
                            .now = T0,
                            .now_real = REAL},
              &m, &o);
    assert_int_equal(o.nremovals, 3);
    assert_ptr_equal(o.removals[0].pod, &pods.pod[3]);
    assert_ptr_equal(o.removals[1].pod, &pods.pod[2]);
    assert_ptr_equal(o.removals[2].pod, &pods.pod[1]);
    for (size_t i = 0; i < 3; i++)
        assert_true(o.removals[i].retire);
    pool_orders_done(&o);
    pool_memory_done(&m);
    free_pods(&pods);
    crd_pool_done(&p);
}

static void ended_and_claimed_pods_are_not_asked(void **state)
{
    crd_pool p = make_pool("{'templateRef':'t','replicas':0}",
                           ",'deletionTimestamp':'2026-01-02T03:00:00Z','annotations':"
                           "{'bothy.dev/force':'true'}");
    const group g[4] = {{ENDED, 1}, {CLAIMED, 1}};
    pool_memory m = {.hash = HASH_A};
    pool_orders o;
    made pods;

    (void)state;
    make_pods(g, &pods);
    plan_pool(&(pool_world){.pool = &p, .pods = pods.seen, .npods = pods.n, .now = T0}, &m, &o);
    assert_int_equal(o.nremovals, 2);
    assert_false(o.removals[0].retire || o.removals[1].retire);
    pool_orders_done(&o);
    pool_memory_done(&m);
    free_pods(&pods);
    crd_pool_done(&p);
}

/* ---- what is remembered ---- */

static void pauses_double_up_to_five_minutes(void **state)
{
    pool_memory m = {0};
    uint64_t before = 0;

    (void)state;
    for (int i = 0; i < 12; i++) {
        pool_note_refused(&m, TROUBLE_CRASH, "x", T0);
        assert_true(m.not_before_ns - T0 >= before && m.not_before_ns - T0 <= POOL_PAUSE_MAX_NS);
        assert_true(i == 0 || before == POOL_PAUSE_MAX_NS || m.not_before_ns - T0 > before);
        before = m.not_before_ns - T0;
    }
    assert_int_equal(before, POOL_PAUSE_MAX_NS);
    pool_note_warm(&m, T0);
    assert_int_equal(m.not_before_ns, 0);
    assert_int_equal(m.why, TROUBLE_NONE);
    for (int i = 0; i < 3; i++)
        pool_note_refused(&m, TROUBLE_QUOTA, "exceeded quota: q", T0);
    assert_int_equal(m.not_before_ns, T0 + POOL_QUOTA_NS);
    pool_note_warm(&m, T0); /* those that were made before say nothing of the quota */
    assert_int_equal(m.why, TROUBLE_QUOTA);
    pool_note_created(&m, 1);
    assert_int_equal(m.why, TROUBLE_NONE);
    pool_memory_done(&m);
}

static void batches_double_and_begin_anew(void **state)
{
    static const uint32_t STEPS[] = {2, 4, 8, 16, 32, 50, 50};
    pool_memory m = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(STEPS); i++) {
        pool_note_created(&m, 1);
        assert_int_equal(m.batch, STEPS[i]);
    }
    pool_note_refused(&m, TROUBLE_QUOTA, NULL, T0);
    assert_int_equal(m.batch, 1);
    pool_memory_done(&m);
}

static void another_template_begins_without_the_old_ones_failures(void **state)
{
    crd_pool p = make_pool("{'templateRef':'t','replicas':3}", "");
    crd_template t = make_template("{'image':'i'}");
    pool_memory m = {.hash = HASH_B,
                     .why = TROUBLE_IMAGE,
                     .failures = 9,
                     .not_before_ns = T0 + S(300),
                     .noutcomes = 5};
    pool_world w = {.pool = &p, .template = &t, .hash = HASH_A, .now = T0, .now_real = REAL};
    pool_orders o;

    (void)state;
    plan_pool(&w, &m, &o);
    assert_int_equal(o.create, 1);
    assert_int_equal(o.trouble, TROUBLE_NONE);
    pool_orders_done(&o);
    pool_memory_done(&m);
    crd_pool_done(&p);
    crd_template_done(&t);
}

static void the_next_look_is_when_something_may_change(void **state)
{
    crd_pool p = make_pool("{'templateRef':'t','replicas':1}", "");
    crd_template t = make_template("{'image':'i'}");
    const group g[4] = {{STARTING, 1, 20}};
    pool_memory m = {.hash = HASH_A};
    pool_orders o;
    made pods;

    (void)state;
    make_pods(g, &pods);
    pool_world w = {.pool = &p,
                    .template = &t,
                    .hash = HASH_A,
                    .pods = pods.seen,
                    .npods = pods.n,
                    .now = T0,
                    .now_real = REAL};
    plan_pool(&w, &m, &o);
    assert_int_equal(o.again_ns, T0 + S(100) + 1);
    pool_orders_done(&o);
    w.npods = 0;
    m.not_before_ns = T0 + S(7);
    plan_pool(&w, &m, &o);
    assert_int_equal(o.again_ns, T0 + S(7));
    pool_orders_done(&o);
    pool_memory_done(&m);
    free_pods(&pods);
    crd_pool_done(&p);
    crd_template_done(&t);
}

/* ---- what is told ---- */

static void the_status_counts_and_keeps_its_times(void **state)
{
    crd_pool p = make_pool(
        "{'templateRef':'t','replicas':4},'status':{'conditions':[{'type':'Available','status':"
        "'True','reason':'PodsReady','lastTransitionTime':'2020-01-01T00:00:00Z'},{'type':"
        "'Degraded','status':'True','reason':'X','lastTransitionTime':'2020-01-01T00:00:00Z'}]}",
        "");
    crd_template t = make_template("{'image':'i'}");
    const group g[4] = {{WARM, 2}, {STARTING, 1}, {CLAIMED, 5}, {OLD, 1}};
    pool_memory m = {.hash = HASH_A};
    pool_orders o;
    made pods;

    (void)state;
    make_pods(g, &pods);
    plan_pool(&(pool_world){.pool = &p,
                            .template = &t,
                            .hash = HASH_A,
                            .pods = pods.seen,
                            .npods = pods.n,
                            .coming = 1,
                            .pending = 2,
                            .now = T0,
                            .now_real = REAL},
              &m, &o);
    assert_int_equal(json_int(o.status, "replicas", -1), 5);
    assert_int_equal(json_int(o.status, "readyReplicas", -1), 3);
    assert_int_equal(json_int(o.status, "startingReplicas", -1), 2);
    assert_int_equal(json_int(o.status, "claimedReplicas", -1), 5);
    assert_int_equal(json_int(o.status, "updatedReplicas", -1), 3);
    assert_int_equal(json_int(o.status, "pendingClaims", -1), 2);
    assert_int_equal(json_int(o.status, "observedGeneration", -1), 3);
    assert_string_equal(json_str(o.status, "selector"), "bothy.dev/pool=p,bothy.dev/state=warm");
    assert_string_equal(json_str(o.status, "templateHash"), HASH_A);
    assert_string_equal(condition_of(o.status, "Available", "lastTransitionTime"),
                        "2020-01-01T00:00:00Z");
    assert_string_equal(condition_of(o.status, "Degraded", "lastTransitionTime"),
                        "2026-01-02T03:00:00Z");
    assert_null(json_object_get(o.status, "trouble"));
    pool_orders_done(&o);
    pool_memory_done(&m);
    free_pods(&pods);
    crd_pool_done(&p);
    crd_template_done(&t);
}

static void a_trouble_is_told_in_the_kubelets_words(void **state)
{
    crd_pool p = make_pool("{'templateRef':'t','replicas':4}", "");
    crd_template t = make_template("{'image':'i'}");
    const group g[4] = {{NO_IMAGE, 1}};
    pool_memory m = {.hash = HASH_A};
    pool_orders o;
    made pods;

    (void)state;
    make_pods(g, &pods);
    plan_pool(&(pool_world){.pool = &p,
                            .template = &t,
                            .hash = HASH_A,
                            .pods = pods.seen,
                            .npods = pods.n,
                            .now = T0,
                            .now_real = REAL},
              &m, &o);
    assert_string_equal(condition_of(o.status, "Degraded", "message"),
                        "pod x0: ImagePullBackOff: no such image");
    assert_string_equal(json_str(o.status, "trouble"), "ImagePull");
    pool_orders_done(&o);
    pool_memory_done(&m);
    free_pods(&pods);
    crd_pool_done(&p);
    crd_template_done(&t);
}

/* ---- demand ---- */

static void demand_is_the_busy_end_of_five_minutes(void **state)
{
    demand d = {0};

    (void)state;
    assert_int_equal(demand_rate(&d, T0), 0);
    for (int i = 0; i < 300; i++)
        for (int k = 0; k < 2; k++)
            demand_claimed(&d, T0 + S(i));
    assert_int_equal(demand_rate(&d, T0 + S(299)), 2000);
    assert_int_equal(demand_rate(&d, T0 + S(299 + 310)), 0);
    assert_int_equal(d.last_ns, T0 + S(299));
    demand one = {0};
    demand_rate(&one, T0);
    demand_claimed(&one, T0 + S(150)); /* one in five minutes is not the busy end */
    assert_int_equal(demand_rate(&one, T0 + S(299)), 0);
    demand_refilled(&one, 800);
    demand_refilled(&one, 1600);
    assert_int_equal(one.refill_ms, 900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_table),
        cmocka_unit_test(the_newest_and_least_ready_go_first),
        cmocka_unit_test(ended_and_claimed_pods_are_not_asked),
        cmocka_unit_test(pauses_double_up_to_five_minutes),
        cmocka_unit_test(batches_double_and_begin_anew),
        cmocka_unit_test(another_template_begins_without_the_old_ones_failures),
        cmocka_unit_test(the_next_look_is_when_something_may_change),
        cmocka_unit_test(the_status_counts_and_keeps_its_times),
        cmocka_unit_test(a_trouble_is_told_in_the_kubelets_words),
        cmocka_unit_test(demand_is_the_busy_end_of_five_minutes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "base/clock.h"
#include "operator/plan_pod.h"

#include "make.h"

#define S(n) ((uint64_t)(n)*NS_PER_S)
#define T0   S(100000)

#define L_WARM    ",'bothy.dev/state':'warm'"
#define L_CLAIMED ",'bothy.dev/state':'claimed','bothy.dev/sandbox':'abc'"
#define GOING     ",'deletionTimestamp':'2026-01-02T03:00:00Z'"
#define OOM       STATUS_ENDED("OOMKilled", "137")

static const struct situation {
    const char *name;
    const char *labels, *meta, *status; /* NULL: warm, nothing, running */
    claim_world w;                      /* without the pod; times are ago, in seconds */
    enum pod_act act;
    const char *cause;
    bool keep_volume;
    uint64_t again_s; /* from now; 0: none */
} SITUATIONS[] = {
    /* warm, state=warm */
    {"a warm pod is offered", .w = {.init = INIT_WARM}, .act = POD_ACT_OFFER},
    {"one that nobody has reached is not", .w = {.init = INIT_UNKNOWN}},
    /* warm, state=claimed: the claim never came */
    {"a label without a claim: another does not get it", L_CLAIMED, .w = {.init = INIT_WARM},
     .act = POD_ACT_DELETE},
    {"unless the claim is under way", L_CLAIMED, .w = {.init = INIT_WARM, .known = true}},

    /* armed(id), no record */
    {"a claim is written down behind it",
     .w = {.init = INIT_CLAIMED, .claim = "abc", .known = true, .told = true, .claimed_ns = 1},
     .act = POD_ACT_RECORD},
    {"one that nobody knows waits for who asked",
     .w = {.init = INIT_CLAIMED, .claim = "abc", .claimed_ns = 59}, .again_s = 1},
    {"and is ended after a minute", .w = {.init = INIT_CLAIMED, .claim = "abc", .claimed_ns = 61},
     .act = POD_ACT_STOP},
    {"also when it is known and nobody was told",
     .w = {.init = INIT_CLAIMED, .claim = "abc", .known = true, .claimed_ns = 61},
     .act = POD_ACT_STOP},
    {"traffic is as good as an answer", L_CLAIMED,
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .claimed_ns = 99,
           .active_ns = 2,
           .recorded_ns = 2}},

    /* armed(id), record id the same */
    {"a record that is right stays", L_CLAIMED,
     .w = {.init = INIT_CLAIMED, .claim = "abc", .known = true, .told = true, .claimed_ns = 500}},
    {"activity is written once a minute", L_CLAIMED,
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .claimed_ns = 500,
           .active_ns = 1,
           .recorded_ns = 62},
     .act = POD_ACT_REFRESH},
    {"not more often", L_CLAIMED,
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .claimed_ns = 500,
           .active_ns = 1,
           .recorded_ns = 60}},

    /* armed(id), record id differs */
    {"init is believed, not the label", L_CLAIMED,
     .w = {.init = INIT_CLAIMED, .claim = "xyz", .known = true, .told = true, .claimed_ns = 1},
     .act = POD_ACT_CORRECT},

    /* tainted */
    {"a tainted one ends with the kubelet's cause", L_CLAIMED,
     .status =
         ",'status':{'phase':'Running','containerStatuses':[{'name':'sandbox','state':{'running':{}},"
         "'lastState':{'terminated':{'exitCode':137,'reason':'OOMKilled'}}}]}",
     .w = {.init = INIT_TAINTED}, .act = POD_ACT_FINISH, .cause = "oom"},
    {"or as killed when it says nothing", L_CLAIMED, .w = {.init = INIT_TAINTED},
     .act = POD_ACT_FINISH, .cause = "killed"},
    {"an unclaimed tainted one just goes", .w = {.init = INIT_TAINTED}, .act = POD_ACT_DELETE},

    /* unreachable 3x, pod Ready */
    {"two dials that fail are nothing", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE, .failed_dials = 2, .silent_ns = 5}},
    {"after three it is asked in another way", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE, .failed_dials = 3, .silent_ns = 5}, .act = POD_ACT_ASK},
    {"it has half a minute", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE, .failed_dials = 9, .silent_ns = 29, .asked_another_way = true},
     .again_s = 1},
    {"then it is given up", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE, .failed_dials = 9, .silent_ns = 31, .asked_another_way = true},
     .act = POD_ACT_FINISH, .cause = "unknown"},
    {"unless it answered", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE,
           .failed_dials = 9,
           .silent_ns = 31,
           .asked_another_way = true,
           .answered = true},
     .again_s = 30},
    {"after a restart of bothyd likewise", L_CLAIMED,
     .w = {.init = INIT_UNKNOWN, .failed_dials = 3, .silent_ns = 5}, .act = POD_ACT_ASK},

    /* drained */
    {"one without a disk may hold a drain up", L_CLAIMED,
     .w = {.init = INIT_CLAIMED, .claim = "abc", .known = true, .told = true, .draining_ns = 9999}},
    {"until its pool's deadline", L_CLAIMED,
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .draining_ns = 50,
           .drain_after_ns = 60},
     .again_s = 10},
    {"then it ends", L_CLAIMED,
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .draining_ns = 61,
           .drain_after_ns = 60},
     .act = POD_ACT_FINISH, .cause = "evicted"},
    {"one claimed on a cordoned node has its time from the claim", L_CLAIMED,
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .claimed_ns = 5,
           .draining_ns = 9999,
           .drain_after_ns = 60},
     .again_s = 55},
    {"one with a disk sleeps instead", L_CLAIMED,
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .hibernatable = true,
           .draining_ns = 61,
           .drain_after_ns = 60}},

    /* gone */
    {"deleted by somebody", L_CLAIMED, .w = {.init = INIT_CLAIMED, .gone = true},
     .act = POD_ACT_FINISH, .cause = "deleted"},
    {"evicted", L_CLAIMED, .status = ",'status':{'phase':'Failed','reason':'Evicted'}",
     .w = {.init = INIT_CLAIMED, .gone = true}, .act = POD_ACT_FINISH, .cause = "evicted"},
    {"with a disk it sleeps", L_CLAIMED,
     .w = {.init = INIT_CLAIMED, .gone = true, .hibernatable = true}, .act = POD_ACT_HIBERNATED,
     .cause = "deleted"},
    {"also when it was evicted", L_CLAIMED,
     .status = ",'status':{'phase':'Failed','reason':'Evicted'}",
     .w = {.init = INIT_CLAIMED, .gone = true, .hibernatable = true}, .act = POD_ACT_HIBERNATED,
     .cause = "evicted"},
    {"but not when it ended by itself", L_CLAIMED, .status = OOM,
     .w = {.init = INIT_CLAIMED, .gone = true, .hibernatable = true}, .act = POD_ACT_FINISH,
     .cause = "oom", .keep_volume = true},
    {"an unclaimed one that is gone is the pool's", .w = {.init = INIT_WARM, .gone = true}},
    {"whose sandbox has ended is expected to go", L_CLAIMED,
     .w = {.init = INIT_CLAIMED, .gone = true, .ended_ns = 9}},

    /* its container has ended */
    {"out of memory", L_CLAIMED, .status = OOM, .w = {.init = INIT_CLAIMED}, .act = POD_ACT_FINISH,
     .cause = "oom"},
    {"an exit", L_CLAIMED, .status = STATUS_ENDED("Error", "3"), .w = {.init = INIT_CLAIMED},
     .act = POD_ACT_FINISH, .cause = "exited"},
    {"a kill", L_CLAIMED, .status = STATUS_ENDED("Error", "137"), .w = {.init = INIT_CLAIMED},
     .act = POD_ACT_FINISH, .cause = "killed"},

    /* node NotReady > 60 s */
    {"a node may come back", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE, .node_silent_ns = 59, .failed_dials = 9}, .again_s = 1},
    {"after a minute it is lost", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE, .node_silent_ns = 61, .failed_dials = 9},
     .act = POD_ACT_FINISH, .cause = "node_lost"},
    {"a disk is taken from it first", L_CLAIMED,
     .w = {.init = INIT_UNREACHABLE, .node_silent_ns = 61, .hibernatable = true},
     .act = POD_ACT_DELETE, .keep_volume = true},
    {"and waited for until the pod is known to be gone", L_CLAIMED, GOING,
     .w = {.init = INIT_UNREACHABLE, .node_silent_ns = 999, .hibernatable = true},
     .keep_volume = true},

    /* Finished & grace over */
    {"an ended one has its grace", L_CLAIMED, .w = {.init = INIT_CLAIMED, .ended_ns = 1},
     .again_s = 1},
    {"then its pod goes", L_CLAIMED, .w = {.init = INIT_CLAIMED, .ended_ns = 3},
     .act = POD_ACT_DELETE},
    {"once", L_CLAIMED, GOING, .w = {.init = INIT_CLAIMED, .ended_ns = 3}},

    /* class kubelet: the image */
    {"another image than was claimed", L_CLAIMED,
     .status =
         ",'status':{'phase':'Running','containerStatuses':[{'name':'sandbox','imageID':'a@sha256:11',"
         "'state':{'running':{}}}]}",
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .claimed_ns = 1,
           .wanted_digest = "sha256:22"},
     .act = POD_ACT_FINISH, .cause = "image_mismatch"},
    {"the one that was", L_CLAIMED,
     .status =
         ",'status':{'phase':'Running','containerStatuses':[{'name':'sandbox','imageID':'a@sha256:11',"
         "'state':{'running':{}}}]}",
     .w = {.init = INIT_CLAIMED,
           .claim = "abc",
           .known = true,
           .told = true,
           .claimed_ns = 1,
           .wanted_digest = "sha256:11"}},
};

static uint64_t ago(uint64_t seconds)
{
    return seconds ? T0 - S(seconds) : 0;
}

static void every_row_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SITUATIONS); i++) {
        const struct situation *s = &SITUATIONS[i];
        pod_view p = make_pod("x", s->labels ? s->labels : L_WARM, str_or(s->meta, ""),
                              s->status ? s->status : STATUS_RUNNING);
        claim_world w = s->w;
        w.pod = &p;
        w.now = T0;
        w.claimed_ns = ago(w.claimed_ns);
        w.active_ns = ago(w.active_ns);
        w.recorded_ns = ago(w.recorded_ns);
        w.silent_ns = ago(w.silent_ns);
        w.node_silent_ns = ago(w.node_silent_ns);
        w.draining_ns = ago(w.draining_ns);
        w.drain_after_ns = S(w.drain_after_ns);
        w.ended_ns = ago(w.ended_ns);
        pod_orders o = plan_pod(&w);
        uint64_t again = o.again_ns > T0 ? (o.again_ns - T0) / NS_PER_S : 0;
        if (o.act != s->act || !str_eq(o.cause, s->cause) || o.keep_volume != s->keep_volume ||
            again != s->again_s)
            fail_msg("%s: %s, cause %s, volume %d, again in %d s", s->name, POD_ACT_NAMES[o.act],
                     str_or(o.cause, "-"), o.keep_volume, (int)again);
        pod_view_done(&p);
    }
}

static void an_end_has_the_cause_of_its_status(void **state)
{
    static const struct {
        const char *status, *cause;
    } ENDS[] = {
        {OOM, "oom"},
        {STATUS_ENDED("Error", "1"), "exited"},
        {STATUS_ENDED("Completed", "0"), "exited"},
        {STATUS_ENDED("Error", "143"), "killed"},
        {",'status':{'phase':'Failed','reason':'Evicted'}", "evicted"},
        {",'status':{'phase':'Unknown'}", "node_lost"},
        {STATUS_WAITING("ErrImagePull", "x"), "image_pull"},
        {",'status':{'phase':'Failed'}", "unknown"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ENDS); i++) {
        pod_view p = make_pod("x", L_CLAIMED, "", ENDS[i].status);
        assert_string_equal(pod_end_cause(&p), ENDS[i].cause);
        pod_view_done(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_table),
        cmocka_unit_test(an_end_has_the_cause_of_its_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

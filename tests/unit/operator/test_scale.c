/* Costs of the operator with tens of thousands of objects: CPU time of this thread, so that other
 * work on the machine does not count. The server answers at once. */
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "operator/operator.h"
#include "operator/queue.h"
#include "operator/text.h"

#include "make.h"

#define PODS  20000
#define NODES 200

static double cpu(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the queue ---- */

static void the_queue_holds_many_keys(void **state)
{
    queue q = {0};
    char key[QUEUE_KEY_MAX + 1];
    uint64_t before = 0;

    (void)state;
    double began = cpu();
    for (uint64_t i = 0; i < PODS; i++) {
        snprintf(key, sizeof key, "pod/%08x-1111-2222-3333", (unsigned)(i * 2654435761u));
        queue_add(&q, key, NS_PER_S + (i * 7919) % PODS);
        queue_add(&q, key, NS_PER_S + (i * 104729) % PODS); /* sooner or later */
        assert_true(queue_next(&q) >= NS_PER_S);
    }
    assert_int_equal(queue_waiting(&q), PODS);
    for (int i = 0; i < PODS; i++) {
        uint64_t due = queue_next(&q);
        assert_true(due >= before);
        before = due;
        assert_true(queue_take(&q, UINT64_MAX, key));
    }
    assert_false(queue_take(&q, UINT64_MAX, key));
    assert_true(cpu() - began < 2);
    queue_done(&q);
}

/* ---- the operator ---- */

static unsigned long writes, removed;

static err *api_get(void *arg, const char *path, json_t **ret)
{
    (void)arg, (void)path;
    *ret = parse("{'items':[]}");
    return NULL;
}

static err *api_create(void *arg, const char *path, const json_t *object, json_t **ret)
{
    (void)arg, (void)path, (void)object, (void)ret;
    writes++;
    return NULL;
}

static err *api_patch(void *arg, const char *path, enum operator_patch how, const json_t *patch)
{
    (void)arg, (void)path, (void)how, (void)patch;
    writes++;
    return NULL;
}

static err *api_remove(void *arg, const char *path, const char *uid)
{
    (void)arg, (void)uid;
    writes++;
    removed += strstr(path, "/sandboxes/") != NULL;
    return NULL;
}

static const operator_api API = {api_get, api_create, api_patch, api_remove};

static bool host_held(void *arg)
{
    (void)arg;
    return true;
}

static enum init_state host_init(void *arg, const char *uid)
{
    (void)arg, (void)uid;
    return INIT_CLAIMED;
}

static uint32_t host_pending(void *arg, const char *pool)
{
    (void)arg, (void)pool;
    return 0;
}

static bool host_look(void *arg, const char *id, operator_look *l)
{
    uint64_t now = now_real_ns();

    (void)arg, (void)id;
    *l = (operator_look){.life = LIFE_LIVE,
                         .owner = xstrdup("t"),
                         .class = xstrdup("exact"),
                         .created_ns = now - 60 * NS_PER_S,
                         .active_ns = now,
                         .ends_ns = now + 3600 * NS_PER_S};
    return true;
}

static const operator_host HOST = {
    .held = host_held, .init = host_init, .pending = host_pending, .look = host_look};

static void saw(kube_operator *op, enum operator_kind kind, const char *text)
{
    json_t *o = parse(text);

    operator_saw(op, kind, json_str(json_object_get(o, "metadata"), "uid"), o);
    json_decref(o);
}

static void saw_pod(kube_operator *op, unsigned i)
{
    CLEANUP(freep)
    char *text = str_printf(
        "{'metadata':{'name':'b-%u','namespace':'ns','uid':'p%08x','labels':{'bothy.dev/cell':"
        "'b000','bothy.dev/pool':'bench','bothy.dev/sandbox':'b000%016u','bothy.dev/state':"
        "'claimed','bothy.dev/template-hash':'" HASH_A "'}},'spec':{'nodeName':'node-%u'},"
        "'status':{'phase':'Running','containerStatuses':[{'name':'sandbox','state':{'running':"
        "{}}}]}}",
        i, i * 2654435761u, i, i % NODES);

    saw(op, OPERATOR_POD, text);
}

static void saw_sandbox(kube_operator *op, unsigned i)
{
    CLEANUP(freep)
    char *text = str_printf(
        "{'metadata':{'name':'s-%u','namespace':'ns','uid':'s%08x','generation':1,'finalizers':"
        "['bothy.dev/sandbox']},'spec':{'poolRef':'bench'},'status':{'phase':'Running','id':"
        "'b000%016u','observedGeneration':1}}",
        i, i * 2654435761u, i);

    saw(op, OPERATOR_SANDBOX, text);
}

static void saw_node(kube_operator *op, unsigned i)
{
    CLEANUP(freep)
    char *text = str_printf("{'metadata':{'name':'node-%u','uid':'n-%u'},'status':{'conditions':"
                            "[{'type':'Ready','status':'True'}]}}",
                            i, i);

    saw(op, OPERATOR_NODE, text);
}

static kube_operator *begin(void)
{
    const operator_options o = {.api = &API,
                                .host = &HOST,
                                .clock = &CLOCK_SYSTEM,
                                .namespace = "ns",
                                .cell = "b000",
                                .bothy_image = "x:1",
                                .instance = "t",
                                .policy = POLICY_VOUCHED};
    kube_operator *op = operator_new(&o);

    saw(op, OPERATOR_TEMPLATE,
        "{'metadata':{'name':'bench','uid':'tt','generation':1},'spec':{'image':'i'}}");
    saw(op, OPERATOR_POOL,
        "{'metadata':{'name':'bench','namespace':'ns','uid':'pp','generation':1,'finalizers':"
        "['bothy.dev/pool']},'spec':{'templateRef':'bench','replicas':0}}");
    for (unsigned i = 0; i < NODES; i++)
        saw_node(op, i);
    return op;
}

/* Returns the CPU seconds of listing n sandboxes with their pods and of the first look at each. */
static double fill(unsigned n, kube_operator **ret_op)
{
    kube_operator *op = begin();
    double began = cpu();

    for (unsigned i = 0; i < n; i++)
        saw_sandbox(op, i);
    for (unsigned i = 0; i < n; i++)
        saw_pod(op, i);
    for (int k = 0; k < OPERATOR_KINDS; k++)
        operator_synced(op, (enum operator_kind)k);
    operator_step(op);
    *ret_op = op;
    return cpu() - began;
}

/* Returns the CPU seconds of n events of pods and of one of a node. */
static double events(kube_operator *op, unsigned of, unsigned n)
{
    double began = cpu();

    for (unsigned i = 0; i < n; i++) {
        saw_pod(op, (i * 7919) % of);
        operator_step(op);
    }
    saw_node(op, 1);
    operator_step(op);
    return cpu() - began;
}

/* Ten times the objects are ten times the work, not a hundred times. */
static void many_objects_cost_no_more_each(void **state)
{
    kube_operator *few, *many;

    (void)state;
    double small = fill(PODS / 10, &few);
    double big = fill(PODS, &many);
    double slow = events(few, PODS / 10, 50), slower = events(many, PODS, 50);
    operator_free(few);
    operator_free(many);
    print_message("%d: %.2f s, %d: %.2f s; 50 events: %.3f s, %.3f s\n", PODS / 10, small, PODS,
                  big, slow, slower);
    assert_true(big < small * 30);
    assert_true(slower < slow * 30 + 0.5);
}

/* Two minutes after their end. */
static unsigned long forgotten_of(unsigned n)
{
    kube_operator *op = begin();
    char at[TIME_TEXT_MAX];

    time_to_text(now_real_ns() - 120 * NS_PER_S, at);
    for (unsigned i = 0; i < n; i++) {
        CLEANUP(freep)
        char *text = str_printf("{'metadata':{'name':'s-%u','namespace':'ns','uid':'s%u'},'spec':"
                                "{'poolRef':'bench'},'status':{'phase':'Terminated','id':"
                                "'b000%016u','cause':{'code':'ttl','at':'%s'}}}",
                                i, i, i, at);
        saw(op, OPERATOR_SANDBOX, text);
    }
    for (int k = 0; k < OPERATOR_KINDS; k++)
        operator_synced(op, (enum operator_kind)k);
    removed = 0;
    operator_step(op);
    operator_free(op);
    return removed;
}

static void ended_ones_make_room(void **state)
{
    (void)state;
    assert_int_equal(forgotten_of(100), 0);
    assert_true(forgotten_of(OPERATOR_OBJECTS_MAX / 2 + 100) > OPERATOR_OBJECTS_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_queue_holds_many_keys),
        cmocka_unit_test(many_objects_cost_no_more_each),
        cmocka_unit_test(ended_ones_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

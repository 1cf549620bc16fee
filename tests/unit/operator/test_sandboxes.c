#include "base/buf.h"
#include "base/metric.h"
#include "operator/operator_internal.h"

#include "fake_api.h"

#define ID_7 "abcd0000000000000007"

/* ---- idle ---- */

static const char IDLE_DISK[] = "{'image':'i','workspace':{'mountPath':'/w','size':'1Gi'},"
                                "'timeouts':{'idle':'1m'}}";

static fake_sandbox *begin_with_disk(fake *f, char ret_id[SANDBOX_ID_LEN + 1])
{
    fake_begin(f, false);
    fake_make_template(f, IDLE_DISK);
    fake_make_pool(f, "{'templateRef':'t','replicas':1}");
    fake_settle(f);
    fake_make_sandbox(f, "s", "{'poolRef':'p'}");
    fake_settle(f);
    str_copy(ret_id, SANDBOX_ID_LEN + 1, json_str(fake_status_of(f, SANDBOX_S), "id"));
    return fake_sandbox_of(f, ret_id);
}

static void one_with_a_disk_sleeps_after_its_last_activity(void **state)
{
    char id[SANDBOX_ID_LEN + 1];
    fake f;

    (void)state;
    fake_sandbox *s = begin_with_disk(&f, id);
    s->created_ns = f.real;
    for (int i = 0; i < 30; i++) { /* busy for five minutes */
        s->active_ns = f.real;
        fake_pass(&f, 10);
        operator_step(f.op);
    }
    assert_int_equal(f.sleeps, 0);
    assert_true(operator_idle(f.op, id)); /* and the engine leaves it alone */
    fake_pass(&f, 61);
    operator_step(f.op);
    assert_int_equal(f.sleeps, 1);
    fake_settle(&f);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Hibernated");
    assert_int_equal(f.events, 1); /* a line for kubectl describe */
    fake_end_all(&f);
}

static void the_engine_measures_what_the_object_says(void **state)
{
    char id[SANDBOX_ID_LEN + 1];
    fake f;

    (void)state;
    fake_sandbox *s = begin_with_disk(&f, id);
    assert_int_equal(s->idle_ms, 60000);
    s->active_ns = f.real;
    fake_edit(&f, SANDBOX_S, "{'spec':{'idleSeconds':7200}}");
    operator_step(f.op);
    assert_int_equal(s->idle_ms, 7200000);
    fake_edit(&f, SANDBOX_S, "{'spec':{'idleSeconds':0}}");
    operator_step(f.op);
    assert_int_equal(s->idle_ms, 0);
    assert_false(operator_idle(f.op, id));
    assert_false(operator_idle(f.op, "abcd9999999999999999"));
    fake_end_all(&f);
}

/* The engine would end it, disk and all; without the template no idle time is known. */
static void one_with_a_disk_and_no_template_stays_awake(void **state)
{
    char id[SANDBOX_ID_LEN + 1];
    fake f;

    (void)state;
    begin_with_disk(&f, id);
    assert_non_null(json_str(fake_status_of(&f, SANDBOX_S), "workspaceClaim"));
    fake_drop(&f, OURS "sandboxtemplates/t");
    fake_pass(&f, 120);
    operator_step(f.op);
    assert_true(operator_idle(f.op, id));
    assert_int_equal(f.sleeps, 0);
    assert_int_equal(f.ends, 0);
    fake_end_all(&f);
}

/* ---- its status ---- */

static void running_is_shown_at_once(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_settle(&f);
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    for (int i = 0; i < 10; i++) { /* a hundredth of a second */
        operator_step(f.op);
        fake_pass(&f, 0.001);
    }
    const json_t *s = fake_status_of(&f, SANDBOX_S);
    assert_string_equal(json_str(s, "phase"), "Running");
    assert_non_null(json_str(s, "podName"));
    unsigned before = f.statuses;
    for (int i = 0; i < 20; i++) { /* what is not its phase is not written more often */
        CLEANUP(freep) char *patch = str_printf("{'spec':{'labels':{'n':'%d'}}}", i);
        fake_edit(&f, SANDBOX_S, patch);
        fake_pass(&f, 0.05);
        operator_step(f.op);
    }
    assert_true(f.statuses - before <= 2);
    fake_end_all(&f);
}

static void running_is_shown_with_its_pod(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_settle(&f);
    f.hold_creates = true;
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_sandbox_of(&f, ID_7)->life = LIFE_LIVE;
    operator_created(f.op, f.held_uid, ID_7, NULL); /* its pod's label is on its way */
    fake_pass(&f, 1.1);
    operator_step(f.op);
    assert_string_not_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Running");
    assert_true(fake_claim(&f, "p", ID_7));
    operator_step(f.op);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Running");
    assert_non_null(json_str(fake_status_of(&f, SANDBOX_S), "podName"));
    fake_end_all(&f);
}

/* ---- records ---- */

#define PATH_7 OURS "namespaces/ns/sandboxes/sbx-" ID_7

static void begin_records(fake *f, const char *pool)
{
    fake_begin(f, true);
    fake_make_template(f, "{'image':'i'}");
    fake_make_pool(f, pool);
    fake_settle(f);
}

static const char *pool_of_record(fake *f)
{
    return json_str(json_object_get(fake_get(f, PATH_7), "spec"), "poolRef");
}

/* The label comes through the API server, the claim does not. */
static void a_record_knows_its_pool_before_the_label_is_seen(void **state)
{
    fake f;

    (void)state;
    begin_records(&f, "{'templateRef':'t','replicas':1}");
    fake_sandbox_of(&f, ID_7)->life = LIFE_BEING_MADE;
    operator_placed(f.op, ID_7, "p");
    operator_sandbox_changed(f.op, ID_7);
    operator_step(f.op);
    assert_null(fake_get(&f, PATH_7));
    fake_sandbox_of(&f, ID_7)->life = LIFE_LIVE; /* committed now, and no event says so */
    fake_pass(&f, 0.5);
    operator_step(f.op);
    assert_string_equal(pool_of_record(&f), "p");
    fake_end_all(&f);
}

static void a_record_waits_for_its_label(void **state)
{
    fake f;

    (void)state;
    begin_records(&f, "{'templateRef':'t','replicas':1}");
    fake_sandbox_of(&f, ID_7)->life = LIFE_LIVE;
    operator_sandbox_changed(f.op, ID_7); /* of a bothyd before this one */
    operator_step(f.op);
    assert_null(fake_get(&f, PATH_7));
    assert_true(fake_claim(&f, "p", ID_7));
    operator_step(f.op);
    assert_string_equal(pool_of_record(&f), "p");
    fake_end_all(&f);
}

static void a_record_is_made_once(void **state)
{
    fake f;

    (void)state;
    begin_records(&f, "{'templateRef':'t','replicas':1}");
    fake_sandbox_of(&f, ID_7)->life = LIFE_LIVE;
    f.deaf = true;
    operator_placed(f.op, ID_7, "p");
    operator_step(f.op);
    assert_string_equal(pool_of_record(&f), "p");
    assert_true(fake_claim(&f, "p", ID_7));
    for (int i = 0; i < 10; i++) {
        operator_sandbox_changed(f.op, ID_7);
        fake_pass(&f, 0.1);
        operator_step(f.op);
    }
    assert_int_equal(f.conflicts, 0);
    fake_end_all(&f);
}

static void a_record_that_is_shown_leaves_no_track(void **state)
{
    fake f;

    (void)state;
    begin_records(&f, "{'templateRef':'t','replicas':1}");
    fake_sandbox_of(&f, ID_7)->life = LIFE_LIVE;
    operator_placed(f.op, ID_7, "p");
    operator_step(f.op);
    assert_string_equal(pool_of_record(&f), "p");
    assert_int_equal(f.op->records.count, 1);
    fake_pass(&f, 16);
    operator_step(f.op);
    assert_int_equal(f.op->records.count, 0);
    assert_int_equal(f.conflicts, 0);
    fake_end_all(&f);
}

static void record_after_holds_without_a_label(void **state)
{
    fake f;

    (void)state;
    begin_records(&f, "{'templateRef':'t','replicas':1,'recordAfter':'1m'}");
    *fake_sandbox_of(&f, ID_7) = (fake_sandbox){.life = LIFE_LIVE, .created_ns = f.real};
    operator_placed(f.op, ID_7, "p");
    fake_settle(&f);
    assert_null(fake_get(&f, PATH_7));
    fake_pass(&f, 60);
    operator_step(f.op);
    assert_string_equal(pool_of_record(&f), "p");
    fake_end_all(&f);
}

/* ---- two cells ---- */

static kube_operator *another_cell(fake *f)
{
    static clock_source clock = {fake_mono, fake_real, NULL};
    clock.arg = f;
    const operator_options o = {.api = &FAKE_API,
                                .api_arg = f,
                                .host = &FAKE_HOST,
                                .host_arg = f,
                                .clock = &clock,
                                .namespace = "ns2",
                                .cell = "wxyz",
                                .bothy_image = "bothy:2",
                                .policy = POLICY_VOUCHED};
    kube_operator *op = operator_new(&o);

    for (int i = 0; i < OPERATOR_KINDS; i++)
        operator_synced(op, (enum operator_kind)i);
    return op;
}

static unsigned writes_of_templates(fake *f)
{
    unsigned before = f->statuses;

    for (int i = 0; i < 200; i++) { /* twenty seconds */
        operator_step(f->op);
        operator_step(f->other);
        fake_pass(f, 0.1);
    }
    return f->statuses - before;
}

#define TEMPLATE_T OURS "sandboxtemplates/t"

static void two_cells_agree_about_a_template(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    f.other = another_cell(&f);
    fake_make_template(&f, "{'image':'i'}");
    assert_true(writes_of_templates(&f) <= 2);
    fake_make_pool(&f, "{'templateRef':'t','replicas':0}");
    CLEANUP(json_decrefp)
    json_t *pool =
        parse("{'metadata':{'name':'q','namespace':'ns2','uid':'other-q','generation':1},"
              "'spec':{'templateRef':'t','replicas':0}}");
    operator_saw(f.other, OPERATOR_POOL, "other-q", pool);
    writes_of_templates(&f);
    const json_t *s = fake_status_of(&f, TEMPLATE_T), *cells = json_object_get(s, "cells");
    assert_int_equal(json_int(s, "pools", -1), 2);
    assert_int_equal(json_int(json_object_get(cells, "abcd"), "pools", -1), 1);
    assert_int_equal(json_int(json_object_get(cells, "wxyz"), "pools", -1), 1);
    assert_string_not_equal(json_str(json_object_get(cells, "abcd"), "hash"),
                            json_str(json_object_get(cells, "wxyz"), "hash"));
    assert_int_equal(writes_of_templates(&f), 0);
    operator_lost(f.other, OPERATOR_POOL, "other-q", NULL);
    writes_of_templates(&f);
    s = fake_status_of(&f, TEMPLATE_T);
    assert_int_equal(json_int(s, "pools", -1), 1);
    assert_null(json_object_get(json_object_get(s, "cells"), "wxyz"));
    assert_ok(fake_api_remove(&f, POOL_P, NULL));
    writes_of_templates(&f);
    assert_int_equal(json_int(fake_status_of(&f, TEMPLATE_T), "pools", -1), 0);
    assert_int_equal(writes_of_templates(&f), 0);
    operator_free(f.other);
    f.other = NULL;
    fake_end_all(&f);
}

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static json_t *only_pod(fake *f, char **ret_path)
{
    map_iter it = {0};

    while (map_next(&f->objects, &it))
        if (str_eq(json_str(it.entry->value, "kind"), "Pod")) {
            *ret_path = xstrndup(it.entry->key, it.entry->len);
            return it.entry->value;
        }
    fail_msg("there is no pod");
    return NULL;
}

static const json_t *own_entry(fake *f)
{
    return json_object_get(json_object_get(fake_status_of(f, TEMPLATE_T), "cells"), "abcd");
}

static void a_cell_takes_back_a_digest_that_it_no_longer_sees(void **state)
{
    CLEANUP(freep) char *path = NULL;
    fake f;

    (void)state;
    fake_begin(&f, false);
    f.other = another_cell(&f);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_settle(&f);
    json_t *pod = only_pod(&f, &path);
    json_object_set_new(pod, "status",
                        parse("{'phase':'Running','containerStatuses':[{'name':'sandbox',"
                              "'imageID':'i@" DIGEST "','state':{'running':{}}}]}"));
    fake_changed(&f, path, pod);
    fake_edit(&f, POOL_P, "{'metadata':{'annotations':{'look':'again'}}}");
    writes_of_templates(&f);
    assert_string_equal(json_str(own_entry(&f), "imageDigest"), DIGEST);
    assert_string_equal(condition_of(fake_status_of(&f, TEMPLATE_T), "ImageResolved", "status"),
                        "True");
    fake_edit(&f, POOL_P, "{'spec':{'replicas':0}}");
    fake_settle(&f);
    writes_of_templates(&f);
    assert_int_equal(json_int(own_entry(&f), "pools", -1), 1);
    assert_null(json_str(own_entry(&f), "imageDigest"));
    assert_string_equal(condition_of(fake_status_of(&f, TEMPLATE_T), "ImageResolved", "status"),
                        "False");
    assert_int_equal(writes_of_templates(&f), 0);
    operator_free(f.other);
    f.other = NULL;
    fake_end_all(&f);
}

/* ---- beside the pods ---- */

static void what_a_pool_no_longer_wants_is_deleted(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1,'prePull':{'images':['i']}}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/poddisruptionbudgets/bothy-claimed-p"), 1);
    assert_int_equal(fake_count(&f, "/daemonsets/bothy-prepull-p"), 1);
    fake_edit(&f, POOL_P, "{'spec':{'disruption':{'protectClaimed':false},'prePull':null}}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/poddisruptionbudgets/"), 0);
    assert_int_equal(fake_count(&f, "/daemonsets/"), 0);
    fake_end_all(&f);
}

/* Network plugins put each change of a policy into effect on every node. */
static void a_policy_that_is_right_is_not_written(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_settle(&f);
    CLEANUP(freep)
    char *path = str_printf("/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies/bothy-%s",
                            json_str(fake_status_of(&f, POOL_P), "templateHash"));
    assert_non_null(fake_get(&f, path));
    CLEANUP(freep)
    char *version = xstrdup(json_str(fake_meta(fake_get(&f, path)), "resourceVersion"));
    fake_edit(&f, POOL_P, "{'spec':{'replicas':2}}");
    fake_settle(&f);
    assert_string_equal(json_str(fake_meta(fake_get(&f, path)), "resourceVersion"), version);
    fake_make_sandbox(&f, "s", "{'templateRef':'t'}");
    fake_settle(&f);
    assert_int_equal(f.engine_creates, 1);
    assert_string_equal(json_str(fake_meta(fake_get(&f, path)), "resourceVersion"), version);
    /* A policy without the operator's labels is not found by its sweep. */
    fake_edit(&f, path, "{'metadata':{'labels':{'bothy.dev/cell':null}}}");
    fake_pass(&f, 61);
    fake_settle(&f);
    assert_string_equal(
        json_str(json_object_get(fake_meta(fake_get(&f, path)), "labels"), LABEL_CELL), "abcd");
    fake_end_all(&f);
}

static void images_that_a_template_forbids_are_not_pulled(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i','idleImage':'idle','imagePolicy':{'allow':['ours/*']}}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':0,'anyImage':true,'prePull':{'images':"
                       "['i','idle','ours/a','theirs/b','theirs/c']}}");
    fake_settle(&f);
    CLEANUP(freep)
    char *made = json_dumps(fake_get(&f, "/apis/apps/v1/namespaces/ns/daemonsets/bothy-prepull-p"),
                            JSON_COMPACT);
    assert_non_null(made);
    assert_non_null(strstr(made, "\"ours/a\""));
    assert_non_null(strstr(made, "\"idle\""));
    assert_null(strstr(made, "theirs"));
    assert_int_equal(f.events, 1);
    assert_non_null(strstr(f.last_event, "'theirs/b', 'theirs/c'"));
    fake_end_all(&f);
}

/* ---- pods that end ---- */

/* Lets the container of the only pod end with SIGKILL. */
static void kill_container(fake *f)
{
    CLEANUP(freep) char *path = NULL;
    json_t *pod = only_pod(f, &path);

    json_object_set_new(pod, "status",
                        parse("{'phase':'Failed','containerStatuses':[{'name':'sandbox',"
                              "'state':{'terminated':{'reason':'Error','exitCode':137}}}]}"));
    fake_changed(f, path, pod);
    operator_step(f->op);
}

static void an_end_is_an_event_only_of_the_pod_that_has_the_sandbox(void **state)
{
    static const struct {
        bool known;
        const char *box; /* where the sandbox is */
        unsigned events;
    } PODS[] = {{true, NULL, 1}, {true, "abcd0000000000000008", 0}, {false, NULL, 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(PODS); i++) {
        fake f;
        fake_begin(&f, false);
        fake_make_template(&f, "{'image':'i'}");
        fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
        fake_settle(&f);
        fake_edit(&f, POOL_P, "{'spec':{'replicas':0}}");
        if (PODS[i].known)
            *fake_sandbox_of(&f, ID_7) = (fake_sandbox){.life = LIFE_LIVE, .box = PODS[i].box};
        assert_true(fake_claim(&f, "p", ID_7));
        operator_step(f.op);
        assert_int_equal(f.events, 0);
        kill_container(&f);
        assert_int_equal(f.events, PODS[i].events);
        assert_int_equal(fake_count(&f, "/pods/"), 0);
        fake_end_all(&f);
    }
}

/* ---- drains ---- */

static void a_drain_ends_one_without_a_disk_after_its_time(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1,'disruption':{'drainAfter':'2m'}}");
    fake_make(&f, "/api/v1/nodes/n",
              "{'metadata':{'name':'n'},'status':{'conditions':[{'type':"
              "'Ready','status':'True'}]}}");
    fake_settle(&f);
    fake_sandbox_of(&f, ID_7)->life = LIFE_LIVE;
    assert_true(fake_claim(&f, "p", ID_7));
    map_iter it = {0};
    while (map_next(&f.objects, &it)) {
        if (!str_eq(json_str(it.entry->value, "kind"), "Pod"))
            continue;
        CLEANUP(freep) char *path = xstrndup(it.entry->key, it.entry->len);
        json_object_set_new(json_object_get(it.entry->value, "spec"), "nodeName", json_string("n"));
        fake_changed(&f, path, it.entry->value);
    }
    operator_step(f.op);
    fake_edit(&f, "/api/v1/nodes/n", "{'spec':{'unschedulable':true}}");
    fake_settle(&f); /* 22 seconds */
    assert_int_equal(f.ends, 0);
    fake_pass(&f, 90);
    operator_step(f.op);
    assert_int_equal(f.ends, 0);
    fake_pass(&f, 15);
    operator_step(f.op);
    assert_int_equal(f.ends, 1);
    assert_string_equal(fake_sandbox_of(&f, ID_7)->cause, "evicted");
    fake_end_all(&f);
}

/* ---- metrics ---- */

static void assert_metric(const char *line)
{
    CLEANUP(buf_done) buf out = {0};

    metric_write(&out);
    if (!strstr(buf_cstr(&out), line))
        fail_msg("there is no %s", line);
}

static void pools_are_measured(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':3}");
    fake_settle(&f);
    assert_true(fake_claim(&f, "p", ID_7));
    fake_sandbox_of(&f, ID_7)->life = LIFE_LIVE;
    f.pending = 4;
    fake_settle(&f);
    assert_metric("bothy_pool_pods{state=\"ready\"} 3\n");
    assert_metric("bothy_pool_pods{state=\"claimed\"} 1\n");
    assert_metric("bothy_pool_pending_claims 4\n");
    assert_metric("bothy_operator_objects{kind=\"pod\"} 4\n");
    assert_metric("bothy_operator_reconciles_total{kind=\"pool\",result=\"ok\"} ");
    assert_metric("bothy_operator_writes_total{result=\"ok\"} ");
    assert_metric("bothy_operator_leading 1\n");
    f.held = false;
    operator_step(f.op);
    assert_metric("bothy_operator_leading 0\n");
    operator_lost(f.op, OPERATOR_POOL, json_str(fake_meta(fake_get(&f, POOL_P)), "uid"), NULL);
    assert_metric("bothy_pool_pods{state=\"ready\"} 0\n");
    fake_end_all(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_with_a_disk_sleeps_after_its_last_activity),
        cmocka_unit_test(the_engine_measures_what_the_object_says),
        cmocka_unit_test(one_with_a_disk_and_no_template_stays_awake),
        cmocka_unit_test(running_is_shown_at_once),
        cmocka_unit_test(running_is_shown_with_its_pod),
        cmocka_unit_test(a_record_knows_its_pool_before_the_label_is_seen),
        cmocka_unit_test(a_record_waits_for_its_label),
        cmocka_unit_test(a_record_is_made_once),
        cmocka_unit_test(a_record_that_is_shown_leaves_no_track),
        cmocka_unit_test(record_after_holds_without_a_label),
        cmocka_unit_test(two_cells_agree_about_a_template),
        cmocka_unit_test(a_cell_takes_back_a_digest_that_it_no_longer_sees),
        cmocka_unit_test(what_a_pool_no_longer_wants_is_deleted),
        cmocka_unit_test(a_policy_that_is_right_is_not_written),
        cmocka_unit_test(images_that_a_template_forbids_are_not_pulled),
        cmocka_unit_test(an_end_is_an_event_only_of_the_pod_that_has_the_sandbox),
        cmocka_unit_test(a_drain_ends_one_without_a_disk_after_its_time),
        cmocka_unit_test(pools_are_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

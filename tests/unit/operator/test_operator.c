#include "operator/operator.h"
#include "operator/queue.h"

#include "fake_api.h"

/* ---- pools ---- */

/* Beside the one of those without a network. */
static unsigned walls_of_templates(fake *f)
{
    return fake_count(f, "/networkpolicies/") - fake_count(f, "/networkpolicies/bothy-none-");
}

static void a_pool_is_filled_and_told(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':5}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 5);
    const json_t *s = fake_status_of(&f, POOL_P);
    assert_int_equal(json_int(s, "readyReplicas", -1), 5);
    assert_int_equal(json_int(s, "replicas", -1), 5);
    assert_string_equal(condition_of(s, "Available", "status"), "True");
    assert_string_equal(condition_of(s, "Degraded", "status"), "False");
    assert_int_equal(walls_of_templates(&f), 1);
    assert_int_equal(fake_count(&f, "/poddisruptionbudgets/"), 1);
    const json_t *t = fake_status_of(&f, OURS "sandboxtemplates/t");
    assert_string_equal(condition_of(t, "Accepted", "status"), "True");
    assert_int_equal(json_int(t, "pools", -1), 1);
    fake_end_all(&f);
}

static void a_pool_that_is_as_it_should_be_is_not_written(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_settle(&f);
    unsigned writes = f.creates + f.patches + f.applies + f.removes + f.statuses;
    for (int i = 0; i < 30; i++) {
        fake_pass(&f, 10);
        operator_step(f.op);
    }
    assert_int_equal(f.creates + f.patches + f.applies + f.removes + f.statuses, writes);
    fake_end_all(&f);
}

/* The watch has its own thread: what a look has in its hands is not freed. */
static void a_pool_that_goes_in_the_middle_of_a_look_is_looked_at_to_the_end(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    f.lost_in_create = POOL_P;
    fake_settle(&f);
    assert_null(fake_get(&f, POOL_P));
    fake_end_all(&f);
}

static void a_pool_follows_its_scale(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_settle(&f);
    fake_edit(&f, POOL_P, "{'spec':{'replicas':6}}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 6);
    fake_edit(&f, POOL_P, "{'spec':{'replicas':0}}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 0);
    assert_int_equal(f.retired, 6);
    assert_string_equal(condition_of(fake_status_of(&f, POOL_P), "Available", "reason"),
                        "ScaledToZero");
    fake_end_all(&f);
}

static void who_is_claimed_while_it_is_to_go_stays(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_settle(&f);
    f.claims_in_retire = true;
    fake_edit(&f, POOL_P, "{'spec':{'replicas':0}}");
    operator_step(f.op);
    assert_int_equal(fake_count(&f, "/pods/"), 2);
    assert_int_equal(f.removes, 0);
    fake_end_all(&f);
}

/* Nobody can claim it any more, and it was counted as one that starts. */
static void one_that_was_to_go_goes_though_it_is_wanted_again(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_settle(&f);
    f.refuse_removes = true;
    fake_edit(&f, POOL_P, "{'spec':{'replicas':1}}");
    operator_step(f.op);
    assert_int_equal(f.retired, 1);
    assert_int_equal(f.removes, 0);
    f.refuse_removes = false;
    fake_edit(&f, POOL_P, "{'spec':{'replicas':2}}");
    fake_settle(&f);
    fake_settle(&f);
    assert_int_equal(f.removes, 1);
    assert_int_equal(fake_count(&f, "/pods/"), 2);
    assert_int_equal(json_int(fake_status_of(&f, POOL_P), "readyReplicas", 0), 2);
    fake_end_all(&f);
}

static void a_status_is_written_once_a_second(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_settle(&f);
    unsigned before = f.statuses;
    for (int i = 0; i < 20; i++) {
        f.pending = (uint32_t)i;
        fake_edit(&f, POOL_P, "{'metadata':{'labels':{'x':'y'}}}");
        fake_pass(&f, 0.05);
        operator_step(f.op);
    }
    assert_true(f.statuses - before <= 2);
    fake_pass(&f, 1.1);
    operator_step(f.op);
    assert_int_equal(json_int(fake_status_of(&f, POOL_P), "pendingClaims", -1), 19);
    fake_end_all(&f);
}

static void a_quota_is_a_cause_and_no_hot_loop(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    f.quota = 3;
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':5}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 3);
    const json_t *s = fake_status_of(&f, POOL_P);
    assert_string_equal(condition_of(s, "Degraded", "reason"), "QuotaExceeded");
    assert_non_null(strstr(condition_of(s, "Degraded", "message"), "exceeded quota: q"));
    assert_int_equal(f.events, 1);
    f.quota = 0;
    fake_pass(&f, 31);
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 5);
    assert_string_equal(condition_of(fake_status_of(&f, POOL_P), "Degraded", "status"), "False");
    fake_end_all(&f);
}

static void a_new_template_rolls_the_unclaimed(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':4}");
    fake_settle(&f);
    assert_true(fake_claim(&f, "p", "abcd0000000000000000"));
    fake_sandbox_of(&f, "abcd0000000000000000")->life = LIFE_LIVE;
    fake_settle(&f);
    fake_edit(&f, OURS "sandboxtemplates/t", "{'spec':{'image':'j'}}");
    unsigned least = 99;
    for (int i = 0; i < 60; i++) {
        operator_step(f.op);
        const json_t *s = fake_status_of(&f, POOL_P);
        unsigned ready = (unsigned)json_int(s, "readyReplicas", 0);
        least = ready < least ? ready : least;
        fake_run_pods(&f);
        fake_pass(&f, 1.1);
    }
    assert_true(least >= 3); /* 20 % of 4, at least 1 */
    map_iter it = {0};
    unsigned old = 0, new = 0;
    while (map_next(&f.objects, &it)) {
        const json_t *spec = json_object_get(it.entry->value, "spec");
        const json_t *c = json_array_get(json_object_get(spec, "containers"), 0);
        if (str_eq(json_str(it.entry->value, "kind"), "Pod"))
            old += str_eq(json_str(c, "image"), "i"), new += str_eq(json_str(c, "image"), "j");
    }
    assert_int_equal(new, 4);
    assert_int_equal(old, 1);                    /* the claimed one */
    assert_int_equal(walls_of_templates(&f), 2); /* and its walls */
    fake_end_all(&f);
}

static void without_the_lease_nothing_is_written(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, true);
    f.held = false;
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':5}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    assert_int_equal(f.creates + f.patches + f.applies + f.removes + f.statuses + f.events, 0);
    f.held = true;
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 6);
    fake_end_all(&f);
}

static void a_server_that_is_away_is_waited_for(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':3}");
    f.away = true;
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 0);
    f.away = false;
    fake_pass(&f, 60);
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 3);
    fake_end_all(&f);
}

static void a_deleted_pool_waits_for_its_claimed_pods(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':3}");
    fake_settle(&f);
    assert_true(fake_claim(&f, "p", "abcd0000000000000000"));
    fake_sandbox_of(&f, "abcd0000000000000000")->life = LIFE_LIVE;
    fake_settle(&f);
    assert_ok(fake_api_remove(&f, POOL_P, NULL));
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 1);
    assert_non_null(fake_get(&f, POOL_P));
    fake_edit(&f, POOL_P, "{'metadata':{'annotations':{'bothy.dev/force':'true'}}}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 0);
    assert_null(fake_get(&f, POOL_P));
    assert_int_equal(fake_count(&f, "/poddisruptionbudgets/"), 0);
    fake_pass(&f, 61);
    fake_settle(&f);
    assert_int_equal(walls_of_templates(&f), 0);
    fake_end_all(&f);
}

static void demand_wakes_a_pool_from_zero_and_lets_it_sleep(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','autoscale':{'max':9,'idleAfter':'1m'}}");
    fake_settle(&f);
    fake_pass(&f, 61);
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 0);
    f.pending = 3;
    operator_claimed(f.op, "p", NULL); /* somebody found none */
    fake_settle(&f);
    assert_true(fake_count(&f, "/pods/") >= 3);
    f.pending = 0;
    fake_pass(&f, 61);
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/"), 0);
    fake_end_all(&f);
}

static void a_template_that_is_wrong_says_so(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i','podOverrides':{'labels':{'bothy.dev/pool':'q'}}}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':3}");
    fake_settle(&f);
    const json_t *t = fake_status_of(&f, OURS "sandboxtemplates/t");
    assert_string_equal(condition_of(t, "Accepted", "reason"), "InvalidSpec");
    assert_int_equal(fake_count(&f, "/pods/"), 0);
    assert_string_equal(condition_of(fake_status_of(&f, POOL_P), "Degraded", "reason"),
                        "TemplateInvalid");
    fake_end_all(&f);
}

static void walls_that_do_not_hold_are_no_walls(void **state)
{
    fake f;

    (void)state;
    fake_begin_as(&f, false, POLICY_UNKNOWN);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':3}");
    fake_settle(&f);
    operator_policy_found(f.op, POLICY_NOT_ENFORCED);
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/p-"), 0);
    assert_string_equal(condition_of(fake_status_of(&f, POOL_P), "Degraded", "reason"),
                        "PolicyNotEnforced");
    fake_edit(&f, OURS "sandboxtemplates/t", "{'spec':{'network':{'egress':'All'}}}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/p-"), 3);
    fake_end_all(&f);
}

/* ---- the self-test of the walls ---- */

#define PROBE "/api/v1/namespaces/ns/pods/bothy-probe-abcd-"

static void probe_ended(fake *f, const char *path, int exit_code)
{
    CLEANUP(freep)
    char *text = str_printf("{'status':{'containerStatuses':[{'state':{'terminated':{'exitCode':"
                            "%d}}}]}}",
                            exit_code);

    fake_edit(f, path, text);
}

static void look_for_a_while(fake *f)
{
    for (int i = 0; i < 5; i++) {
        operator_step(f->op);
        fake_pass(f, 1.1);
    }
}

static const struct {
    int forbidden, free;
    enum policy_state found;
    unsigned pods; /* of the pool, then */
} PROBES[] = {
    {3, 0, POLICY_HOLDS, 2},
    {0, 0, POLICY_NOT_ENFORCED, 0},
    {3, 3, POLICY_UNKNOWN, 2},
    {137, 0, POLICY_UNKNOWN, 2},
};

static void the_walls_are_tried(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(PROBES); i++) {
        fake f;
        fake_begin_as(&f, false, POLICY_UNKNOWN);
        fake_make_template(&f, "{'image':'i'}");
        fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
        look_for_a_while(&f);
        assert_int_equal(fake_count(&f, "/networkpolicies/bothy-probe"), 1);
        assert_null(fake_get(&f, PROBE "free")); /* there is nobody to be reached yet */
        fake_edit(&f, PROBE "target",
                  "{'status':{'podIP':'10.1.2.3','containerStatuses':[{'state':{'running':{}}}]}}");
        look_for_a_while(&f);
        const json_t *spec = json_object_get(fake_get(&f, PROBE "forbidden"), "spec");
        const json_t *c = json_array_get(json_object_get(spec, "containers"), 0);
        assert_string_equal(json_string_value(json_array_get(json_object_get(c, "command"), 2)),
                            "10.1.2.3");
        assert_int_equal(operator_policy(f.op), POLICY_UNKNOWN);
        probe_ended(&f, PROBE "free", PROBES[i].free);
        probe_ended(&f, PROBE "forbidden", PROBES[i].forbidden);
        fake_settle(&f);
        assert_int_equal(operator_policy(f.op), PROBES[i].found);
        assert_int_equal(fake_count(&f, "/pods/bothy-probe"), 0);
        assert_int_equal(fake_count(&f, "/pods/p-"), PROBES[i].pods);
        fake_end_all(&f);
    }
}

static void walls_that_are_vouched_for_are_not_tried(void **state)
{
    fake f;

    (void)state;
    fake_begin_as(&f, false, POLICY_VOUCHED);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/pods/bothy-probe"), 0);
    assert_int_equal(fake_count(&f, "/pods/p-"), 2);
    fake_end_all(&f);
}

static void a_try_that_does_not_end_is_given_up(void **state)
{
    fake f;

    (void)state;
    fake_begin_as(&f, false, POLICY_UNKNOWN);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    look_for_a_while(&f);
    assert_int_equal(fake_count(&f, "/pods/bothy-probe"), 1);
    fake_pass(&f, 181);
    operator_step(f.op);
    assert_int_equal(fake_count(&f, "/pods/bothy-probe"), 0);
    fake_pass(&f, 60);
    look_for_a_while(&f);
    assert_int_equal(fake_count(&f, "/pods/bothy-probe"), 0); /* not again at once */
    fake_end_all(&f);
}

/* ---- sandboxes that count on a wall ---- */

#define NONE "/apis/networking.k8s.io/v1/namespaces/ns/networkpolicies/bothy-none-abcd"

static void assert_wall(fake *f, const operator_source *s, bool fails, err_code code)
{
    err *e = operator_wall(f->op, s);

    assert_int_equal(e != NULL, fails);
    if (e) {
        assert_int_equal(e->code, code);
        assert_int_equal(e->retryable, code == ERR_UNAVAILABLE);
        assert_true(code == ERR_UNAVAILABLE || strstr(e->remedy, "kubernetes.policies"));
    }
    err_free(e);
}

static void without_a_network_needs_a_wall_that_is_known_to_hold(void **state)
{
    fake f;

    (void)state;
    fake_begin_as(&f, false, POLICY_UNKNOWN);
    assert_wall(&f, NULL, true, ERR_UNAVAILABLE); /* it is being tried */
    operator_policy_found(f.op, POLICY_NOT_ENFORCED);
    assert_wall(&f, NULL, true, ERR_WALL_FAILED);
    assert_wall(&f, &(operator_source){.walled = true, .built = true}, true, ERR_WALL_FAILED);
    assert_wall(&f, &(operator_source){.open = true}, false, ERR_CODES);
    operator_policy_found(f.op, POLICY_HOLDS);
    assert_wall(&f, NULL, true, ERR_UNAVAILABLE); /* it is not there yet */
    assert_wall(&f, &(operator_source){.walled = true}, true, ERR_UNAVAILABLE);
    operator_step(f.op);
    assert_wall(&f, NULL, false, ERR_CODES);
    assert_wall(&f, &(operator_source){.walled = true, .built = true}, false, ERR_CODES);
    fake_end_all(&f);
}

static void the_wall_of_those_without_a_network_is_kept(void **state)
{
    static const char *const HARM[] = {
        "{'spec':{'egress':[{}]}}", "{'spec':{'policyTypes':['Ingress']}}",
        "{'spec':{'podSelector':{'matchLabels':{'bothy.dev/network':'open'}}}}", NULL};
    fake f;

    (void)state;
    fake_begin_as(&f, false, POLICY_VOUCHED);
    f.held = false;
    operator_step(f.op);
    assert_null(fake_get(&f, NONE));
    assert_wall(&f, NULL, true, ERR_UNAVAILABLE);
    f.held = true;
    fake_pass(&f, 3);
    operator_step(f.op);
    const json_t *labels = json_object_get(
        json_object_get(json_object_get(fake_get(&f, NONE), "spec"), "podSelector"), "matchLabels");
    assert_string_equal(json_str(labels, "bothy.dev/network"), "none");
    assert_string_equal(json_str(labels, "bothy.dev/cell"), "abcd");
    for (size_t i = 0; HARM[i]; i++) {
        fake_edit(&f, NONE, HARM[i]);
        fake_pass(&f, 61);
        operator_step(f.op);
        CLEANUP(json_decrefp)
        json_t *none = manifest_no_network(&(manifest_options){.cell = "abcd"}, "ns");
        assert_true(network_is(fake_get(&f, NONE), none));
    }
    assert_ok(fake_api_remove(&f, NONE, NULL));
    fake_pass(&f, 61);
    operator_step(f.op);
    assert_non_null(fake_get(&f, NONE));
    fake_pass(&f, 7200); /* no sweep takes it */
    fake_settle(&f);
    assert_non_null(fake_get(&f, NONE));
    fake_end_all(&f);
}

/* The path of the only one that belongs to a template. */
static char *wall_path(fake *f)
{
    map_iter it = {0};

    while (map_next(&f->objects, &it)) {
        const json_t *labels = json_object_get(fake_meta(it.entry->value), "labels");
        if (str_eq(json_str(it.entry->value, "kind"), "NetworkPolicy") &&
            json_str(labels, LABEL_TEMPLATE_HASH))
            return xstrndup(it.entry->key, it.entry->len);
    }
    fail_msg("there is none");
    return NULL;
}

static void the_wall_of_a_pool_is_kept(void **state)
{
    static const char *const HARM[] = {"{'spec':{'egress':[{}]}}",
                                       "{'spec':{'policyTypes':['Ingress']}}", NULL};
    operator_source s = {0};
    fake f;

    (void)state;
    fake_begin_as(&f, false, POLICY_VOUCHED);
    fake_make_template(&f, "{'image':'i','network':{'egress':'Public'}}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_settle(&f);
    CLEANUP(freep) char *path = wall_path(&f);
    CLEANUP(json_decrefp) json_t *wanted = json_deep_copy(fake_get(&f, path));
    for (size_t i = 0; i < ARRAY_LEN(HARM); i++) {
        unsigned before = f.applies;
        fake_pass(&f, 61);
        fake_settle(&f);
        assert_int_equal(f.applies, before); /* nobody has touched it */
        if (HARM[i])
            fake_edit(&f, path, HARM[i]);
        else
            fake_drop(&f, path);
        fake_pass(&f, 61);
        fake_settle(&f);
        assert_true(network_is(fake_get(&f, path), wanted));
    }
    assert_true(operator_source_of(f.op, &(operator_wish){.image = "i", .network = true}, &s));
    assert_true(s.built);
    json_decref(s.pod_spec);
    fake_end_all(&f);
}

static void a_try_that_finds_nothing_unsays_nothing(void **state)
{
    fake f;

    (void)state;
    fake_begin_as(&f, false, POLICY_UNKNOWN);
    operator_policy_found(f.op, POLICY_HOLDS);
    for (int i = 0; i < 5; i++) { /* its pods never run */
        operator_step(f.op);
        fake_pass(&f, 100);
    }
    assert_int_equal(operator_policy(f.op), POLICY_HOLDS);
    fake_end_all(&f);
}

/* What the pod runs that would be made. */
static const char *image_of(const operator_source *s)
{
    return json_str(json_array_get(json_object_get(s->pod_spec, "containers"), 0), "image");
}

static void a_template_without_a_pool_has_its_walls_first(void **state)
{
    fake f;
    operator_source s;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i','imagePolicy':{'allow':['j']},'runtimeClassName':'tier',"
                           "'network':{'egress':'Public'}}");
    fake_make_sandbox(&f, "s", "{'templateRef':'t','image':'j'}");
    fake_settle(&f);
    CLEANUP(freep)
    char *uid = xstrdup(json_str(fake_meta(fake_get(&f, SANDBOX_S)), "uid"));
    operator_wish w = {.image = "j", .network = true, .object_uid = uid};
    assert_true(operator_source_of(f.op, &w, &s));
    assert_string_equal(s.pool, "");
    assert_string_equal(image_of(&s), "j");
    assert_string_equal(json_str(s.pod_spec, "runtimeClassName"), "tier");
    assert_true(s.open && s.walled && s.built);
    CLEANUP(freep) char *path = str_printf("/networkpolicies/bothy-%s", s.hash);
    assert_int_equal(fake_count(&f, path), 1);
    json_decref(s.pod_spec);
    fake_pass(&f, 600); /* it is needed as long as the sandbox is */
    fake_settle(&f);
    assert_int_equal(fake_count(&f, path), 1);
    fake_end_all(&f);
}

static void one_that_is_to_have_less_has_a_pod_of_its_own(void **state)
{
    fake f;
    operator_source pools, own;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i','network':{'egress':'Public'}}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':0}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p','network':{'egress':'None'}}");
    operator_step(f.op);
    CLEANUP(freep)
    char *uid = xstrdup(json_str(fake_meta(fake_get(&f, SANDBOX_S)), "uid"));
    operator_wish w = {.image = "i", .object_uid = uid};
    assert_true(operator_source_of(f.op, &w, &own));
    assert_string_equal(own.pool, "");
    assert_true(!own.open && own.walled && own.built);
    json_decref(own.pod_spec);
    w = (operator_wish){.image = "i", .network = true};
    assert_true(operator_source_of(f.op, &w, &pools));
    assert_true(pools.open && pools.walled && pools.built);
    assert_string_not_equal(pools.hash, own.hash); /* whose policy lets more out */
    json_decref(pools.pod_spec);
    fake_end_all(&f);
}

/* ---- sandboxes ---- */

static void a_sandbox_of_kubectl_is_claimed_through_the_engine(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':2}");
    fake_settle(&f);
    fake_make_sandbox(&f, "s", "{'poolRef':'p','tenant':'acme'}");
    fake_settle(&f);
    const json_t *s = fake_status_of(&f, SANDBOX_S);
    assert_string_equal(json_str(s, "phase"), "Running");
    assert_non_null(json_str(s, "id"));
    assert_non_null(json_str(s, "podName"));
    assert_string_equal(json_str(s, "claimClass"), "exact");
    assert_string_equal(condition_of(s, "Ready", "status"), "True");
    assert_int_equal(f.engine_creates, 1);
    assert_int_equal(fake_count(&f, "/pods/"), 3);      /* the pool is full again */
    assert_int_equal(fake_count(&f, "/sandboxes/"), 1); /* and has no second object */
    assert_int_equal(json_int(fake_status_of(&f, POOL_P), "claimedReplicas", -1), 1);
    fake_end_all(&f);
}

static void one_without_room_waits_and_then_gets_it(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':0}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    const json_t *s = fake_status_of(&f, SANDBOX_S);
    assert_string_equal(json_str(s, "phase"), "Pending");
    assert_string_equal(condition_of(s, "Ready", "reason"), "NoCapacity");
    assert_string_equal(condition_of(s, "Ready", "message"), "no pod is warm");
    fake_edit(&f, POOL_P, "{'spec':{'replicas':1}}");
    fake_settle(&f);
    fake_pass(&f, 60);
    fake_settle(&f);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Running");
    fake_end_all(&f);
}

static void a_sandbox_that_is_deleted_ends_and_is_let_go(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_settle(&f);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Running");
    assert_ok(fake_api_remove(&f, SANDBOX_S, NULL));
    fake_settle(&f);
    assert_null(fake_get(&f, SANDBOX_S));
    assert_int_equal(f.ends, 1);
    assert_int_equal(fake_count(&f, "/pods/"), 1);
    fake_end_all(&f);
}

static void a_sandbox_that_is_deleted_while_it_is_claimed_leaves_nothing(void **state)
{
    fake f;
    char id[SANDBOX_ID_LEN + 1];

    (void)state;
    fake_begin(&f, false);
    f.hold_creates = true;
    fake_make_template(&f, "{'image':'i'}");
    fake_make_sandbox(&f, "s", "{'templateRef':'t'}");
    fake_settle(&f);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Arming");
    assert_ok(fake_api_remove(&f, SANDBOX_S, NULL));
    fake_settle(&f);
    assert_non_null(fake_get(&f, SANDBOX_S)); /* what it asked for has not come yet */
    fake_id(id, 42);
    fake_sandbox_of(&f, id)->life = LIFE_LIVE;
    operator_created(f.op, f.held_uid, id, NULL);
    fake_settle(&f);
    assert_int_equal(f.ends, 1);
    assert_null(fake_get(&f, SANDBOX_S));
    fake_end_all(&f);
}

static void an_end_is_told_and_the_object_forgotten_in_time(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_settle(&f);
    CLEANUP(freep) char *id = xstrdup(json_str(fake_status_of(&f, SANDBOX_S), "id"));
    assert_ok(fake_end(&f, id, "oom", NULL));
    fake_settle(&f);
    const json_t *s = fake_status_of(&f, SANDBOX_S);
    assert_string_equal(json_str(s, "phase"), "Terminated");
    assert_string_equal(json_str(json_object_get(s, "cause"), "code"), "oom");
    fake_pass(&f, 3600);
    fake_settle(&f);
    assert_null(fake_get(&f, SANDBOX_S));
    fake_end_all(&f);
}

static void secrets_are_read_once_and_written_nowhere(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make(&f, "/api/v1/namespaces/ns/secrets/k",
              "{'metadata':{'name':'k'},'data':{'TOKEN':'aHVzaA==','not-a-name':'eA=='}}");
    fake_make_sandbox(&f, "s", "{'templateRef':'t','envFrom':[{'secretRef':{'name':'k'}}]}");
    fake_settle(&f);
    assert_string_equal(f.last_secret, "TOKEN=hush");
    map_iter it = {0};
    while (map_next(&f.objects, &it)) {
        char *text = json_dumps(it.entry->value, 0);
        assert_null(strstr(text, "hush"));
        free(text);
    }
    fake_make_sandbox(&f, "s2", "{'templateRef':'t','envFrom':[{'secretRef':{'name':'none'}}]}");
    fake_settle(&f);
    const json_t *s = fake_status_of(&f, OURS "namespaces/ns/sandboxes/s2");
    assert_string_equal(condition_of(s, "Ready", "reason"), "NoCapacity");
    assert_non_null(strstr(condition_of(s, "Ready", "message"), "none"));
    fake_end_all(&f);
}

static void a_pool_of_one_image_gives_no_other(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i','imagePolicy':{'allow':['j']}}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p','image':'j'}");
    fake_settle(&f);
    const json_t *s = fake_status_of(&f, SANDBOX_S);
    assert_int_equal(f.engine_creates, 0);
    assert_non_null(strstr(condition_of(s, "Ready", "message"), "anyImage"));
    fake_make_sandbox(&f, "s2", "{'poolRef':'p','image':'i'}");
    fake_settle(&f);
    assert_int_equal(f.engine_creates, 1);
    fake_end_all(&f);
}

static void one_of_the_api_gets_its_object_behind_it(void **state)
{
    fake f;
    static const char PATH[] = OURS "namespaces/ns/sandboxes/sbx-abcd0000000000000007";

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_settle(&f);
    fake_sandbox_of(&f, "abcd0000000000000007")->life = LIFE_LIVE;
    assert_true(fake_claim(&f, "p", "abcd0000000000000007"));
    operator_sandbox_changed(f.op, "abcd0000000000000007");
    fake_settle(&f);
    const json_t *o = fake_get(&f, PATH), *s = fake_status_of(&f, PATH);
    assert_non_null(o);
    assert_string_equal(json_str(json_object_get(o, "spec"), "poolRef"), "p");
    assert_string_equal(json_str(json_object_get(o, "spec"), "tenant"), "acme");
    const json_t *labels = json_object_get(json_object_get(o, "spec"), "labels");
    assert_string_equal(json_str(labels, "team"), "x");
    assert_null(json_str(labels, LABEL_POOL)); /* it was the caller's word */
    assert_string_equal(json_str(s, "phase"), "Running");
    assert_string_equal(json_str(s, "id"), "abcd0000000000000007");
    assert_int_equal(f.engine_creates, 0);
    assert_ok(fake_api_remove(&f, PATH, NULL)); /* kubectl delete ends it */
    fake_settle(&f);
    assert_int_equal(f.ends, 1);
    assert_null(fake_get(&f, PATH));
    fake_end_all(&f);
}

/* Ends are the engine's: nothing but a change of its time is asked for. */
static void its_time_is_what_was_said_last(void **state)
{
    fake f;
    static const char RECORD[] = OURS "namespaces/ns/sandboxes/sbx-abcd0000000000000007";

    (void)state;
    fake_begin(&f, true);
    fake_make_template(&f, "{'image':'i','timeouts':{'max':'1h'}}");
    fake_make_sandbox(&f, "s", "{'templateRef':'t','expiresAt':'2026-01-02T03:01:00Z'}");
    fake_sandbox *a = fake_sandbox_of(&f, "abcd0000000000000007");
    *a = (fake_sandbox){.life = LIFE_LIVE, .ends_ns = f.real + 60 * NS_PER_S};
    operator_sandbox_changed(f.op, "abcd0000000000000007");
    fake_settle(&f);
    assert_null(json_str(json_object_get(fake_get(&f, RECORD), "spec"), "expiresAt"));
    assert_string_equal(json_str(fake_status_of(&f, RECORD), "expiresAt"), "2026-01-02T03:01:00Z");
    CLEANUP(freep) char *id = xstrdup(json_str(fake_status_of(&f, SANDBOX_S), "id"));
    fake_sandbox *b = fake_sandbox_of(&f, id);
    assert_int_equal(f.retimed, 0);
    a->ends_ns += 600 * NS_PER_S; /* through the API */
    b->ends_ns += 600 * NS_PER_S;
    fake_pass(&f, 60);
    fake_settle(&f);
    assert_int_equal(f.ends + f.retimed, 0);
    assert_string_equal(json_str(fake_status_of(&f, RECORD), "expiresAt"), "2026-01-02T03:11:00Z");
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "expiresAt"),
                        "2026-01-02T03:11:00Z");
    fake_edit(&f, RECORD, "{'spec':{'expiresAt':'2026-01-02T03:30:00Z'}}");
    fake_edit(&f, SANDBOX_S, "{'spec':{'expiresAt':'2030-01-01T00:00:00Z'}}");
    fake_settle(&f);
    assert_int_equal(f.ends, 0);
    assert_int_equal(f.retimed, 2);
    assert_int_equal((a->ends_ns - UINT64_C(1767322800000000000)) / NS_PER_S, 1800);
    assert_int_equal((b->ends_ns - UINT64_C(1767322800000000000)) / NS_PER_S, 3600);
    fake_end_all(&f);
}

/* A time that is written while its create is under way is not the one its create was given. */
static void a_time_that_changes_while_it_is_made_counts(void **state)
{
    fake f;
    char id[SANDBOX_ID_LEN + 1];

    (void)state;
    fake_begin(&f, false);
    f.hold_creates = true;
    fake_make_template(&f, "{'image':'i'}");
    fake_make_sandbox(&f, "s", "{'templateRef':'t','expiresAt':'2026-01-02T03:10:00Z'}");
    fake_settle(&f);
    fake_edit(&f, SANDBOX_S, "{'spec':{'expiresAt':'2026-01-02T03:20:00Z'}}");
    fake_settle(&f);
    fake_id(id, 42);
    *fake_sandbox_of(&f, id) = (fake_sandbox){.life = LIFE_LIVE, .ends_ns = f.real + NS_PER_S};
    operator_created(f.op, f.held_uid, id, NULL);
    fake_settle(&f);
    assert_int_equal(f.retimed, 1);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "expiresAt"),
                        "2026-01-02T03:20:00Z");
    fake_end_all(&f);
}

static void a_forged_record_is_nobodys(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_sandbox_of(&f, "abcd0000000000000007")->life = LIFE_LIVE;
    fake_make(&f, OURS "namespaces/ns/sandboxes/sbx-abcd0000000000000007",
              "{'metadata':{'name':'sbx-abcd0000000000000007','namespace':'ns','annotations':{"
              "'bothy.dev/record':'00000000000000000000000000000000'},'labels':{"
              "'bothy.dev/sandbox':'abcd0000000000000007'}},'spec':{'templateRef':'none'}}");
    fake_settle(&f);
    assert_ok(fake_api_remove(&f, OURS "namespaces/ns/sandboxes/sbx-abcd0000000000000007", NULL));
    fake_settle(&f);
    assert_int_equal(f.ends, 0);
    assert_int_equal(fake_sandbox_of(&f, "abcd0000000000000007")->life, LIFE_LIVE);
    fake_end_all(&f);
}

static const char DISK[] = "{'image':'i','workspace':{'mountPath':'/w','size':'1Gi'}}";

static void sleep_keeps_the_disk_and_a_request_wakes(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, DISK);
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_settle(&f);
    fake_edit(&f, POOL_P, "{'spec':{'replicas':0}}");
    fake_settle(&f);
    const json_t *s = fake_status_of(&f, SANDBOX_S);
    assert_string_equal(json_str(s, "phase"), "Running");
    CLEANUP(freep) char *volume = xstrdup(json_str(s, "workspaceClaim"));
    CLEANUP(freep) char *id = xstrdup(json_str(s, "id"));
    CLEANUP(freep) char *path = str_printf("/persistentvolumeclaims/%s", volume);
    fake_edit(&f, SANDBOX_S, "{'spec':{'desiredState':'Hibernated'}}");
    fake_settle(&f);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Hibernated");
    assert_int_equal(f.sleeps, 1);
    assert_int_equal(fake_count(&f, "/pods/"), 0);
    fake_pass(&f, 3600); /* no sweep takes it */
    fake_settle(&f);
    assert_int_equal(fake_count(&f, path), 1);
    operator_wanted(f.op, id);
    fake_settle(&f);
    assert_int_equal(f.resumes, 1);
    assert_string_equal(json_str(json_object_get(fake_get(&f, SANDBOX_S), "spec"), "desiredState"),
                        "Running");
    operator_wanted(f.op, id); /* one that came a moment later keeps nobody awake */
    operator_step(f.op);
    fake_edit(&f, SANDBOX_S, "{'spec':{'desiredState':'Hibernated'}}");
    fake_settle(&f);
    assert_int_equal(f.sleeps, 2);
    operator_source source = {0};
    const operator_wish again = {.image = "had", .waking = id};
    assert_true(operator_source_of(f.op, &again, &source));
    assert_true(*source.pool && strchr(source.pool, '_')); /* no pool's pod will do, nor is kept */
    const json_t *disk = json_array_get(json_object_get(source.pod_spec, "volumes"), 1);
    assert_string_equal(json_str(json_object_get(disk, "persistentVolumeClaim"), "claimName"),
                        volume);
    assert_string_equal(image_of(&source), "had"); /* not what the template says by now */
    json_decref(source.pod_spec);
    assert_ok(fake_api_remove(&f, SANDBOX_S, NULL));
    fake_settle(&f);
    assert_null(fake_get(&f, SANDBOX_S));
    assert_int_equal(fake_count(&f, path), 0);
    fake_end_all(&f);
}

static void a_sleeper_whose_time_is_over_ends(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, DISK);
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p','expiresAt':'2026-01-02T03:10:00Z'}");
    fake_settle(&f);
    fake_edit(&f, SANDBOX_S, "{'spec':{'desiredState':'Hibernated'}}");
    fake_settle(&f);
    fake_edit(&f, SANDBOX_S, "{'spec':{'expiresAt':'2026-01-02T03:20:00Z'}}");
    fake_settle(&f);
    fake_pass(&f, 600);
    fake_settle(&f);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Hibernated");
    assert_int_equal(f.resumes, 0);
    fake_pass(&f, 600);
    fake_settle(&f);
    const json_t *s = fake_status_of(&f, SANDBOX_S);
    assert_string_equal(json_str(s, "phase"), "Terminated");
    assert_string_equal(json_str(json_object_get(s, "cause"), "code"), "ttl");
    fake_end_all(&f);
}

static void a_pod_that_is_taken_away_leaves_one_asleep(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, DISK);
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_settle(&f);
    CLEANUP(freep)
    char *pod = str_printf("/api/v1/namespaces/ns/pods/%s",
                           json_str(fake_status_of(&f, SANDBOX_S), "podName"));
    CLEANUP(freep) char *id = xstrdup(json_str(fake_status_of(&f, SANDBOX_S), "id"));
    assert_true(operator_keeps(f.op, id)); /* the engine asks when it hears of it first */
    assert_false(operator_keeps(f.op, "abcd0123456789abcdef"));
    fake_drop(&f, pod);
    assert_int_equal(f.sleeps, 1);
    assert_ok(fake_api_remove(&f, SANDBOX_S, NULL)); /* its finalizer holds it */
    assert_false(operator_keeps(f.op, id));
    fake_end_all(&f);
}

/* Its container ends before its pod is gone: that is no end of the sandbox. */
static void a_pod_that_ends_under_a_sleeper_ends_nothing(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, DISK);
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_settle(&f);
    CLEANUP(freep)
    char *pod = str_printf("/api/v1/namespaces/ns/pods/%s",
                           json_str(fake_status_of(&f, SANDBOX_S), "podName"));
    fake_edit(&f, pod, "{'metadata':{'finalizers':['test/stay']}}");
    fake_edit(&f, SANDBOX_S, "{'spec':{'desiredState':'Hibernated'}}");
    operator_step(f.op);
    fake_edit(&f, pod,
              "{'status':{'phase':'Succeeded','containerStatuses':[{'name':'sandbox',"
              "'state':{'terminated':{'exitCode':0,'reason':'Completed'}}}]}}");
    fake_settle(&f);
    assert_int_equal(f.ends, 0);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Hibernating");
    fake_edit(&f, pod, "{'metadata':{'finalizers':null}}");
    fake_settle(&f);
    assert_string_equal(json_str(fake_status_of(&f, SANDBOX_S), "phase"), "Hibernated");
    fake_end_all(&f);
}

static void volumes_that_nobody_names_go_after_a_while(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, DISK);
    fake_make_pool(&f, "{'templateRef':'t','replicas':3}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/persistentvolumeclaims/"), 3);
    fake_edit(&f, POOL_P, "{'spec':{'replicas':1}}");
    fake_settle(&f);
    assert_int_equal(fake_count(&f, "/persistentvolumeclaims/"), 3);
    for (int i = 0; i < 12; i++) {
        fake_pass(&f, 61);
        operator_step(f.op);
    }
    assert_int_equal(fake_count(&f, "/persistentvolumeclaims/"), 1);
    fake_end_all(&f);
}

static void a_lost_node_ends_what_has_no_disk(void **state)
{
    fake f;

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i'}");
    fake_make_pool(&f, "{'templateRef':'t','replicas':1}");
    fake_make_sandbox(&f, "s", "{'poolRef':'p'}");
    fake_settle(&f);
    fake_settle(&f);
    CLEANUP(freep)
    char *pod = str_printf("/api/v1/namespaces/ns/pods/%s",
                           json_str(fake_status_of(&f, SANDBOX_S), "podName"));
    fake_edit(&f, pod, "{'spec':{'nodeName':'n'}}");
    fake_make(&f, "/api/v1/nodes/n",
              "{'metadata':{'name':'n'},'status':{'conditions':[{'type':"
              "'Ready','status':'Unknown'}]}}");
    operator_step(f.op);
    assert_int_equal(f.ends, 0);
    fake_pass(&f, 61);
    operator_step(f.op);
    assert_int_equal(f.ends, 1);
    fake_settle(&f);
    const json_t *cause = json_object_get(fake_status_of(&f, SANDBOX_S), "cause");
    assert_string_equal(json_str(cause, "code"), "node_lost");
    assert_string_equal(json_str(cause, "message"), "its node does not answer");
    fake_end_all(&f);
}

/* ---- which pool a create takes ---- */

static void a_create_takes_the_pool_that_is_just_that(void **state)
{
    fake f;
    operator_source s;
    operator_wish w = {.image = "i", .owner = "acme"};

    (void)state;
    fake_begin(&f, false);
    fake_make_template(&f, "{'image':'i','resources':{'limits':{'memory':'1Gi','cpu':'1'}}}");
    fake_make_pool(&f, "{'templateRef':'t','maxSandboxes':7}");
    assert_true(operator_source_of(f.op, &w, &s));
    assert_string_equal(s.pool, "p");
    assert_int_equal(s.most, 7);
    assert_non_null(s.pod_spec);
    json_decref(s.pod_spec);
    w.memory = 1 << 20;
    assert_false(operator_source_of(f.op, &w, &s));
    w.memory = 1 << 30;
    assert_true(operator_source_of(f.op, &w, &s));
    json_decref(s.pod_spec);
    w.disk = 10 << 20; /* which its pods have though the template does not say */
    w.shm_mib = 64;
    assert_true(operator_source_of(f.op, &w, &s));
    json_decref(s.pod_spec);
    w.disk++;
    assert_false(operator_source_of(f.op, &w, &s));
    w.disk = 0;
    w.shm_mib = 65;
    assert_false(operator_source_of(f.op, &w, &s));
    w.shm_mib = 0;
    w.network = true;
    assert_false(operator_source_of(f.op, &w, &s));
    w.network = false;
    w.image = "j";
    assert_false(operator_source_of(f.op, &w, &s));
    fake_make(&f, OURS "namespaces/ns/sandboxpools/q",
              "{'metadata':{'name':'q','namespace':'ns'},'spec':{'templateRef':'u','anyImage':true,"
              "'tenant':'acme'}}");
    fake_make(&f, OURS "sandboxtemplates/u",
              "{'metadata':{'name':'u'},'spec':{'image':'idle','imagePolicy':{'allow':['j']}}}");
    assert_true(operator_source_of(f.op, &w, &s));
    assert_string_equal(s.pool, "q");
    assert_true(s.any_image);
    assert_string_equal(image_of(&s), "j"); /* where none is warm, too */
    json_decref(s.pod_spec);
    w.owner = "other";
    assert_false(operator_source_of(f.op, &w, &s));
    fake_end_all(&f);
}

/* ---- the queue ---- */

static void work_is_done_once_at_the_earliest_time(void **state)
{
    queue q = {0};
    char key[QUEUE_KEY_MAX + 1];

    (void)state;
    queue_add(&q, "a", 100);
    queue_add(&q, "b", 50);
    queue_add(&q, "a", 70);
    queue_add(&q, "a", 90);
    assert_int_equal(queue_next(&q), 50);
    assert_false(queue_take(&q, 49, key));
    assert_true(queue_take(&q, 80, key));
    assert_string_equal(key, "b");
    assert_true(queue_take(&q, 80, key));
    assert_string_equal(key, "a");
    assert_false(queue_take(&q, 1000, key));
    queue_done(&q);
}

static void who_fails_waits_longer_each_time(void **state)
{
    queue q = {0};
    char key[QUEUE_KEY_MAX + 1];
    uint64_t now = NS_PER_S, before = 0;

    (void)state;
    for (int i = 0; i < 12; i++) {
        queue_failed(&q, "a", now);
        uint64_t wait = queue_next(&q) - now;
        assert_true(wait >= before && wait <= QUEUE_BACKOFF_MAX_NS);
        before = wait;
        queue_add(&q, "a", now); /* what happens meanwhile does not shorten it */
        assert_int_equal(queue_next(&q), now + wait);
        now += wait;
        assert_true(queue_take(&q, now, key));
    }
    assert_int_equal(before, QUEUE_BACKOFF_MAX_NS);
    queue_succeeded(&q, "a");
    queue_add(&q, "a", now);
    assert_true(queue_take(&q, now, key));
    assert_int_equal(queue_waiting(&q), 0);
    queue_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_is_filled_and_told),
        cmocka_unit_test(a_pool_that_is_as_it_should_be_is_not_written),
        cmocka_unit_test(a_pool_that_goes_in_the_middle_of_a_look_is_looked_at_to_the_end),
        cmocka_unit_test(a_pool_follows_its_scale),
        cmocka_unit_test(who_is_claimed_while_it_is_to_go_stays),
        cmocka_unit_test(one_that_was_to_go_goes_though_it_is_wanted_again),
        cmocka_unit_test(a_status_is_written_once_a_second),
        cmocka_unit_test(a_quota_is_a_cause_and_no_hot_loop),
        cmocka_unit_test(a_new_template_rolls_the_unclaimed),
        cmocka_unit_test(without_the_lease_nothing_is_written),
        cmocka_unit_test(a_server_that_is_away_is_waited_for),
        cmocka_unit_test(a_deleted_pool_waits_for_its_claimed_pods),
        cmocka_unit_test(demand_wakes_a_pool_from_zero_and_lets_it_sleep),
        cmocka_unit_test(a_template_that_is_wrong_says_so),
        cmocka_unit_test(walls_that_do_not_hold_are_no_walls),
        cmocka_unit_test(the_walls_are_tried),
        cmocka_unit_test(walls_that_are_vouched_for_are_not_tried),
        cmocka_unit_test(a_try_that_does_not_end_is_given_up),
        cmocka_unit_test(the_wall_of_a_pool_is_kept),
        cmocka_unit_test(a_try_that_finds_nothing_unsays_nothing),
        cmocka_unit_test(without_a_network_needs_a_wall_that_is_known_to_hold),
        cmocka_unit_test(the_wall_of_those_without_a_network_is_kept),
        cmocka_unit_test(a_template_without_a_pool_has_its_walls_first),
        cmocka_unit_test(one_that_is_to_have_less_has_a_pod_of_its_own),
        cmocka_unit_test(a_sandbox_of_kubectl_is_claimed_through_the_engine),
        cmocka_unit_test(one_without_room_waits_and_then_gets_it),
        cmocka_unit_test(a_sandbox_that_is_deleted_ends_and_is_let_go),
        cmocka_unit_test(a_sandbox_that_is_deleted_while_it_is_claimed_leaves_nothing),
        cmocka_unit_test(an_end_is_told_and_the_object_forgotten_in_time),
        cmocka_unit_test(secrets_are_read_once_and_written_nowhere),
        cmocka_unit_test(a_pool_of_one_image_gives_no_other),
        cmocka_unit_test(one_of_the_api_gets_its_object_behind_it),
        cmocka_unit_test(its_time_is_what_was_said_last),
        cmocka_unit_test(a_time_that_changes_while_it_is_made_counts),
        cmocka_unit_test(a_forged_record_is_nobodys),
        cmocka_unit_test(sleep_keeps_the_disk_and_a_request_wakes),
        cmocka_unit_test(a_sleeper_whose_time_is_over_ends),
        cmocka_unit_test(a_pod_that_is_taken_away_leaves_one_asleep),
        cmocka_unit_test(a_pod_that_ends_under_a_sleeper_ends_nothing),
        cmocka_unit_test(volumes_that_nobody_names_go_after_a_while),
        cmocka_unit_test(a_lost_node_ends_what_has_no_disk),
        cmocka_unit_test(a_create_takes_the_pool_that_is_just_that),
        cmocka_unit_test(work_is_done_once_at_the_earliest_time),
        cmocka_unit_test(who_fails_waits_longer_each_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

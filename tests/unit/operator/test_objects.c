#include "operator/text.h"

#include "make.h"

static void quantities_are_kubernetes(void **state)
{
    static const struct {
        const char *text;
        uint64_t milli;
    } GOOD[] = {{"1", 1000},
                {"250m", 250},
                {"0.5", 500},
                {"1.5", 1500},
                {"64Mi", UINT64_C(1000) << 26},
                {"1k", 1000000},
                {"1e3", 1000000},
                {"2G", UINT64_C(2000000000000)},
                {"100n", 1},
                {"1500u", 2},
                {".5", 500},
                {"0", 0},
                {"8Pi", UINT64_C(8000) << 50}};
    static const char *const BAD[] = {
        "",       "m",    "-1",   "1 ",   "1mi", "1Kib", "1..2",
        "1e",     "1e-3", "1e99", "0x10", "1E",  ".",    "9999999999999999999",
        "99999Pi"};
    uint64_t v;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(GOOD); i++) {
        assert_true(quantity_to_milli(GOOD[i].text, &v));
        assert_int_equal(v, GOOD[i].milli);
    }
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++)
        assert_false(quantity_to_milli(BAD[i], &v));
    assert_true(quantity_to_units("1500m", &v) && v == 2);
}

static void times_go_both_ways(void **state)
{
    char text[TIME_TEXT_MAX];
    uint64_t ns;

    (void)state;
    assert_true(time_of_text("2026-01-02T03:04:05Z", &ns));
    time_to_text(ns, text);
    assert_string_equal(text, "2026-01-02T03:04:05Z");
    assert_true(time_of_text("2026-01-02T05:04:05.123456+02:00", &ns));
    time_to_micro(ns, text);
    assert_string_equal(text, "2026-01-02T03:04:05.123456Z");
    assert_false(time_of_text("2026-01-02", &ns));
    assert_false(time_of_text("2026-01-02T03:04:05", &ns));
    assert_false(time_of_text("1969-12-31T23:59:59Z", &ns));
    time_to_text(0, text);
    assert_string_equal(text, "");
}

static void bothy_names_are_reserved(void **state)
{
    static const struct {
        const char *key;
        bool reserved;
    } KEYS[] = {
        {"bothy.dev/state", true}, {"bothy.dev/", true},
        {"x.bothy.dev/y", true},   {"BOTHY.dev/state", true},
        {"notbothy.dev/x", false}, {"bothy.dev", false},
        {"bothy.devil/x", false},  {"app", false},
        {"a/bothy.dev/x", false},  {"bothy.dev/a=b/c", true},
    };
    char *spoof[] = {(char *)"app=x", (char *)"bothy.dev/template-hash=" HASH_A, NULL};
    char *fine[] = {(char *)"app.kubernetes.io/name=x", (char *)"empty=", NULL};
    char *bad_value[] = {(char *)"a=b c", NULL};
    char *bad_name[] = {(char *)"-a=b", NULL};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++)
        if (name_is_reserved(KEYS[i].key) != KEYS[i].reserved)
            fail_msg("%s", KEYS[i].key);
    assert_err(labels_check(spoof, "labels"), ERR_INVALID_REQUEST);
    assert_err(annotations_check(spoof, "annotations"), ERR_INVALID_REQUEST);
    assert_ok(labels_check(fine, "labels"));
    assert_err(labels_check(bad_value, "labels"), ERR_INVALID_REQUEST);
    assert_ok(annotations_check(bad_value, "annotations"));
    assert_err(labels_check(bad_name, "labels"), ERR_INVALID_REQUEST);
}

static void a_template_has_the_schemas_defaults(void **state)
{
    crd_template t = make_template("{'image':'docker.io/library/python:3.12'}");

    (void)state;
    assert_int_equal(t.spec.profile, PROFILE_RESTRICTED);
    assert_int_equal(t.spec.network.egress, EGRESS_NONE);
    assert_true(t.spec.network.dns);
    assert_null(t.spec.workspace.path);
    assert_int_equal(t.spec.startup_ms, 120000);
    assert_int_equal(t.spec.idle_ms, 0);
    assert_int_equal(t.spec.max_ms, 24 * 3600 * 1000);
    assert_int_equal(t.spec.cpu_milli, 1000);
    assert_int_equal(t.spec.memory, 1 << 30);
    crd_template_done(&t);
}

/* What a check refuses, and where its message points. */
static const struct {
    const char *spec, *word;
} WRONG_TEMPLATES[] = {
    {"{'image':'x','podOverrides':{'labels':{'bothy.dev/state':'warm'}}}", "podOverrides.labels"},
    {"{'image':'x','podOverrides':{'annotations':{'bothy.dev/claim':'{}'}}}",
     "podOverrides.annotations"},
    {"{'image':'x','resources':{'limits':{'cpu':'much'}}}", "resources.limits.cpu"},
    {"{'image':'x','resources':{'limits':{'memory':'0'}}}", "resources.limits.memory"},
    {"{'image':'x','resources':{'requests':{'memory':'2Gi'}}}", "resources.requests"},
    {"{'image':'x','workspace':{'mountPath':'w','size':'1Gi'}}", "workspace.mountPath"},
    {"{'image':'x','workspace':{'mountPath':'/proc/x','size':'1Gi'}}", "workspace.mountPath"},
    {"{'image':'x','workspace':{'mountPath':'/.bothy','size':'1Gi'}}", "workspace.mountPath"},
    {"{'image':'x','workspace':{'mountPath':'/a/../b','size':'1Gi'}}", "workspace.mountPath"},
    {"{'image':'x','workspace':{'mountPath':'/w','size':'big'}}", "workspace.size"},
    {"{'image':'x','network':{'egress':'Public','allowCIDRs':['1.2.3.0/24']}}", "allowCIDRs"},
    {"{'image':'x','network':{'egress':'List','allowCIDRs':['1.2.3.0']}}", "allowCIDRs[0]"},
    {"{'image':'x','timeouts':{'max':'0s'}}", "timeouts.max"},
    {"{'image':'x','timeouts':{'max':'31d'}}", "timeouts.max"},
    {"{'image':'x','timeouts':{'startup':'soon'}}", "timeouts.startup"},
    {"{'image':'x','env':[{'name':'A-B','value':'x'}]}", "env[0].name"},
    {"{'image':'x','podOverrides':{'affinity':[]}}", "podOverrides.affinity"},
};

static void a_template_that_cannot_be_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(WRONG_TEMPLATES); i++) {
        CLEANUP(freep)
        char *text = str_printf("{'metadata':{'name':'t'},'spec':%s}", WRONG_TEMPLATES[i].spec);
        CLEANUP(json_decrefp) json_t *j = parse(text);
        crd_template t;
        assert_ok(crd_template_decode(j, &t));
        err *e = crd_template_check(&t);
        if (!e || !strstr(e->message, WRONG_TEMPLATES[i].word))
            fail_msg("%s: %s", WRONG_TEMPLATES[i].spec, e ? e->message : "taken");
        err_free(e);
        crd_template_done(&t);
    }
}

static void what_no_schema_lets_through_is_no_object(void **state)
{
    static const char *const BAD[] = {
        "{'spec':{'image':'x'}}",
        "{'metadata':{'name':'t'}}",
        "{'metadata':{'name':'t'},'spec':{}}",
        "{'metadata':{'name':'t'},'spec':{'image':''}}",
        "{'metadata':{'name':'t'},'spec':{'image':'x','profile':'Root'}}",
        "{'kind':'SandboxPool','metadata':{'name':'t'},'spec':{'image':'x'}}",
        "{'apiVersion':'v1','metadata':{'name':'t'},'spec':{'image':'x'}}",
        "[]",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        CLEANUP(json_decrefp) json_t *j = parse(BAD[i]);
        crd_template t;
        assert_err(crd_template_decode(j, &t), ERR_INVALID_REQUEST);
    }
}

static void images_are_allowed_by_glob_and_digest(void **state)
{
    crd_template t = make_template("{'image':'a/b:1','imagePolicy':{'allow':['docker.io/lib/*']}}");

    (void)state;
    assert_ok(template_image_check(&t.spec, "a/b:1"));
    assert_ok(template_image_check(&t.spec, "docker.io/lib/python:3"));
    assert_err(template_image_check(&t.spec, "docker.io/evil/python:3"), ERR_FORBIDDEN);
    t.spec.image_policy.require_digest = true;
    assert_err(template_image_check(&t.spec, "docker.io/lib/python:3"), ERR_FORBIDDEN);
    assert_ok(template_image_check(&t.spec, "docker.io/lib/python@sha256:00"));
    crd_template_done(&t);
}

static void a_pool_has_the_schemas_defaults(void **state)
{
    crd_pool p = make_pool("{'templateRef':'python'}", "");

    (void)state;
    assert_int_equal(p.spec.replicas, 1);
    assert_false(p.spec.has_autoscale || p.spec.any_image);
    assert_true(p.spec.protect_claimed);
    assert_int_equal(pool_max_unavailable(&p.spec, 20), 4);
    assert_int_equal(pool_max_unavailable(&p.spec, 3), 1);
    crd_pool_done(&p);
    p = make_pool("{'templateRef':'x','update':{'maxUnavailable':3},'autoscale':{'max':9}}", "");
    assert_int_equal(pool_max_unavailable(&p.spec, 100), 3);
    assert_true(p.spec.has_autoscale);
    assert_int_equal(p.spec.autoscale.idle_after_ms, 600000);
    crd_pool_done(&p);
}

static void who_scales_a_pool_is_seen(void **state)
{
    crd_pool p = make_pool("{'templateRef':'x'}",
                           ",'managedFields':[{'manager':'kubectl','operation':'Update','fieldsV1':"
                           "{'f:spec':{'f:replicas':{}}}},{'manager':'hpa','subresource':'scale',"
                           "'fieldsV1':{'f:spec':{'f:replicas':{}}}}]");

    (void)state;
    assert_string_equal(p.spec.scaled_by, "hpa");
    crd_pool_done(&p);
    p = make_pool("{'templateRef':'x'}",
                  ",'managedFields':[{'manager':'kubectl','operation':'Apply','fieldsV1':{'f:spec':"
                  "{'f:replicas':{}}}},{'manager':'us','subresource':'status','fieldsV1':{}}]");
    assert_null(p.spec.scaled_by);
    crd_pool_done(&p);
}

static const struct {
    const char *spec;
    bool good;
} SANDBOXES[] = {
    {"{'poolRef':'p'}", true},
    {"{'templateRef':'t'}", true},
    {"{'image':'x'}", true},
    {"{'poolRef':'p','templateRef':'t'}", false},
    {"{}", false},
    {"{'poolRef':'p','expiresAt':'tomorrow'}", false},
    {"{'poolRef':'p','expiresAt':'2026-01-01T00:00:00Z'}", true},
    {"{'poolRef':'p','network':{'egress':'All'}}", false},
    {"{'poolRef':'p','network':{'egress':'None'}}", true},
    {"{'poolRef':'p','labels':{'bothy.dev/pool':'q'}}", false},
    {"{'poolRef':'p','labels':{'team':'q'}}", true},
};

static void sandboxes_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SANDBOXES); i++) {
        CLEANUP(freep)
        char *text =
            str_printf("{'metadata':{'name':'s','namespace':'ns'},'spec':%s}", SANDBOXES[i].spec);
        CLEANUP(json_decrefp) json_t *j = parse(text);
        crd_sandbox s;
        assert_ok(crd_sandbox_decode(j, &s));
        err *e = crd_sandbox_check(&s);
        if (!e != SANDBOXES[i].good)
            fail_msg("%s", SANDBOXES[i].spec);
        err_free(e);
        crd_sandbox_done(&s);
    }
}

static void a_sandboxes_status_is_read(void **state)
{
    CLEANUP(json_decrefp)
    json_t *j = parse("{'metadata':{'name':'s','namespace':'ns','finalizers':['bothy.dev/sandbox'],"
                      "'deletionTimestamp':'2026-01-01T00:00:00Z'},'spec':{'poolRef':'p','envFrom':"
                      "[{'secretRef':{'name':'k'}}],'desiredState':'Hibernated','idleSeconds':0},"
                      "'status':{'phase':'Running','id':'abcd0123456789abcdef','epoch':2,'cause':"
                      "{'code':'oom','exitCode':137}}}");
    crd_sandbox s;

    (void)state;
    assert_ok(crd_sandbox_decode(j, &s));
    assert_int_equal(s.status.phase, PHASE_RUNNING);
    assert_string_equal(s.status.id, "abcd0123456789abcdef");
    assert_int_equal(s.status.epoch, 2);
    assert_string_equal(s.status.cause.code, "oom");
    assert_int_equal(s.status.cause.exit_code, 137);
    assert_int_equal(s.spec.desired, DESIRED_HIBERNATED);
    assert_true(s.spec.has_idle && !s.spec.idle_s);
    assert_int_equal(s.spec.nsecrets, 1);
    assert_string_equal(s.spec.secrets[0].name, "k");
    assert_true(object_has_finalizer(&s.meta, FINALIZER_SANDBOX));
    assert_true(s.meta.deleting_ns);
    crd_sandbox_done(&s);
}

static void a_pod_is_seen_by_its_sandbox_container(void **state)
{
    pod_view p = make_pod(
        "x", ",'bothy.dev/state':'claimed'", "",
        ",'spec':{'nodeName':'n','containers':[{'name':'side','image':'s'},{'name':'sandbox',"
        "'image':'i'}],'volumes':[{'name':'workspace','persistentVolumeClaim':{'claimName':'ws'}}]}"
        ",'status':{'phase':'Running','containerStatuses':[{'name':'side','state':{'terminated':{"
        "'exitCode':3}}},{'name':'sandbox','imageID':'i@sha256:1','restartCount':1,'state':{"
        "'running':{'startedAt':'x'}},'lastState':{'terminated':{'exitCode':137,'reason':"
        "'OOMKilled'}}}]}");

    (void)state;
    assert_string_equal(p.node, "n");
    assert_string_equal(p.image, "i");
    assert_string_equal(p.volume, "ws");
    assert_string_equal(p.image_id, "i@sha256:1");
    assert_true(p.started && p.has_end);
    assert_int_equal(p.exit_code, 137);
    assert_string_equal(p.end_reason, "OOMKilled");
    assert_true(pod_is_claimed(&p));
    assert_null(p.waiting);
    pod_view_done(&p);
    p = make_pod("x", "", "",
                 ",'status':{'initContainerStatuses':[{'name':'bothy-install','state':{'waiting':{"
                 "'reason':'ImagePullBackOff','message':'m'}}}],'containerStatuses':[{'name':"
                 "'sandbox','state':{'waiting':{'reason':'PodInitializing'}}}]}");
    assert_string_equal(p.waiting, "ImagePullBackOff");
    assert_int_equal(p.phase, POD_PENDING);
    pod_view_done(&p);
    p = make_pod("x", "", "", STATUS_UNSCHEDULABLE);
    assert_true(p.unschedulable && p.unschedulable_ns);
    pod_view_done(&p);
}

static void names_have_room_and_proofs_are_of_one_place(void **state)
{
    char name[KUBE_LABEL_MAX + 1], a[HASH_TEXT_LEN + 1], b[HASH_TEXT_LEN + 1];
    const uint8_t key[32] = {1};
    const char *longest = "a-pool-with-a-name-that-is-much-longer-than-a-label-may-be-and-some";

    (void)state;
    pod_name_of("python", "0123456789", name);
    assert_string_equal(name, "python-0123456789");
    pod_name_of(longest, "0123456789", name);
    assert_true(strlen(name) <= KUBE_LABEL_MAX && !strstr(name, "--"));
    assert_true(str_ends(name, "-0123456789"));
    label_of_name(longest, name);
    assert_int_equal(strlen(name), HASH_TEXT_LEN);
    record_proof(key, "ns", "n", "id", a);
    record_proof(key, "ns", "n", "id", b);
    assert_string_equal(a, b);
    record_proof(key, "ns2", "n", "id", b);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), HASH_TEXT_LEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantities_are_kubernetes),
        cmocka_unit_test(times_go_both_ways),
        cmocka_unit_test(bothy_names_are_reserved),
        cmocka_unit_test(a_template_has_the_schemas_defaults),
        cmocka_unit_test(a_template_that_cannot_be_is_refused),
        cmocka_unit_test(what_no_schema_lets_through_is_no_object),
        cmocka_unit_test(images_are_allowed_by_glob_and_digest),
        cmocka_unit_test(a_pool_has_the_schemas_defaults),
        cmocka_unit_test(who_scales_a_pool_is_seen),
        cmocka_unit_test(sandboxes_are_checked),
        cmocka_unit_test(a_sandboxes_status_is_read),
        cmocka_unit_test(a_pod_is_seen_by_its_sandbox_container),
        cmocka_unit_test(names_have_room_and_proofs_are_of_one_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

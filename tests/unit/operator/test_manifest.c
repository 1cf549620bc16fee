#include "operator/manifest.h"
#include "operator/status.h"

#include "make.h"

static const manifest_options OPTIONS = {.cell = "abcd", .bothy_image = "bothy:1"};
static const pod_identity WHO = {
    .name = "p-0123456789", .namespace = "ns", .pool = "p", .nonce = {0xab}};

/* "a.b.0.c" in a document; NULL: not there. */
static const json_t *at(const json_t *j, const char *path)
{
    CLEANUP(freep) char *copy = xstrdup(path);
    char *rest = copy;

    for (char *part; j && (part = strsep(&rest, ".")) != NULL;) {
        uint64_t i;
        if (json_is_array(j))
            j = str_to_u64(part, 1000, &i) ? json_array_get(j, i) : NULL;
        else
            j = json_object_get(j, part);
    }
    return j;
}

static const char *text_at(const json_t *j, const char *path)
{
    return json_string_value(at(j, path));
}

/* ---- pods ---- */

static void a_restricted_pod_passes_pod_security(void **state)
{
    crd_template t = make_template("{'image':'i'}");
    CLEANUP(json_decrefp) json_t *p = manifest_pod(&t, false, &OPTIONS, &WHO);
    static const char *const CONTAINERS[] = {"spec.containers.0.securityContext",
                                             "spec.initContainers.0.securityContext"};

    (void)state;
    assert_true(json_is_true(at(p, "spec.securityContext.runAsNonRoot")));
    assert_int_equal(json_integer_value(at(p, "spec.securityContext.runAsUser")), 1000);
    for (size_t i = 0; i < ARRAY_LEN(CONTAINERS); i++) {
        const json_t *s = at(p, CONTAINERS[i]);
        assert_true(json_is_false(at(s, "allowPrivilegeEscalation")));
        assert_string_equal(text_at(s, "capabilities.drop.0"), "ALL");
        assert_string_equal(text_at(s, "seccompProfile.type"), "RuntimeDefault");
    }
    assert_true(json_is_false(at(p, "spec.automountServiceAccountToken")));
    assert_string_equal(text_at(p, "spec.restartPolicy"), "Never");
    assert_string_equal(text_at(p, "spec.containers.0.command.0"), "/.bothy/bothy-init");
    assert_string_equal(text_at(p, "spec.containers.0.command.1"), "serve");
    assert_true(json_is_true(at(p, "spec.containers.0.volumeMounts.0.readOnly")));
    assert_null(at(p, "spec.containers.0.ports"));
    assert_string_equal(json_str(at(p, "metadata.annotations"), NOTE_NONCE),
                        "ab000000000000000000000000000000");
    crd_template_done(&t);
}

static void our_labels_are_written_last(void **state)
{
    crd_template t = make_template("{'image':'i','podOverrides':{'labels':{'team':'x'}}}");
    char hash[HASH_TEXT_LEN + 1];

    (void)state;
    /* As if a check had let it pass. */
    strv_push(&t.spec.overrides.labels, xstrdup(LABEL_TEMPLATE_HASH "=forged"));
    strv_push(&t.spec.overrides.labels, xstrdup(LABEL_POOL "=another"));
    template_hash(&t, false, &OPTIONS, hash);
    CLEANUP(json_decrefp) json_t *p = manifest_pod(&t, false, &OPTIONS, &WHO);
    const json_t *labels = at(p, "metadata.labels");
    assert_string_equal(json_str(labels, "team"), "x");
    assert_string_equal(json_str(labels, LABEL_TEMPLATE_HASH), hash);
    assert_string_equal(json_str(labels, LABEL_POOL), "p");
    assert_string_equal(json_str(labels, LABEL_CELL), "abcd");
    assert_string_equal(json_str(labels, LABEL_STATE), STATE_WARM);
    crd_template_done(&t);
}

static void a_template_says_what_a_pod_is(void **state)
{
    crd_template t = make_template(
        "{'image':'i','idleImage':'idle','profile':'UserNS','runtimeClassName':'gvisor','resources'"
        ":{'limits':{'cpu':'20m','memory':'32Mi','ephemeral-storage':'1Gi'}},'env':[{'name':'A',"
        "'value':'b'}],'workspace':{'mountPath':'/w','size':'1Gi'},'imagePolicy':{'pullSecret':"
        "'regcred'},'network':{'egress':'Public'},'podOverrides':{'nodeSelector':{'a':'b'},"
        "'tolerations':[{'key':'x'}],'affinity':{'nodeAffinity':{}},'priorityClassName':'warm'}}");
    CLEANUP(json_decrefp) json_t *p = manifest_pod(&t, true, &OPTIONS, &WHO);

    (void)state;
    assert_string_equal(text_at(p, "spec.containers.0.image"), "idle");
    assert_string_equal(text_at(p, "spec.restartPolicy"), "Always");
    assert_true(json_is_false(at(p, "spec.hostUsers")));
    assert_null(at(p, "spec.securityContext.runAsNonRoot"));
    assert_string_equal(text_at(p, "spec.runtimeClassName"), "gvisor");
    assert_string_equal(text_at(p, "spec.containers.0.resources.limits.cpu"), "20m");
    assert_string_equal(text_at(p, "spec.containers.0.resources.requests.cpu"), "20m");
    assert_string_equal(text_at(p, "spec.containers.0.resources.requests.memory"), "32Mi");
    assert_string_equal(text_at(p, "spec.containers.0.env.0.name"), "A");
    assert_string_equal(text_at(p, "spec.volumes.1.persistentVolumeClaim.claimName"),
                        "ws-p-0123456789");
    assert_string_equal(text_at(p, "spec.containers.0.volumeMounts.1.mountPath"), "/w");
    assert_string_equal(text_at(p, "spec.imagePullSecrets.0.name"), "regcred");
    assert_string_equal(text_at(p, "spec.nodeSelector.a"), "b");
    assert_string_equal(text_at(p, "spec.tolerations.0.key"), "x");
    assert_true(json_is_object(at(p, "spec.affinity.nodeAffinity")));
    assert_string_equal(text_at(p, "spec.priorityClassName"), "warm");
    assert_string_equal(text_at(p, "spec.dnsPolicy"), "ClusterFirst");
    CLEANUP(json_decrefp) json_t *v = manifest_volume(&t, &OPTIONS, "ns", "ws-x");
    assert_string_equal(text_at(v, "spec.resources.requests.storage"), "1Gi");
    assert_null(at(v, "metadata.ownerReferences"));
    crd_template_done(&t);
}

/* The container's resources, in a cell whose sandboxes have so much disk. */
static json_t *resources_of(const char *resources, uint64_t disk)
{
    CLEANUP(freep) char *text = str_printf("{'image':'i','resources':%s}", resources);
    crd_template t = make_template(text);
    manifest_options o = OPTIONS;

    o.disk = disk;
    CLEANUP(json_decrefp) json_t *p = manifest_pod(&t, false, &o, &WHO);
    json_t *r = json_incref((json_t *)at(p, "spec.containers.0.resources"));
    crd_template_done(&t);
    return r;
}

static void assert_disk(const char *resources, uint64_t disk, const char *limit, const char *asked)
{
    CLEANUP(json_decrefp) json_t *r = resources_of(resources, disk);

    assert_true(str_eq(json_str(json_object_get(r, "limits"), "ephemeral-storage"), limit));
    assert_true(str_eq(json_str(json_object_get(r, "requests"), "ephemeral-storage"), asked));
}

static void a_pod_has_a_disk_limit_whatever_its_template_says(void **state)
{
    (void)state;
    assert_disk("{}", 1 << 30, "1073741824", "16Mi");
    assert_disk("{}", 1 << 20, "1048576", "1048576");
    assert_disk("{'limits':{'ephemeral-storage':'2Gi'}}", 1 << 30, "2Gi", NULL);
    assert_disk("{'requests':{'ephemeral-storage':'2Mi'}}", 1 << 30, "1073741824", "2Mi");
    assert_disk("{'requests':{'ephemeral-storage':'2Gi'}}", 1 << 30, "2147483648", "2Gi");
    assert_disk("{}", 0, NULL, NULL);
}

static void shm_is_as_large_as_the_cell_says(void **state)
{
    crd_template t = make_template("{'image':'i'}");
    manifest_options o = OPTIONS;

    (void)state;
    o.shm_mib = 64;
    CLEANUP(json_decrefp) json_t *p = manifest_pod(&t, false, &o, &WHO);
    assert_string_equal(text_at(p, "spec.volumes.1.emptyDir.sizeLimit"), "64Mi");
    assert_string_equal(text_at(p, "spec.volumes.1.emptyDir.medium"), "Memory");
    assert_string_equal(text_at(p, "spec.containers.0.volumeMounts.1.mountPath"), "/dev/shm");
    crd_template_done(&t);
}

static void a_pod_made_for_a_sandbox_is_claimed_from_birth(void **state)
{
    crd_template t = make_template("{'image':'i','workspace':{'mountPath':'/w','size':'1Gi'}}");
    const pod_identity who = {.name = "n",
                              .namespace = "ns",
                              .sandbox = "abcd0123456789abcdef",
                              .image = "other",
                              .volume = "ws-kept"};
    CLEANUP(json_decrefp) json_t *p = manifest_pod(&t, false, &OPTIONS, &who);

    (void)state;
    assert_string_equal(json_str(at(p, "metadata.labels"), LABEL_STATE), STATE_CLAIMED);
    assert_string_equal(json_str(at(p, "metadata.labels"), LABEL_SANDBOX), who.sandbox);
    assert_null(json_str(at(p, "metadata.labels"), LABEL_POOL));
    assert_string_equal(json_str(at(p, "metadata.annotations"), NOTE_SAFE_TO_EVICT), "false");
    assert_string_equal(text_at(p, "spec.containers.0.image"), "other");
    assert_string_equal(text_at(p, "spec.volumes.1.persistentVolumeClaim.claimName"), "ws-kept");
    crd_template_done(&t);
}

static void an_image_volume_needs_no_copy(void **state)
{
    crd_template t = make_template("{'image':'i'}");
    manifest_options o = OPTIONS;

    (void)state;
    o.image_volume = true;
    CLEANUP(json_decrefp) json_t *p = manifest_pod(&t, false, &o, &WHO);
    assert_null(at(p, "spec.initContainers"));
    assert_string_equal(text_at(p, "spec.volumes.0.image.reference"), "bothy:1");
    crd_template_done(&t);
}

/* ---- hashes ---- */

static void whatever_makes_another_pod_makes_another_hash(void **state)
{
    static const char *const SPECS[] = {
        "{'image':'i'}",
        "{'image':'j'}",
        "{'image':'i','profile':'UserNS'}",
        "{'image':'i','runtimeClassName':'x'}",
        "{'image':'i','resources':{'limits':{'cpu':'2'}}}",
        "{'image':'i','env':[{'name':'A','value':'b'}]}",
        "{'image':'i','workspace':{'mountPath':'/w','size':'1Gi'}}",
        "{'image':'i','network':{'egress':'All'}}",
        "{'image':'i','network':{'egress':'List','allowCIDRs':['1.0.0.0/8']}}",
        "{'image':'i','network':{'egress':'List','allowCIDRs':['2.0.0.0/8']}}",
        "{'image':'i','podOverrides':{'labels':{'a':'b'}}}",
        "{'image':'i','podOverrides':{'annotations':{'a':'b'}}}",
        "{'image':'i','podOverrides':{'nodeSelector':{'a':'b'}}}",
    };
    char hash[ARRAY_LEN(SPECS)][HASH_TEXT_LEN + 1], any[HASH_TEXT_LEN + 1];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(SPECS); i++) {
        crd_template t = make_template(SPECS[i]);
        template_hash(&t, false, &OPTIONS, hash[i]);
        template_hash(&t, true, &OPTIONS, any);
        assert_string_not_equal(hash[i], any);
        assert_int_equal(strlen(hash[i]), HASH_TEXT_LEN);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(hash[i], hash[k]);
        crd_template_done(&t);
    }
    /* What does not make a pod does not. */
    crd_template t = make_template("{'image':'i','timeouts':{'max':'1h'},'allowedNamespaces':"
                                   "['a']}");
    template_hash(&t, false, &OPTIONS, any);
    assert_string_equal(any, hash[0]);
    crd_template_done(&t);
}

/* ---- networks ---- */

static void nothing_comes_in_and_what_goes_out_is_what_was_said(void **state)
{
    static const struct {
        const char *spec;
        size_t rules;
        const char *path, *value; /* of the egress rules */
    } NETWORKS[] = {
        {"{'image':'i'}", 0, NULL, NULL},
        {"{'image':'i','network':{'egress':'None','allowDNS':true}}", 0, NULL, NULL},
        {"{'image':'i','network':{'egress':'Public'}}", 2, "0.to.0.ipBlock.except.1", "10.0.0.0/8"},
        {"{'image':'i','network':{'egress':'Public','allowDNS':false}}", 1,
         "0.to.1.ipBlock.except.3", "fc00::/7"},
        {"{'image':'i','network':{'egress':'Public','allowDNS':false}}", 1,
         "0.to.1.ipBlock.except.0", "::/80"},
        {"{'image':'i','network':{'egress':'List','allowCIDRs':['1.2.3.0/24']}}", 2,
         "0.to.0.ipBlock.cidr", "1.2.3.0/24"},
        {"{'image':'i','network':{'egress':'List'}}", 1, "0.ports.0.protocol", "UDP"},
        {"{'image':'i','network':{'egress':'List','allowDNS':false}}", 0, NULL, NULL},
        {"{'image':'i','network':{'egress':'All'}}", 1, NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(NETWORKS); i++) {
        crd_template t = make_template(NETWORKS[i].spec);
        CLEANUP(json_decrefp) json_t *n = manifest_network(&t, &OPTIONS, "ns", HASH_A);
        const json_t *egress = at(n, "spec.egress");
        assert_non_null(egress);
        assert_int_equal(json_array_size(egress), NETWORKS[i].rules);
        if (NETWORKS[i].path)
            assert_string_equal(text_at(egress, NETWORKS[i].path), NETWORKS[i].value);
        assert_int_equal(json_array_size(at(n, "spec.ingress")), 0);
        assert_int_equal(json_array_size(at(n, "spec.policyTypes")), 2);
        assert_string_equal(json_str(at(n, "spec.podSelector.matchLabels"), LABEL_TEMPLATE_HASH),
                            HASH_A);
        crd_template_done(&t);
    }
}

static void a_policy_is_known_to_hold_only_if_the_other_way_was_open(void **state)
{
    static const struct {
        enum dial_outcome forbidden, free;
        enum policy_state is;
    } DIALS[] = {
        {DIAL_SILENT, DIAL_REACHED, POLICY_HOLDS},
        {DIAL_REACHED, DIAL_REACHED, POLICY_NOT_ENFORCED},
        {DIAL_SILENT, DIAL_SILENT, POLICY_UNKNOWN},
        {DIAL_REACHED, DIAL_SILENT, POLICY_UNKNOWN},
        {DIAL_NOT_TRIED, DIAL_REACHED, POLICY_UNKNOWN},
        {DIAL_SILENT, DIAL_NOT_TRIED, POLICY_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(DIALS); i++)
        assert_int_equal(policy_of_dials(DIALS[i].forbidden, DIALS[i].free), DIALS[i].is);
}

/* ---- the budget, the pull ---- */

static void claimed_pods_have_a_budget(void **state)
{
    crd_pool p = make_pool("{'templateRef':'t'}", "");
    crd_pool not = make_pool("{'templateRef':'t','disruption':{'protectClaimed':false}}", "");
    CLEANUP(json_decrefp) json_t *b = manifest_budget(&p, &OPTIONS);

    (void)state;
    assert_int_equal(json_integer_value(at(b, "spec.minAvailable")), INT32_MAX);
    assert_string_equal(json_str(at(b, "spec.selector.matchLabels"), LABEL_STATE), STATE_CLAIMED);
    assert_null(manifest_budget(&not, &OPTIONS));
    crd_pool_done(&p);
    crd_pool_done(&not );
}

static void images_are_pulled_without_a_shell(void **state)
{
    crd_pool p =
        make_pool("{'templateRef':'t','prePull':{'images':['a','b'],'everywhere':true}}", "");
    crd_pool none = make_pool("{'templateRef':'t'}", "");
    crd_template t = make_template("{'image':'i','imagePolicy':{'allow':['a','b']},"
                                   "'podOverrides':{'nodeSelector':{'a':'b'}}}");
    CLEANUP(json_decrefp) json_t *d = manifest_pre_pull(&p, &t, &OPTIONS);

    (void)state;
    assert_string_equal(text_at(d, "spec.template.spec.initContainers.0.name"), "bothy-install");
    assert_string_equal(text_at(d, "spec.template.spec.initContainers.1.image"), "a");
    assert_string_equal(text_at(d, "spec.template.spec.initContainers.2.image"), "b");
    assert_string_equal(text_at(d, "spec.template.spec.initContainers.2.command.0"),
                        "/.bothy/bothy-init");
    assert_null(at(d, "spec.template.spec.nodeSelector"));
    assert_null(manifest_pre_pull(&none, &t, &OPTIONS));
    crd_pool_done(&p);
    crd_pool_done(&none);
    crd_template_done(&t);
}

/* ---- statuses ---- */

static void a_status_is_written_when_it_differs(void **state)
{
    CLEANUP(json_decrefp) json_t *is = parse("{'a':1,'b':[1,2],'old':'x'}");
    CLEANUP(json_decrefp) json_t *same = parse("{'b':[1,2],'old':'x','a':1}");
    CLEANUP(json_decrefp) json_t *other = parse("{'a':2,'b':[1,2]}");

    (void)state;
    assert_false(status_differs(is, same));
    assert_true(status_differs(is, other));
    assert_true(status_differs(NULL, same));
    CLEANUP(json_decrefp) json_t *patch = status_patch(is, other);
    assert_int_equal(json_integer_value(at(patch, "status.a")), 2);
    assert_true(json_is_null(at(patch, "status.old")));
    CLEANUP(json_decrefp) json_t *text = status_text("a\nb\xc3\xa4", 4);
    assert_string_equal(json_string_value(text), "a b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restricted_pod_passes_pod_security),
        cmocka_unit_test(our_labels_are_written_last),
        cmocka_unit_test(a_template_says_what_a_pod_is),
        cmocka_unit_test(a_pod_has_a_disk_limit_whatever_its_template_says),
        cmocka_unit_test(shm_is_as_large_as_the_cell_says),
        cmocka_unit_test(a_pod_made_for_a_sandbox_is_claimed_from_birth),
        cmocka_unit_test(an_image_volume_needs_no_copy),
        cmocka_unit_test(whatever_makes_another_pod_makes_another_hash),
        cmocka_unit_test(nothing_comes_in_and_what_goes_out_is_what_was_said),
        cmocka_unit_test(a_policy_is_known_to_hold_only_if_the_other_way_was_open),
        cmocka_unit_test(claimed_pods_have_a_budget),
        cmocka_unit_test(images_are_pulled_without_a_shell),
        cmocka_unit_test(a_status_is_written_when_it_differs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

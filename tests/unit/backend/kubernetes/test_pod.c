/* A sandbox's pod: what is asked for, and what its object says, with statuses as a kubelet wrote
 * them. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "backend/kubernetes/pod.h"
#include "base/str.h"

#include "../../unit.h"

static const pod_world RESTRICTED = {.ns = "boxes", .cell = "aaaa", .bothy_image = "bothy:1"};
static const pod_world BASELINE = {
    .ns = "boxes", .cell = "aaaa", .bothy_image = "bothy:1", .baseline = true};

static json_t *spec_of(const pod_world *w, sandbox_spec *s)
{
    box_spec b = {.image_name = "busybox:1", .spec = s};
    json_t *spec = NULL;

    if (!s->limits.memory)
        s->limits = (limits){.memory = 1 << 30, .cpu_milli = 500, .shm_mib = 64};
    assert_ok(pod_spec_of(w, &b, &spec));
    return spec;
}

static const json_t *container(const json_t *spec)
{
    return json_array_get(json_object_get(spec, "containers"), 0);
}

static void what_restricted_asks_for(void **state)
{
    sandbox_spec s = {0};
    CLEANUP(json_decrefp) json_t *spec = spec_of(&RESTRICTED, &s);
    const json_t *c = container(spec), *own = json_object_get(c, "securityContext");
    const json_t *all = json_object_get(spec, "securityContext");

    (void)state;
    assert_string_equal(json_str(spec, "restartPolicy"), "Never");
    assert_false(json_flag(spec, "automountServiceAccountToken"));
    assert_true(json_flag(all, "runAsNonRoot"));
    assert_int_equal(json_int(all, "runAsUser", 0), POD_UID);
    assert_string_equal(json_str(json_object_get(all, "seccompProfile"), "type"), "RuntimeDefault");
    assert_false(json_flag(own, "allowPrivilegeEscalation"));
    assert_string_equal(json_string_value(json_array_get(
                            json_object_get(json_object_get(own, "capabilities"), "drop"), 0)),
                        "ALL");
    assert_string_equal(json_string_value(json_array_get(json_object_get(c, "command"), 0)),
                        "/.bothy/bothy-init");
    const json_t *mount = json_array_get(json_object_get(c, "volumeMounts"), 0);
    assert_true(json_flag(mount, "readOnly"));
    assert_string_equal(json_str(mount, "mountPath"), POD_DIR);
}

static void limits_are_ceilings(void **state)
{
    sandbox_spec s = {.limits = {.memory = 32 << 20, .cpu_milli = 20}};
    CLEANUP(json_decrefp) json_t *spec = spec_of(&RESTRICTED, &s);
    const json_t *r = json_object_get(container(spec), "resources");

    (void)state;
    assert_string_equal(json_str(json_object_get(r, "limits"), "memory"), "33554432");
    assert_string_equal(json_str(json_object_get(r, "requests"), "memory"), "33554432");
    assert_string_equal(json_str(json_object_get(r, "requests"), "cpu"), "20m");
    assert_null(json_str(json_object_get(r, "limits"), "ephemeral-storage"));
}

static void setuid_needs_root(void **state)
{
    sandbox_spec s = {.setuid = true};
    box_spec b = {.image_name = "busybox:1", .spec = &s};
    json_t *none = NULL;

    (void)state;
    assert_err(pod_spec_of(&RESTRICTED, &b, &none), ERR_UNSUPPORTED);
    CLEANUP(json_decrefp) json_t *spec = spec_of(&BASELINE, &s);
    assert_true(
        json_flag(json_object_get(container(spec), "securityContext"), "allowPrivilegeEscalation"));
    assert_null(json_object_get(json_object_get(spec, "securityContext"), "runAsNonRoot"));
}

/* What makes another pod of it makes another hash, and nothing else does. */
static void hashes(void **state)
{
    sandbox_spec plain = {0}, small = {.limits = {.memory = 1 << 28, .cpu_milli = 500}},
                 still = {.read_only = true};
    CLEANUP(json_decrefp)
    json_t *a = spec_of(&RESTRICTED, &plain), *b = spec_of(&RESTRICTED, &plain);
    CLEANUP(json_decrefp)
    json_t *c = spec_of(&RESTRICTED, &small), *d = spec_of(&RESTRICTED, &still);
    CLEANUP(json_decrefp) json_t *e = spec_of(&BASELINE, &plain);
    char h[6][POD_HASH_LEN + 1];

    (void)state;
    pod_hash_of(a, "none", h[0]);
    pod_hash_of(b, "none", h[1]);
    assert_string_equal(h[0], h[1]);
    pod_hash_of(a, "open", h[1]);
    pod_hash_of(c, "none", h[2]);
    pod_hash_of(d, "none", h[3]);
    pod_hash_of(e, "none", h[4]);
    for (int i = 1; i < 5; i++)
        assert_string_not_equal(h[0], h[i]);
}

static pod_facts facts(const char *meta, const char *status)
{
    CLEANUP(freep)
    char *text = str_printf(
        "{\"metadata\":{\"uid\":\"u1\",\"name\":\"p1\"%s},\"spec\":{\"containers\":[{\"name\":"
        "\"sandbox\",\"image\":\"busybox:1\",\"resources\":{\"limits\":{\"memory\":\"1Gi\"}}}]},"
        "\"status\":%s}",
        meta, status);
    CLEANUP(json_decrefp) json_t *o = NULL;
    pod_facts f;

    assert_ok(json_parse(text, strlen(text), &o));
    assert_ok(pod_facts_read(o, &f));
    return f;
}

#define STATUS(phase, state)                                                     \
    "{\"phase\":\"" phase                                                        \
    "\",\"containerStatuses\":[{\"name\":\"other\",\"state\":{\"running\":{}}}," \
    "{\"name\":\"sandbox\",\"restartCount\":0,\"imageID\":\"sha256:1\",\"state\":{" state "}}]}"

static void what_is_made_is_read(void **state)
{
    sandbox_spec s = {0};
    pod_name who = {.name = "p1", .pool = "pool", .network = "none", .hash = "abc"};
    CLEANUP(pod_facts_done) pod_facts f = {0};

    (void)state;
    memset(who.nonce, 7, sizeof who.nonce);
    CLEANUP(json_decrefp) json_t *o = pod_make(&RESTRICTED, &who, spec_of(&RESTRICTED, &s));
    json_object_set_new(json_object_get(o, "metadata"), "uid", json_string("u"));
    assert_ok(pod_facts_read(o, &f));
    assert_string_equal(f.pool, "pool");
    assert_string_equal(f.hash, "abc");
    assert_string_equal(f.image, "busybox:1");
    assert_true(f.has_nonce && !memcmp(f.nonce, who.nonce, sizeof f.nonce));
    assert_false(f.claimed || *f.sandbox);
    assert_int_equal(f.memory, 1 << 30);
}

static void how_it_is(void **state)
{
    static const struct {
        const char *status;
        enum pod_phase_seen phase;
        bool image, config;
        int exit_code;
    } ROWS[] = {
        {"{\"phase\":\"Pending\"}", POD_STARTING, false, false, -1},
        {STATUS("Running", "\"running\":{\"startedAt\":\"x\"}"), POD_RUNS, false, false, -1},
        {STATUS("Pending", "\"waiting\":{\"reason\":\"ContainerCreating\"}"), POD_STARTING, false,
         false, -1},
        {STATUS("Pending", "\"waiting\":{\"reason\":\"ImagePullBackOff\",\"message\":\"no\"}"),
         POD_STARTING, true, false, -1},
        {STATUS("Pending", "\"waiting\":{\"reason\":\"CreateContainerConfigError\"}"), POD_STARTING,
         false, true, -1},
        {STATUS("Failed", "\"terminated\":{\"exitCode\":3,\"reason\":\"Error\"}"), POD_ENDED, false,
         false, 3},
        {STATUS("Running", "\"terminated\":{\"exitCode\":0}"), POD_STARTING, false, false, 0},
        {"{\"phase\":\"Pending\",\"initContainerStatuses\":[{\"name\":\"bothy-install\",\"state\":{"
         "\"waiting\":{\"reason\":\"ErrImagePull\"}}}]}",
         POD_STARTING, true, false, -1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(pod_facts_done) pod_facts f = facts("", ROWS[i].status);
        if (f.phase != ROWS[i].phase)
            print_error("row %zu\n", i);
        assert_int_equal(f.phase, ROWS[i].phase);
        assert_int_equal(f.image_trouble, ROWS[i].image);
        assert_int_equal(f.config_trouble, ROWS[i].config);
        assert_int_equal(f.exit_code, ROWS[i].exit_code);
    }
}

static void how_it_ended(void **state)
{
    CLEANUP(pod_facts_done)
    pod_facts oom =
        facts("", STATUS("Failed", "\"terminated\":{\"exitCode\":137,\"reason\":\"OOMKilled\"}"));
    CLEANUP(pod_facts_done)
    pod_facts evicted = facts(
        "",
        "{\"phase\":\"Failed\",\"reason\":\"Evicted\",\"message\":\"The node was low on disk\"}");
    CLEANUP(pod_facts_done)
    pod_facts lost = facts("", "{\"phase\":\"Unknown\",\"reason\":\"NodeLost\"}");
    CLEANUP(freep) char *why = pod_why(&evicted);
    box_fate fate;

    (void)state;
    pod_fate(&oom, &fate);
    assert_true(fate.dead && WIFSIGNALED(fate.status) && WTERMSIG(fate.status) == SIGKILL);
    assert_int_equal(fate.oom_kills, 1);
    assert_int_equal(fate.memory_limit, 1 << 30);
    pod_fate(&evicted, &fate);
    assert_true(fate.dead && !fate.has_status && strstr(fate.by, "eviction"));
    assert_non_null(strstr(why, "low on disk"));
    pod_fate(&lost, &fate);
    assert_true(fate.lost);
}

static void labels_are_looked_at(void **state)
{
    CLEANUP(pod_facts_done)
    pod_facts f = facts(
        ",\"deletionTimestamp\":\"x\",\"labels\":{\"bothy.dev/state\":\"claimed\",\"bothy.dev/"
        "sandbox\":\"aaaabbbbccccddddeeee\"}",
        "{}");
    CLEANUP(pod_facts_done)
    pod_facts bad = facts(
        ",\"annotations\":{\"bothy.dev/nonce\":\"zz\"},\"labels\":{\"bothy.dev/sandbox\":\"../x\"}",
        "{}");

    (void)state;
    assert_true(f.claimed && f.deleting);
    assert_string_equal(f.sandbox, "aaaabbbbccccddddeeee");
    assert_false(bad.has_nonce || *bad.sandbox);
    assert_true(pod_label_ok("a-b.c_d"));
    assert_false(pod_label_ok("-a") || pod_label_ok("") || pod_label_ok("a/b"));
}

/* A container that is restarted is another: its init knows no secret. */
static void handles(void **state)
{
    CLEANUP(pod_facts_done) pod_facts f = facts("", "{}");
    CLEANUP(freep) char *first = pod_handle("ns", &f);

    (void)state;
    f.restarts = 1;
    CLEANUP(freep) char *second = pod_handle("ns", &f);
    assert_string_equal(first, "ns/p1/u1/0");
    assert_string_not_equal(first, second);
}

static void whether_an_image_was_changed(void **state)
{
#define LIFE(n, id)                                                                           \
    "{\"phase\":\"Running\",\"containerStatuses\":[{\"name\":\"sandbox\",\"restartCount\":" n \
    ",\"imageID\":\"" id "\",\"state\":{\"running\":{}}}]}"
    static const struct {
        const char *status, *before;
        uint64_t same_ns;
        enum pod_swap is;
    } ROWS[] = {
        {LIFE("0", "sha256:1"), "sha256:1", 0, POD_SWAP_WAITS},
        {LIFE("0", "sha256:1"), "sha256:1", POD_SAME_NS, POD_SWAP_WAITS},
        {LIFE("1", "sha256:2"), "sha256:1", 0, POD_SWAP_DONE},
        {LIFE("1", "x@sha256:2"), "x@sha256:1", 0, POD_SWAP_DONE},
        /* it died by itself, or has got another name of the same image */
        {LIFE("1", "sha256:1"), "sha256:1", 0, POD_SWAP_WAITS},
        {LIFE("1", "sha256:1"), "sha256:1", POD_SAME_NS, POD_SWAP_DONE},
        {LIFE("1", ""), "sha256:1", 0, POD_SWAP_WAITS},
        {LIFE("1", "sha256:2"), "", 0, POD_SWAP_WAITS},
        {LIFE("2", "sha256:2"), "sha256:1", POD_SAME_NS, POD_SWAP_LOST},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ROWS); i++) {
        CLEANUP(pod_facts_done) pod_facts f = facts("", ROWS[i].status);
        enum pod_swap is = pod_swap_of(&f, 1, ROWS[i].before, ROWS[i].same_ns);
        if (is != ROWS[i].is)
            print_error("row %zu\n", i);
        assert_int_equal(is, ROWS[i].is);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_restricted_asks_for),
        cmocka_unit_test(limits_are_ceilings),
        cmocka_unit_test(setuid_needs_root),
        cmocka_unit_test(hashes),
        cmocka_unit_test(what_is_made_is_read),
        cmocka_unit_test(how_it_is),
        cmocka_unit_test(how_it_ended),
        cmocka_unit_test(labels_are_looked_at),
        cmocka_unit_test(handles),
        cmocka_unit_test(whether_an_image_was_changed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

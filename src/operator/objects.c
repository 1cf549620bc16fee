#include "operator/objects.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "operator/names.h"
#include "operator/objects_table.h"
#include "operator/text.h"

#define NAME_LEN_MAX KUBE_NAME_MAX
#define IMAGE_MAX    512
#define SHORT_MAX    64
#define TEXT_MAX     (32u << 10)
#define NOTE_MAX     (256u << 10) /* all annotations of an object together, as in Kubernetes */

/* ---- common members ---- */

static const decode_field META_ROWS[] = {
    REQUIRED(object_meta, name, "name", NAME_LEN_MAX),
    STRING(object_meta, namespace, "namespace", NAME_LEN_MAX),
    STRING(object_meta, uid, "uid", 128),
    STRING(object_meta, version, "resourceVersion", 128),
    COUNT(object_meta, generation, "generation", INT64_MAX, 0),
    STRING(object_meta, created, "creationTimestamp", SHORT_MAX),
    STRING(object_meta, deleting, "deletionTimestamp", SHORT_MAX),
    MAP(object_meta, labels, "labels", 256, 256),
    MAP(object_meta, annotations, "annotations", 256, NOTE_MAX),
    STRINGS(object_meta, finalizers, "finalizers", 64, NAME_LEN_MAX + 64),
};
const decode_type OBJECT_META = {.name = "metadata",
                                 .mode = DECODE_LENIENT,
                                 .size = sizeof(object_meta),
                                 .fields = META_ROWS,
                                 .nfields = ARRAY_LEN(META_ROWS)};

static const decode_field CONDITION_ROWS[] = {
    STRING(condition, type, "type", 316),
    STRING(condition, status, "status", SHORT_MAX),
    STRING(condition, reason, "reason", 1024),
    STRING(condition, message, "message", TEXT_MAX),
    STRING(condition, since, "lastTransitionTime", SHORT_MAX),
    COUNT(condition, generation, "observedGeneration", INT64_MAX, 0),
};
const decode_type OBJECT_CONDITION = {.name = "condition",
                                      .mode = DECODE_LENIENT,
                                      .size = sizeof(condition),
                                      .fields = CONDITION_ROWS,
                                      .nfields = ARRAY_LEN(CONDITION_ROWS)};

uint64_t object_time(const char *text)
{
    uint64_t ns;

    return text && time_of_text(text, &ns) ? ns : 0;
}

void object_times(object_meta *m, condition *c, size_t n)
{
    m->created_ns = object_time(m->created);
    m->deleting_ns = object_time(m->deleting);
    /* A deletion with an unreadable time still counts as one. */
    if (m->deleting && !m->deleting_ns)
        m->deleting_ns = 1;
    for (size_t i = 0; i < n; i++)
        c[i].since_ns = object_time(c[i].since);
}

bool object_has_finalizer(const object_meta *m, const char *name)
{
    for (size_t i = 0; m->finalizers && m->finalizers[i]; i++)
        if (!strcmp(m->finalizers[i], name))
            return true;
    return false;
}

static err *kind_check(const json_t *j, const char *kind)
{
    const char *is = json_str(j, "kind"), *version = json_str(j, "apiVersion");

    /* Items of a list have neither kind nor apiVersion. */
    if ((is && strcmp(is, kind) != 0) || (version && !str_starts(version, OPERATOR_GROUP "/")))
        return err_new(ERR_INVALID_REQUEST, "a %.64s of %.64s where a %s was expected",
                       str_or(is, "thing"), str_or(version, "nobody"), kind);
    return NULL;
}

/* ---- SandboxTemplate ---- */

const char *const EGRESS_NAMES[] = {"None", "Public", "List", "All"};

static const decode_name PROFILES[] = {
    {"Restricted", PROFILE_RESTRICTED}, {"UserNS", PROFILE_USERNS}, {"Trusted", PROFILE_TRUSTED}};
static const decode_name EGRESSES[] = {
    {"None", EGRESS_NONE}, {"Public", EGRESS_PUBLIC}, {"List", EGRESS_LIST}, {"All", EGRESS_ALL}};
static const decode_name RECLAIMS[] = {{"Delete", RECLAIM_DELETE}, {"Retain", RECLAIM_RETAIN}};

static const decode_field ENV_ROWS[] = {
    REQUIRED(env_pair, name, "name", 256),
    STRING_OR(env_pair, value, "value", TEXT_MAX, ""),
};
TYPE(ENV, "env", env_pair, ENV_ROWS);

static const decode_field RESOURCE_ROWS[] = {
    TEXT(resource_set, cpu, "cpu", SHORT_MAX),
    TEXT(resource_set, memory, "memory", SHORT_MAX),
    TEXT(resource_set, storage, "ephemeral-storage", SHORT_MAX),
};
TYPE(RESOURCES, "resources", resource_set, RESOURCE_ROWS);
static const decode_field BOTH_ROWS[] = {
    OBJECT(crd_template, spec.resources.requests, "requests", RESOURCES),
    OBJECT(crd_template, spec.resources.limits, "limits", RESOURCES),
};
PART(BOTH, "resources", BOTH_ROWS);

static const decode_field WORKSPACE_ROWS[] = {
    REQUIRED(workspace_spec, path, "mountPath", 255),
    ROW_(workspace_spec, size, "size", DECODE_TEXT, .len_min = 1, .len_max = SHORT_MAX,
         .required = true),
    STRING(workspace_spec, storage_class, "storageClassName", NAME_LEN_MAX),
    CHOICE(workspace_spec, reclaim, "reclaim", RECLAIMS),
};
TYPE(WORKSPACE, "workspace", workspace_spec, WORKSPACE_ROWS);

static const decode_field NETWORK_ROWS[] = {
    CHOICE(network_spec, egress, "egress", EGRESSES),
    STRINGS(network_spec, cidrs, "allowCIDRs", 64, SHORT_MAX),
    FLAG(network_spec, dns, "allowDNS", true),
};
TYPE(NETWORK, "network", network_spec, NETWORK_ROWS);

static const decode_field TIMEOUT_ROWS[] = {
    STRING_OR(crd_template, spec.timeouts.startup, "startup", SHORT_MAX, "120s"),
    STRING_OR(crd_template, spec.timeouts.idle, "idle", SHORT_MAX, "0s"),
    STRING_OR(crd_template, spec.timeouts.max, "max", SHORT_MAX, "24h"),
};
PART(TIMEOUTS, "timeouts", TIMEOUT_ROWS);

static const decode_field IMAGE_POLICY_ROWS[] = {
    STRINGS(crd_template, spec.image_policy.allow, "allow", 64, IMAGE_MAX),
    FLAG(crd_template, spec.image_policy.require_digest, "requireDigest", false),
    STRING(crd_template, spec.image_policy.pull_secret, "pullSecret", NAME_LEN_MAX),
};
PART(IMAGE_POLICY, "imagePolicy", IMAGE_POLICY_ROWS);

static const decode_field OVERRIDE_ROWS[] = {
    MAP(pod_overrides, node_selector, "nodeSelector", 32, 63),
    MAP(pod_overrides, labels, "labels", 32, 63),
    MAP(pod_overrides, annotations, "annotations", 32, TEXT_MAX),
    ANY(pod_overrides, tolerations, "tolerations"),
    ANY(pod_overrides, affinity, "affinity"),
    ANY(pod_overrides, spread, "topologySpreadConstraints"),
    STRING(pod_overrides, priority_class, "priorityClassName", NAME_LEN_MAX),
};
TYPE(OVERRIDES, "podOverrides", pod_overrides, OVERRIDE_ROWS);

static const decode_field TEMPLATE_SPEC_ROWS[] = {
    REQUIRED(crd_template, spec.image, "image", IMAGE_MAX),
    STRING(crd_template, spec.idle_image, "idleImage", IMAGE_MAX),
    CHOICE(crd_template, spec.profile, "profile", PROFILES),
    STRING(crd_template, spec.runtime_class, "runtimeClassName", NAME_LEN_MAX),
    INTO("resources", BOTH),
    OBJECTS(crd_template, spec.env, spec.nenv, "env", ENV, 256),
    OBJECT(crd_template, spec.workspace, "workspace", WORKSPACE),
    OBJECT(crd_template, spec.network, "network", NETWORK),
    INTO("timeouts", TIMEOUTS),
    INTO("imagePolicy", IMAGE_POLICY),
    OBJECT(crd_template, spec.overrides, "podOverrides", OVERRIDES),
    STRINGS(crd_template, spec.namespaces, "allowedNamespaces", 64, 63),
};
PART(TEMPLATE_SPEC, "spec", TEMPLATE_SPEC_ROWS);
static const decode_field TEMPLATE_STATUS_ROWS[] = {
    COUNT(crd_template, status.observed, "observedGeneration", INT64_MAX, 0),
    STRING(crd_template, status.hash, "hash", SHORT_MAX),
    STRING(crd_template, status.image_digest, "imageDigest", 256),
    COUNT(crd_template, status.pools, "pools", INT32_MAX, 0),
    OBJECTS(crd_template, status.conditions, status.nconditions, "conditions", OBJECT_CONDITION,
            CONDITIONS_MAX),
};
PART(TEMPLATE_STATUS, "status", TEMPLATE_STATUS_ROWS);
static const decode_field TEMPLATE_ROWS[] = {
    NEEDED(crd_template, meta, "metadata", OBJECT_META),
    INTO_NEEDED("spec", TEMPLATE_SPEC),
    INTO("status", TEMPLATE_STATUS),
};
TYPE(TEMPLATE, "SandboxTemplate", crd_template, TEMPLATE_ROWS);

err *crd_template_decode(const json_t *j, crd_template *ret_template)
{
    TRY(kind_check(j, "SandboxTemplate"));
    TRY(decode_json(&TEMPLATE, j, "", ret_template));
    object_times(&ret_template->meta, ret_template->status.conditions,
                 ret_template->status.nconditions);
    ret_template->status_json = json_deep_copy(json_object_get(j, "status"));
    return NULL;
}

void crd_template_done(crd_template *t)
{
    json_decref(t->status_json);
    decode_done(&TEMPLATE, t);
}

/* ---- SandboxPool ---- */

static const decode_name STRATEGIES[] = {{"Rolling", UPDATE_ROLLING},
                                         {"OnReplenish", UPDATE_ON_REPLENISH}};

static const decode_field AUTOSCALE_ROWS[] = {
    COUNT(autoscale_spec, min, "min", OBJECT_REPLICAS_MAX, 0),
    ROW_(autoscale_spec, max, "max", DECODE_INTEGER, .min = 1, .max = OBJECT_REPLICAS_MAX,
         .required = true),
    COUNT(autoscale_spec, headroom_s, "headroomSeconds", 3600, 20),
    STRING_OR(autoscale_spec, idle_after, "idleAfter", SHORT_MAX, "10m"),
};
TYPE(AUTOSCALE, "autoscale", autoscale_spec, AUTOSCALE_ROWS);
static const decode_field UPDATE_ROWS[] = {
    CHOICE(crd_pool, spec.update.strategy, "strategy", STRATEGIES),
    TEXT_OR(crd_pool, spec.update.max_unavailable, "maxUnavailable", SHORT_MAX, "20%"),
};
PART(UPDATE, "update", UPDATE_ROWS);
static const decode_field PRE_PULL_ROWS[] = {
    STRINGS(crd_pool, spec.pre_pull.images, "images", 32, IMAGE_MAX),
    FLAG(crd_pool, spec.pre_pull.everywhere, "everywhere", false),
};
PART(PRE_PULL, "prePull", PRE_PULL_ROWS);
static const decode_field DISRUPTION_ROWS[] = {
    FLAG(crd_pool, spec.protect_claimed, "protectClaimed", true),
    STRING_OR(crd_pool, spec.drain_after, "drainAfter", SHORT_MAX, "0s"),
};
PART(DISRUPTION, "disruption", DISRUPTION_ROWS);

static const decode_field POOL_SPEC_ROWS[] = {
    REQUIRED(crd_pool, spec.template, "templateRef", NAME_LEN_MAX),
    COUNT(crd_pool, spec.replicas, "replicas", OBJECT_REPLICAS_MAX, 1),
    COUNT(crd_pool, spec.max_sandboxes, "maxSandboxes", 100000, 0),
    FLAG(crd_pool, spec.any_image, "anyImage", false),
    STRING_OR(crd_pool, spec.tenant, "tenant", 128, ""),
    OBJECT_IF(crd_pool, spec.autoscale, "autoscale", AUTOSCALE, spec.has_autoscale),
    INTO("update", UPDATE),
    INTO("prePull", PRE_PULL),
    STRING_OR(crd_pool, spec.record_after, "recordAfter", SHORT_MAX, "0s"),
    INTO("disruption", DISRUPTION),
};
PART(POOL_SPEC, "spec", POOL_SPEC_ROWS);
static const decode_field POOL_STATUS_ROWS[] = {
    COUNT(crd_pool, status.observed, "observedGeneration", INT64_MAX, 0),
    OBJECTS(crd_pool, status.conditions, status.nconditions, "conditions", OBJECT_CONDITION,
            CONDITIONS_MAX),
};
PART(POOL_STATUS, "status", POOL_STATUS_ROWS);
static const decode_field POOL_ROWS[] = {
    NEEDED(crd_pool, meta, "metadata", OBJECT_META),
    INTO_NEEDED("spec", POOL_SPEC),
    INTO("status", POOL_STATUS),
};
TYPE(POOL, "SandboxPool", crd_pool, POOL_ROWS);

#define MANAGERS_MAX 256

/* Returns who wrote spec.replicas through the scale subresource: an HPA, `kubectl
 * scale`. Writers of the object itself do not count, because the schema's default
 * makes all of them write replicas. */
static char *scaled_by(const json_t *j)
{
    const json_t *managers = json_object_get(json_object_get(j, "metadata"), "managedFields");
    size_t n = json_array_size(managers);

    for (size_t i = 0; i < n && i < MANAGERS_MAX; i++) {
        const json_t *m = json_array_get(managers, i);
        const json_t *fields = json_object_get(m, "fieldsV1");
        const char *name = json_str(m, "manager");
        if (str_eq(json_str(m, "subresource"), "scale") && name && strlen(name) <= 128 &&
            json_object_get(json_object_get(fields, "f:spec"), "f:replicas"))
            return xstrdup(name);
    }
    return NULL;
}

err *crd_pool_decode(const json_t *j, crd_pool *ret_pool)
{
    TRY(kind_check(j, "SandboxPool"));
    TRY(decode_json(&POOL, j, "", ret_pool));
    object_times(&ret_pool->meta, ret_pool->status.conditions, ret_pool->status.nconditions);
    ret_pool->spec.scaled_by = scaled_by(j);
    ret_pool->status_json = json_deep_copy(json_object_get(j, "status"));
    return NULL;
}

void crd_pool_done(crd_pool *p)
{
    free(p->spec.scaled_by);
    json_decref(p->status_json);
    decode_done(&POOL, p);
}

/* ---- Sandbox ---- */

const char *const PHASE_NAMES[PHASES] = {
    "", "Pending", "Arming", "Running", "Hibernating", "Hibernated", "Resuming", "Terminated"};
static const decode_name PHASE_ROWS[] = {
    {"", PHASE_NONE},
    {"Pending", PHASE_PENDING},
    {"Arming", PHASE_ARMING},
    {"Running", PHASE_RUNNING},
    {"Hibernating", PHASE_HIBERNATING},
    {"Hibernated", PHASE_HIBERNATED},
    {"Resuming", PHASE_RESUMING},
    {"Terminated", PHASE_TERMINATED},
};
static const decode_name DESIRED[] = {{"Running", DESIRED_RUNNING},
                                      {"Hibernated", DESIRED_HIBERNATED}};

static const decode_field SECRET_NAME_ROWS[] = {
    REQUIRED(secret_source, name, "name", NAME_LEN_MAX)};
PART(SECRET_NAME, "secretRef", SECRET_NAME_ROWS);
static const decode_field SECRET_ROWS[] = {INTO_NEEDED("secretRef", SECRET_NAME)};
TYPE(SECRET, "envFrom", secret_source, SECRET_ROWS);

static const decode_field NARROW_ROWS[] = {
    ROW_IF(crd_sandbox, spec.egress, "egress", DECODE_ENUM, offsetof(crd_sandbox, spec.has_egress),
           .names = EGRESSES, .nnames = ARRAY_LEN(EGRESSES)),
};
PART(NARROW, "network", NARROW_ROWS);

static const decode_field SANDBOX_SPEC_ROWS[] = {
    STRING(crd_sandbox, spec.pool, "poolRef", NAME_LEN_MAX),
    STRING(crd_sandbox, spec.template, "templateRef", NAME_LEN_MAX),
    STRING(crd_sandbox, spec.image, "image", IMAGE_MAX),
    STRING_OR(crd_sandbox, spec.tenant, "tenant", 128, ""),
    CHOICE(crd_sandbox, spec.desired, "desiredState", DESIRED),
    STRING(crd_sandbox, spec.expires, "expiresAt", SHORT_MAX),
    ROW_IF(crd_sandbox, spec.idle_s, "idleSeconds", DECODE_INTEGER,
           offsetof(crd_sandbox, spec.has_idle), .max = 2592000),
    OBJECTS(crd_sandbox, spec.secrets, spec.nsecrets, "envFrom", SECRET, 16),
    INTO("network", NARROW),
    MAP(crd_sandbox, spec.labels, "labels", 64, 256),
};
PART(SANDBOX_SPEC, "spec", SANDBOX_SPEC_ROWS);
static const decode_field CAUSE_ROWS[] = {
    STRING(crd_sandbox, status.cause.code, "code", SHORT_MAX),
    STRING(crd_sandbox, status.cause.message, "message", 1024),
    STRING(crd_sandbox, status.cause.at, "at", SHORT_MAX),
    SIGNED(crd_sandbox, status.cause.exit_code, "exitCode"),
};
PART(CAUSE, "cause", CAUSE_ROWS);
static const decode_field SANDBOX_STATUS_ROWS[] = {
    COUNT(crd_sandbox, status.observed, "observedGeneration", INT64_MAX, 0),
    COUNT(crd_sandbox, status.epoch, "epoch", INT64_MAX, 0),
    CHOICE(crd_sandbox, status.phase, "phase", PHASE_ROWS),
    STRING(crd_sandbox, status.id, "id", SHORT_MAX),
    STRING(crd_sandbox, status.pod, "podName", NAME_LEN_MAX),
    STRING(crd_sandbox, status.pod_uid, "podUID", 128),
    STRING(crd_sandbox, status.node, "node", NAME_LEN_MAX),
    STRING(crd_sandbox, status.class, "claimClass", SHORT_MAX),
    STRING(crd_sandbox, status.volume, "workspaceClaim", NAME_LEN_MAX),
    STRING(crd_sandbox, status.claimed, "claimedAt", SHORT_MAX),
    STRING(crd_sandbox, status.active, "lastActiveAt", SHORT_MAX),
    STRING(crd_sandbox, status.expires, "expiresAt", SHORT_MAX),
    INTO("cause", CAUSE),
    OBJECTS(crd_sandbox, status.conditions, status.nconditions, "conditions", OBJECT_CONDITION,
            CONDITIONS_MAX),
};
PART(SANDBOX_STATUS, "status", SANDBOX_STATUS_ROWS);
static const decode_field SANDBOX_ROWS[] = {
    NEEDED(crd_sandbox, meta, "metadata", OBJECT_META),
    INTO_NEEDED("spec", SANDBOX_SPEC),
    INTO("status", SANDBOX_STATUS),
};
TYPE(SANDBOX, "Sandbox", crd_sandbox, SANDBOX_ROWS);

err *crd_sandbox_decode(const json_t *j, crd_sandbox *ret_sandbox)
{
    crd_sandbox *s = ret_sandbox;

    TRY(kind_check(j, "Sandbox"));
    TRY(decode_json(&SANDBOX, j, "", s));
    object_times(&s->meta, s->status.conditions, s->status.nconditions);
    s->spec.expires_ns = object_time(s->spec.expires);
    s->status.claimed_ns = object_time(s->status.claimed);
    s->status.active_ns = object_time(s->status.active);
    s->status.expires_ns = object_time(s->status.expires);
    s->status.cause.at_ns = object_time(s->status.cause.at);
    s->status_json = json_deep_copy(json_object_get(j, "status"));
    return NULL;
}

void crd_sandbox_done(crd_sandbox *s)
{
    json_decref(s->status_json);
    decode_done(&SANDBOX, s);
}

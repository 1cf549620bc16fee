/* Makes the Kubernetes objects of templates and pools (manifest.h). */
#include "operator/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define BOTHY_DIR   "/.bothy"
#define SANDBOX_UID 1000

/* ---- pieces ---- */

static json_t *map_json(char *const *pairs)
{
    json_t *o = json_object();

    for (size_t i = 0; pairs && pairs[i]; i++) {
        size_t n = strcspn(pairs[i], "=");
        CLEANUP(freep) char *name = xstrndup(pairs[i], n);
        json_object_set_new(o, name, json_string(pairs[i] + n + 1));
    }
    return o;
}

static void set_text(json_t *o, const char *name, const char *value)
{
    if (value && *value)
        json_object_set_new(o, name, json_string(value));
}

static void set_copy(json_t *o, const char *name, const json_t *value)
{
    if (value)
        json_object_set_new(o, name, json_deep_copy(value));
}

static json_t *labels_of(const manifest_options *o)
{
    return json_pack("{s:s, s:s}", LABEL_MANAGED, "1", LABEL_CELL, o->cell);
}

static json_t *manifest_object(const char *version, const char *kind, const char *namespace,
                               const char *name, json_t *labels)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:o}}", "apiVersion", version, "kind", kind,
                     "metadata", "name", name, "namespace", namespace, "labels", labels);
}

/* ---- containers ---- */

/* Returns the security context that every profile has, in the form that
 * Pod Security `restricted` wants. */
static json_t *container_security(enum template_profile p)
{
    json_t *s = json_pack("{s:b, s:{s:s}}", "allowPrivilegeEscalation", p == PROFILE_TRUSTED,
                          "seccompProfile", "type", "RuntimeDefault");

    if (p == PROFILE_RESTRICTED)
        json_object_set_new(s, "capabilities", json_pack("{s:[s]}", "drop", "ALL"));
    return s;
}

static json_t *pod_security(const template_spec *t)
{
    json_t *s = json_pack("{s:{s:s}}", "seccompProfile", "type", "RuntimeDefault");

    if (t->profile == PROFILE_RESTRICTED) {
        json_object_set_new(s, "runAsNonRoot", json_true());
        json_object_set_new(s, "runAsUser", json_integer(SANDBOX_UID));
        json_object_set_new(s, "runAsGroup", json_integer(SANDBOX_UID));
        if (t->workspace.path)
            json_object_set_new(s, "fsGroup", json_integer(SANDBOX_UID));
    }
    return s;
}

static json_t *resource_json(const resource_set *r, const char *cpu, const char *memory,
                             const char *storage)
{
    json_t *o = json_object();

    set_text(o, "cpu", r->cpu ? r->cpu : cpu);
    set_text(o, "memory", r->memory ? r->memory : memory);
    set_text(o, "ephemeral-storage", r->storage ? r->storage : storage);
    return o;
}

uint64_t template_disk(const template_spec *t, const manifest_options *o)
{
    if (t->storage || !o->disk)
        return t->storage;
    return t->storage_asked > o->disk ? t->storage_asked : o->disk;
}

/* Makes requests and limits. The default requests lie below the limits; a smaller limit is
 * requested whole. Without a request, Kubernetes would reserve all of a default disk
 * limit, so little is requested. */
static json_t *manifest_resources(const template_spec *t, const manifest_options *o)
{
    bool small_cpu = t->cpu_milli && t->cpu_milli < 50;
    bool small_memory = t->memory && t->memory < (64u << 20);
    const resource_set *l = &t->resources.limits;
    uint64_t most = l->storage ? 0 : template_disk(t, o);
    CLEANUP(freep) char *disk = most ? str_printf("%" PRIu64, most) : NULL;

    return json_pack("{s:o, s:o}", "requests",
                     resource_json(&t->resources.requests, small_cpu ? l->cpu : "50m",
                                   small_memory ? l->memory : "64Mi",
                                   most > (16u << 20) ? "16Mi" : disk),
                     "limits", resource_json(l, "1", "1Gi", disk));
}

static json_t *small_resources(void)
{
    return json_pack("{s:{s:s, s:s}, s:{s:s, s:s}}", "requests", "cpu", "10m", "memory", "16Mi",
                     "limits", "cpu", "1", "memory", "64Mi");
}

static json_t *env_json(const template_spec *t)
{
    json_t *a = json_array();

    for (size_t i = 0; i < t->nenv; i++)
        json_array_append_new(a, json_pack("{s:s, s:s}", "name", t->env[i].name, "value",
                                           str_or(t->env[i].value, "")));
    return a;
}

/* Copies the programs into the volume they run from. Idempotent: it runs again when a
 * node recreates the pod's sandbox. */
static json_t *install_container(const manifest_options *o, enum template_profile p)
{
    return json_pack("{s:s, s:s, s:s, s:[s, s, s], s:o, s:o, s:[{s:s, s:s}]}", "name",
                     "bothy-install", "image", o->bothy_image, "imagePullPolicy", "IfNotPresent",
                     "command", "/bothy-init", "install", BOTHY_DIR, "securityContext",
                     container_security(p), "resources", small_resources(), "volumeMounts", "name",
                     "bothy", "mountPath", BOTHY_DIR);
}

static json_t *manifest_mounts(const template_spec *t, const manifest_options *o)
{
    json_t *a =
        json_pack("[{s:s, s:s, s:b}]", "name", "bothy", "mountPath", BOTHY_DIR, "readOnly", 1);

    if (t->workspace.path)
        json_array_append_new(
            a, json_pack("{s:s, s:s}", "name", "workspace", "mountPath", t->workspace.path));
    if (o->shm_mib)
        json_array_append_new(a, json_pack("{s:s, s:s}", "name", "shm", "mountPath", "/dev/shm"));
    return a;
}

static json_t *sandbox_container(const template_spec *t, const manifest_options *o,
                                 const char *image)
{
    return json_pack("{s:s, s:s, s:s, s:[s, s], s:o, s:o, s:o, s:o}", "name", SANDBOX_CONTAINER,
                     "image", image, "imagePullPolicy", "IfNotPresent", "command",
                     BOTHY_DIR "/bothy-init", "serve", "env", env_json(t), "resources",
                     manifest_resources(t, o), "securityContext", container_security(t->profile),
                     "volumeMounts", manifest_mounts(t, o));
}

static json_t *bothy_volume(const manifest_options *o)
{
    if (o->image_volume)
        return json_pack("{s:s, s:{s:s, s:s}}", "name", "bothy", "image", "reference",
                         o->bothy_image, "pullPolicy", "IfNotPresent");
    return json_pack("{s:s, s:{s:s}}", "name", "bothy", "emptyDir", "sizeLimit", "64Mi");
}

/* ---- pods ---- */

void volume_name(const char *pod, char ret_name[KUBE_NAME_MAX + 1])
{
    snprintf(ret_name, KUBE_NAME_MAX + 1, "ws-%.200s", pod);
}

static json_t *shm_volume(uint32_t mib)
{
    CLEANUP(freep) char *size = str_printf("%" PRIu32 "Mi", mib);

    return json_pack("{s:s, s:{s:s, s:s}}", "name", "shm", "emptyDir", "medium", "Memory",
                     "sizeLimit", size);
}

static json_t *manifest_volumes(const template_spec *t, const manifest_options *o,
                                const pod_identity *who)
{
    char name[KUBE_NAME_MAX + 1];
    json_t *a = json_pack("[o]", bothy_volume(o));

    volume_name(who->name, name);
    if (t->workspace.path)
        json_array_append_new(a, json_pack("{s:s, s:{s:s}}", "name", "workspace",
                                           "persistentVolumeClaim", "claimName",
                                           who->volume ? who->volume : name));
    if (o->shm_mib)
        json_array_append_new(a, shm_volume(o->shm_mib));
    return a;
}

static void set_schedule(json_t *spec, const pod_overrides *o, const char *pool)
{
    CLEANUP(json_decrefp) json_t *selector = map_json(o->node_selector);
    char value[KUBE_LABEL_MAX + 1];

    if (json_object_size(selector))
        set_copy(spec, "nodeSelector", selector);
    set_copy(spec, "tolerations", o->tolerations);
    set_copy(spec, "affinity", o->affinity);
    set_text(spec, "priorityClassName", o->priority_class);
    if (o->spread) {
        set_copy(spec, "topologySpreadConstraints", o->spread);
    } else if (pool) {
        label_of_name(pool, value);
        json_object_set_new(spec, "topologySpreadConstraints",
                            json_pack("[{s:i, s:s, s:s, s:{s:{s:s}}}]", "maxSkew", 1, "topologyKey",
                                      "kubernetes.io/hostname", "whenUnsatisfiable",
                                      "ScheduleAnyway", "labelSelector", "matchLabels", LABEL_POOL,
                                      value));
    }
}

static const char *image_of(const template_spec *t, bool any_image, const pod_identity *who)
{
    if (who->image)
        return who->image;
    return any_image && t->idle_image && *t->idle_image ? t->idle_image : t->image;
}

/* Makes a pod's spec. A pod whose image may change is restarted; any other runs once. */
static json_t *pod_spec(const template_spec *t, bool any_image, const manifest_options *o,
                        const pod_identity *who)
{
    bool named = t->network.dns && t->network.egress != EGRESS_NONE;
    json_t *s = json_pack("{s:s, s:i, s:b, s:b, s:s, s:o, s:[o], s:o}", "restartPolicy",
                          any_image ? "Always" : "Never", "terminationGracePeriodSeconds", 2,
                          "automountServiceAccountToken", 0, "enableServiceLinks", 0, "dnsPolicy",
                          named ? "ClusterFirst" : "Default", "securityContext", pod_security(t),
                          "containers", sandbox_container(t, o, image_of(t, any_image, who)),
                          "volumes", manifest_volumes(t, o, who));

    if (!o->image_volume)
        json_object_set_new(s, "initContainers",
                            json_pack("[o]", install_container(o, t->profile)));
    if (t->profile == PROFILE_USERNS)
        json_object_set_new(s, "hostUsers", json_false());
    set_text(s, "runtimeClassName", t->runtime_class);
    if (t->image_policy.pull_secret && *t->image_policy.pull_secret)
        json_object_set_new(s, "imagePullSecrets",
                            json_pack("[{s:s}]", "name", t->image_policy.pull_secret));
    set_schedule(s, &t->overrides, who->pool);
    return s;
}

void template_hash(const crd_template *t, bool any_image, const manifest_options *o,
                   char ret_hash[HASH_TEXT_LEN + 1])
{
    const pod_identity nobody = {.name = "", .namespace = ""};
    const pod_overrides *v = &t->spec.overrides;
    json_t *cidrs = json_array();

    for (size_t i = 0; t->spec.network.cidrs && t->spec.network.cidrs[i]; i++)
        json_array_append_new(cidrs, json_string(t->spec.network.cidrs[i]));
    CLEANUP(json_decrefp)
    json_t *all = json_pack("[o, o, o, [s, b, o]]", pod_spec(&t->spec, any_image, o, &nobody),
                            map_json(v->labels), map_json(v->annotations),
                            EGRESS_NAMES[t->spec.network.egress], t->spec.network.dns, cidrs);
    hash_json(all, ret_hash);
}

/* Makes the labels. The operator's own come last, so that a template
 * cannot override its selectors. */
static json_t *pod_labels(const crd_template *t, bool any_image, const manifest_options *o,
                          const pod_identity *who)
{
    json_t *labels = map_json(t->spec.overrides.labels);
    char hash[HASH_TEXT_LEN + 1], pool[KUBE_LABEL_MAX + 1];
    CLEANUP(json_decrefp) json_t *ours = labels_of(o);

    template_hash(t, any_image, o, hash);
    set_text(ours, LABEL_TEMPLATE_HASH, hash);
    set_text(ours, LABEL_STATE, who->sandbox ? STATE_CLAIMED : STATE_WARM);
    set_text(ours, LABEL_SANDBOX, who->sandbox);
    if (who->pool) {
        label_of_name(who->pool, pool);
        set_text(ours, LABEL_POOL, pool);
    }
    json_object_update(labels, ours);
    return labels;
}

json_t *manifest_pod(const crd_template *t, bool any_image, const manifest_options *o,
                     const pod_identity *who)
{
    char nonce[2 * POD_NONCE_LEN + 1];
    json_t *pod =
        manifest_object("v1", "Pod", who->namespace, who->name, pod_labels(t, any_image, o, who));
    json_t *notes = map_json(t->spec.overrides.annotations);

    hex_encode(who->nonce, POD_NONCE_LEN, nonce);
    set_text(notes, NOTE_NONCE, nonce);
    set_text(notes, NOTE_SAFE_TO_EVICT, who->sandbox ? "false" : "true");
    json_object_set_new(json_object_get(pod, "metadata"), "annotations", notes);
    json_object_set_new(pod, "spec", pod_spec(&t->spec, any_image, o, who));
    return pod;
}

json_t *manifest_volume(const crd_template *t, const manifest_options *o, const char *namespace,
                        const char *name)
{
    const workspace_spec *w = &t->spec.workspace;

    if (!w->path)
        return NULL;
    json_t *v = manifest_object("v1", "PersistentVolumeClaim", namespace, name, labels_of(o));
    json_t *spec = json_pack("{s:[s], s:{s:{s:s}}}", "accessModes", "ReadWriteOnce", "resources",
                             "requests", "storage", w->size);
    set_text(spec, "storageClassName", w->storage_class);
    json_object_set_new(v, "spec", spec);
    return v;
}

/* ---- the budget, the pull ---- */

json_t *manifest_budget(const crd_pool *p, const manifest_options *o)
{
    char pool[KUBE_LABEL_MAX + 1], name[KUBE_NAME_MAX + 1];

    if (!p->spec.protect_claimed)
        return NULL;
    label_of_name(p->meta.name, pool);
    snprintf(name, sizeof name, "bothy-claimed-%.200s", p->meta.name);
    json_t *b =
        manifest_object("policy/v1", "PodDisruptionBudget", p->meta.namespace, name, labels_of(o));
    json_object_set_new(b, "spec",
                        json_pack("{s:i, s:{s:{s:s, s:s, s:s}}}", "minAvailable", INT32_MAX,
                                  "selector", "matchLabels", LABEL_CELL, o->cell, LABEL_POOL, pool,
                                  LABEL_STATE, STATE_CLAIMED));
    return b;
}

static json_t *pull_container(size_t i, const char *image, enum template_profile profile)
{
    char name[32];

    snprintf(name, sizeof name, "pull-%zu", i);
    return json_pack("{s:s, s:s, s:s, s:[s, s], s:o, s:o, s:[{s:s, s:s, s:b}]}", "name", name,
                     "image", image, "imagePullPolicy", "IfNotPresent", "command",
                     BOTHY_DIR "/bothy-init", "noop", "securityContext",
                     container_security(profile), "resources", small_resources(), "volumeMounts",
                     "name", "bothy", "mountPath", BOTHY_DIR, "readOnly", 1);
}

bool pre_pull_allows(const template_spec *t, const char *image)
{
    if (str_eq(t->idle_image, image))
        return true;
    err *e = template_image_check(t, image);
    bool allowed = !e;
    err_free(e);
    return allowed;
}

/* Makes the spec of pods that pull images. Each image is pulled by running bothy's program in
 * it, so that it needs no shell. */
static json_t *pull_spec(const crd_pool *p, const crd_template *t, const manifest_options *o)
{
    const pod_identity nobody = {.name = "", .namespace = ""};
    json_t *spec = pod_spec(&t->spec, true, o, &nobody);
    json_t *inits = json_array(), *main = sandbox_container(&t->spec, o, t->spec.image);

    if (!o->image_volume)
        json_array_append_new(inits, install_container(o, t->spec.profile));
    for (size_t i = 0; p->spec.pre_pull.images[i]; i++)
        if (pre_pull_allows(&t->spec, p->spec.pre_pull.images[i]))
            json_array_append_new(inits,
                                  pull_container(i, p->spec.pre_pull.images[i], t->spec.profile));
    json_object_set_new(main, "resources", small_resources());
    json_object_set_new(
        main, "volumeMounts",
        json_pack("[{s:s, s:s, s:b}]", "name", "bothy", "mountPath", BOTHY_DIR, "readOnly", 1));
    json_object_set_new(spec, "initContainers", inits);
    json_object_set_new(spec, "containers", json_pack("[o]", main));
    json_object_set_new(spec, "volumes", json_pack("[o]", bothy_volume(o)));
    if (p->spec.pre_pull.everywhere)
        json_object_del(spec, "nodeSelector");
    return spec;
}

static bool pulls_any(const crd_pool *p, const crd_template *t)
{
    char **images = p->spec.pre_pull.images;

    for (size_t i = 0; images && images[i]; i++)
        if (pre_pull_allows(&t->spec, images[i]))
            return true;
    return false;
}

json_t *manifest_pre_pull(const crd_pool *p, const crd_template *t, const manifest_options *o)
{
    char name[KUBE_NAME_MAX + 1], label[KUBE_LABEL_MAX + 1];

    if (!pulls_any(p, t))
        return NULL;
    snprintf(name, sizeof name, "bothy-prepull-%.200s", p->meta.name);
    label_of_name(name, label);
    json_t *d = manifest_object("apps/v1", "DaemonSet", p->meta.namespace, name, labels_of(o));
    json_object_set_new(d, "spec",
                        json_pack("{s:{s:{s:s}}, s:{s:{s:{s:s}}, s:o}}", "selector", "matchLabels",
                                  "bothy.dev/prepull", label, "template", "metadata", "labels",
                                  "bothy.dev/prepull", label, "spec", pull_spec(p, t, o)));
    return d;
}

/* Makes the manifest of a sandbox's pod, and reads pod objects. */
#include "backend/kubernetes/pod.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/str.h"

#define MESSAGE_MAX 1000

/* ---- made: the container ---- */

static json_t *kubernetes_pod_security(const pod_world *w, const sandbox_spec *s)
{
    bool setuid = w->baseline && s && s->setuid;
    json_t *o = json_pack("{s:b, s:{s:s}}", "allowPrivilegeEscalation", setuid, "seccompProfile",
                          "type", "RuntimeDefault");

    if (!w->baseline)
        json_object_set_new(o, "capabilities", json_pack("{s:[s]}", "drop", "ALL"));
    if (s && s->read_only)
        json_object_set_new(o, "readOnlyRootFilesystem", json_true());
    return o;
}

static json_t *pod_security(const pod_world *w)
{
    json_t *o =
        json_pack("{s:{s:s}, s:i, s:i}", "seccompProfile", "type", "RuntimeDefault", "runAsUser",
                  w->baseline ? 0 : POD_UID, "runAsGroup", w->baseline ? 0 : POD_UID);

    if (!w->baseline) {
        json_object_set_new(o, "runAsNonRoot", json_true());
        json_object_set_new(o, "fsGroup",
                            json_integer(POD_UID)); /* makes its tmpfs mounts writable */
    }
    return o;
}

static void set_amount(json_t *o, const char *name, uint64_t n, const char *unit)
{
    CLEANUP(freep) char *text = str_printf("%llu%s", (unsigned long long)n, unit);

    json_object_set_new(o, name, json_string(text));
}

/* Limits are ceilings, not reservations: the request is small, and never above the limit. */
static json_t *pod_resources(const limits *l)
{
    json_t *most = json_object(), *asked = json_object();
    uint32_t cpu = l->cpu_milli && l->cpu_milli < 50 ? l->cpu_milli : 50;
    uint64_t memory = l->memory && l->memory < (64u << 20) ? l->memory : 64u << 20;

    if (l->cpu_milli)
        set_amount(most, "cpu", l->cpu_milli, "m");
    if (l->memory)
        set_amount(most, "memory", l->memory, "");
    if (l->disk)
        set_amount(most, "ephemeral-storage", l->disk, "");
    set_amount(asked, "cpu", cpu, "m");
    set_amount(asked, "memory", memory, "");
    if (l->disk)
        set_amount(asked, "ephemeral-storage", l->disk < (16u << 20) ? l->disk : 16u << 20, "");
    return json_pack("{s:o, s:o}", "limits", most, "requests", asked);
}

static json_t *small_resources(void)
{
    return json_pack("{s:{s:s, s:s}, s:{s:s, s:s}}", "limits", "cpu", "1", "memory", "64Mi",
                     "requests", "cpu", "10m", "memory", "16Mi");
}

static json_t *pod_mounts(const sandbox_spec *s)
{
    json_t *a = json_pack("[{s:s, s:s, s:b}, {s:s, s:s}]", "name", "bothy", "mountPath", POD_DIR,
                          "readOnly", 1, "name", "shm", "mountPath", "/dev/shm");

    for (size_t i = 0; i < s->ntmpfs; i++) {
        CLEANUP(freep) char *name = str_printf("tmpfs-%zu", i);
        json_array_append_new(a,
                              json_pack("{s:s, s:s}", "name", name, "mountPath", s->tmpfs[i].path));
    }
    return a;
}

static json_t *memory_volume(const char *name, uint64_t size)
{
    json_t *v = json_pack("{s:s, s:{s:s}}", "name", name, "emptyDir", "medium", "Memory");

    if (size)
        set_amount(json_object_get(v, "emptyDir"), "sizeLimit", size, "");
    return v;
}

static json_t *pod_volumes(const pod_world *w, const sandbox_spec *s)
{
    json_t *a = json_array();

    if (w->image_volume)
        json_array_append_new(a,
                              json_pack("{s:s, s:{s:s, s:s}}", "name", "bothy", "image",
                                        "reference", w->bothy_image, "pullPolicy", "IfNotPresent"));
    else
        json_array_append_new(
            a, json_pack("{s:s, s:{s:s}}", "name", "bothy", "emptyDir", "sizeLimit", "64Mi"));
    json_array_append_new(a, memory_volume("shm", (uint64_t)s->limits.shm_mib << 20));
    for (size_t i = 0; i < s->ntmpfs; i++) {
        CLEANUP(freep) char *name = str_printf("tmpfs-%zu", i);
        json_array_append_new(a, memory_volume(name, s->tmpfs[i].size));
    }
    return a;
}

static json_t *pod_container(const pod_world *w, const box_spec *s)
{
    return json_pack("{s:s, s:s, s:s, s:[s, s], s:o, s:o, s:o}", "name", POD_CONTAINER, "image",
                     s->image_name, "imagePullPolicy", "IfNotPresent", "command",
                     POD_DIR "/bothy-init", "serve", "resources", pod_resources(&s->spec->limits),
                     "securityContext", kubernetes_pod_security(w, s->spec), "volumeMounts",
                     pod_mounts(s->spec));
}

/* Copies the programs into the volume that they run from. */
static json_t *pod_install(const pod_world *w)
{
    return json_pack("{s:s, s:s, s:s, s:[s, s, s], s:o, s:o, s:[{s:s, s:s}]}", "name",
                     "bothy-install", "image", w->bothy_image, "imagePullPolicy", "IfNotPresent",
                     "command", "/bothy-init", "install", POD_DIR, "securityContext",
                     kubernetes_pod_security(w, NULL), "resources", small_resources(),
                     "volumeMounts", "name", "bothy", "mountPath", POD_DIR);
}

static err *pod_unsupported(const char *what)
{
    return err_remedy(
        err_new(ERR_UNSUPPORTED, "%s needs root in the pod", what),
        "Leave it out, or let the administrator set kubernetes.security to baseline.");
}

err *pod_spec_of(const pod_world *w, const box_spec *s, json_t **ret_spec)
{
    if (s->spec->setuid && !w->baseline)
        return pod_unsupported("the grant setuid");
    if (!s->image_name || !*s->image_name || !utf8_valid(s->image_name, strlen(s->image_name)))
        return err_new(ERR_INVALID_REQUEST, "image: a name is needed");
    json_t *spec = json_pack(
        "{s:s, s:i, s:b, s:b, s:s, s:o, s:[o], s:o}", "restartPolicy", "Never",
        "terminationGracePeriodSeconds", POD_GRACE_S, "automountServiceAccountToken", 0,
        "enableServiceLinks", 0, "dnsPolicy",
        s->spec->network == NETWORK_OPEN ? "ClusterFirst" : "Default", "securityContext",
        pod_security(w), "containers", pod_container(w, s), "volumes", pod_volumes(w, s->spec));

    if (!w->image_volume)
        json_object_set_new(spec, "initContainers", json_pack("[o]", pod_install(w)));
    if (w->runtime_class)
        json_object_set_new(spec, "runtimeClassName", json_string(w->runtime_class));
    *ret_spec = spec;
    return NULL;
}

void pod_hash_of(const json_t *spec, const char *network, char ret_hash[POD_HASH_LEN + 1])
{
    CLEANUP(freep) char *text = json_dumps(spec, JSON_COMPACT | JSON_SORT_KEYS);
    CLEANUP(freep) char *all = str_printf("%s %s", network, text);
    unsigned char digest[SHA256_LEN];

    sha256(all, strlen(all), digest);
    hex_encode(digest, POD_HASH_LEN / 2, ret_hash);
}

bool pod_label_ok(const char *value)
{
    size_t n = strlen(value);
    static const char ENDS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

    return n && n <= 63 &&
           strspn(value, "-_." /* and */ "abcdefghijklmnopqrstuvwxyz"
                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == n &&
           strchr(ENDS, value[0]) && strchr(ENDS, value[n - 1]);
}

json_t *pod_make(const pod_world *w, const pod_name *who, json_t *spec)
{
    char nonce[2 * LINK_NONCE_LEN + 1];

    hex_encode(who->nonce, LINK_NONCE_LEN, nonce);
    json_t *labels = json_pack("{s:s, s:s, s:s, s:s, s:s}", POD_MANAGED, "1", POD_CELL, w->cell,
                               POD_STATE, who->sandbox ? POD_CLAIMED : POD_WARM, POD_HASH,
                               who->hash, POD_NETWORK, who->network);
    if (who->pool)
        json_object_set_new(labels, POD_POOL, json_string(who->pool));
    if (who->sandbox)
        json_object_set_new(labels, POD_SANDBOX, json_string(who->sandbox));
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:o, s:{s:s, s:s}}, s:o}", "apiVersion", "v1", "kind",
                     "Pod", "metadata", "name", who->name, "namespace", w->ns, "labels", labels,
                     "annotations", POD_NONCE, nonce, POD_EVICT, who->sandbox ? "false" : "true",
                     "spec", spec);
}

/* ---- read ---- */

static bool take_text(const json_t *o, const char *key, char *to, size_t size)
{
    const char *text = json_str(o, key);

    return text && str_copy(to, size, text);
}

static void pod_note(pod_facts *f, const char *reason, const char *message)
{
    if (f->message || (!reason && !message))
        return;
    f->message = str_printf("%s%s%.*s", str_or(reason, ""), reason && message ? ": " : "",
                            MESSAGE_MAX, str_or(message, ""));
}

static bool is_one_of(const char *s, const char *const *words)
{
    for (; s && *words; words++)
        if (str_eq(s, *words))
            return true;
    return false;
}

static void read_waiting(const json_t *waiting, pod_facts *f)
{
    static const char *const IMAGE[] = {"ErrImagePull",
                                        "ImagePullBackOff",
                                        "InvalidImageName",
                                        "ErrImageNeverPull",
                                        "ImageInspectError",
                                        "RegistryUnavailable",
                                        NULL};
    static const char *const CONFIG[] = {
        "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
        "CrashLoopBackOff",           "StartError",           NULL};
    const char *reason = json_str(waiting, "reason");

    f->image_trouble |= is_one_of(reason, IMAGE);
    f->config_trouble |= is_one_of(reason, CONFIG);
    if (is_one_of(reason, IMAGE) || is_one_of(reason, CONFIG))
        pod_note(f, reason, json_str(waiting, "message"));
}

static void read_end(const json_t *end, pod_facts *f)
{
    const char *reason = json_str(end, "reason");
    int64_t code = json_int(end, "exitCode", -1);

    f->exit_code = code >= 0 && code <= 255 ? (int)code : 255;
    f->oom |= str_eq(reason, "OOMKilled");
    if (code)
        pod_note(f, reason, json_str(end, "message"));
}

/* Reads the status of our container; others may have been added to the pod. */
static void read_container(const json_t *status, pod_facts *f)
{
    const json_t *state = json_object_get(status, "state");
    const json_t *end = json_object_get(state, "terminated");
    const char *id = json_str(status, "imageID");
    int64_t restarts = json_int(status, "restartCount", 0);

    f->restarts = restarts > 0 && restarts < INT32_MAX ? (unsigned)restarts : 0;
    if (id)
        f->image_id = xstrdup(id);
    if (json_object_get(state, "running"))
        f->phase = POD_RUNS;
    if (end)
        read_end(end, f);
    read_waiting(json_object_get(state, "waiting"), f);
}

static void read_statuses(const json_t *status, pod_facts *f)
{
    size_t i;
    json_t *one;

    json_array_foreach(json_object_get(status, "initContainerStatuses"), i, one)
    {
        const json_t *state = json_object_get(one, "state");
        read_waiting(json_object_get(state, "waiting"), f);
        if (json_int(json_object_get(state, "terminated"), "exitCode", 0))
            pod_note(
                f, json_str(one, "name"),
                str_or(json_str(json_object_get(state, "terminated"), "message"), "it failed"));
    }
    json_array_foreach(json_object_get(status, "containerStatuses"), i, one)
    {
        if (str_eq(json_str(one, "name"), POD_CONTAINER) && !f->image_id)
            read_container(one, f);
    }
}

static void read_conditions(const json_t *status, pod_facts *f)
{
    size_t i;
    json_t *c;

    json_array_foreach(json_object_get(status, "conditions"), i, c)
    {
        if (str_eq(json_str(c, "type"), "PodScheduled") && str_eq(json_str(c, "status"), "False") &&
            str_eq(json_str(c, "reason"), "Unschedulable")) {
            f->unschedulable = true;
            pod_note(f, "Unschedulable", json_str(c, "message"));
        }
        if (str_eq(json_str(c, "type"), "DisruptionTarget") &&
            str_eq(json_str(c, "status"), "True")) {
            f->evicted = true;
            pod_note(f, json_str(c, "reason"), json_str(c, "message"));
        }
    }
}

static void read_status(const json_t *status, pod_facts *f)
{
    const char *phase = json_str(status, "phase"), *reason = json_str(status, "reason");

    f->evicted = str_eq(reason, "Evicted");
    f->node_lost = str_eq(reason, "NodeLost") || str_eq(phase, "Unknown");
    pod_note(f, reason, json_str(status, "message"));
    read_conditions(status, f);
    read_statuses(status, f);
    /* A container that ended in a pod that restarts it has not ended for good. */
    if (str_eq(phase, "Failed") || str_eq(phase, "Succeeded"))
        f->phase = POD_ENDED;
}

/* Parses a quantity in the forms that we send: "1Gi", "1536Mi", "1000000". */
static uint64_t bytes_of(const char *quantity)
{
    CLEANUP(freep) char *text = str_printf(str_ends(quantity, "i") ? "%sb" : "%s", quantity);
    uint64_t n = 0;

    return str_to_bytes(text, &n) ? n : 0;
}

static void read_spec(const json_t *spec, pod_facts *f)
{
    size_t i;
    json_t *c;
    const char *node = json_str(spec, "nodeName");

    f->node = node ? xstrdup(node) : NULL;
    json_array_foreach(json_object_get(spec, "containers"), i, c)
    {
        const json_t *l = json_object_get(json_object_get(c, "resources"), "limits");
        const char *image = json_str(c, "image"), *memory = json_str(l, "memory");
        if (!str_eq(json_str(c, "name"), POD_CONTAINER) || f->image)
            continue;
        f->image = xstrdup(str_or(image, ""));
        f->memory = memory ? bytes_of(memory) : 0;
    }
}

static err *read_meta(const json_t *meta, pod_facts *f)
{
    const json_t *labels = json_object_get(meta, "labels");
    const char *nonce = json_str(json_object_get(meta, "annotations"), POD_NONCE);

    if (!take_text(meta, "uid", f->uid, sizeof f->uid) ||
        !take_text(meta, "name", f->name, sizeof f->name) || !*f->uid || !*f->name)
        return err_new(ERR_INVALID_REQUEST, "a pod without a name");
    take_text(labels, POD_POOL, f->pool, sizeof f->pool);
    take_text(labels, POD_HASH, f->hash, sizeof f->hash);
    if (!take_text(labels, POD_SANDBOX, f->sandbox, sizeof f->sandbox) ||
        !id_is_sandbox(f->sandbox))
        f->sandbox[0] = 0;
    f->claimed = str_eq(json_str(labels, POD_STATE), POD_CLAIMED);
    f->deleting = json_str(meta, "deletionTimestamp") != NULL;
    f->has_nonce = nonce && strlen(nonce) == 2 * sizeof f->nonce &&
                   hex_decode(nonce, f->nonce, sizeof f->nonce);
    return NULL;
}

err *pod_facts_read(const json_t *pod, pod_facts *ret_facts)
{
    pod_facts f = {.exit_code = -1};

    TRY(read_meta(json_object_get(pod, "metadata"), &f));
    read_spec(json_object_get(pod, "spec"), &f);
    read_status(json_object_get(pod, "status"), &f);
    *ret_facts = f;
    return NULL;
}

void pod_facts_done(pod_facts *f)
{
    free(f->image);
    free(f->image_id);
    free(f->node);
    free(f->message);
    *f = (pod_facts){0};
}

enum pod_swap pod_swap_of(const pod_facts *f, unsigned life, const char *id_before,
                          uint64_t same_ns)
{
    if (f->restarts > life)
        return POD_SWAP_LOST;
    if (f->restarts < life || f->phase != POD_RUNS)
        return POD_SWAP_WAITS;
    bool another = f->image_id && *f->image_id && *id_before && !str_eq(f->image_id, id_before);
    return another || same_ns >= POD_SAME_NS ? POD_SWAP_DONE : POD_SWAP_WAITS;
}

char *pod_handle(const char *ns, const pod_facts *f)
{
    return str_printf("%s/%s/%s/%u", ns, f->name, f->uid, f->restarts);
}

char *pod_why(const pod_facts *f)
{
    const char *message = str_or(f->message, "");
    const char *colon = *message ? ": " : "";

    if (f->evicted)
        return str_printf("its pod was evicted%s%s", colon, message);
    if (f->node_lost)
        return str_printf("its node is lost%s%s", colon, message);
    if (f->oom)
        return xstrdup("its pid 1 was killed for memory");
    if (f->exit_code >= 0)
        return str_printf("its container ended with status %d%s%s", f->exit_code, colon, message);
    return f->deleting ? xstrdup("its pod is being deleted")
                       : str_printf("its pod has ended%s%s", colon, message);
}

void pod_fate(const pod_facts *f, box_fate *ret_fate)
{
    int code = f->exit_code;

    *ret_fate = (box_fate){.dead = f->phase == POD_ENDED || f->exit_code >= 0,
                           .has_status = code >= 0,
                           .oom_kills = f->oom,
                           .memory_limit = f->memory,
                           .lost = f->node_lost};
    if (f->evicted)
        str_copy(ret_fate->by, sizeof ret_fate->by, "the cluster (eviction)");
    /* The kubelet reports signals as shells do. */
    if (code >= 0)
        ret_fate->status = code > 128 && code < 128 + 65 ? code - 128 : code << 8;
}

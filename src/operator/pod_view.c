/* Decodes the parts of a pod that the planners need. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "operator/names.h"
#include "operator/objects.h"
#include "operator/objects_table.h"

#define WORD_MAX     1024
#define MESSAGE_MAX  (32u << 10)
#define STATUSES_MAX 64
#define VOLUMES_MAX  128

typedef struct container_end {
    bool is;
    int32_t exit_code;
    char *reason;
} container_end;

typedef struct container_status {
    char *name, *image, *image_id;
    uint32_t restarts;
    bool has_waiting, has_running;
    char *waiting, *message;
    container_end now, last;
} container_status;

typedef struct volume_wire {
    char *name, *claim;
} volume_wire;

typedef struct container_wire {
    char *name, *image;
} container_wire;

typedef struct pod_wire {
    object_meta meta;
    char *node;
    container_wire *containers;
    size_t ncontainers;
    volume_wire *volumes;
    size_t nvolumes;
    int phase;
    char *reason, *message;
    condition *conditions;
    size_t nconditions;
    container_status *inits, *mains;
    size_t ninits, nmains;
} pod_wire;

/* ---- tables ---- */

static const decode_field END_ROWS[] = {
    SIGNED(container_end, exit_code, "exitCode"),
    STRING(container_end, reason, "reason", WORD_MAX),
};
TYPE(END, "terminated", container_end, END_ROWS);
static const decode_field WAITING_ROWS[] = {
    STRING(container_status, waiting, "reason", WORD_MAX),
    STRING(container_status, message, "message", MESSAGE_MAX),
};
PART(WAITING, "waiting", WAITING_ROWS);
static const decode_type RUNNING = {.name = "running", .mode = DECODE_LENIENT};
static const decode_field STATE_ROWS[] = {
    {.name = "waiting",
     .kind = DECODE_OBJECT,
     .has_at = offsetof(container_status, has_waiting),
     .type = &WAITING},
    {.name = "running",
     .kind = DECODE_OBJECT,
     .has_at = offsetof(container_status, has_running),
     .type = &RUNNING},
    OBJECT_IF(container_status, now, "terminated", END, now.is),
};
PART(STATE, "state", STATE_ROWS);
static const decode_field LAST_ROWS[] = {
    OBJECT_IF(container_status, last, "terminated", END, last.is),
};
PART(LAST, "lastState", LAST_ROWS);
static const decode_field CONTAINER_STATUS_ROWS[] = {
    STRING(container_status, name, "name", KUBE_NAME_MAX),
    STRING(container_status, image, "image", WORD_MAX),
    STRING(container_status, image_id, "imageID", WORD_MAX),
    COUNT(container_status, restarts, "restartCount", INT32_MAX, 0),
    INTO("state", STATE),
    INTO("lastState", LAST),
};
TYPE(CONTAINER_STATUS, "containerStatus", container_status, CONTAINER_STATUS_ROWS);

static const decode_field CONTAINER_ROWS[] = {
    STRING(container_wire, name, "name", KUBE_NAME_MAX),
    STRING(container_wire, image, "image", WORD_MAX),
};
TYPE(CONTAINER, "container", container_wire, CONTAINER_ROWS);
static const decode_field CLAIM_ROWS[] = {
    STRING(volume_wire, claim, "claimName", KUBE_NAME_MAX),
};
PART(CLAIM, "persistentVolumeClaim", CLAIM_ROWS);
static const decode_field VOLUME_ROWS[] = {
    STRING(volume_wire, name, "name", KUBE_NAME_MAX),
    INTO("persistentVolumeClaim", CLAIM),
};
TYPE(VOLUME, "volume", volume_wire, VOLUME_ROWS);
static const decode_field POD_SPEC_ROWS[] = {
    STRING(pod_wire, node, "nodeName", KUBE_NAME_MAX),
    OBJECTS(pod_wire, containers, ncontainers, "containers", CONTAINER, STATUSES_MAX),
    OBJECTS(pod_wire, volumes, nvolumes, "volumes", VOLUME, VOLUMES_MAX),
};
PART(POD_SPEC, "spec", POD_SPEC_ROWS);

static const decode_name PHASES_OF_PODS[] = {
    {"Pending", POD_PENDING}, {"", POD_PENDING},     {"Running", POD_RUNNING},
    {"Failed", POD_FAILED},   {"Unknown", POD_LOST}, {"Succeeded", POD_SUCCEEDED},
};
static const decode_field POD_STATUS_ROWS[] = {
    CHOICE(pod_wire, phase, "phase", PHASES_OF_PODS),
    STRING(pod_wire, reason, "reason", WORD_MAX),
    STRING(pod_wire, message, "message", MESSAGE_MAX),
    OBJECTS(pod_wire, conditions, nconditions, "conditions", OBJECT_CONDITION, CONDITIONS_MAX),
    OBJECTS(pod_wire, inits, ninits, "initContainerStatuses", CONTAINER_STATUS, STATUSES_MAX),
    OBJECTS(pod_wire, mains, nmains, "containerStatuses", CONTAINER_STATUS, STATUSES_MAX),
};
PART(POD_STATUS, "status", POD_STATUS_ROWS);
static const decode_field POD_ROWS[] = {
    NEEDED(pod_wire, meta, "metadata", OBJECT_META),
    INTO("spec", POD_SPEC),
    INTO("status", POD_STATUS),
};
TYPE(POD, "Pod", pod_wire, POD_ROWS);

/* ---- the parts that count ---- */

/* Returns whether a waiting container is in trouble, and not just starting. */
static bool is_trouble(const char *reason)
{
    return reason && strcmp(reason, "ContainerCreating") != 0 &&
           strcmp(reason, "PodInitializing") != 0;
}

static void take_waiting(container_status *s, size_t n, pod_view *p)
{
    for (size_t i = 0; i < n && !p->waiting; i++)
        if (s[i].has_waiting && is_trouble(s[i].waiting)) {
            p->waiting = TAKE_PTR(s[i].waiting);
            p->waiting_message = TAKE_PTR(s[i].message);
        }
}

static void take_end(container_end *e, pod_view *p)
{
    p->has_end = true;
    p->exit_code = e->exit_code;
    p->end_reason = TAKE_PTR(e->reason);
}

/* Reads the status of the container that runs bothy's command, by its name: other
 * containers may be injected beside it. */
static void take_sandbox(pod_wire *w, pod_view *p)
{
    for (size_t i = 0; i < w->nmains; i++) {
        container_status *s = &w->mains[i];
        if (!str_eq(s->name, SANDBOX_CONTAINER))
            continue;
        p->started = s->has_running;
        p->restarts = s->restarts;
        p->image_id = TAKE_PTR(s->image_id);
        if (s->now.is || s->last.is)
            take_end(s->now.is ? &s->now : &s->last, p);
        return;
    }
}

static void take_schedule(const pod_wire *w, pod_view *p)
{
    for (size_t i = 0; i < w->nconditions; i++) {
        const condition *c = &w->conditions[i];
        if (!str_eq(c->type, "PodScheduled") || !str_eq(c->status, "False") || p->unschedulable)
            continue;
        p->unschedulable = str_eq(c->reason, "Unschedulable");
        p->unschedulable_ns = c->since_ns;
        p->unschedulable_why = c->message ? xstrdup(c->message) : NULL;
    }
}

static void take_spec(pod_wire *w, pod_view *p)
{
    p->node = TAKE_PTR(w->node);
    for (size_t i = 0; i < w->ncontainers; i++)
        if (str_eq(w->containers[i].name, SANDBOX_CONTAINER) && !p->image)
            p->image = TAKE_PTR(w->containers[i].image);
    for (size_t i = 0; i < w->nvolumes; i++)
        if (str_eq(w->volumes[i].name, "workspace") && !p->volume)
            p->volume = TAKE_PTR(w->volumes[i].claim);
}

err *pod_view_decode(const json_t *j, pod_view *ret_pod)
{
    pod_wire w;
    pod_view p = {0};

    TRY(decode_json(&POD, j, "", &w));
    object_times(&w.meta, w.conditions, w.nconditions);
    p.meta = w.meta;
    memset(&w.meta, 0, sizeof w.meta);
    p.phase = (enum pod_phase)w.phase;
    p.reason = TAKE_PTR(w.reason);
    p.message = TAKE_PTR(w.message);
    take_spec(&w, &p);
    take_waiting(w.inits, w.ninits, &p);
    take_waiting(w.mains, w.nmains, &p);
    take_sandbox(&w, &p);
    take_schedule(&w, &p);
    decode_done(&POD, &w);
    *ret_pod = p;
    return NULL;
}

void pod_view_done(pod_view *p)
{
    char *const texts[] = {p->node,
                           p->image,
                           p->image_id,
                           p->volume,
                           p->reason,
                           p->message,
                           p->unschedulable_why,
                           p->waiting,
                           p->waiting_message,
                           p->end_reason};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    decode_done(&OBJECT_META, &p->meta);
    memset(p, 0, sizeof *p);
}

const char *pod_label(const pod_view *p, const char *name)
{
    return strv_env_get(p->meta.labels, name);
}

bool pod_is_claimed(const pod_view *p)
{
    return str_eq(pod_label(p, LABEL_STATE), STATE_CLAIMED);
}

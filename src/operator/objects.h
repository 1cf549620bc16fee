/* The Kubernetes objects of the operator as C values: SandboxTemplate, SandboxPool and Sandbox of
 * bothy.dev/v1alpha1, and the parts of a pod that it needs.
 *
 * Decoders bound what an API server sends. They ignore unknown members (a newer server, another
 * release of the definitions) and give absent ones the schema's defaults. The _check functions
 * check rules that the schema cannot express; their message goes into a condition. Values own their
 * strings; _done frees them and accepts a zeroed value. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

#define OBJECT_REPLICAS_MAX 5000

typedef struct object_meta {
    char *name, *namespace, *uid;
    char *version; /* resourceVersion: opaque */
    uint64_t generation;
    char *created, *deleting;         /* as received */
    uint64_t created_ns, deleting_ns; /* 0: not set */
    char **labels, **annotations;     /* NAME=value */
    char **finalizers;
} object_meta;
bool object_has_finalizer(const object_meta *m, const char *name);

typedef struct condition {
    char *type, *status, *reason, *message;
    char *since; /* lastTransitionTime, as received */
    uint64_t since_ns;
    uint64_t generation;
} condition;

/* ---- SandboxTemplate ---- */

enum template_profile {
    PROFILE_RESTRICTED,
    PROFILE_USERNS,
    PROFILE_TRUSTED
};
enum egress {
    EGRESS_NONE,
    EGRESS_PUBLIC,
    EGRESS_LIST,
    EGRESS_ALL
};
extern const char *const EGRESS_NAMES[];

typedef struct env_pair {
    char *name, *value;
} env_pair;

typedef struct resource_set { /* quantities as written; NULL: absent */
    char *cpu, *memory, *storage;
} resource_set;

enum reclaim {
    RECLAIM_DELETE,
    RECLAIM_RETAIN /* the volume stays when the sandbox ends */
};
typedef struct workspace_spec {
    char *path; /* NULL: no workspace */
    char *size, *storage_class;
    enum reclaim reclaim;
} workspace_spec;

typedef struct network_spec {
    enum egress egress;
    char **cidrs;
    bool dns;
} network_spec;

typedef struct pod_overrides {
    char **node_selector, **labels, **annotations; /* NAME=value */
    json_t *tolerations, *affinity, *spread;       /* as received, or NULL */
    char *priority_class;
} pod_overrides;

typedef struct template_spec {
    char *image, *idle_image, *runtime_class;
    enum template_profile profile;
    struct {
        resource_set requests, limits;
    } resources;
    env_pair *env;
    size_t nenv;
    workspace_spec workspace;
    network_spec network;
    struct {
        char *startup, *idle, *max; /* durations */
    } timeouts;
    struct {
        char **allow;
        bool require_digest;
        char *pull_secret;
    } image_policy;
    pod_overrides overrides;
    char **namespaces;
    /* filled by the check */
    uint64_t startup_ms, idle_ms, max_ms;
    uint64_t cpu_milli, memory, storage; /* the limits */
    uint64_t storage_asked;
} template_spec;

typedef struct crd_template {
    object_meta meta;
    template_spec spec;
    struct {
        uint64_t observed;
        char *hash, *image_digest;
        uint64_t pools;
        condition *conditions;
        size_t nconditions;
    } status;
    /* as in the API server; NULL: none. A status is written only if it differs from this */
    json_t *status_json;
} crd_template;

err *crd_template_decode(const json_t *j, crd_template *ret_template) ERR_MUST;
/* Checks the rules that a schema cannot express, and fills in the numbers. */
err *crd_template_check(crd_template *t) ERR_MUST;
/* Checks that a sandbox of an anyImage pool may run the image. */
err *template_image_check(const template_spec *t, const char *image) ERR_MUST;
bool template_allows_namespace(const template_spec *t, const char *namespace);
void crd_template_done(crd_template *t);

/* ---- SandboxPool ---- */

typedef struct autoscale_spec {
    uint32_t min, max, headroom_s;
    char *idle_after;
    uint64_t idle_after_ms;
} autoscale_spec;

enum update_strategy {
    UPDATE_ROLLING,
    UPDATE_ON_REPLENISH
};

typedef struct pool_spec {
    char *template, *tenant;
    uint32_t replicas;
    uint32_t max_sandboxes; /* 0: no cap */
    bool any_image;
    bool has_autoscale;
    autoscale_spec autoscale;
    struct {
        enum update_strategy strategy;
        char *max_unavailable;
    } update;
    struct {
        char **images;
        bool everywhere;
    } pre_pull;
    char *record_after, *drain_after;
    uint64_t record_after_ms;
    uint64_t drain_after_ms; /* 0: never */
    bool protect_claimed;
    /* Another field manager that set replicas through the scale subresource; NULL: none. */
    char *scaled_by;
} pool_spec;

typedef struct crd_pool {
    object_meta meta;
    pool_spec spec;
    struct {
        uint64_t observed;
        condition *conditions;
        size_t nconditions;
    } status;
    json_t *status_json;
} crd_pool;

err *crd_pool_decode(const json_t *j, crd_pool *ret_pool) ERR_MUST;
err *crd_pool_check(crd_pool *p) ERR_MUST;
bool pool_serves(const pool_spec *p, const char *owner); /* owner NULL: unknown */
/* Checks that sandboxes of this owner in this namespace may have pods of the template, and of the
 * pool (NULL: of none). ERR_FORBIDDEN: the err's kind is the reason for the condition. */
err *template_grant_check(const crd_template *t, const crd_pool *p, const char *namespace,
                          const char *owner) ERR_MUST;
/* Returns how many of `of` pods may be missing during a roll; at least 1. */
uint32_t pool_max_unavailable(const pool_spec *p, uint32_t of);
void crd_pool_done(crd_pool *p);

/* ---- Sandbox ---- */

enum sandbox_phase {
    PHASE_NONE, /* not reconciled yet */
    PHASE_PENDING,
    PHASE_ARMING,
    PHASE_RUNNING,
    PHASE_HIBERNATING,
    PHASE_HIBERNATED,
    PHASE_RESUMING,
    PHASE_TERMINATED,
    PHASES
};
extern const char *const PHASE_NAMES[PHASES];

typedef struct secret_source {
    char *name; /* of a Secret in the sandbox's namespace */
} secret_source;

enum desired_state {
    DESIRED_RUNNING,
    DESIRED_HIBERNATED
};

typedef struct crd_sandbox {
    object_meta meta;
    struct {
        char *pool, *template, *image, *tenant;
        enum desired_state desired;
        char *expires;
        uint64_t expires_ns; /* 0: absent */
        bool has_idle;
        uint32_t idle_s;
        struct secret_source *secrets;
        size_t nsecrets;
        bool has_egress; /* if false, the template's counts */
        enum egress egress;
        char **labels; /* NAME=value */
    } spec;
    struct {
        uint64_t observed, epoch;
        enum sandbox_phase phase;
        char *id, *pod, *pod_uid, *node, *class, *volume;
        char *claimed, *active, *expires;
        uint64_t claimed_ns, active_ns, expires_ns;
        struct {
            char *code, *message, *at;
            int32_t exit_code;
            uint64_t at_ns;
        } cause;
        condition *conditions;
        size_t nconditions;
    } status;
    json_t *status_json;
} crd_sandbox;

err *crd_sandbox_decode(const json_t *j, crd_sandbox *ret_sandbox) ERR_MUST;
err *crd_sandbox_check(const crd_sandbox *s) ERR_MUST;
void crd_sandbox_done(crd_sandbox *s);

/* ---- pods ---- */

enum pod_phase {
    POD_PENDING,
    POD_RUNNING,
    POD_SUCCEEDED,
    POD_FAILED,
    POD_LOST /* Unknown: its node does not answer */
};

typedef struct pod_view {
    object_meta meta;
    char *node, *image, *image_id;
    char *volume; /* claim name of its workspace, or NULL */
    enum pod_phase phase;
    char *reason, *message; /* status.reason: Evicted, NodeLost, …; or NULL */
    bool started;           /* the sandbox container is running */
    bool unschedulable;
    char *unschedulable_why;
    uint64_t unschedulable_ns; /* since when */
    /* Why a container does not start: ErrImagePull, CreateContainerConfigError, … */
    char *waiting, *waiting_message;
    bool has_end; /* the sandbox container's last end */
    int32_t exit_code;
    char *end_reason; /* OOMKilled, Error, Completed, … */
    uint32_t restarts;
} pod_view;

err *pod_view_decode(const json_t *j, pod_view *ret_pod) ERR_MUST;
void pod_view_done(pod_view *p);
const char *pod_label(const pod_view *p, const char *name); /* NULL: it has no such label */
/* Returns whether the pod's labels say that it is claimed. */
bool pod_is_claimed(const pod_view *p);

#define SANDBOX_CONTAINER "sandbox"

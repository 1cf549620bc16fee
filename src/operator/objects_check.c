/* Checks the rules of the operator's objects that a schema cannot express. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "operator/names.h"
#include "operator/objects.h"
#include "operator/text.h"

#define PARTS_MAX       (64u << 10) /* of podOverrides, as JSON */
#define MAX_MS_MAX      (UINT64_C(30) * 86400 * 1000)
#define STARTUP_MS_MAX  (UINT64_C(3600) * 1000)
#define DEFAULT_CPU     1000
#define DEFAULT_MEMORY  (UINT64_C(1) << 30)
#define TOLERATIONS_MAX 16
#define SPREAD_MAX      8

static err *objects_check_wrong(const char *member, const char *what)
{
    return err_new(ERR_INVALID_REQUEST, "%s %s", member, what);
}

static err *objects_check_duration(const char *text, const char *member, uint64_t max,
                                   uint64_t *ret_ms)
{
    if (!str_to_duration_ms(text, ret_ms))
        return objects_check_wrong(member, "is not a duration like 30s, 5m, 1h");
    if (*ret_ms > max)
        return objects_check_wrong(member, "is too long");
    return NULL;
}

/* ---- templates ---- */

static err *objects_check_quantity(const char *text, const char *member, bool milli,
                                   uint64_t *value)
{
    if (!text)
        return NULL;
    if (!(milli ? quantity_to_milli(text, value) : quantity_to_units(text, value)) || !*value)
        return objects_check_wrong(member, "is not a quantity like 250m, 1, 64Mi");
    return NULL;
}

static err *resources_check(template_spec *t)
{
    const resource_set *r = &t->resources.requests, *l = &t->resources.limits;
    uint64_t cpu = 0, memory = 0;

    t->cpu_milli = DEFAULT_CPU;
    t->memory = DEFAULT_MEMORY;
    TRY(objects_check_quantity(l->cpu, "resources.limits.cpu", true, &t->cpu_milli));
    TRY(objects_check_quantity(l->memory, "resources.limits.memory", false, &t->memory));
    TRY(objects_check_quantity(l->storage, "resources.limits.ephemeral-storage", false,
                               &t->storage));
    TRY(objects_check_quantity(r->cpu, "resources.requests.cpu", true, &cpu));
    TRY(objects_check_quantity(r->memory, "resources.requests.memory", false, &memory));
    TRY(objects_check_quantity(r->storage, "resources.requests.ephemeral-storage", false,
                               &t->storage_asked));
    if (cpu > t->cpu_milli || memory > t->memory || (t->storage && t->storage_asked > t->storage))
        return objects_check_wrong("resources.requests", "are above the limits");
    return NULL;
}

/* Paths where no volume may be mounted, as the sandbox itself depends on them. */
static const char *const TAKEN[] = {"/", "/.bothy", "/proc", "/sys", "/dev"};

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);

    return !strncmp(path, top, n) && (!path[n] || path[n] == '/');
}

static err *workspace_check(const workspace_spec *w)
{
    uint64_t size;

    if (!w->path)
        return NULL;
    size_t n = strlen(w->path);
    if (*w->path != '/' || (n > 1 && w->path[n - 1] == '/') || strstr(w->path, "//") ||
        strstr(w->path, "/./") || strstr(w->path, "..") || strchr(w->path, ':'))
        return objects_check_wrong("workspace.mountPath",
                                   "must be an absolute path without '..' and ':'");
    for (size_t i = 0; i < ARRAY_LEN(TAKEN); i++)
        if (!strcmp(w->path, TAKEN[i]) || (i && is_below(w->path, TAKEN[i])))
            return objects_check_wrong("workspace.mountPath",
                                       "is where a sandbox has something of its own");
    return objects_check_quantity(w->size, "workspace.size", false, &size);
}

static err *network_check(const network_spec *n)
{
    bool v6;

    if (n->cidrs && *n->cidrs && n->egress != EGRESS_LIST)
        return objects_check_wrong("network.allowCIDRs", "counts with egress List only");
    for (size_t i = 0; n->cidrs && n->cidrs[i]; i++)
        if (!cidr_valid(n->cidrs[i], &v6))
            return err_new(ERR_INVALID_REQUEST, "network.allowCIDRs[%zu] is not an address/bits",
                           i);
    return NULL;
}

static err *part_check(const json_t *j, bool array, size_t max, const char *member)
{
    if (!j)
        return NULL;
    if (array ? !json_is_array(j) : !json_is_object(j))
        return objects_check_wrong(member, array ? "must be an array" : "must be an object");
    if (array && json_array_size(j) > max)
        return objects_check_wrong(member, "has too many items");
    return json_dumpb(j, NULL, 0, JSON_COMPACT) > PARTS_MAX
               ? objects_check_wrong(member, "is too large")
               : NULL;
}

static err *overrides_check(const pod_overrides *o)
{
    TRY(labels_check(o->labels, "podOverrides.labels"));
    TRY(annotations_check(o->annotations, "podOverrides.annotations"));
    TRY(part_check(o->tolerations, true, TOLERATIONS_MAX, "podOverrides.tolerations"));
    TRY(part_check(o->affinity, false, 0, "podOverrides.affinity"));
    return part_check(o->spread, true, SPREAD_MAX, "podOverrides.topologySpreadConstraints");
}

static err *env_check(const env_pair *env, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *name = env[i].name;
        if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") !=
                strlen(name) ||
            (*name >= '0' && *name <= '9'))
            return err_new(ERR_INVALID_REQUEST, "env[%zu].name is not a name of a variable", i);
    }
    return NULL;
}

err *crd_template_check(crd_template *t)
{
    template_spec *s = &t->spec;

    TRY(resources_check(s));
    TRY(env_check(s->env, s->nenv));
    TRY(workspace_check(&s->workspace));
    TRY(network_check(&s->network));
    TRY(objects_check_duration(s->timeouts.startup, "timeouts.startup", STARTUP_MS_MAX,
                               &s->startup_ms));
    TRY(objects_check_duration(s->timeouts.idle, "timeouts.idle", MAX_MS_MAX, &s->idle_ms));
    TRY(objects_check_duration(s->timeouts.max, "timeouts.max", MAX_MS_MAX, &s->max_ms));
    if (!s->max_ms)
        return objects_check_wrong("timeouts.max", "must be above 0: nothing lives for ever");
    if (!s->startup_ms)
        return objects_check_wrong("timeouts.startup", "must be above 0");
    return overrides_check(&s->overrides);
}

err *template_image_check(const template_spec *t, const char *image)
{
    bool allowed = !strcmp(image, t->image);

    if (t->image_policy.require_digest && !strstr(image, "@sha256:"))
        return err_new(ERR_FORBIDDEN, "the template takes images by digest only");
    /* Without FNM_PATHNAME one star covers an organisation and its repositories. */
    for (size_t i = 0; !allowed && t->image_policy.allow && t->image_policy.allow[i]; i++)
        allowed = !fnmatch(t->image_policy.allow[i], image, FNM_NOESCAPE);
    return allowed
               ? NULL
               : err_new(ERR_FORBIDDEN, "the template does not allow the image '%.256s'", image);
}

bool template_allows_namespace(const template_spec *t, const char *namespace)
{
    if (!t->namespaces || !*t->namespaces)
        return true;
    for (size_t i = 0; t->namespaces[i]; i++)
        if (!strcmp(t->namespaces[i], namespace))
            return true;
    return false;
}

/* ---- pools ---- */

static bool objects_check_percent(const char *text, uint64_t *ret_percent)
{
    CLEANUP(freep) char *number = xstrdup(text);
    size_t n = strlen(number);

    if (!n || number[n - 1] != '%')
        return false;
    number[n - 1] = 0;
    return str_to_u64(number, 100, ret_percent);
}

uint32_t pool_max_unavailable(const pool_spec *p, uint32_t of)
{
    const char *text = str_or(p->update.max_unavailable, "20%");
    uint64_t n = 0;

    if (objects_check_percent(text, &n))
        n = of * n / 100;
    else if (!str_to_u64(text, OBJECT_REPLICAS_MAX, &n))
        n = 1;
    return n ? (uint32_t)n : 1;
}

bool pool_serves(const pool_spec *p, const char *owner)
{
    return !p->tenant || !*p->tenant || str_eq(p->tenant, owner);
}

err *template_grant_check(const crd_template *t, const crd_pool *p, const char *namespace,
                          const char *owner)
{
    if (!template_allows_namespace(&t->spec, namespace))
        return err_remedy(
            err_kind(err_new(ERR_FORBIDDEN, "the template '%s' is not for the namespace '%s'",
                             str_or(t->meta.name, ""), namespace),
                     "NamespaceNotAllowed"),
            "Name another template, or let an administrator add the namespace to its "
            "allowedNamespaces.");
    if (p && !pool_serves(&p->spec, owner))
        return err_remedy(err_kind(err_new(ERR_FORBIDDEN, "the pool '%s' serves the tenant '%s'",
                                           str_or(p->meta.name, ""), p->spec.tenant),
                                   "TenantNotAllowed"),
                          "Name a pool of the sandbox's own tenant, or one without a tenant.");
    return NULL;
}

err *crd_pool_check(crd_pool *p)
{
    pool_spec *s = &p->spec;
    uint64_t n;

    if (!objects_check_percent(s->update.max_unavailable, &n) &&
        !str_to_u64(s->update.max_unavailable, OBJECT_REPLICAS_MAX, &n))
        return objects_check_wrong("update.maxUnavailable", "is not a number and not a percentage");
    TRY(objects_check_duration(s->record_after, "recordAfter", MAX_MS_MAX, &s->record_after_ms));
    TRY(objects_check_duration(s->drain_after, "disruption.drainAfter", MAX_MS_MAX,
                               &s->drain_after_ms));
    if (!s->has_autoscale)
        return NULL;
    TRY(objects_check_duration(s->autoscale.idle_after, "autoscale.idleAfter", MAX_MS_MAX,
                               &s->autoscale.idle_after_ms));
    return s->autoscale.min > s->autoscale.max
               ? objects_check_wrong("autoscale.min", "is above its max")
               : NULL;
}

/* ---- sandboxes ---- */

err *crd_sandbox_check(const crd_sandbox *s)
{
    bool pool = s->spec.pool && *s->spec.pool, template = s->spec.template && *s->spec.template;

    if (pool && template)
        return objects_check_wrong("spec",
                                   "has both poolRef and templateRef: one of them is enough");
    if (!pool && !template && !(s->spec.image && *s->spec.image))
        return objects_check_wrong("spec", "must have a poolRef, a templateRef or an image");
    if (s->spec.expires && !s->spec.expires_ns)
        return objects_check_wrong("expiresAt", "is not a time");
    if (s->spec.has_egress && s->spec.egress != EGRESS_NONE)
        return objects_check_wrong("network.egress",
                                   "may only be None here: a sandbox narrows its template");
    for (size_t i = 0; s->spec.labels && s->spec.labels[i]; i++)
        if (name_is_reserved(s->spec.labels[i]))
            return err_new(ERR_INVALID_REQUEST, "labels: '%.128s' is bothy's own",
                           s->spec.labels[i]);
    return NULL;
}

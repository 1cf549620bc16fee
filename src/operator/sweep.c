/* Cleans up once a minute: deletes unneeded NetworkPolicies and volumes, and enqueues
 * sandboxes that have no object yet. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "operator/operator_internal.h"

static err *sweep_list(kube_operator *op, const char *api, const char *plural, json_t **ret)
{
    CLEANUP(freep) char *path = op_path(op, api, plural, NULL, NULL);
    CLEANUP(freep)
    char *query = str_printf("%s?labelSelector=" OPERATOR_GROUP "%%2Fcell%%3D%s", path, op->cell);

    return op->o.api->get(op->o.api_arg, query, ret);
}

/* ---- walls ---- */

static bool is_hash_of_pool(kube_operator *op, const seen *pool, const char *hash)
{
    const seen *t = op_find_name_locked(op, OPERATOR_TEMPLATE, pool->pool.spec.template);
    char is[HASH_TEXT_LEN + 1];

    if (!t || t->error)
        return false;
    template_hash(&t->template, pool->pool.spec.any_image, &op->manifest, is);
    return !strcmp(is, hash);
}

/* Returns whether the hash is that of a sandbox with a pod of its own, now or after a resume. */
static bool is_hash_of_sandbox(kube_operator *op, const seen *s, const char *hash)
{
    const seen *p = op_find_name_locked(op, OPERATOR_POOL, s->sandbox.spec.pool);
    const char *name = p ? p->pool.spec.template : s->sandbox.spec.template;
    const seen *t = op_find_name_locked(op, OPERATOR_TEMPLATE, name);
    char is[HASH_TEXT_LEN + 1];

    if (!t || t->error || s->sandbox.status.phase == PHASE_TERMINATED)
        return false;
    template_hash(&t->template, false, &op->manifest, is);
    return !strcmp(is, hash);
}

/* Returns whether a pod has the hash, or may get it. */
static bool is_hash_needed(kube_operator *op, const char *hash)
{
    LOCK_SCOPE(&op->lock);
    map_iter it = {0};

    if (index_find(&op->index, PODS_BY_HASH, hash)->n)
        return true;
    while (map_next(&op->objects[OPERATOR_POOL], &it))
        if (is_hash_of_pool(op, it.entry->value, hash))
            return true;
    it = (map_iter){0};
    while (map_next(&op->objects[OPERATOR_SANDBOX], &it))
        if (is_hash_of_sandbox(op, it.entry->value, hash))
            return true;
    return false;
}

/* Returns the policy as it is in the list; NULL if it is missing. Lock held. */
static const json_t *wall_of(const json_t *all, const json_t *wanted)
{
    const char *name = json_str(json_object_get(wanted, "metadata"), "name");
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(all, "items"), i, item)
    {
        if (str_eq(json_str(json_object_get(item, "metadata"), "name"), name))
            return item;
    }
    return NULL;
}

/* Returns whether the pool's policy is intact. A policy that is to be written
 * anyway counts as intact. Lock held. */
static bool has_wall(kube_operator *op, const seen *pool, const pool_track *track,
                     const json_t *all)
{
    const seen *t = op_find_name_locked(op, OPERATOR_TEMPLATE, pool->pool.spec.template);
    char hash[HASH_TEXT_LEN + 1], applied[HASH_TEXT_LEN + 1];

    if (!t || t->error)
        return true;
    template_hash(&t->template, pool->pool.spec.any_image, &op->manifest, hash);
    op_applied_of(&pool->pool, hash, applied);
    if (strcmp(applied, track->applied) != 0)
        return true;
    CLEANUP(json_decrefp)
    json_t *wanted = manifest_network(&t->template, &op->manifest, op->namespace, hash);
    return network_is(wall_of(all, wanted), wanted);
}

/* Enqueues pools whose policy a user deleted or changed. The policy does not count as
 * built until it is written again. */
static void mend_walls(kube_operator *op, const json_t *all)
{
    LOCK_SCOPE(&op->lock);
    map_iter it = {0};

    while (map_next(&op->objects[OPERATOR_POOL], &it)) {
        const seen *s = it.entry->value;
        if (s->error || s->pool.meta.deleting_ns)
            continue;
        pool_track *t = op_pool_track(op, s->uid);
        if (has_wall(op, s, t, all))
            continue;
        *t->applied = 0;
        op_add_locked(op, op_now(op), "pool/%s", s->uid);
        log_warn("operator", "pool %s: its NetworkPolicy was changed by somebody else", s->name);
    }
}

static err *sweep_walls(kube_operator *op)
{
    static const char API[] = "apis/networking.k8s.io/v1", PLURAL[] = "networkpolicies";
    CLEANUP(json_decrefp) json_t *all = NULL;
    const json_t *item;
    size_t i;

    TRY(sweep_list(op, API, PLURAL, &all));
    mend_walls(op, all);
    json_array_foreach(json_object_get(all, "items"), i, item)
    {
        const json_t *m = json_object_get(item, "metadata");
        const char *hash = json_str(json_object_get(m, "labels"), LABEL_TEMPLATE_HASH);
        const char *name = json_str(m, "name"), *uid = json_str(m, "uid");
        if (!hash || !name || !uid || is_hash_needed(op, hash))
            continue;
        CLEANUP(freep) char *path = op_path(op, API, PLURAL, name, NULL);
        TRY(op_remove(op, path, uid));
    }
    return NULL;
}

/* ---- volumes ---- */

static bool is_volume_named(kube_operator *op, const char *name)
{
    LOCK_SCOPE(&op->lock);

    return index_find(&op->index, PODS_BY_VOLUME, name)->n ||
           index_find(&op->index, SANDBOXES_BY_VOLUME, name)->n;
}

/* Returns for how long no object has named the volume, in ns. */
static uint64_t unnamed_for(kube_operator *op, const char *name)
{
    bool named = is_volume_named(op, name);
    LOCK_SCOPE(&op->lock);
    uint64_t now = op_now(op), *since = map_get_str(&op->idle_disks, name);

    if (named) {
        free(map_take_str(&op->idle_disks, name));
        return 0;
    }
    if (!since) {
        since = xcalloc(1, sizeof *since);
        *since = now;
        map_put_str(&op->idle_disks, name, since);
    }
    return now - *since;
}

/* Deletes volumes that no pod or Sandbox has named for ORPHAN_DISK_NS. The delay is needed because
 * a volume is made before its pod. A volume that its template retains is named by its Sandbox, and
 * when that is forgotten, the volume has lost the operator's labels. */
static err *sweep_volumes(kube_operator *op)
{
    CLEANUP(json_decrefp) json_t *all = NULL;
    const json_t *item;
    size_t i;

    TRY(sweep_list(op, API_CORE, "persistentvolumeclaims", &all));
    json_array_foreach(json_object_get(all, "items"), i, item)
    {
        const json_t *m = json_object_get(item, "metadata");
        const char *name = json_str(m, "name"), *uid = json_str(m, "uid");
        if (!name || !uid || unnamed_for(op, name) <= ORPHAN_DISK_NS)
            continue;
        CLEANUP(freep) char *path = op_path(op, API_CORE, "persistentvolumeclaims", name, NULL);
        TRY(op_remove(op, path, uid));
        log_info("operator", "volume %s goes: nobody names it", name);
    }
    return NULL;
}

/* ---- records ---- */

static void sweep_records(kube_operator *op)
{
    char(*ids)[SANDBOX_ID_LEN + 1] = NULL;
    size_t n = op->o.records ? op->o.host->list(op->o.host_arg, &ids) : 0;
    LOCK_SCOPE(&op->lock);

    for (size_t i = 0; i < n; i++)
        if (!map_get_str(&op->by_id, ids[i]))
            op_add_locked(op, op_now(op), "record/%s", ids[i]);
    free(ids);
}

/* Enqueues ended Sandboxes when there are many: their last reconcile
 * planned to keep them for an hour. */
static void sweep_ended(kube_operator *op)
{
    LOCK_SCOPE(&op->lock);
    map_iter it = {0};

    while (op_is_crowded(op) && map_next(&op->objects[OPERATOR_SANDBOX], &it)) {
        const seen *s = it.entry->value;
        if (!s->error && s->sandbox.status.phase == PHASE_TERMINATED)
            op_add_locked(op, op_now(op), "sandbox/%s", s->uid);
    }
}

err *reconcile_sweep(kube_operator *op, const char *what, uint64_t *again)
{
    (void)what;
    *again = op_now(op) + SWEEP_NS;
    sweep_records(op);
    sweep_ended(op);
    TRY(sweep_walls(op));
    return sweep_volumes(op);
}

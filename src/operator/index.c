#include "operator/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "operator/operator_internal.h"

/* ---- keys of an object; NULL: it has none ---- */

static const char *key_name(const seen *s)
{
    return s->name;
}

static const char *key_label(const seen *s)
{
    return s->label;
}

static const char *key_pool_template(const seen *s)
{
    return s->pool.spec.template;
}

static const char *key_sandbox_template(const seen *s)
{
    return s->sandbox.spec.template;
}

static const char *key_waiting(const seen *s)
{
    return s->sandbox.status.id ? NULL : s->sandbox.spec.pool;
}

static const char *key_sandbox_volume(const seen *s)
{
    return s->sandbox.status.volume;
}

static const char *key_pod_pool(const seen *s)
{
    return pod_label(&s->pod, LABEL_POOL);
}

static const char *key_pod_sandbox(const seen *s)
{
    return pod_label(&s->pod, LABEL_SANDBOX);
}

static const char *key_pod_node(const seen *s)
{
    return s->pod.node;
}

static const char *key_pod_hash(const seen *s)
{
    return pod_label(&s->pod, LABEL_TEMPLATE_HASH);
}

static const char *key_pod_volume(const seen *s)
{
    return s->pod.volume;
}

static const struct {
    enum operator_kind kind;
    const char *(*key)(const seen *s);
} KEYS[INDEXES] = {
    [TEMPLATES_BY_NAME] = {OPERATOR_TEMPLATE, key_name},
    [POOLS_BY_NAME] = {OPERATOR_POOL, key_name},
    [POOLS_BY_LABEL] = {OPERATOR_POOL, key_label},
    [POOLS_BY_TEMPLATE] = {OPERATOR_POOL, key_pool_template},
    [SANDBOXES_BY_TEMPLATE] = {OPERATOR_SANDBOX, key_sandbox_template},
    [SANDBOXES_WAITING] = {OPERATOR_SANDBOX, key_waiting},
    [SANDBOXES_BY_VOLUME] = {OPERATOR_SANDBOX, key_sandbox_volume},
    [PODS_BY_POOL] = {OPERATOR_POD, key_pod_pool},
    [PODS_BY_SANDBOX] = {OPERATOR_POD, key_pod_sandbox},
    [PODS_BY_NODE] = {OPERATOR_POD, key_pod_node},
    [PODS_BY_HASH] = {OPERATOR_POD, key_pod_hash},
    [PODS_BY_VOLUME] = {OPERATOR_POD, key_pod_volume},
    [NODES_BY_NAME] = {OPERATOR_NODE, key_name},
};

/* Returns an object's key for an index. A pod that cannot be read has
 * no labels that could be trusted. */
static const char *key_of(const seen *s, int by)
{
    if (KEYS[by].kind != s->kind || (s->kind == OPERATOR_POD && s->error))
        return NULL;
    const char *key = KEYS[by].key(s);
    return key && *key ? key : NULL;
}

/* ---- lists ---- */

static void list_put(map *m, const char *key, seen *s, int by)
{
    seen_list *l = map_get_str(m, key);

    if (!l) {
        l = xcalloc(1, sizeof *l);
        map_put_str(m, key, l);
    }
    if (l->n == l->room) {
        l->room = l->room ? l->room * 2 : 1;
        l->v = xrealloc(l->v, l->room * sizeof(void *));
    }
    s->at[by] = (uint32_t)l->n;
    l->v[l->n++] = s;
}

static void list_free(seen_list *l)
{
    free(l->v);
    free(l);
}

static void list_take(map *m, const char *key, const seen *s, int by)
{
    seen_list *l = map_get_str(m, key);
    uint32_t at = s->at[by];

    l->v[at] = l->v[--l->n];
    l->v[at]->at[by] = at;
    if (!l->n)
        list_free(map_take_str(m, key));
}

void index_put(seen_index *x, seen *s)
{
    for (int by = 0; by < INDEXES; by++) {
        const char *key = key_of(s, by);
        if (key)
            list_put(&x->by[by], key, s, by);
    }
}

void index_take(seen_index *x, seen *s)
{
    for (int by = 0; s && by < INDEXES; by++) {
        const char *key = key_of(s, by);
        if (key)
            list_take(&x->by[by], key, s, by);
    }
}

void index_done(seen_index *x)
{
    for (int by = 0; by < INDEXES; by++) {
        map_iter it = {0};
        while (map_next(&x->by[by], &it))
            list_free(it.entry->value);
        map_done(&x->by[by]);
    }
}

const seen_list *index_find(const seen_index *x, enum index_by by, const char *key)
{
    static const seen_list NONE = {0};
    const seen_list *l = key && *key ? map_get_str(&x->by[by], key) : NULL;

    return l ? l : &NONE;
}

/* Background calls to the API server: deletions and records of claims. Each is retried until it
 * succeeds or is refused, and never made without the cell's lease. */
#include <string.h>

#include "backend/kubernetes/internal.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

#define AGAIN_NS     (NS_PER_S / 4)
#define AGAIN_MAX_NS (10 * NS_PER_S)
#define TICK_NS      (NS_PER_S / 2)

work *work_new(void (*run)(kubernetes *b, work *w))
{
    work *w = xcalloc(1, sizeof *w);

    w->run = run;
    return w;
}

void work_free(work *w)
{
    free(w->name);
    free(w->uid);
    free(w->id);
    free(w->text);
    json_decref(w->json);
    err_free(w->failure);
    free(w);
}

void work_add(kubernetes *b, work *w)
{
    work **at = &b->queue;

    while (*at && (*at)->due_ns <= w->due_ns)
        at = &(*at)->next;
    w->next = *at;
    *at = w;
    b->nqueue++;
    pthread_cond_broadcast(&b->changed);
}

void work_again(kubernetes *b, work *w, const err *why)
{
    uint64_t wait = AGAIN_NS << (w->tries < 6 ? w->tries : 6);
    uint64_t asked = why ? (uint64_t)why->retry_after * NS_PER_S : 0;

    wait = wait < AGAIN_MAX_NS ? wait : AGAIN_MAX_NS;
    w->tries++;
    w->due_ns = now_mono_ns() + (asked > wait ? asked : wait);
    LOCK_SCOPE(&b->lock);
    work_add(b, w);
}

bool kubernetes_fenced(kubernetes *b, err **ret_why)
{
    if (!b->lease || kube_lease_held(b->lease, NULL))
        return false;
    if (ret_why) {
        CLEANUP(freep) char *holder = kube_lease_holder(b->lease);
        *ret_why = err_because(
            err_new(ERR_UNAVAILABLE, "this bothyd does not hold the lease of cell %s", b->cell),
            holder ? "%s holds it" : "the API server was not reached in time%.0s",
            str_or(holder, ""));
    }
    return true;
}

/* ---- the record of a claim ---- */

static json_t *claim_note(const work *w)
{
    CLEANUP(json_decrefp)
    json_t *note = json_pack("{s:s, s:s}", "sandbox", w->id, "class", w->text);
    char *text = json_dumps(note, JSON_COMPACT);
    json_t *s = json_string(text);

    free(text);
    return s;
}

/* Records a claim. The uid in the patch keeps it from a later pod of the same name. */
static void run_mark(kubernetes *b, work *w)
{
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, b->ns, w->name, NULL);
    CLEANUP(json_decrefp)
    json_t *patch = json_pack("{s:{s:s, s:{s:s, s:s}, s:{s:s, s:o}}}", "metadata", "uid", w->uid,
                              "labels", POD_STATE, POD_CLAIMED, POD_SANDBOX, w->id, "annotations",
                              POD_EVICT, "false", POD_CLAIM, claim_note(w));
    CLEANUP(err_freep)
    err *e = kubernetes_fenced(b, NULL) ? err_new(ERR_UNAVAILABLE, "fenced")
                                        : kube_patch(b->k, path, KUBE_PATCH_MERGE, patch, NULL);

    if (e && e->retryable) {
        work_again(b, w, e);
        return;
    }
    if (e && e->code != ERR_NOT_FOUND && e->code != ERR_CONFLICT)
        log_error("kubernetes", "the claim of pod %s by %s is not recorded: %s: %s", w->name, w->id,
                  e->message, str_or(e->cause, "-"));
    FAULT_KILL("kubernetes.marked");
    if (!e) {
        LOCK_SCOPE(&b->lock);
        pod *p = pods_by_uid(b, w->uid);
        if (p)
            p->marked = true;
    }
    work_free(w);
}

void work_mark(kubernetes *b, const pod *p)
{
    work *w = work_new(run_mark);

    w->name = xstrdup(p->f.name);
    w->uid = xstrdup(p->f.uid);
    w->id = xstrdup(p->id);
    w->text = xstrdup(str_or(p->klass, BOX_EXACT));
    work_add(b, w);
}

/* ---- deletions ---- */

static void run_delete(kubernetes *b, work *w)
{
    CLEANUP(freep) char *path = kube_path(&KUBE_PODS, b->ns, w->name, NULL);
    CLEANUP(err_freep)
    err *e = kubernetes_fenced(b, NULL) ? err_new(ERR_UNAVAILABLE, "fenced")
                                        : kube_delete(b->k, path, w->uid, POD_GRACE_S, NULL);

    if (e && e->retryable) {
        work_again(b, w, e);
        return;
    }
    if (e)
        log_error("kubernetes", "pod %s is not deleted: %s: %s", w->name, e->message,
                  str_or(e->cause, "-"));
    work_free(w);
}

void pods_remove(kubernetes *b, pod *p, const char *why)
{
    if (p->going || p->f.deleting)
        return;
    p->going = true;
    log_debug("kubernetes", "pod %s is deleted: %s", p->f.name, why);
    work *w = work_new(run_delete);
    w->name = xstrdup(p->f.name);
    w->uid = xstrdup(p->f.uid);
    work_add(b, w);
}

/* ---- the threads ---- */

/* Deletes pods with an unrecorded claim that were not attached within a minute. */
static void look_for_orphans(kubernetes *b, uint64_t now)
{
    map_iter it = {0};

    while (map_next(&b->pods, &it)) {
        pod *p = it.entry->value;
        if (!p->orphan_ns || now < p->orphan_ns)
            continue;
        p->orphan_ns = 0;
        log_warn("kubernetes", "pod %s was claimed by %s, which nobody knows: it is deleted",
                 p->f.name, *p->id ? p->id : "somebody");
        pods_remove(b, p, "nobody knows its claim");
    }
}

static void work_tick(kubernetes *b, uint64_t *next)
{
    uint64_t now = now_mono_ns();

    if (now < *next)
        return;
    *next = now + TICK_NS;
    requests_expire(b, now);
    if (!b->synced)
        return;
    requests_offer(b);
    look_for_orphans(b, now);
    refill_look(b, now);
}

static work *take_due(kubernetes *b, uint64_t now)
{
    work *w = b->queue;

    if (!w || w->due_ns > now)
        return NULL;
    b->queue = w->next;
    b->nqueue--;
    w->next = NULL;
    return w;
}

void *work_thread(void *arg)
{
    kubernetes *b = arg;
    uint64_t next = 0;

    pthread_mutex_lock(&b->lock);
    while (!b->stop) {
        uint64_t now = now_mono_ns();
        work_tick(b, &next);
        work *w = take_due(b, now);
        if (!w) {
            uint64_t until = b->queue && b->queue->due_ns < next ? b->queue->due_ns : next;
            cond_wait_until(&b->changed, &b->lock, until);
            continue;
        }
        pthread_mutex_unlock(&b->lock);
        w->run(b, w);
        pthread_mutex_lock(&b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

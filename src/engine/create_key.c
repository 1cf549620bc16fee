/* Creates with an idempotency key: all requests with the same key get one sandbox.
 *
 * A second request finds the first one in the map of creates under way, or its row in the store. A
 * row is written after its sandbox became live, and the store refuses a second row with the key: a
 * request that misses both is handed over to the first one when its own row is refused. */
#include <string.h>

#include "base/digest.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

/* Lifetime of a key, however long its sandbox lives. */
#define KEY_LIFE_NS (UINT64_C(24) * 3600 * NS_PER_S)

void idempotency_hash(const char *owner, const char *verb, const char *scope, const idempotency *i,
                      uint8_t ret_key[16], uint8_t ret_body[16])
{
    CLEANUP(buf_done) buf b = {0};
    unsigned char digest[SHA256_LEN];

    /* Lengths are part of it: no two different triples give the same bytes. */
    buf_printf(&b, "%zu:%s %s %s %s", strlen(owner), owner, verb, scope, i->key);
    sha256(b.p, b.len, digest);
    memcpy(ret_key, digest, 16);
    sha256(i->body, i->nbody, digest);
    memcpy(ret_body, digest, 16);
}

void create_forget(sandbox *sb)
{
    engine *e = sb->engine;
    LOCK_SCOPE(&e->lock);

    if (sb->has_key && map_get(&e->creating, sb->key, sizeof sb->key) == sb)
        map_take(&e->creating, sb->key, sizeof sb->key);
}

void create_hand_over(sandbox *first, create_waiter *w)
{
    {
        LOCK_SCOPE(&first->lock);
        for (create_waiter *p = w; p; p = p->next)
            p->replay = true;
        if (first->state == LIFE_CREATING) {
            create_waiter **end = &first->waiters;
            while (*end)
                end = &(*end)->next;
            *end = w;
            return;
        }
    }
    for (create_waiter *next; w; w = next) {
        next = w->next;
        w->done(w->arg, NULL, sandbox_ref(first), true);
        free(w);
    }
}

static err *create_key_mismatch(const char *key)
{
    return err_new(ERR_IDEMPOTENCY_MISMATCH,
                   "the Idempotency-Key '%s' was used with a different request", key);
}

/* Makes a request wait for the create with the same key. Engine's lock held, so that another
 * request sees the first one either here or in the store. */
static err *join_creating(sandbox *sb, const idempotency *i, const uint8_t body[16],
                          create_waiter *w)
{
    LOCK_SCOPE(&sb->lock);

    if (memcmp(sb->body, body, sizeof sb->body) != 0)
        return create_key_mismatch(i->key);
    w->replay = true;
    w->next = sb->waiters;
    sb->waiters = w;
    return NULL;
}

static bool is_over(sandbox *sb)
{
    LOCK_SCOPE(&sb->lock);
    return sb->state == LIFE_GONE;
}

/* Finds the sandbox of this key. body NULL: of any body. After a failed create the store frees its
 * key a moment later; so if a row's sandbox is not alive any more, this flushes the store and reads
 * the row again. */
err *create_find(engine *e, const char *key_text, const uint8_t key[16], const uint8_t body[16],
                 sandbox **ret_sandbox)
{
    for (bool settled = false;; settled = true) {
        CLEANUP(sandbox_row_done) sandbox_row row = {0};
        CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
        err *failure = store_sandbox_by_key(e->o.store, key, &row);
        if (failure && failure->code == ERR_NOT_FOUND) {
            err_free(failure);
            return NULL;
        }
        TRY(failure);
        if (row.created_ns + KEY_LIFE_NS <= clock_real(e->o.clock)) {
            store_sandbox_free_key_queued(e->o.store, row.id);
            return NULL;
        }
        sb = engine_find_live(e, row.id);
        if (!settled && strcmp(row.state, lifecycle_name(LIFE_GONE)) != 0 && (!sb || is_over(sb))) {
            TRY(store_flush(e->o.store));
            continue;
        }
        if (body && memcmp(row.body, body, sizeof row.body) != 0)
            return create_key_mismatch(key_text);
        if (!sb)
            TRY(sandbox_of_row(e, &row, &sb));
        *ret_sandbox = TAKE_PTR(sb);
        return NULL;
    }
}

err *engine_find_by_key(engine *e, const caller *c, const idempotency *idem, sandbox **ret_sandbox)
{
    uint8_t key[16], hash[16];
    const uint8_t *body = idem->body ? hash : NULL;

    *ret_sandbox = NULL;
    idempotency_hash(c->owner, "create", "", idem, key, hash);
    {
        LOCK_SCOPE(&e->lock);
        sandbox *first = map_get(&e->creating, key, sizeof key);
        if (first && body && memcmp(first->body, body, sizeof hash) != 0)
            return create_key_mismatch(idem->key);
        if (first) {
            *ret_sandbox = sandbox_ref(first);
            return NULL;
        }
    }
    return create_find(e, idem->key, key, body, ret_sandbox);
}

err *create_enter(engine *e, sandbox *sb, const idempotency *i, create_waiter *w,
                  enum key_outcome *ret_outcome, sandbox **ret_known)
{
    if (i->key) {
        idempotency_hash(sb->owner, "create", "", i, sb->key, sb->body);
        sb->has_key = true;
        TRY(create_find(e, i->key, sb->key, sb->body, ret_known));
        if (*ret_known) {
            LOCK_SCOPE(&(*ret_known)->lock);
            if ((*ret_known)->state == LIFE_CREATING) {
                w->replay = true;
                w->next = (*ret_known)->waiters;
                (*ret_known)->waiters = w;
                *ret_outcome = KEY_JOINED;
            } else {
                *ret_outcome = KEY_ANSWERED;
            }
            return NULL;
        }
    }
    LOCK_SCOPE(&e->lock);
    if (i->key) {
        sandbox *first = map_get(&e->creating, sb->key, sizeof sb->key);
        if (first) {
            TRY(join_creating(first, i, sb->body, w));
            *ret_outcome = KEY_JOINED;
            return NULL;
        }
        map_put(&e->creating, sb->key, sizeof sb->key, sb);
    }
    sb->waiters = w;
    map_put_str(&e->live, sb->id, sandbox_ref(sb));
    metric_set(&ENGINE_METRICS[M_LIVE], 0, (int64_t)e->live.count);
    *ret_outcome = KEY_NEW;
    return NULL;
}

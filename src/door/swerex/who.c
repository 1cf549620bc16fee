/* Finds the caller of a request and the sandbox it means: an existing one, or one made for a token.
 *
 * The create's idempotency key is made of the token. So clients with the same token get the same
 * sandbox, at the same time or after a restart of bothyd. A closed sandbox has a successor, whose
 * key also names the closed one. */
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/thread.h"
#include "door/shared/admit.h"
#include "door/shared/making.h"
#include "door/swerex/internal.h"

#define CLOSED      "closed through SWE-ReX" /* detail of the cause of a closed sandbox */
#define MADE_MAX    4096u                    /* tokens in the cache; the store knows all */
#define SUCCESSORS  1000u
#define CREATE_HELD (128u << 10)

void rex_who_done(rex_who *w)
{
    rex_token_done(&w->token);
}

/* ---- the caller ---- */

static err *take_caller(request *rq, const char *key)
{
    caller *c = NULL;

    CLEANUP(err_freep) err *e = caller_by_key(rex_engine(rq), key, &c);
    if (e && e->code == ERR_UNAUTHENTICATED)
        return err_new(ERR_UNAUTHENTICATED, "Invalid API Key");
    if (e)
        return TAKE_PTR(e);
    TRY(admit_as(rex_engine(rq), rq, c));
    return caller_require(c, CALLER_USER);
}

static void hash_token(const char *token, char ret_hash[65])
{
    uint8_t digest[SHA256_LEN];

    sha256(token, strlen(token), digest);
    hex_encode(digest, sizeof digest, ret_hash);
}

static err *take_who(request *rq, const rex_path *path, const char *token, rex_who *w)
{
    if (*path->sandbox) {
        TRY(take_caller(rq, token));
        w->token.sandbox = xstrdup(path->sandbox);
        return NULL;
    }
    TRY(rex_token_parse(token, &w->token));
    TRY(take_caller(rq, w->token.key));
    if (!w->token.sandbox)
        hash_token(token, w->hash);
    return NULL;
}

err *rex_admit(request *rq, const rex_path *path, rex_who *ret_who)
{
    const char *token = request_header(rq, "X-API-Key");
    rex_who w = {0};

    if (!token)
        return err_new(ERR_UNAUTHENTICATED, "Not authenticated");
    err *e = take_who(rq, path, token, &w);
    if (e)
        rex_who_done(&w);
    else
        *ret_who = w;
    return e;
}

/* ---- waiting for a create ---- */

typedef struct birth { /* kept by its request, which is served again when the create has ended */
    making *making;
    request_hold *hold;
    making_waiter waiter;
    bool watched;
} birth;

/* Does not cancel the create: a client that disconnected may come back with the same token. */
static void birth_free(void *kept)
{
    birth *b = kept;

    making_unref(b->making);
    request_hold_free(b->hold);
    free(b);
}

static void wait_start(void *ctx, relay_job *job)
{
    birth *b = ctx;

    b->waiter.job = job;
    b->watched = true;
    making_wait(b->making, &b->waiter);
}

static enum relay_next wait_step(void *ctx, relay_io *io)
{
    (void)io;
    return making_ended(((birth *)ctx)->making) ? RELAY_AGAIN : RELAY_WAIT;
}

static void wait_end(void *ctx)
{
    birth *b = ctx;

    if (b->watched)
        making_unwait(b->making, &b->waiter);
    b->watched = false;
}

static const relay_ops WAIT_OPS = {
    .kind = STREAM_WAIT, .again = true, .start = wait_start, .step = wait_step, .free = wait_end};

/* after: the id of the closed predecessor, or "". */
static char *key_of(const rex_who *w, const char *after)
{
    return str_printf("swerex-%s-%s", w->hash, after);
}

static idempotency idempotency_of(const rex_who *w, const char *key)
{
    return (idempotency){.key = key, .body = w->hash, .nbody = strlen(w->hash)};
}

/* ---- the sandbox of a token ---- */

static void who_remember(swerex *d, const char *hash, const char *id)
{
    LOCK_SCOPE(&d->lock);

    if (d->made.count >= MADE_MAX && !map_get_str(&d->made, hash)) {
        map_iter it = {0};
        map_next(&d->made, &it);
        free(map_take(&d->made, it.entry->key, it.entry->len));
    }
    free(map_put_str(&d->made, hash, xstrdup(id)));
}

static char *who_remembered(swerex *d, const char *hash)
{
    LOCK_SCOPE(&d->lock);
    const char *id = map_get_str(&d->made, hash);

    return id ? xstrdup(id) : NULL;
}

/* Returns true if this door has ended it. */
static bool was_closed(sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v = {0};
    CLEANUP(json_decrefp) json_t *why = NULL;

    if (sandbox_state(sb) != LIFE_GONE)
        return false;
    sandbox_get(sb, &v);
    if (v.cause)
        err_free(json_parse(v.cause, strlen(v.cause), &why));
    return str_eq(json_str(why, "detail"), CLOSED);
}

static err *too_often(void)
{
    return err_remedy(err_new(ERR_QUOTA_EXCEEDED, "this token was closed %u times", SUCCESSORS),
                      "Put another n into it.");
}

/* Returns the key of the token's next create, and the sandbox that the store has for this key, if
 * any. Skips closed sandboxes. A sandbox that ended by itself is not replaced silently: its content
 * is lost, and the client has to know. */
static err *find_last(request *rq, const rex_who *w, char **ret_key, sandbox **ret_sandbox)
{
    char after[SANDBOX_ID_LEN + 1] = "";

    for (unsigned n = 0; n < SUCCESSORS; n++) {
        CLEANUP(freep) char *key = key_of(w, after);
        CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
        const idempotency idem = idempotency_of(w, key);
        TRY(engine_find_by_key(rex_engine(rq), rex_caller(rq), &idem, &sb));
        if (!sb || !was_closed(sb)) {
            *ret_key = TAKE_PTR(key);
            *ret_sandbox = TAKE_PTR(sb);
            return NULL;
        }
        str_copy(after, sizeof after, sandbox_id(sb));
    }
    return too_often();
}

static err *find_stored(request *rq, const rex_who *w, sandbox **ret_sandbox)
{
    CLEANUP(freep) char *key = NULL;

    return find_last(rq, w, &key, ret_sandbox);
}

/* Returns the time to live. A token finds its sandbox only while the key of its create is known, so
 * the sandbox must not live longer. */
static uint64_t ttl_of(request *rq, const rex_who *w)
{
    uint64_t most = REX_TTL_MAX_S * UINT64_C(1000), ttl = w->token.ttl_ms;

    if (!ttl)
        ttl = engine_default_ttl(rex_engine(rq), rex_caller(rq));
    return ttl && ttl < most ? ttl : most;
}

static err *swerex_who_begin(request *rq, const rex_who *w)
{
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};
    CLEANUP(sandbox_unrefp) sandbox *last = NULL;
    CLEANUP(freep) char *key = NULL;
    request_hold *hold = NULL;

    TRY(find_last(rq, w, &key, &last));
    TRY(request_hold_new(rq, CREATE_HELD, &hold));
    const idempotency idem = idempotency_of(w, key);
    birth *b = xcalloc(1, sizeof *b);
    b->hold = hold;
    spec.image = xstrdup(w->token.image);
    spec.ttl_ms = ttl_of(rq, w);
    b->making = making_new(rex_engine(rq), rex_caller(rq), &spec, &idem);
    request_keep(rq, b, birth_free);
    return NULL;
}

static err *who_make(request *rq, response *rs, const rex_who *w, sandbox **ret_sandbox)
{
    err *failure = NULL;

    if (!request_kept(rq))
        TRY(swerex_who_begin(rq, w));
    birth *b = request_kept(rq);
    if (!making_look(b->making, ret_sandbox, &failure))
        response_relay(rs, &WAIT_OPS, b);
    else if (!failure)
        who_remember(rex_of(rq), w->hash, sandbox_id(*ret_sandbox));
    return failure;
}

static sandbox *find_remembered(request *rq, const rex_who *w)
{
    CLEANUP(freep) char *id = who_remembered(rex_of(rq), w->hash);
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    if (id)
        err_free(engine_find(rex_engine(rq), rex_caller(rq), id, &sb));
    return sb && !was_closed(sb) ? TAKE_PTR(sb) : NULL;
}

err *rex_find(request *rq, const rex_who *w, sandbox **ret_sandbox)
{
    if (w->token.sandbox)
        return engine_find(rex_engine(rq), rex_caller(rq), w->token.sandbox, ret_sandbox);
    *ret_sandbox = find_remembered(rq, w);
    return *ret_sandbox ? NULL : find_stored(rq, w, ret_sandbox);
}

err *rex_find_or_make(request *rq, response *rs, const rex_who *w, sandbox **ret_sandbox)
{
    if (w->token.sandbox)
        return rex_find(rq, w, ret_sandbox);
    *ret_sandbox = find_remembered(rq, w);
    return *ret_sandbox ? NULL : who_make(rq, rs, w, ret_sandbox);
}

err *rex_unmake(request *rq, const rex_who *w, sandbox *sb)
{
    if (w->token.sandbox)
        return NULL;
    return engine_delete(rex_engine(rq), rex_caller(rq), sb, CAUSE_REQUESTED, CLOSED);
}

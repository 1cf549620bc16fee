/* Callers: keys, peer credentials, and the administration of keys. */
#include <string.h>

#include "base/digest.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/map.h"
#include "base/sock.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/internal.h"

#define KEY_PREFIX "e2b_"

static const char *const ROLES[] = {"nobody", "read", "user", "admin"};

static enum caller_role role_by_name(const char *name)
{
    for (size_t i = 1; i < ARRAY_LEN(ROLES); i++)
        if (!strcmp(ROLES[i], name))
            return (enum caller_role)i;
    return CALLER_NOBODY;
}

static caller *caller_new(char *owned_owner, enum caller_role role)
{
    caller *c = xcalloc(1, sizeof *c);

    *c = (caller){.owner = owned_owner, .role = role};
    return c;
}

void caller_free(caller *c)
{
    if (!c)
        return;
    free(c->owner);
    free(c);
}

static err *caller_refused(void)
{
    return err_new(ERR_UNAUTHENTICATED, "the key is not valid");
}

static _Atomic unsigned *key_removals(engine *e, const char *id)
{
    return &e->keys.removals[hash_bytes(id, strlen(id)) % KEY_REMOVALS];
}

err *caller_by_key(engine *e, const char *key, caller **ret_caller)
{
    unsigned char hash[SHA256_LEN];
    key_row row = {0};

    if (!str_starts(key, KEY_PREFIX) || strlen(key) > 128)
        return caller_refused();
    sha256(key, strlen(key), hash);
    unsigned removed = atomic_load(&e->keys.removed);
    err *failure = store_key_by_hash(e->o.store, hash, &row);
    if (failure && failure->code == ERR_NOT_FOUND) {
        err_free(failure);
        return caller_refused();
    }
    TRY(failure);
    /* A removal between the two reads of `removed` may be counted in `removals` already, although
     * the row was read before it: take one off, so that the next check reads the row again. */
    unsigned removals = atomic_load(key_removals(e, row.id));
    if (atomic_load(&e->keys.removed) != removed)
        removals--;
    bool ok = bytes_equal_ct(hash, row.sha256, sizeof hash) &&
              (!row.expires_ns || row.expires_ns > clock_real(e->o.clock));
    if (ok) {
        caller *c = caller_new(TAKE_PTR(row.owner), role_by_name(row.role));
        memcpy(c->key, row.id, sizeof c->key);
        c->expires_ns = row.expires_ns;
        c->removals = removals;
        c->quota = row.quota;
        *ret_caller = c;
    }
    key_row_done(&row);
    return ok ? NULL : caller_refused();
}

err *caller_by_peer(int socket, gid_t group, caller **ret_caller)
{
    sock_peer peer;

    if (!sock_peer_of(socket, &peer))
        return err_new(ERR_UNAUTHENTICATED, "the peer of the socket is not known");
    if (peer.uid == 0 || peer.uid == geteuid())
        *ret_caller = caller_new(xstrdup("admin"), CALLER_ADMIN);
    else if (group != (gid_t)-1 && sock_peer_in_group(socket, group))
        *ret_caller = caller_new(str_printf("uid:%u", peer.uid), CALLER_USER);
    else
        return err_remedy(err_new(ERR_UNAUTHENTICATED, "uid %u may not use this socket", peer.uid),
                          "Join the group bothy-users, or send a key.");
    return NULL;
}

/* ---- removed keys ---- */

static bool key_is_gone(engine *e, caller *c)
{
    CLEANUP(key_row_done) key_row row = {0};
    unsigned removals = atomic_load(key_removals(e, c->key));

    if (c->removals == removals)
        return false;
    err *failure = store_key_get(e->o.store, c->key, &row);
    bool gone = failure && failure->code == ERR_NOT_FOUND;
    if (!failure) /* else the next call tries again */
        c->removals = removals;
    err_free(failure);
    return gone;
}

bool caller_has_lapsed(engine *e, caller *c)
{
    if (c->expires_ns && c->expires_ns <= clock_real(e->o.clock))
        return true;
    if (c->by_token)
        return engine_key_epoch(e, c->owner) != c->epoch;
    return *c->key && key_is_gone(e, c);
}

/* Lock held. */
static uint64_t epoch_of(const engine *e, const char *owner)
{
    const uint64_t *n = map_get_str(&e->keys.epochs, owner);

    return n ? *n : 0;
}

uint64_t engine_key_epoch(engine *e, const char *owner)
{
    LOCK_SCOPE(&e->keys.lock);

    return epoch_of(e, owner) + epoch_of(e, "");
}

/* Lock held, or before there are threads. */
static void epoch_set(void *arg, const char *owner, uint64_t epoch)
{
    engine *e = arg;
    uint64_t *n = xmalloc(sizeof *n);

    *n = epoch;
    free(map_put_str(&e->keys.epochs, owner, n));
}

/* Raises the epoch in memory, as the store's trigger did in the row. */
static void epoch_raise(engine *e, const key_row *removed)
{
    const char *owner = role_by_name(removed->role) == CALLER_ADMIN ? "" : removed->owner;

    LOCK_SCOPE(&e->keys.lock);
    epoch_set(e, owner, epoch_of(e, owner) + 1);
}

err *keys_open(engine *e)
{
    pthread_mutex_init(&e->keys.lock, NULL);
    return store_epoch_each(e->o.store, epoch_set, e);
}

void keys_close(engine *e)
{
    map_iter it = {0};

    while (map_next(&e->keys.epochs, &it))
        free(it.entry->value);
    map_done(&e->keys.epochs);
    pthread_mutex_destroy(&e->keys.lock);
}

err *caller_require(const caller *c, enum caller_role role)
{
    if (c->role >= role)
        return NULL;
    return err_because(err_new(ERR_FORBIDDEN, "this needs the role %s", ROLES[role]),
                       "the caller '%s' has the role %s", c->owner, ROLES[c->role]);
}

err *engine_key_create(engine *e, const caller *c, const key_request *k, key_row *ret_row,
                       char **ret_secret)
{
    unsigned char raw[20];
    char hex[2 * sizeof raw + 1];

    TRY(caller_require(c, CALLER_ADMIN));
    if (role_by_name(k->role) == CALLER_NOBODY)
        return err_new(ERR_INVALID_REQUEST, "role: '%s' is none of read, user, admin", k->role);
    if (!ascii_visible(k->owner) || strlen(k->owner) > 128)
        return err_new(ERR_INVALID_REQUEST, "owner: 1 to 128 visible ASCII characters");
    random_bytes(raw, sizeof raw);
    hex_encode(raw, sizeof raw, hex);
    CLEANUP(secret_freep) char *secret = str_printf(KEY_PREFIX "%s", hex);
    secret_wipe(raw, sizeof raw);
    secret_wipe(hex, sizeof hex);
    key_row row = {.owner = xstrdup(k->owner),
                   .role = xstrdup(k->role),
                   .note = k->note ? xstrdup(k->note) : NULL,
                   .created_ns = clock_real(e->o.clock),
                   .quota = k->quota};
    id_random(row.id, sizeof row.id - 1);
    sha256(secret, strlen(secret), row.sha256);
    if (k->ttl_ms)
        row.expires_ns = row.created_ns + k->ttl_ms * NS_PER_MS;
    FAULT_KILL("key.made");
    err *failure = store_key_insert(e->o.store, &row);
    FAULT_KILL("key.stored");
    if (failure) {
        key_row_done(&row);
        return failure;
    }
    *ret_row = row;
    *ret_secret = TAKE_PTR(secret);
    return NULL;
}

err *engine_key_list(engine *e, const caller *c, key_row **ret_rows, size_t *ret_n)
{
    TRY(caller_require(c, CALLER_ADMIN));
    return store_key_list(e->o.store, ret_rows, ret_n);
}

err *engine_key_update(engine *e, const caller *c, const char *id, const quota *q, unsigned has,
                       key_row *ret_row)
{
    CLEANUP(key_row_done) key_row row = {0};

    TRY(caller_require(c, CALLER_ADMIN));
    TRY(store_key_get(e->o.store, id, &row));
    if (has & QUOTA_SANDBOXES)
        row.quota.sandboxes = q->sandboxes;
    if (has & QUOTA_CREATES)
        row.quota.creates_milli = q->creates_milli;
    if (has & QUOTA_CREATING)
        row.quota.creating = q->creating;
    if (has & QUOTA_TTL)
        row.quota.ttl_ms = q->ttl_ms;
    TRY(store_key_quota(e->o.store, id, &row.quota));
    *ret_row = row;
    row = (key_row){0};
    return NULL;
}

err *engine_key_remove(engine *e, const caller *c, const char *id)
{
    CLEANUP(key_row_done) key_row row = {0};

    TRY(caller_require(c, CALLER_ADMIN));
    TRY(store_key_get(e->o.store, id, &row));
    TRY(store_key_remove(e->o.store, id));
    epoch_raise(e, &row);
    atomic_fetch_add(&e->keys.removed, 1);
    atomic_fetch_add(key_removals(e, id), 1);
    return NULL;
}

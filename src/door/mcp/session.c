/* Sessions of clients: a name, its sandbox, its running calls.
 *
 * Sessions are in memory only. Their sandboxes outlive bothyd, and carry the session as a label: an
 * unknown session id is accepted if such a sandbox exists. */
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "door/mcp/internal.h"

#define LIST_MAX   100  /* sandboxes that are listed at a time */
#define KNOWN_MAX  4096 /* sessions known at a time; beyond it the owner of most loses its oldest */
#define NAME_BYTES 64
#define LEFT_MAX   32 /* remembered clients that have left a named sandbox */

struct mcp_session {
    _Atomic unsigned refs;
    mcp *door;
    enum mcp_session_kind kind;
    char *key, *owner, *id;
    pthread_mutex_t seating; /* held to look for the session's sandbox: of concurrent calls the
                                first finds or creates it. Before `lock`; request threads only */
    pthread_mutex_t lock;
    making *seat;
    bool ended;
    char left[LEFT_MAX][MCP_ID_LEN + 1]; /* issued ids whose client has ended, a ring */
    unsigned nleft;
    mcp_call *calls;
    _Atomic uint64_t used_ns;
};

static char *key_of(enum mcp_session_kind kind, const char *owner, const char *id)
{
    return str_printf("%d\n%s\n%s", kind, owner, id);
}

static mcp_session *mcp_session_alloc(mcp *d, enum mcp_session_kind kind, const char *owner,
                                      const char *id)
{
    mcp_session *s = xcalloc(1, sizeof *s);

    s->refs = 1;
    s->door = d;
    s->kind = kind;
    s->id = xstrdup(id);
    s->owner = xstrdup(owner);
    s->key = key_of(kind, owner, id);
    pthread_mutex_init(&s->seating, NULL);
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static mcp_session *mcp_session_ref(mcp_session *s)
{
    s->refs++;
    return s;
}

void mcp_session_unref(mcp_session *s)
{
    if (!s || --s->refs)
        return;
    making_unref(s->seat);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->seating);
    free(s->key);
    free(s->owner);
    free(s->id);
    free(s);
}

const char *mcp_session_id(const mcp_session *s)
{
    return s->id;
}

/* ---- the map ---- */

static uintptr_t session_count_locked(mcp *d, const char *owner)
{
    return (uintptr_t)map_get_str(&d->owners, owner);
}

static void session_add_locked(mcp *d, mcp_session *s)
{
    map_put_str(&d->sessions, s->key, s);
    map_put_str(&d->owners, s->owner, (void *)(session_count_locked(d, s->owner) + 1));
}

/* Takes a session out of the map. Returns its reference, or NULL if it is not there. */
static mcp_session *session_take_locked(mcp *d, const char *key)
{
    mcp_session *s = map_take_str(&d->sessions, key);
    uintptr_t left = s ? session_count_locked(d, s->owner) - 1 : 0;

    if (left)
        map_put_str(&d->owners, s->owner, (void *)left);
    else if (s)
        map_take_str(&d->owners, s->owner);
    return s;
}

/* Makes room for one more. The owner of most sessions loses the one that it used longest ago, so
 * an owner with many cannot push out those of others. */
static void session_make_room_locked(mcp *d)
{
    mcp_session *oldest = NULL;
    uintptr_t most = 0;
    map_iter it = {0};

    if (d->sessions.count < KNOWN_MAX)
        return;
    while (map_next(&d->sessions, &it)) {
        mcp_session *s = it.entry->value;
        uintptr_t n = session_count_locked(d, s->owner);
        if (s->refs > 1 || n < most || (n == most && oldest && s->used_ns >= oldest->used_ns))
            continue;
        oldest = s;
        most = n;
    }
    if (oldest)
        mcp_session_unref(session_take_locked(d, oldest->key));
}

/* Returns the session of this key, made if there is none. */
static mcp_session *session_put(mcp *d, enum mcp_session_kind kind, const char *owner,
                                const char *id)
{
    CLEANUP(freep) char *key = key_of(kind, owner, id);
    LOCK_SCOPE(&d->lock);

    mcp_session *s = map_get_str(&d->sessions, key);
    if (!s) {
        session_make_room_locked(d);
        s = mcp_session_alloc(d, kind, owner, id);
        session_add_locked(d, s);
    }
    s->used_ns = now_mono_ns();
    return mcp_session_ref(s);
}

static mcp_session *mcp_session_get(mcp *d, enum mcp_session_kind kind, const char *owner,
                                    const char *id)
{
    CLEANUP(freep) char *key = key_of(kind, owner, id);
    LOCK_SCOPE(&d->lock);

    mcp_session *s = map_get_str(&d->sessions, key);
    if (s)
        s->used_ns = now_mono_ns();
    return s ? mcp_session_ref(s) : NULL;
}

/* ---- the session's sandboxes ---- */

/* Lists the session's sandboxes among the caller's own: an administrator sees those of all owners,
 * and any owner may set the label. */
static err *list_own(mcp *d, const caller *c, const char *id, sandbox_view **ret_views,
                     size_t *ret_n)
{
    const caller self = {.owner = c->owner, .role = CALLER_USER};
    char *labels[] = {str_printf(MCP_SESSION_LABEL "=%s", id), NULL};
    sandbox_filter f = {.labels = labels, .max = LIST_MAX};
    CLEANUP(freep) char *next = NULL;

    err *e = engine_list(d->o.engine, &self, &f, ret_views, ret_n, &next);
    free(labels[0]);
    return e;
}

/* Finds the newest live sandbox of a session; *ret_seat is NULL if there is none. */
static err *find_own(mcp *d, const caller *c, const char *id, making **ret_seat)
{
    CLEANUP(freep) sandbox_view *views = NULL;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    size_t n = 0, newest = 0;

    TRY(list_own(d, c, id, &views, &n));
    for (size_t i = 1; i < n; i++)
        if (views[i].created_ns > views[newest].created_ns)
            newest = i;
    err *e = n ? engine_find(d->o.engine, c, views[newest].id, &sb) : NULL;
    for (size_t i = 0; i < n; i++)
        sandbox_view_done(&views[i]);
    if (e)
        return e;
    *ret_seat = sb ? making_of(TAKE_PTR(sb)) : NULL;
    return NULL;
}

/* ---- making and finding sessions ---- */

mcp_session *mcp_session_issue(mcp *d, const caller *c)
{
    char id[MCP_ID_LEN + 1];

    id_random(id, MCP_ID_LEN);
    return session_put(d, MCP_ISSUED, c->owner, id);
}

static err *no_session(const char *id)
{
    return err_remedy(err_kind(err_new(ERR_NOT_FOUND, "there is no session %.64s", id), "session"),
                      "Initialize again, without Mcp-Session-Id.");
}

static err *find_issued(mcp *d, const caller *c, const char *id, mcp_session **ret)
{
    making *seat = NULL;

    *ret = mcp_session_get(d, MCP_ISSUED, c->owner, id);
    if (*ret)
        return NULL;
    if (strlen(id) == MCP_ID_LEN &&
        strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == MCP_ID_LEN)
        TRY(find_own(d, c, id, &seat));
    if (!seat)
        return no_session(id);
    *ret = session_put(d, MCP_ISSUED, c->owner, id);
    mcp_session_take_seat(*ret, NULL, seat);
    return NULL;
}

static bool has_left_locked(const mcp_session *s, const char *client)
{
    for (size_t i = 0; client && i < LEFT_MAX; i++)
        if (*s->left[i] && str_eq(s->left[i], client))
            return true;
    return false;
}

/* Remembers that a client's issued id has ended. The named sandbox stays. */
static void session_leave(mcp_session *s, const char *issued)
{
    LOCK_SCOPE(&s->lock);
    if (issued && strlen(issued) == MCP_ID_LEN && !has_left_locked(s, issued))
        str_copy(s->left[s->nleft++ % LEFT_MAX], MCP_ID_LEN + 1, issued);
}

static err *find_named(mcp *d, const caller *c, const char *name, const char *issued,
                       mcp_session **ret)
{
    CLEANUP(mcp_session_unrefp) mcp_session *s = session_put(d, MCP_NAMED, c->owner, name);

    {
        LOCK_SCOPE(&s->lock);
        if (has_left_locked(s, issued))
            return no_session(issued);
    }
    *ret = TAKE_PTR(s);
    return NULL;
}

static bool is_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");

    return n && n <= NAME_BYTES && !s[n];
}

err *mcp_session_find(mcp *d, request *rq, const caller *c, mcp_session **ret)
{
    const char *named = request_query(rq, "sandbox"),
               *own = request_header(rq, "Bothy-Mcp-Session");
    const char *issued = request_header(rq, "Mcp-Session-Id");

    *ret = NULL;
    if ((named && !is_name(named)) || (own && !is_name(own)))
        return err_new(ERR_INVALID_REQUEST,
                       "%s: must be 1 to 64 letters, digits, dashes, dots and underscores",
                       named ? "sandbox" : "Bothy-Mcp-Session");
    if (named)
        return find_named(d, c, named, mcp_issued(rq), ret);
    if (own)
        *ret = session_put(d, MCP_OWN, c->owner, own);
    else if (issued)
        return find_issued(d, c, issued, ret);
    return NULL;
}

const char *mcp_client(const request *rq)
{
    const char *own = request_header(rq, "Bothy-Mcp-Session");

    return own ? own : request_header(rq, "Mcp-Session-Id");
}

const char *mcp_issued(const request *rq)
{
    return request_header(rq, "Bothy-Mcp-Session") ? NULL : request_header(rq, "Mcp-Session-Id");
}

char *mcp_session_label(const mcp_session *s)
{
    return s && s->kind != MCP_NAMED ? str_printf(MCP_SESSION_LABEL "=%s", s->id) : NULL;
}

/* ---- the session's sandbox (its seat) ---- */

/* Finds an existing sandbox for a session that has none in memory. */
static err *find_seat(mcp_session *s, const caller *c, making **ret_seat)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    if (s->kind != MCP_NAMED)
        return find_own(s->door, c, s->id, ret_seat);
    CLEANUP(err_freep) err *e = engine_find(s->door->o.engine, c, s->id, &sb);
    if (e)
        return e->code == ERR_NOT_FOUND ? NULL : TAKE_PTR(e);
    if (sandbox_state(sb) != LIFE_GONE)
        *ret_seat = making_of(TAKE_PTR(sb));
    return NULL;
}

static making *seat_of(mcp_session *s)
{
    LOCK_SCOPE(&s->lock);
    return s->seat ? making_ref(s->seat) : NULL;
}

/* Makes `mine` the session's sandbox, unless a create has set another
 * meanwhile. Returns the session's. */
static making *session_sit(mcp_session *s, making *mine)
{
    LOCK_SCOPE(&s->lock);
    if (!s->seat)
        s->seat = making_ref(mine);
    return making_ref(s->seat);
}

static bool has_failed(making *m)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(err_freep) err *e = NULL;

    return making_look(m, &sb, &e) && e;
}

/* Finds the session's sandbox. If there is none, starts a create as fill()
 * says; without fill() sets NULL. */
static err *find_or_begin(mcp_session *s, const caller *c,
                          err *(*fill)(request *rq, sandbox_spec *ret_spec), request *rq,
                          making **ret_seat)
{
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};
    engine *e = s->door->o.engine;
    making *mine = NULL;

    TRY(find_seat(s, c, &mine));
    bool begun = !mine && fill;
    if (begun) {
        TRY(fill(rq, &spec));
        if (s->kind == MCP_NAMED && !spec.name)
            spec.name = xstrdup(s->id);
        mcp_spec_defaults(s->door, c, s, &spec);
        mine = making_new(e, c, &spec, NULL);
    }
    if (!mine)
        return NULL;
    *ret_seat = session_sit(s, mine);
    if (begun && *ret_seat != mine)
        making_drop(e, mine);
    making_unref(mine);
    return NULL;
}

err *mcp_session_seat(mcp_session *s, const caller *c,
                      err *(*fill)(request *rq, sandbox_spec *ret_spec), request *rq,
                      making **ret_making)
{
    LOCK_SCOPE(&s->seating);
    making *seat = seat_of(s);

    if (seat && has_failed(seat)) {
        mcp_session_take_seat(s, seat, NULL);
        making_unref(TAKE_PTR(seat));
    }
    *ret_making = seat;
    return seat ? NULL : find_or_begin(s, c, fill, rq, ret_making);
}

bool mcp_session_adopt(mcp_session *s, making *m, const char *name)
{
    if (s->kind == MCP_NAMED && !str_eq(name, s->id))
        return false;
    mcp_session_take_seat(s, NULL, making_ref(m));
    return true;
}

void mcp_session_take_seat(mcp_session *s, making *was, making *m)
{
    making *old = NULL;

    pthread_mutex_lock(&s->lock);
    if (m || s->seat == was) {
        old = s->seat;
        s->seat = m;
    }
    pthread_mutex_unlock(&s->lock);
    making_unref(old);
}

void mcp_session_stand_up(mcp_session *s, sandbox *sb)
{
    CLEANUP(sandbox_unrefp) sandbox *its = NULL;
    CLEANUP(err_freep) err *e = NULL;
    making *seat = seat_of(s);

    if (seat && making_look(seat, &its, &e) && its && str_eq(sandbox_id(its), sandbox_id(sb)))
        mcp_session_take_seat(s, seat, NULL);
    making_unref(seat);
}

/* ---- calls ---- */

void mcp_session_join(mcp_session *s, mcp_call *c)
{
    LOCK_SCOPE(&s->lock);
    c->next = s->calls;
    c->prev = NULL;
    if (s->calls)
        s->calls->prev = c;
    s->calls = c;
    if (s->ended || (c->announced && has_left_locked(s, c->client)))
        mcp_call_cancel(c);
}

void mcp_session_part(mcp_session *s, mcp_call *c)
{
    LOCK_SCOPE(&s->lock);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->calls = c->next;
    if (c->next)
        c->next->prev = c->prev;
}

void mcp_session_cancel(mcp_session *s, const char *client, const json_t *id)
{
    LOCK_SCOPE(&s->lock);
    for (mcp_call *c = s->calls; client && c; c = c->next)
        if (str_eq(c->client, client) && (!id || json_equal(c->msg.id, id)))
            mcp_call_cancel(c);
}

bool mcp_session_has_ended(mcp_session *s)
{
    LOCK_SCOPE(&s->lock);
    return s->ended;
}

/* Deletes one list of the session's sandboxes; *ret_n: how many there
 * were. Returns the first error. */
static err *end_some(mcp_session *s, const caller *c, size_t *ret_n)
{
    CLEANUP(freep) sandbox_view *views = NULL;
    mcp *d = s->door;
    err *first = NULL;

    TRY(list_own(d, c, s->id, &views, ret_n));
    for (size_t i = 0; i < *ret_n; i++) {
        CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
        err *e = engine_find(d->o.engine, c, views[i].id, &sb);
        if (!e)
            e = engine_delete(d->o.engine, c, sb, CAUSE_REQUESTED, "its MCP session has ended");
        if (first)
            err_free(e);
        else
            first = e;
        sandbox_view_done(&views[i]);
    }
    return first;
}

/* Forgets a session. Calls of threads that found it before are cancelled when they join. */
static void session_forget(mcp_session *s)
{
    mcp *d = s->door;

    pthread_mutex_lock(&d->lock);
    mcp_session *known = session_take_locked(d, s->key);
    pthread_mutex_unlock(&d->lock);
    mcp_session_unref(known);
    LOCK_SCOPE(&s->lock);
    s->ended = true;
}

/* Forgets a named session's sandbox: the next client finds it by its name, so that it gets no
 * error about one that has ended. */
static void look_again(mcp_session *s)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(err_freep) err *e = NULL;
    making *seat = seat_of(s);

    if (seat && making_look(seat, &sb, &e))
        mcp_session_take_seat(s, seat, NULL);
    making_unref(seat);
}

err *mcp_session_end(mcp_session *s, const caller *c, const request *rq)
{
    mcp *d = s->door;
    size_t n = LIST_MAX;
    err *first = NULL;

    if (s->kind == MCP_NAMED)
        session_leave(s, mcp_issued(rq));
    else
        session_forget(s);
    mcp_session_cancel(s, mcp_client(rq), NULL);
    if (s->kind == MCP_NAMED) {
        look_again(s);
        return NULL;
    }
    making *seat = seat_of(s);
    if (seat)
        making_leave(d->o.engine, seat);
    making_unref(seat);
    while (!first && n == LIST_MAX)
        first = end_some(s, c, &n);
    return first;
}

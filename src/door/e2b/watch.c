/* Watching a directory: as a stream (WatchDir), or by polling (CreateWatcher, GetWatcherEvents,
 * RemoveWatcher).
 *
 * A watcher is a kit that keeps running. Its events stay in its stream, at most 8 MiB, until a
 * client polls: they cost no memory here. A watcher not polled for e2b.watcher_idle is removed, as
 * it would keep its sandbox from ever being idle. All watchers end with their sandbox and with this
 * process. */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/map.h"
#include "base/thread.h"
#include "door/e2b/filesystem.h"
#include "wire/connect.h"

#define WATCHERS_MAX    1024u /* on the node */
#define WATCHERS_OWNER  128u  /* in all sandboxes of an owner */
#define WATCHERS_EACH   32u   /* in a sandbox */
#define WATCHER_ID      20
#define EVENTS_MAX      (1u << 20) /* bytes of an answer; the next poll returns the rest */
#define KEEPALIVE_S     90
#define KEEPALIVE_MAX_S 3600

static err *watch_lost(void)
{
    return err_remedy(err_new(ERR_INTERNAL, "watcher error: events were lost"),
                      "More changed at once than was taken. List the directory, and watch again.");
}

/* ---- the request ---- */

typedef struct wish {
    kit_request q;
    bool entry;
} wish;

static err *wish_of(const json_t *in, wish *ret)
{
    const char *path = "";
    bool recursive = false, network = false;

    TRY(fs_text(in, "path", NULL, &path));
    TRY(fs_flag(in, "recursive", NULL, &recursive));
    TRY(fs_flag(in, "include_entry", "includeEntry", &ret->entry));
    TRY(fs_flag(in, "allow_network_mounts", "allowNetworkMounts", &network)); /* there are none */
    ret->q =
        (kit_request){.verb = KIT_WATCH,
                      .flags = KIT_F_HOME | KIT_F_DIRECTORY | (recursive ? KIT_F_RECURSIVE : 0) |
                               (ret->entry ? KIT_F_DETAIL : 0)};
    return fs_check_path(path, &ret->q.path);
}

/* ---- the stream ---- */

typedef struct stream {
    fs_entry now; /* the entry of the next event */
    bool brief;
    bool attached; /* it keeps the sandbox from being idle */
    sandbox *sb;
    uint64_t keepalive_ns, last;
} stream;

static void stream_free(void *own)
{
    stream *s = own;

    if (!s)
        return;
    if (s->attached)
        sandbox_stream_end(s->sb);
    sandbox_unref(s->sb);
    fs_entry_done(&s->now);
    free(s);
}

static void send_message(file_job *f, relay_io *io, const buf *json)
{
    CLEANUP(buf_done) buf out = {0};
    stream *s = f->own;

    if (!f->head_sent)
        http_head_write(io->out, &(http_head){.status = 200,
                                              .type = "application/connect+json",
                                              .length = -1,
                                              .chunked = io->http11,
                                              .keep_alive = io->keep_alive && io->http11,
                                              .request_id = f->request_id});
    f->head_sent = f->stream = true;
    connect_message(&out, json->p, json->len);
    stream_put(io, out.p, out.len);
    s->last = io->now;
}

static void send_text(file_job *f, relay_io *io, const char *json)
{
    send_message(f, io, &(buf){.p = (char *)json, .len = strlen(json)});
}

static enum file_go stream_end(relay_io *io, const err *e)
{
    CLEANUP(buf_done) buf out = {0}, text = {0};

    if (e)
        e2b_message(&text, e);
    connect_end(&out, e ? e2b_connect_code(e) : NULL, e ? buf_cstr(&text) : NULL);
    stream_put(io, out.p, out.len);
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

static void send_event(file_job *f, relay_io *io, const fs_event *ev)
{
    CLEANUP(buf_done) buf json = {0};
    stream *s = f->own;

    buf_str(&json, "{\"filesystem\":");
    fs_event_write(&json, ev, &s->now, file_path(f), s->brief);
    buf_char(&json, '}');
    send_message(f, io, &json);
}

static enum file_go stream_failed(file_job *f, relay_io *io, const err *e)
{
    (void)f;
    return stream_end(io, e);
}

static enum file_go stream_record(file_job *f, relay_io *io, const kit_record *r)
{
    stream *s = f->own;
    fs_event ev[2];
    size_t n = 0;

    fs_entry_take(&s->now, r);
    if (r->type == KIT_EVENT && r->event.change == KIT_READY)
        send_text(f, io, "{\"start\":{}}");
    if (fs_event_of(r, ev, &n) == FS_LOST) {
        CLEANUP(err_freep) err *e = watch_lost();
        return stream_end(io, e);
    }
    for (size_t i = 0; i < n; i++) {
        send_event(f, io, &ev[i]);
        free(ev[i].name);
    }
    if (r->type == KIT_EVENT)
        fs_entry_done(&s->now);
    return FILE_ON;
}

/* Ends the stream: the directory was removed, which an event has reported. */
static enum file_go stream_over(file_job *f, relay_io *io, const kit_record *end)
{
    (void)end;
    return f->head_sent ? stream_end(io, NULL) : FILE_CUT;
}

static void stream_idle(file_job *f, relay_io *io)
{
    stream *s = f->own;

    if (!f->head_sent)
        return;
    if (io->now - s->last >= s->keepalive_ns)
        send_text(f, io, "{\"keepalive\":{}}");
    if (s->last + s->keepalive_ns < io->wake_at)
        io->wake_at = s->last + s->keepalive_ns;
}

static const file_form WATCH = {.record = stream_record,
                                .over = stream_over,
                                .failed = stream_failed,
                                .refused = fs_refused,
                                .idle = stream_idle,
                                .done = stream_free};

static uint64_t keepalive_of(const request *rq)
{
    const char *text = request_header(rq, "Keepalive-Ping-Interval");
    uint64_t s = 0;

    if (!text || !str_to_u64(text, KEEPALIVE_MAX_S, &s) || !s)
        s = KEEPALIVE_S;
    return s * NS_PER_S;
}

err *fs_watch_dir(envd_call *c, request *rq, response *rs, const json_t *in)
{
    file_place place;
    file_job *f = NULL;
    wish w = {0};

    TRY(wish_of(in, &w));
    TRY(fs_place(c, rq, &place));
    TRY(file_start(rq, rs, &place, &WATCH, &w.q, &f));
    stream *s = xcalloc(1, sizeof *s);
    s->brief = fs_is_brief(rq);
    s->keepalive_ns = keepalive_of(rq);
    s->sb = sandbox_ref(c->sb);
    s->attached = sandbox_stream_begin(c->sb);
    f->own = s;
    return NULL;
}

/* ---- watchers that are polled ---- */

typedef struct watcher {
    _Atomic int refs;
    pthread_mutex_t lock; /* guards the members below; taken after the table's */
    kit_call *call;       /* NULL: it has ended */
    fs_entry now;
    err *failure; /* returned by every later poll */
    sandbox *sb;
    char *root;
    bool brief;
    uint64_t began_ns;
    _Atomic uint64_t asked_ns;
} watcher;

struct e2b_watchers {
    pthread_mutex_t lock;
    map by_id;
    uint64_t idle_ns;
};

static void watcher_unref(watcher *w)
{
    if (!w || atomic_fetch_sub(&w->refs, 1) > 1)
        return;
    kit_call_free(w->call);
    fs_entry_done(&w->now);
    err_free(w->failure);
    sandbox_unref(w->sb);
    free(w->root);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static void watcher_unrefp(watcher **w)
{
    watcher_unref(*w);
}

e2b_watchers *e2b_watchers_new(uint64_t idle_ms)
{
    e2b_watchers *t = xcalloc(1, sizeof *t);

    pthread_mutex_init(&t->lock, NULL);
    t->idle_ns = idle_ms * NS_PER_MS;
    return t;
}

void e2b_watchers_free(e2b_watchers *t)
{
    map_iter it = {0};

    if (!t)
        return;
    while (map_next(&t->by_id, &it))
        watcher_unref(it.entry->value);
    map_done(&t->by_id);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

typedef struct watching {
    size_t sandbox, owner; /* number of watchers of each */
} watching;

/* Removes watchers that were not polled for too long and those of ended sandboxes, and counts the
 * rest. Lock held, as when asked_ns is set: so no asked_ns is later than now. */
static watching watch_sweep(e2b_watchers *t, const sandbox *sb)
{
    uint64_t now = now_mono_ns();
    map_iter it = {0};
    watching n = {0};

    while (map_next(&t->by_id, &it)) {
        watcher *w = it.entry->value;
        if (now < w->asked_ns + t->idle_ns && sandbox_state(w->sb) != LIFE_GONE) {
            n.sandbox += w->sb == sb;
            n.owner += sb && str_eq(sandbox_owner(w->sb), sandbox_owner(sb));
            continue;
        }
        map_take(&t->by_id, it.entry->key, it.entry->len);
        watcher_unref(w);
    }
    return n;
}

void e2b_watchers_look(void *watchers)
{
    e2b_watchers *t = watchers;
    LOCK_SCOPE(&t->lock);

    watch_sweep(t, NULL);
}

static err *watch_admit(e2b_watchers *t, const sandbox *sb)
{
    watching n = watch_sweep(t, sb);

    if (n.sandbox < WATCHERS_EACH && n.owner < WATCHERS_OWNER && t->by_id.count < WATCHERS_MAX)
        return NULL;
    return err_remedy(err_new(ERR_SANDBOX_EXHAUSTED,
                              "too many watchers: %zu of this sandbox, %zu of its owner, %zu "
                              "in all",
                              n.sandbox, n.owner, t->by_id.count),
                      "Remove watchers that are not needed any more.");
}

static err *watch_keep(e2b_watchers *t, watcher *w, char ret_id[WATCHER_ID + 2])
{
    LOCK_SCOPE(&t->lock);

    TRY(watch_admit(t, w->sb));
    ret_id[0] = 'w';
    id_random(ret_id + 1, WATCHER_ID);
    map_put_str(&t->by_id, ret_id, w);
    return NULL;
}

/* Returns a reference, or ERR_NOT_FOUND. gone: also removes the watcher from the table. */
static err *watch_find(e2b_watchers *t, const sandbox *sb, const char *id, bool gone, watcher **ret)
{
    LOCK_SCOPE(&t->lock);
    watcher *w = map_get_str(&t->by_id, id);
    if (!w || w->sb != sb)
        return err_remedy(
            err_kind(err_new(ERR_NOT_FOUND, "watcher with id %s not found", id), "watcher"),
            "Create it again: it ends with its sandbox, when nobody has asked it for "
            "long, or when the server is started again.");
    if (gone)
        map_take_str(&t->by_id, id);
    else
        atomic_fetch_add(&w->refs, 1);
    w->asked_ns = now_mono_ns();
    *ret = w;
    return NULL;
}

/* ---- creation: a relay job until the kit is ready ---- */

typedef struct creating {
    e2b_watchers *table;
    watcher *w;
} creating;

static void creating_free(void *own)
{
    creating *g = own;

    if (!g)
        return;
    watcher_unref(g->w);
    free(g);
}

static void watch_nobody(void *arg)
{
    (void)arg;
}

static enum file_go creating_record(file_job *f, relay_io *io, const kit_record *r)
{
    creating *g = f->own;
    char id[WATCHER_ID + 2];

    if (r->type != KIT_EVENT || r->event.change != KIT_READY)
        return FILE_ON;
    g->w->root = xstrdup(file_path(f));
    g->w->call = TAKE_PTR(f->call);
    kit_call_watch(g->w->call, watch_nobody, NULL);
    CLEANUP(err_freep) err *e = watch_keep(g->table, g->w, id);
    if (e) {
        http_error_answer_as(io->out, f->errors, e, io->keep_alive, f->request_id);
        return FILE_DONE;
    }
    g->w = NULL; /* the table owns it now */
    CLEANUP(json_decrefp) json_t *body = json_pack("{s:s}", "watcherId", id);
    http_json_answer(io->out, 200, body, io->keep_alive, f->request_id, NULL);
    return FILE_DONE;
}

static enum file_go creating_over(file_job *f, relay_io *io, const kit_record *end)
{
    (void)f, (void)io, (void)end;
    return FILE_CUT;
}

static const file_form CREATE_WATCHER = {
    .record = creating_record, .over = creating_over, .refused = fs_refused, .done = creating_free};

err *fs_create_watcher(envd_call *c, request *rq, response *rs, const json_t *in)
{
    file_place place;
    file_job *f = NULL;
    wish want = {0};

    TRY(wish_of(in, &want));
    TRY(fs_place(c, rq, &place));
    TRY(file_start(rq, rs, &place, &CREATE_WATCHER, &want.q, &f));
    watcher *w = xcalloc(1, sizeof *w);
    w->refs = 1;
    pthread_mutex_init(&w->lock, NULL);
    w->sb = sandbox_ref(c->sb);
    w->brief = fs_is_brief(rq);
    w->began_ns = now_mono_ns();
    w->asked_ns = w->began_ns;
    creating *g = xcalloc(1, sizeof *g);
    *g = (creating){c->door->watchers, w};
    f->own = g;
    return NULL;
}

/* ---- events ---- */

static void put_events(watcher *w, const fs_event *ev, size_t n, buf *out)
{
    for (size_t i = 0; i < n; i++) {
        if (out->p[out->len - 1] != '[')
            buf_char(out, ',');
        fs_event_write(out, &ev[i], &w->now, w->root, w->brief);
        free(ev[i].name);
    }
}

/* Reads one record; *ret_more is false if there is none for now. */
static err *take_one(watcher *w, buf *out, bool *ret_more)
{
    enum kit_next next;
    kit_record r;
    fs_event ev[2];
    size_t n = 0;

    /* A constant time, so that silence between two polls does not count as a timeout. */
    TRY(kit_call_next(w->call, w->began_ns, &next, &r));
    *ret_more = next == KIT_RECORD;
    if (next == KIT_OVER) {
        kit_call_free(w->call);
        w->call = NULL;
    }
    if (next != KIT_RECORD)
        return NULL;
    fs_entry_take(&w->now, &r);
    if (fs_event_of(&r, ev, &n) == FS_LOST)
        return watch_lost();
    put_events(w, ev, n, out);
    if (r.type == KIT_EVENT)
        fs_entry_done(&w->now);
    return NULL;
}

static err *take_all(watcher *w, buf *out)
{
    bool more = w->call;

    buf_str(out, "{\"events\":[");
    while (more && out->len < EVENTS_MAX)
        TRY(take_one(w, out, &more));
    buf_str(out, "]}");
    return NULL;
}

err *fs_watcher_events(envd_call *c, request *rq, response *rs, const json_t *in)
{
    CLEANUP(watcher_unrefp) watcher *w = NULL;
    CLEANUP(buf_done) buf body = {0};
    const char *id = "";

    (void)rq;
    TRY(fs_text(in, "watcher_id", "watcherId", &id));
    TRY(watch_find(c->door->watchers, c->sb, id, false, &w));
    assert(w);
    LOCK_SCOPE(&w->lock);
    if (!w->failure)
        w->failure = take_all(w, &body);
    if (w->failure)
        return err_copy(w->failure);
    response_bytes(rs, "application/json", body.p, body.len);
    return NULL;
}

err *fs_remove_watcher(envd_call *c, request *rq, response *rs, const json_t *in)
{
    CLEANUP(watcher_unrefp) watcher *w = NULL;
    const char *id = "";

    (void)rq;
    TRY(fs_text(in, "watcher_id", "watcherId", &id));
    TRY(watch_find(c->door->watchers, c->sb, id, true, &w));
    response_bytes(rs, "application/json", "{}", 2);
    return NULL;
}

/* List and watch as a machine without I/O. */
#include "backend/kubernetes/kube_watch.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/map.h"
#include "base/str.h"

#define BACKOFF_MS     800
#define BACKOFF_MAX_MS 30000
#define EXPIRED_MAX    3    /* continuations in a row until the list comes without pages */
#define SHORT_MS       1000 /* a watch that ends sooner without an event counts as a failure */
#define VERSION_MAX    128
#define UID_MAX        128
#define WATCH_S        300 /* seconds; at random up to twice that */
#define INITIAL_END    "k8s.io/initial-events-end"

/* An object that exists. */
typedef struct known {
    uint64_t round; /* of the last list that contained it */
    char version[];
} known;

struct kube_watch {
    char *base, *labels, *fields;
    kube_watch_options o;
    map objects; /* uid -> known */
    buf path;
    buf line;         /* an incomplete event */
    char *version;    /* "" or NULL: list first */
    char *more;       /* the list's continuation token */
    uint64_t round;   /* counts lists, complete or not */
    bool initial;     /* this stream, or the next, begins with a list */
    bool fresh;       /* this stream has brought an event */
    bool broken;      /* this stream's content is malformed */
    err *said;        /* from an ERROR event */
    unsigned expired; /* expired continuations in a row */
    unsigned failed;  /* in a row */
    uint64_t wait_ms;
    kube_watch_counts counts;
};

static uint32_t kernel_random(void)
{
    uint32_t v;

    random_bytes(&v, sizeof v);
    return v;
}

static char *dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

kube_watch *kube_watch_new(const kube_watch_options *o)
{
    kube_watch *w = xcalloc(1, sizeof *w);

    w->o = *o;
    w->base = xstrdup(o->path);
    w->labels = dup_or_null(o->labels);
    w->fields = dup_or_null(o->fields);
    w->o.random = o->random ? o->random : kernel_random;
    w->o.page = o->page ? o->page : KUBE_PAGE;
    w->initial = o->initial_events;
    return w;
}

void kube_watch_free(kube_watch *w)
{
    map_iter it = {0};

    if (!w)
        return;
    while (map_next(&w->objects, &it))
        free(it.entry->value);
    map_done(&w->objects);
    buf_done(&w->path);
    buf_done(&w->line);
    err_free(w->said);
    free(w->base);
    free(w->labels);
    free(w->fields);
    free(w->version);
    free(w->more);
    free(w);
}

/* ---- what to ask ---- */

static void kube_watch_number(buf *path, const char *key, uint64_t value)
{
    CLEANUP(freep) char *text = str_printf("%llu", (unsigned long long)value);

    kube_query(path, key, text);
}

static void ask_list(kube_watch *w)
{
    if (w->expired < EXPIRED_MAX)
        kube_watch_number(&w->path, "limit", w->o.page);
    if (w->more)
        kube_query(&w->path, "continue", w->more);
    w->counts.pages++;
}

static void ask_stream(kube_watch *w)
{
    kube_query(&w->path, "watch", "1");
    kube_query(&w->path, "allowWatchBookmarks", "true");
    if (w->initial) {
        kube_query(&w->path, "sendInitialEvents", "true");
        kube_query(&w->path, "resourceVersionMatch", "NotOlderThan");
    } else {
        kube_query(&w->path, "resourceVersion", w->version);
    }
    kube_watch_number(&w->path, "timeoutSeconds", WATCH_S + w->o.random() % WATCH_S);
    w->counts.watches++;
}

static void begin_round(kube_watch *w)
{
    w->round++;
    w->counts.lists++;
}

void kube_watch_next(kube_watch *w, kube_watch_ask *ret_ask)
{
    bool lists = !w->version && !w->initial;

    buf_clear(&w->path);
    buf_str(&w->path, w->base);
    if (w->labels)
        kube_query(&w->path, "labelSelector", w->labels);
    if (w->fields)
        kube_query(&w->path, "fieldSelector", w->fields);
    if ((lists && !w->more) || (w->initial && !w->version))
        begin_round(w);
    if (lists)
        ask_list(w);
    else
        ask_stream(w);
    buf_clear(&w->line);
    w->fresh = w->broken = false;
    *ret_ask = (kube_watch_ask){.what = lists ? KUBE_ASK_LIST : KUBE_ASK_STREAM,
                                .path = buf_cstr(&w->path),
                                .wait_ms = w->wait_ms};
    w->wait_ms = 0;
}

/* ---- objects ---- */

static const char *text_within(const json_t *o, const char *key, size_t max)
{
    const char *text = json_str(o, key);

    return text && *text && strlen(text) <= max ? text : NULL;
}

static void set_version(kube_watch *w, const char *version)
{
    free(w->version);
    w->version = xstrdup(version);
}

/* Handles an object that exists. Returns false if it is malformed. */
static bool kube_watch_there(kube_watch *w, const json_t *object)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *uid = text_within(meta, "uid", UID_MAX);
    const char *version = text_within(meta, "resourceVersion", VERSION_MAX);

    if (!uid || !version)
        return false;
    known *k = map_get_str(&w->objects, uid);
    bool news = !k || strcmp(k->version, version) != 0;
    if (!k && w->objects.count >= KUBE_OBJECTS_MAX)
        return false;
    if (news) {
        free(k);
        k = xcalloc(1, sizeof *k + strlen(version) + 1);
        memcpy(k->version, version, strlen(version) + 1);
        map_put_str(&w->objects, uid, k);
    }
    k->round = w->round;
    if (news)
        w->o.events->there(w->o.arg, uid, object);
    return true;
}

static bool kube_watch_gone(kube_watch *w, const json_t *object)
{
    const char *uid = text_within(json_object_get(object, "metadata"), "uid", UID_MAX);

    if (!uid)
        return false;
    known *k = map_take_str(&w->objects, uid);
    if (k)
        w->o.events->gone(w->o.arg, uid, object);
    free(k);
    return true;
}

/* Ends a complete list: objects that it did not contain are gone. */
static void end_round(kube_watch *w)
{
    map_iter it = {0};

    while (map_next(&w->objects, &it)) {
        known *k = it.entry->value;
        if (k->round == w->round)
            continue;
        CLEANUP(freep) char *uid = xstrndup(it.entry->key, it.entry->len);
        map_take(&w->objects, uid, strlen(uid));
        free(k);
        w->o.events->gone(w->o.arg, uid, NULL);
    }
    w->initial = false;
    w->expired = w->failed = 0;
    if (w->o.events->synced)
        w->o.events->synced(w->o.arg);
}

/* ---- pages ---- */

static void list_again(kube_watch *w)
{
    free(w->more);
    w->more = NULL;
    free(w->version);
    w->version = NULL;
    w->initial = false;
}

static void back_off(kube_watch *w, int retry_after)
{
    uint64_t ms = BACKOFF_MS;

    for (unsigned i = 0; i < w->failed && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    ms = ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS;
    ms = ms / 2 + w->o.random() % (ms / 2 + 1);
    w->failed++;
    w->counts.failures++;
    w->wait_ms = (uint64_t)retry_after * 1000 > ms ? (uint64_t)retry_after * 1000 : ms;
}

void kube_watch_page(kube_watch *w, const json_t *page)
{
    const json_t *meta = json_object_get(page, "metadata"), *items = json_object_get(page, "items");
    const char *version = text_within(meta, "resourceVersion", VERSION_MAX);
    const char *more = json_str(meta, "continue");
    bool fine = version && (json_is_array(items) || json_is_null(items));
    size_t i;
    json_t *item;

    json_array_foreach(items, i, item) fine = fine && kube_watch_there(w, item);
    if (!fine) {
        list_again(w);
        back_off(w, 0);
        return;
    }
    CLEANUP(freep) char *next = more && *more ? xstrdup(more) : NULL;
    free(w->more);
    w->more = TAKE_PTR(next);
    if (w->more)
        return;
    set_version(w, version);
    end_round(w);
}

/* ---- the stream ---- */

static bool on_bookmark(kube_watch *w, const json_t *object)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *version = text_within(meta, "resourceVersion", VERSION_MAX);
    bool whole = str_eq(json_str(json_object_get(meta, "annotations"), INITIAL_END), "true");

    if (!version)
        return false;
    w->counts.bookmarks++;
    /* the initial list is incomplete: resuming from this version would miss objects */
    if (w->initial && !whole)
        return true;
    set_version(w, version);
    if (w->initial)
        end_round(w);
    return true;
}

static bool on_error(kube_watch *w, const json_t *object)
{
    err_free(w->said);
    w->said = kube_status_err(object);
    return false;
}

static bool on_object(kube_watch *w, const char *type, const json_t *object)
{
    const char *version =
        text_within(json_object_get(object, "metadata"), "resourceVersion", VERSION_MAX);

    if (!version ||
        !(str_eq(type, "DELETED") ? kube_watch_gone(w, object) : kube_watch_there(w, object)))
        return false;
    w->counts.events++;
    if (!w->initial)
        set_version(w, version);
    return true;
}

static bool on_line(kube_watch *w, const char *p, size_t n)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    if (!n || (n == 1 && *p == '\r'))
        return true;
    err_free(json_parse(p, n, &root));
    const char *type = json_str(root, "type");
    const json_t *object = json_object_get(root, "object");
    bool fine = type && json_is_object(object);
    if (fine && str_eq(type, "ERROR"))
        return on_error(w, object);
    if (fine && str_eq(type, "BOOKMARK"))
        fine = on_bookmark(w, object);
    else if (fine && (str_eq(type, "ADDED") || str_eq(type, "MODIFIED") || str_eq(type, "DELETED")))
        fine = on_object(w, type, object);
    else
        fine = false;
    w->fresh |= fine;
    w->broken = !fine;
    return fine;
}

bool kube_watch_feed(kube_watch *w, const void *p, size_t n)
{
    const char *at = p, *end = at + n;

    while (at < end && !w->broken && !w->said) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        size_t piece = (size_t)((nl ? nl : end) - at);
        if (w->line.len + piece > KUBE_LINE_MAX) {
            w->broken = true;
            break;
        }
        if (!nl || w->line.len)
            buf_append(&w->line, at, piece);
        if (!nl)
            break;
        if (w->line.len)
            on_line(w, w->line.p, w->line.len);
        else
            on_line(w, at, piece);
        buf_clear(&w->line);
        at = nl + 1;
    }
    return !w->broken && !w->said;
}

/* ---- ends ---- */

static bool is_expired(const err *e)
{
    return kube_is(e, KUBE_EXPIRED) || kube_is(e, "Gone") || kube_is(e, "ResourceExpired");
}

/* Returns whether the request itself is refused. Repeating the watch would never help; a new list
 * may, later. */
static bool is_refused(const err *e)
{
    return e->code == ERR_INVALID_REQUEST || e->code == ERR_FORBIDDEN || e->code == ERR_NOT_FOUND ||
           e->code == ERR_UNSUPPORTED;
}

static void failed_initial(kube_watch *w, const err *e)
{
    if (!is_refused(e)) {
        back_off(w, e->retry_after);
        return;
    }
    list_again(w); /* the server does not know sendInitialEvents; do not use it again */
    w->o.initial_events = false;
}

static void failed_with(kube_watch *w, const err *e)
{
    bool listed = !w->version && !w->initial;

    if (is_expired(e)) {
        w->counts.expired++;
        w->expired += listed;
        list_again(w);
        w->initial = w->o.initial_events;
        if (w->expired > EXPIRED_MAX)
            back_off(w, e->retry_after);
        return;
    }
    if (w->initial) {
        failed_initial(w, e);
        return;
    }
    if (listed || is_refused(e))
        list_again(w);
    back_off(w, e->retry_after);
}

void kube_watch_ended(kube_watch *w, err *failure, uint64_t lasted_ms)
{
    CLEANUP(err_freep) err *e = w->said ? w->said : failure;

    if (w->said && failure)
        err_free(failure);
    w->said = NULL;
    if (w->fresh)
        w->failed = 0;
    if (w->broken) {
        list_again(w);
        back_off(w, 0);
    } else if (e) {
        failed_with(w, e);
    } else if (!w->fresh && lasted_ms < SHORT_MS) {
        back_off(w, 0);
    }
}

void kube_watch_count(const kube_watch *w, kube_watch_counts *ret_counts)
{
    *ret_counts = w->counts;
    ret_counts->objects = w->objects.count;
}

const char *kube_watch_version(const kube_watch *w)
{
    return str_or(w->version, "");
}

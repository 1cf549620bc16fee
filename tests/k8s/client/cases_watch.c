/* list and watch against a server that changes: k8s-design's tests 1 and 3. */
#include <curl/curl.h>
#include <string.h>

#include "base/map.h"
#include "base/thread.h"
#include "tests/k8s/client/client.h"

#define TURNS 1000 /* pages of a list of 5,000, and then some */

/* What a watch has told: uid -> version. */
typedef struct cache {
    pthread_mutex_t lock;
    map objects;
    unsigned there, gone, synced;
} cache;

static void on_there(void *arg, const char *uid, const json_t *object)
{
    cache *c = arg;
    const char *version = json_str(json_object_get(object, "metadata"), "resourceVersion");

    LOCK_SCOPE(&c->lock);
    free(map_put_str(&c->objects, uid, xstrdup(version)));
    c->there++;
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    cache *c = arg;

    (void)object;
    LOCK_SCOPE(&c->lock);
    free(map_take_str(&c->objects, uid));
    c->gone++;
}

static void on_synced(void *arg)
{
    cache *c = arg;

    LOCK_SCOPE(&c->lock);
    c->synced++;
}

static const kube_watch_events EVENTS = {on_there, on_gone, on_synced};

static void cache_init(cache *c)
{
    *c = (cache){0};
    pthread_mutex_init(&c->lock, NULL);
}

static void cache_done(cache *c)
{
    map_iter it = {0};

    while (map_next(&c->objects, &it))
        free(it.entry->value);
    map_done(&c->objects);
}

static bool same(cache *c, const json_t *list)
{
    const json_t *items = json_object_get(list, "items");
    size_t i;
    json_t *item;

    LOCK_SCOPE(&c->lock);
    if (json_array_size(items) != c->objects.count)
        return false;
    json_array_foreach(items, i, item)
    {
        const json_t *meta = json_object_get(item, "metadata");
        const char *have = map_get_str(&c->objects, json_str(meta, "uid"));
        if (!have || !str_eq(have, json_str(meta, "resourceVersion")))
            return false;
    }
    return true;
}

/* The cache must become what one unpaged list says, soon. */
static err *becomes_equal(world *w, cache *c, const char *labels)
{
    CLEANUP(buf_done) buf path = {0};
    CLEANUP(freep) char *base = in_ns(w, &CONFIG_MAPS, NULL);

    buf_str(&path, base);
    kube_query(&path, "labelSelector", labels);
    for (int i = 0; i < 300; i++) {
        CLEANUP(json_decrefp) json_t *list = NULL;
        TRY(kube_get(w->k, buf_cstr(&path), &list));
        if (same(c, list))
            return NULL;
        nap_ms(100);
    }
    FAIL("the cache has %zu objects and is not what the server has", c->objects.count);
}

static err *change(world *w, const char *name, int value)
{
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, name);
    CLEANUP(freep) char *text = str_printf("%d", value);
    CLEANUP(json_decrefp) json_t *patch = json_pack("{s:{s:s}}", "data", "value", text);

    return kube_patch(w->k, path, KUBE_PATCH_MERGE, patch, NULL);
}

/* Makes, changes and deletes, so that names are used again. */
static err *churn(world *w, unsigned n, unsigned from)
{
    for (unsigned i = from; i < from + n; i++) {
        CLEANUP(freep) char *name = str_printf("m%u", i % 40);
        CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, name);
        err *e = make_map(w, name, (int)i, NULL);
        if (kube_is(e, KUBE_EXISTS)) {
            err_free(e);
            e = i % 3 ? change(w, name, (int)i) : kube_delete(w->k, path, NULL, -1, NULL);
        }
        TRY(e);
    }
    return NULL;
}

static err *fill(world *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        CLEANUP(freep) char *name = str_printf("f%u", i);
        err *e = make_map(w, name, (int)i, NULL);
        if (!kube_is(e, KUBE_EXISTS))
            TRY(e);
        else
            err_free(e);
    }
    return NULL;
}

static kube_watch_options options(const char *path, cache *c)
{
    return (kube_watch_options){
        .path = path, .labels = "test=yes", .events = &EVENTS, .arg = c, .page = 50};
}

err *case_watch_equals_server(world *w)
{
    CLEANUP(cache_done) cache c;
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);
    unsigned n = w->long_run ? 5000 : 300;
    kube_watch_options o = options(path, &c);
    kube_watch_counts counts;

    cache_init(&c);
    TRY(fill(w, n));
    kube_watcher *watcher = kube_watcher_new(w->k, &o);
    bool synced = kube_watcher_synced(watcher, now_mono_ns() + 60 * NS_PER_S);
    err *e = churn(w, 200, 0);
    if (!e)
        e = becomes_equal(w, &c, "test=yes");
    kube_watcher_counts(watcher, &counts);
    kube_watcher_free(watcher);
    TRY(e);
    MUST(synced);
    printf("           %zu objects in %llu pages, %llu events\n", c.objects.count,
           (unsigned long long)counts.pages, (unsigned long long)c.there);
    MUST(counts.pages >= n / 50);
    return NULL;
}

err *case_watch_survives_cuts(world *w)
{
    CLEANUP(cache_done) cache c;
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);
    kube_watch_options o = options(path, &c);
    proxy *p = proxy_new(w->config.server);
    kube *k = NULL;
    err *e = NULL;

    cache_init(&c);
    TRY(fill(w, 300));
    TRY(proxy_client(w, p, &k));
    kube_watcher *watcher = kube_watcher_new(k, &o);
    bool synced = kube_watcher_synced(watcher, now_mono_ns() + 60 * NS_PER_S);
    proxy_cut_now(p);
    proxy_cut_after(p, 9001); /* in the middle of something */
    /* As often as it takes: a quick server is done before the watch is back. */
    for (unsigned i = 0; (i < 6 || (i < 60 && proxy_connections(p) <= 5)) && !e; i++) {
        e = churn(w, 40, i * 40);
        nap_ms(300);
    }
    proxy_cut_after(p, 0);
    if (!e)
        e = becomes_equal(w, &c, "test=yes");
    unsigned made = proxy_connections(p);
    kube_watcher_free(watcher);
    kube_free(k);
    proxy_free(p);
    TRY(e);
    MUST(synced);
    printf("           %u connections, %u lists told\n", made, c.synced);
    MUST(made > 5);
    return NULL;
}

/* ---- versions that are too old ---- */

static size_t ignore(char *p, size_t size, size_t n, void *arg)
{
    (void)p, (void)arg;
    return size * n;
}

static err *compact(world *w, const char *revision)
{
    CURL *h = curl_easy_init();
    CLEANUP(freep) char *url = str_printf("%s/v3/kv/compaction", w->etcd);
    CLEANUP(freep) char *body = str_printf("{\"revision\":\"%s\"}", revision);
    long status = 0;

    curl_easy_setopt(h, CURLOPT_URL, url);
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, ignore);
    CURLcode code = curl_easy_perform(h);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(h);
    if (code || status != 200)
        FAIL("etcd did not compact: %s, status %ld", curl_easy_strerror(code), status);
    return NULL;
}

static bool feed(void *arg, const void *p, size_t n)
{
    return kube_watch_feed(arg, p, n);
}

/* One request of a machine that the test turns by hand. */
static err *turn(world *w, kube_watch *m, uint64_t ms, enum kube_watch_what *ret_what)
{
    CLEANUP(json_decrefp) json_t *page = NULL;
    kube_watch_ask ask;

    kube_watch_next(m, &ask);
    *ret_what = ask.what;
    bool lists = ask.what == KUBE_ASK_LIST;
    err *e = kube_do(w->k,
                     &(kube_call){.method = "GET",
                                  .path = ask.path,
                                  .on_bytes = lists ? NULL : feed,
                                  .arg = m,
                                  .timeout_ms = ms},
                     lists ? &page : NULL);
    if (e && e->code == ERR_TIMEOUT) {
        err_free(e);
        e = NULL;
    }
    if (page)
        kube_watch_page(m, page);
    else
        kube_watch_ended(m, e, ms);
    return NULL;
}

static err *newest(world *w, char **ret_version)
{
    CLEANUP(json_decrefp) json_t *list = NULL;
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);

    TRY(kube_get(w->k, path, &list));
    *ret_version = xstrdup(json_str(json_object_get(list, "metadata"), "resourceVersion"));
    return NULL;
}

/* A continuation from a version that etcd has thrown away: HTTP 410. */
static err *continue_expires(world *w, cache *c, const char *path)
{
    static const char START[] = "{\"v\":\"meta.k8s.io/v1\",\"rv\":2,\"start\":\"f1\\u0000\"}";
    CLEANUP(freep) char *token = base64_encode(START, sizeof START - 1);
    CLEANUP(json_decrefp)
    json_t *page = json_pack("{s:{s:s, s:s}, s:[]}", "metadata", "resourceVersion", "2", "continue",
                             token, "items");
    kube_watch_options o = options(path, c);
    kube_watch *m = kube_watch_new(&o);
    enum kube_watch_what what = KUBE_ASK_STREAM;
    kube_watch_counts counts;
    err *e = NULL;

    kube_watch_page(m, page);
    for (int i = 0; i < TURNS && !e && !*kube_watch_version(m); i++)
        e = turn(w, m, 10000, &what);
    kube_watch_count(m, &counts);
    if (!e)
        e = becomes_equal(w, c, "test=yes");
    kube_watch_free(m);
    TRY(e);
    MUST(counts.expired == 1);
    return NULL;
}

err *case_list_expired(world *w)
{
    CLEANUP(cache_done) cache c;
    CLEANUP(freep) char *version = NULL;
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);

    cache_init(&c);
    if (!w->etcd)
        return skip("a version is thrown away through etcd (--etcd)");
    TRY(fill(w, 120));
    TRY(newest(w, &version));
    TRY(compact(w, version));
    return continue_expires(w, &c, path);
}

/* A watch from a version that the server does not have any more: an ERROR event. */
err *case_watch_expired(world *w)
{
    CLEANUP(cache_done) cache c;
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);
    CLEANUP(json_decrefp)
    json_t *first = json_pack("{s:{s:s}, s:[]}", "metadata", "resourceVersion", "1", "items");
    kube_watch_options o = options(path, &c);
    enum kube_watch_what what = KUBE_ASK_LIST;
    kube_watch_counts counts;

    cache_init(&c);
    TRY(fill(w, 120));
    kube_watch *m = kube_watch_new(&o);
    kube_watch_page(m, first);
    err *e = turn(w, m, 5000, &what);
    bool streamed = what == KUBE_ASK_STREAM;
    kube_watch_count(m, &counts);
    for (int i = 0; i < TURNS && !e && counts.expired && (!i || !*kube_watch_version(m)); i++)
        e = turn(w, m, 5000, &what);
    if (!e)
        e = becomes_equal(w, &c, "test=yes");
    kube_watch_free(m);
    TRY(e);
    MUST(streamed);
    if (!counts.expired)
        return skip("this server has been up for so short a time that it still has version 1");
    return NULL;
}

err *case_watch_list(world *w)
{
    CLEANUP(cache_done) cache c;
    CLEANUP(freep) char *path = in_ns(w, &CONFIG_MAPS, NULL);
    kube_watch_options o = options(path, &c);
    kube_watch_counts counts;

    cache_init(&c);
    TRY(fill(w, 120));
    o.initial_events = true;
    kube_watcher *watcher = kube_watcher_new(w->k, &o);
    bool synced = kube_watcher_synced(watcher, now_mono_ns() + 30 * NS_PER_S);
    err *e = churn(w, 60, 0);
    if (!e)
        e = becomes_equal(w, &c, "test=yes");
    kube_watcher_counts(watcher, &counts);
    kube_watcher_free(watcher);
    TRY(e);
    MUST(synced);
    MUST(counts.pages == 0); /* no list was needed */
    return NULL;
}

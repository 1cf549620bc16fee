/* kube-follow KUBECONFIG PATH LABELS PAGE: follows a list as bothyd does, and tells what it has
 * when it is asked: for a test that does things to the server. Each line on stdin is answered by
 * one of JSON: what was counted, and uid and version of every object. */
#include <signal.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/map.h"
#include "base/thread.h"
#include "tests/k8s/client/client.h"

typedef struct cache {
    pthread_mutex_t lock;
    map objects; /* uid -> version */
    unsigned synced;
} cache;

static void on_there(void *arg, const char *uid, const json_t *object)
{
    cache *c = arg;
    const char *version = json_str(json_object_get(object, "metadata"), "resourceVersion");
    LOCK_SCOPE(&c->lock);

    free(map_put_str(&c->objects, uid, xstrdup(version)));
}

static void on_gone(void *arg, const char *uid, const json_t *object)
{
    cache *c = arg;
    LOCK_SCOPE(&c->lock);

    (void)object;
    free(map_take_str(&c->objects, uid));
}

static void on_synced(void *arg)
{
    cache *c = arg;
    LOCK_SCOPE(&c->lock);

    c->synced++;
}

static const kube_watch_events EVENTS = {on_there, on_gone, on_synced};

static json_t *objects_of(cache *c)
{
    json_t *all = json_object();
    map_iter it = {0};
    LOCK_SCOPE(&c->lock);

    while (map_next(&c->objects, &it)) {
        CLEANUP(freep) char *uid = xstrndup(it.entry->key, it.entry->len);
        json_object_set_new(all, uid, json_string(it.entry->value));
    }
    return all;
}

static void tell(kube_watcher *w, cache *c)
{
    kube_watch_counts n;

    kube_watcher_counts(w, &n);
    CLEANUP(json_decrefp)
    json_t *o = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:o}", "lists", (json_int_t)n.lists, "pages",
        (json_int_t)n.pages, "watches", (json_int_t)n.watches, "events", (json_int_t)n.events,
        "bookmarks", (json_int_t)n.bookmarks, "expired", (json_int_t)n.expired, "failures",
        (json_int_t)n.failures, "synced", (int)c->synced, "objects", objects_of(c));
    CLEANUP(freep) char *text = json_dumps(o, JSON_COMPACT);

    puts(text);
    fflush(stdout);
}

static void cache_done(cache *c)
{
    map_iter it = {0};

    while (map_next(&c->objects, &it))
        free(it.entry->value);
    map_done(&c->objects);
}

int main(int argc, char **argv)
{
    CLEANUP(kube_config_done) kube_config config = {0};
    CLEANUP(cache_done) cache c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    kube *k = NULL;
    char line[64];

    signal(SIGPIPE, SIG_IGN);
    log_init("kube-follow", LOG_ERROR);
    if (argc != 5)
        return 2;
    err *e = kube_config_load(argv[1], NULL, &config);
    if (!e)
        e = kube_new(&config, &k);
    if (e) {
        fprintf(stderr, "kube-follow: %s\n", e->message);
        err_free(e);
        return 1;
    }
    kube_watcher *w =
        kube_watcher_new(k, &(kube_watch_options){.path = argv[2],
                                                  .labels = argv[3],
                                                  .events = &EVENTS,
                                                  .arg = &c,
                                                  .page = (unsigned)strtoul(argv[4], NULL, 10)});
    while (fgets(line, sizeof line, stdin))
        tell(w, &c);
    kube_watcher_free(w);
    kube_free(k);
    return 0;
}

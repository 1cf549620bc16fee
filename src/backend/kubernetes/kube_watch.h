/* A live list: the objects of a path as the API server has them, by list and watch.
 *
 * kube_watch is the machine without I/O: it says what to request (a page of the list, or the watch
 * from the last version), takes the answers, and reports which objects exist and which are gone. It
 * identifies objects by uid, because names are reused. An object that a new list lacks is gone;
 * versions are opaque. kube_watcher adds a thread.
 *
 * It runs for ever:
 *   a watch ends                  the next watch begins at the last version (of any event or
 *                                 bookmark)
 *   the version is too old        a new list (HTTP 410, or an ERROR event)
 *   the continuation has expired  the list begins again; after the third time without pages
 *   anything else                 the same request after 0.8 s, twice that, ... 30 s, of each a
 *                                 random half to whole, or as long as the server asks for
 * A watch without a byte for 90 s is lost. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kubernetes/kube_http.h"

#define KUBE_LINE_MAX    (8 * 1024 * 1024) /* per event; etcd takes objects of 1.5 MiB */
#define KUBE_PAGE        500
#define KUBE_OBJECTS_MAX 500000
#define KUBE_SILENCE_MS  90000

typedef struct kube_watch_events {
    /* The object is new or has changed. The callee may read the object, but not keep it. */
    void (*there)(void *arg, const char *uid, const json_t *object);
    /* object: its last state, or NULL if only its absence was noticed. */
    void (*gone)(void *arg, const char *uid, const json_t *object);
    /* A whole list has been reported. May be NULL. */
    void (*synced)(void *arg);
} kube_watch_events;

typedef struct kube_watch_options {
    const char *path;   /* of the list, without a query; copied */
    const char *labels; /* selectors, or NULL; copied */
    const char *fields;
    bool initial_events;             /* request the list as a watch if the server can (WatchList) */
    const kube_watch_events *events; /* static */
    void *arg;
    uint32_t (*random)(void); /* NULL: the kernel's */
    unsigned page;            /* 0: KUBE_PAGE */
} kube_watch_options;

typedef struct kube_watch kube_watch;
kube_watch *kube_watch_new(const kube_watch_options *o);
void kube_watch_free(kube_watch *w);

enum kube_watch_what {
    KUBE_ASK_LIST,   /* answer with kube_watch_page() */
    KUBE_ASK_STREAM, /* answer with kube_watch_feed(), then kube_watch_ended() */
};
typedef struct kube_watch_ask {
    enum kube_watch_what what;
    const char *path; /* with query; owned by the machine, valid until the next call */
    uint64_t wait_ms; /* before the request */
} kube_watch_ask;
void kube_watch_next(kube_watch *w, kube_watch_ask *ret_ask);
/* Takes a page of the list; the caller keeps its ownership. */
void kube_watch_page(kube_watch *w, const json_t *page);
/* Takes bytes of the stream. Returns false if no more must be read. */
bool kube_watch_feed(kube_watch *w, const void *p, size_t n);
/* Reports the end of the stream or page. failure says why; takes ownership; NULL: a regular end.
 * lasted_ms: how long it was open. */
void kube_watch_ended(kube_watch *w, err *failure, uint64_t lasted_ms);

typedef struct kube_watch_counts {
    uint64_t lists, pages, watches, events, bookmarks, expired, failures;
    size_t objects;
} kube_watch_counts;
void kube_watch_count(const kube_watch *w, kube_watch_counts *ret_counts);
const char *kube_watch_version(const kube_watch *w); /* the last known; "" before the first list */

/* ---- with a thread ---- its events come from that thread */
typedef struct kube_watcher kube_watcher;
kube_watcher *kube_watcher_new(kube *k, const kube_watch_options *o);
/* Returns whether a whole list has been reported; waits for it until this CLOCK_MONOTONIC time (0:
 * does not wait). */
bool kube_watcher_synced(kube_watcher *w, uint64_t until);
/* Returns the error of the last request, copied, or NULL if it succeeded. */
err *kube_watcher_trouble(kube_watcher *w);
void kube_watcher_counts(kube_watcher *w, kube_watch_counts *ret_counts);
/* Waits for its thread, about a second. Must not be called from an event. */
void kube_watcher_free(kube_watcher *w);

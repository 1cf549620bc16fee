/* A list that stays true: the objects of a path as the API server has them, by list and watch.
 *
 * kube_watch is the machine without I/O: it says what to ask (a page of the list, or the watch from
 * the last version), takes the answers, and tells its owner which objects are there and which are
 * gone. Objects are known by uid, because names are used again. What a list does not have any more
 * is gone; versions are opaque. kube_watcher is it with a thread.
 *
 * It goes on for ever. The end of a watch is followed by the next from the last version (every
 * event's and every bookmark's counts); a version that is too old, as HTTP 410 or as an ERROR
 * event, by a new list; a list whose continuation has expired begins again, and without pages after
 * the third time; everything else by the same again, after 0.8 s, twice that, ... 30 s, each within
 * a random half, or as long as the server asks for. A watch without a byte for 90 s is lost. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kubernetes/kube_http.h"

#define KUBE_LINE_MAX    (8 * 1024 * 1024) /* an event; etcd takes objects of 1.5 MiB */
#define KUBE_PAGE        500
#define KUBE_OBJECTS_MAX 500000
#define KUBE_SILENCE_MS  90000

typedef struct kube_watch_events {
    /* It is new, or as it was not before. The object is the callee's to look at, not to keep. */
    void (*there)(void *arg, const char *uid, const json_t *object);
    /* object: its last state, or NULL where only its absence was noticed. */
    void (*gone)(void *arg, const char *uid, const json_t *object);
    /* A whole list has been told. May be NULL. */
    void (*synced)(void *arg);
} kube_watch_events;

typedef struct kube_watch_options {
    const char *path;   /* of the list, without a query; copied */
    const char *labels; /* selectors, or NULL; copied */
    const char *fields;
    bool initial_events; /* ask for the list as a watch where the server can (WatchList) */
    const kube_watch_events *events; /* static */
    void *arg;
    uint32_t (*random)(void); /* NULL: the kernel's */
    unsigned page;            /* 0: KUBE_PAGE */
} kube_watch_options;

typedef struct kube_watch kube_watch;
kube_watch *kube_watch_new(const kube_watch_options *o);
void kube_watch_free(kube_watch *w);

enum kube_watch_what {
    KUBE_ASK_LIST,   /* answered by kube_watch_page() */
    KUBE_ASK_STREAM, /* by kube_watch_feed(), then kube_watch_ended() */
};
typedef struct kube_watch_ask {
    enum kube_watch_what what;
    const char *path; /* with query; the machine's, until the next call */
    uint64_t wait_ms; /* before it is asked */
} kube_watch_ask;
void kube_watch_next(kube_watch *w, kube_watch_ask *ret_ask);
/* A page of the list; ownership stays. */
void kube_watch_page(kube_watch *w, const json_t *page);
/* Bytes of the stream. False: read no more of it. */
bool kube_watch_feed(kube_watch *w, const void *p, size_t n);
/* The stream or the page ended; failure (taken over) says why, NULL: it came to its end. lasted_ms:
 * how long it was open. */
void kube_watch_ended(kube_watch *w, err *failure, uint64_t lasted_ms);

typedef struct kube_watch_counts {
    uint64_t lists, pages, watches, events, bookmarks, expired, failures;
    size_t objects;
} kube_watch_counts;
void kube_watch_count(const kube_watch *w, kube_watch_counts *ret_counts);
const char *kube_watch_version(const kube_watch *w); /* the last one; "" before the first list */

/* ---- with a thread ---- its events come from that thread */
typedef struct kube_watcher kube_watcher;
kube_watcher *kube_watcher_new(kube *k, const kube_watch_options *o);
/* Whether a whole list has been told; waits for that until the CLOCK_MONOTONIC time (0: not). */
bool kube_watcher_synced(kube_watcher *w, uint64_t until);
/* Why the last request failed, copied, or NULL: it did not. */
err *kube_watcher_trouble(kube_watcher *w);
void kube_watcher_counts(kube_watcher *w, kube_watch_counts *ret_counts);
/* Waits for its thread, about a second; not from an event. */
void kube_watcher_free(kube_watcher *w);

/* Leader election: one holder of a coordination.k8s.io Lease at a time, as Kubernetes' own
 * components do it.
 *
 * Clocks are never compared. A candidate waits until the record has not changed for its duration,
 * measured by the candidate's own monotonic clock. The holder stops, by its own clock, when it
 * could not renew in time, counted from the sending of the last successful renewal. So with a
 * duration of 15 s and 10 s to renew, 5 s lie between the last write of one holder and the first of
 * the next.
 *
 * A fence: call kube_lease_held() immediately before each write. A process that was suspended finds
 * its time over, even if its thread has not noticed yet. If it is suspended between that call and
 * the write, the write comes late. A write that must not come late has to name the resourceVersion,
 * uid or value it is based on, or a name that no other process gives. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kubernetes/kube_http.h"

#define KUBE_LEASE_MS       15000 /* how long others wait */
#define KUBE_LEASE_RENEW_MS 10000 /* the holder gives up after so long */
#define KUBE_LEASE_RETRY_MS 2000

typedef struct kube_lease_options {
    const char *ns, *name;                    /* of the Lease */
    const char *identity;                     /* unique among all processes of all times */
    unsigned duration_ms, renew_ms, retry_ms; /* 0: the above */
    /* Called from its thread when it notices a change; kube_lease_held() knows it sooner. May be
     * NULL. */
    void (*changed)(void *arg, bool held, uint64_t epoch);
    void *arg;
} kube_lease_options;

typedef struct kube_lease kube_lease;
kube_lease *kube_lease_new(kube *k, const kube_lease_options *o);
/* epoch: how often the holder has changed; it only grows. ret_epoch may be NULL. */
bool kube_lease_held(kube_lease *l, uint64_t *ret_epoch);
/* Returns the holder as far as is known, malloc'ed; NULL: none. */
char *kube_lease_holder(kube_lease *l);
/* Returns the last error, copied, or NULL. */
err *kube_lease_trouble(kube_lease *l);
/* This process ends: gives the lease back and does not take it again. Waits two seconds at most. */
void kube_lease_leave(kube_lease *l);
/* Waits for its thread. A held lease is given back, so that no other process must wait for it to
 * expire. */
void kube_lease_free(kube_lease *l);

/* ---- without I/O ---- */
typedef struct kube_lease_seen {
    bool there;
    char holder[256];
    char version[128]; /* resourceVersion of the object */
    uint64_t changed;  /* when this version was first seen; CLOCK_MONOTONIC */
    uint64_t duration_ms, transitions;
} kube_lease_seen;
enum kube_lease_act {
    KUBE_LEASE_WAIT,
    KUBE_LEASE_CREATE,
    KUBE_LEASE_TAKE,
    KUBE_LEASE_RENEW,
};
/* Records the object that a GET returned (NULL: not found) at this time. */
void kube_lease_look(kube_lease_seen *seen, const json_t *object, uint64_t now);
enum kube_lease_act kube_lease_decide(const kube_lease_seen *seen, const char *identity,
                                      uint64_t now);
/* Writes "2006-01-02T15:04:05.000000Z", with exactly six digits. */
#define KUBE_TIME_MAX 32
void kube_time(uint64_t real_ns, char ret_text[KUBE_TIME_MAX]);

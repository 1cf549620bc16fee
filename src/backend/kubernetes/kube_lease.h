/* Who may act: one holder of a coordination.k8s.io Lease at a time, as Kubernetes' own components
 * elect theirs.
 *
 * Clocks are never compared. A candidate waits until the record has not changed for its duration by
 * the candidate's own monotonic clock; the holder stops by its own when it could not renew in time,
 * counted from when it sent the last renewal that succeeded. So with a duration of 15 s and 10 s to
 * renew, 5 s lie between the last write of one and the first of the other.
 *
 * A fence: ask kube_lease_held() immediately before each write. A process that was stopped and goes
 * on finds its time over, whatever its thread has not noticed yet. Stopped between the question and
 * the write it still writes, late: a write that must not come late names the resourceVersion, uid
 * or value that it is about, or a name that nobody else gives. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kubernetes/kube_http.h"

#define KUBE_LEASE_MS       15000 /* others wait that long */
#define KUBE_LEASE_RENEW_MS 10000 /* the holder gives up after that */
#define KUBE_LEASE_RETRY_MS 2000

typedef struct kube_lease_options {
    const char *ns, *name;                    /* of the Lease */
    const char *identity;                     /* unique among all processes of all times */
    unsigned duration_ms, renew_ms, retry_ms; /* 0: the above */
    /* From its thread, when it notices; kube_lease_held() knows sooner. May be NULL. */
    void (*changed)(void *arg, bool held, uint64_t epoch);
    void *arg;
} kube_lease_options;

typedef struct kube_lease kube_lease;
kube_lease *kube_lease_new(kube *k, const kube_lease_options *o);
/* epoch: how often the holder changed before; it grows. ret_epoch may be NULL. */
bool kube_lease_held(kube_lease *l, uint64_t *ret_epoch);
/* Who has it as far as is known, malloced; NULL: nobody. */
char *kube_lease_holder(kube_lease *l);
/* Why it could not be asked for, copied, or NULL. */
err *kube_lease_trouble(kube_lease *l);
/* This process ends: the lease is given back, and not asked for again. Waits two seconds at most.
 */
void kube_lease_leave(kube_lease *l);
/* Waits for its thread; gives the lease back if it is held, so that nobody waits for its end. */
void kube_lease_free(kube_lease *l);

/* ---- without I/O ---- */
typedef struct kube_lease_seen {
    bool there;
    char holder[256];
    char version[128]; /* the object's */
    uint64_t changed;  /* when we first saw it as it is; CLOCK_MONOTONIC */
    uint64_t duration_ms, transitions;
} kube_lease_seen;
enum kube_lease_act {
    KUBE_LEASE_WAIT,
    KUBE_LEASE_CREATE,
    KUBE_LEASE_TAKE,
    KUBE_LEASE_RENEW,
};
/* What a GET brought (NULL: there is none) at this time. */
void kube_lease_look(kube_lease_seen *seen, const json_t *object, uint64_t now);
enum kube_lease_act kube_lease_decide(const kube_lease_seen *seen, const char *identity,
                                      uint64_t now);
/* "2006-01-02T15:04:05.000000Z": exactly six digits. */
#define KUBE_TIME_MAX 32
void kube_time(uint64_t real_ns, char ret_text[KUBE_TIME_MAX]);

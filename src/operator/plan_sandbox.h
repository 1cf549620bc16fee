/* The planner of one Sandbox object. Pure.
 *
 * Level-triggered, one act in each reconcile; the next one sees the result. Whether a
 * sandbox is alive, the engine says, not the object: the object's spec says what is
 * wanted, and its status shows what is.
 *
 * An object made with kubectl is claimed through the engine's create, and is from then on like a
 * sandbox made through the API. A sandbox made through the API gets its object afterwards
 * (record_proof() tells the two apart).
 *
 * The engine owns the end time. Both the API and spec.expiresAt change it: the last change counts.
 * The engine ends running sandboxes, the operator hibernated ones. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "operator/objects.h"

#define SANDBOX_KEEP_NS    UINT64_C(3600000000000) /* objects of ended sandboxes are kept so long */
#define SANDBOX_CROWD_NS   UINT64_C(60000000000)   /* the same when there are many objects */
#define SANDBOX_REFRESH_NS UINT64_C(60000000000)   /* maximum age of lastActiveAt */
#define SANDBOX_LATE_NS    UINT64_C(5000000000)    /* for the engine to end a sandbox */
#define SANDBOX_SLACK_NS   UINT64_C(1000000000)    /* times are written in seconds */

enum engine_life {
    LIFE_UNKNOWN,    /* the engine does not know it */
    LIFE_BEING_MADE, /* a create or a resume runs */
    LIFE_LIVE,       /* running or paused */
    LIFE_ASLEEP,     /* hibernated */
    LIFE_ENDED,
};

typedef struct sandbox_end { /* texts are borrowed */
    const char *code;        /* of Sandbox.status.cause */
    const char *message;     /* or NULL */
    int32_t exit_code;
} sandbox_end;

typedef struct sandbox_world { /* borrowed */
    const crd_sandbox *sandbox;
    const char *invalid;          /* the error of its check; NULL: none */
    bool pool_missing;            /* it names a pool that does not exist */
    const crd_template *template; /* its own or its pool's; NULL: none */
    bool template_missing;        /* it should have one */
    const char *forbidden;        /* why it may not have that template or pool; NULL: it may */
    const char *forbidden_reason; /* the reason for its condition */
    bool claiming;                /* its create runs, and has returned no id yet */
    const char *refused;          /* why the last create failed; NULL: it did not */
    uint64_t retry_ns;            /* no retry before that, real time */
    bool has_id;                  /* from status.id, or as the create returned it: */
    const char *id;
    enum engine_life life;
    sandbox_end end;                                   /* LIFE_ENDED */
    const char *pod, *pod_uid, *node, *class, *volume; /* at present; NULL: none */
    uint64_t claimed_ns, active_ns;                    /* real time; 0: unknown */
    uint64_t ends_ns; /* when the engine ends it by its ttl, while it is alive; 0: never */
    bool retimed;     /* spec.expiresAt has changed since the engine got it */
    bool busy;        /* commands, streams or processors run: it is not idle */
    bool wanted_now;  /* a request waits for it to run */
    bool pod_there, pod_going;
    bool volume_there;
    bool node_draining; /* its node is cordoned, so that its pods are to leave */
    bool crowded;       /* there are many objects: ended ones are kept for a minute only */
    uint64_t now;       /* real time */
} sandbox_world;

enum sandbox_act {
    SANDBOX_NOTHING,
    SANDBOX_ADD_FINALIZER,
    SANDBOX_CLAIM,
    SANDBOX_HIBERNATE,
    SANDBOX_RESUME,
    SANDBOX_TIME, /* set the engine's end time to `ends_ns` */
    SANDBOX_END,  /* for the cause `end` */
    SANDBOX_DELETE_POD,
    SANDBOX_DELETE_VOLUME,
    SANDBOX_DROP_FINALIZER,
    SANDBOX_FORGET, /* delete the object */
    SANDBOX_ACTS
};
extern const char *const SANDBOX_ACT_NAMES[SANDBOX_ACTS];

typedef struct sandbox_orders {
    enum sandbox_act act;
    const char *end;   /* SANDBOX_END: the cause's code; static */
    const char *why;   /* for people; or NULL */
    uint64_t ends_ns;  /* SANDBOX_TIME: real time */
    bool want_running; /* set spec.desiredState to Running: a request woke it */
    uint64_t again_ns; /* real time; 0: no need */
    enum sandbox_phase phase;
    json_t *status; /* the wanted status; NULL: leave it as it is */
} sandbox_orders;
void sandbox_orders_done(sandbox_orders *o);

sandbox_orders plan_sandbox(const sandbox_world *w);
/* Returns the idle time: the object's, else its template's; 0: never idle. t: or NULL. */
uint64_t sandbox_idle_ms(const crd_sandbox *s, const crd_template *t);
/* Returns when its ttl ends it: what it asks for, but never later than
 * its template allows. 0: unknown. */
uint64_t sandbox_expiry(const crd_sandbox *s, const crd_template *t);

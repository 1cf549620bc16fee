/* What becomes of one Sandbox object: the table "Sandbox".
 *
 * Level-triggered, one act at a look: what it leads to is seen at the next. The engine is asked,
 * not the object, whether a sandbox lives; the object says what is wanted and is told what is.
 *
 * An object that was made with kubectl is claimed through the engine's create and is from then on
 * what a create through the API makes; one that was made through the API gets its object behind it
 * (record_proof() tells the two apart). Pure.
 *
 * Its time is the engine's, which both the API and spec.expiresAt change: whoever spoke last. The
 * engine ends what runs, the operator what sleeps. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "operator/objects.h"

#define SANDBOX_KEEP_NS    UINT64_C(3600000000000) /* objects of what has ended */
#define SANDBOX_CROWD_NS   UINT64_C(60000000000)   /* likewise, where there are many objects */
#define SANDBOX_REFRESH_NS UINT64_C(60000000000)   /* how old lastActiveAt may be */
#define SANDBOX_LATE_NS    UINT64_C(5000000000)    /* the engine may take to end what is over */
#define SANDBOX_SLACK_NS   UINT64_C(1000000000)    /* times are told in seconds */

enum engine_life {
    LIFE_UNKNOWN,    /* the engine has never heard of it */
    LIFE_BEING_MADE, /* a create or a resume is under way */
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
    const char *invalid;          /* what its check said; NULL: nothing */
    bool pool_missing;            /* it names one, and there is none */
    const crd_template *template; /* its own or its pool's; NULL: none */
    bool template_missing;        /* there should be one */
    const char *forbidden;        /* why it may not have that template or pool; NULL: it may */
    const char *forbidden_reason; /* the same for its condition */
    bool claiming;                /* a create is under way for it, and has no id yet */
    const char *refused;          /* why the last create failed; NULL: it did not */
    uint64_t retry_ns;            /* not before that, real time */
    bool has_id;                  /* status.id, or what the create answered: */
    const char *id;
    enum engine_life life;
    sandbox_end end;                                   /* LIFE_ENDED */
    const char *pod, *pod_uid, *node, *class, *volume; /* now; NULL: none */
    uint64_t claimed_ns, active_ns;                    /* real time; 0: not known */
    uint64_t ends_ns; /* when the engine ends it by its time, while it lives; 0: never */
    bool retimed;     /* spec.expiresAt is another than the engine was given */
    bool busy;        /* commands, streams, processors: it is not idle */
    bool wanted_now;  /* a request waits for it to be awake */
    bool pod_there, pod_going;
    bool volume_there;
    bool node_draining; /* its node takes no more pods and wants to be rid of these */
    bool crowded;       /* room for objects runs out: ended ones are kept for a minute */
    uint64_t now;       /* real time */
} sandbox_world;

enum sandbox_act {
    SANDBOX_NOTHING,
    SANDBOX_ADD_FINALIZER,
    SANDBOX_CLAIM,
    SANDBOX_HIBERNATE,
    SANDBOX_RESUME,
    SANDBOX_TIME, /* the engine is to end it at `ends_ns` */
    SANDBOX_END,  /* for `end` */
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
    const char *why;   /* likewise: for people, or NULL */
    uint64_t ends_ns;  /* SANDBOX_TIME: real time */
    bool want_running; /* spec.desiredState is to become Running: a request woke it */
    uint64_t again_ns; /* real time; 0: no need */
    enum sandbox_phase phase;
    json_t *status; /* as it should be; NULL: it stays as it is */
} sandbox_orders;
void sandbox_orders_done(sandbox_orders *o);

sandbox_orders plan_sandbox(const sandbox_world *w);
/* The time after which it is idle: what it asks for, else its template's; 0: never. t: or NULL. */
uint64_t sandbox_idle_ms(const crd_sandbox *s, const crd_template *t);
/* When it ends by its time: what it asked for, and never later than its template allows. 0: not
 * known. */
uint64_t sandbox_expiry(const crd_sandbox *s, const crd_template *t);

/* A sandbox that is being made, and the jobs that wait for it: no thread does. Refcounted; any
 * thread may call. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct making making;
typedef struct making_waiter {
    relay_job *job;
    struct making_waiter *next;
} making_waiter;
/* Takes what is in spec. idem: as of the create, or NULL. */
making *making_new(engine *e, const caller *c, sandbox_spec *spec, const idempotency *idem);
/* One that is there already; takes the reference. */
making *making_of(sandbox *sb);
making *making_ref(making *m);
void making_unref(making *m);
bool making_ended(making *m); /* well or not */
/* False: not yet. Else a reference, or a copy of why not. */
bool making_look(making *m, sandbox **ret_sandbox, err **ret_failure);
/* Its job is woken when it is done. */
void making_wait(making *m, making_waiter *w);
void making_unwait(making *m, making_waiter *w);
/* Nobody wants it any more, unless it is done already. */
void making_leave(engine *e, making *m);
/* The same, done or not: what was made goes, too. */
void making_drop(engine *e, making *m);

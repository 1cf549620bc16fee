/* A sandbox that is being created, and the jobs that wait for it. No thread
 * waits. Refcounted; any thread. */
#pragma once

#include "engine/engine.h"
#include "net/http.h"

typedef struct making making;
typedef struct making_waiter {
    relay_job *job;
    struct making_waiter *next;
} making_waiter;
/* Starts a create. Takes what is in spec. idem: as in engine_create(), or NULL. */
making *making_new(engine *e, const caller *c, sandbox_spec *spec, const idempotency *idem);
/* Wraps a sandbox that exists already. Takes ownership of the reference. */
making *making_of(sandbox *sb);
making *making_ref(making *m);
void making_unref(making *m);
bool making_ended(making *m); /* by success or failure */
/* Returns false if the create has not ended. Else sets a reference, or a copy of the error. */
bool making_look(making *m, sandbox **ret_sandbox, err **ret_failure);
/* Wakes the waiter's job when the create ends. */
void making_wait(making *m, making_waiter *w);
void making_unwait(making *m, making_waiter *w);
/* Cancels the create, as no caller wants its result. Does nothing if it has ended. */
void making_leave(engine *e, making *m);
/* The same, but deletes the sandbox if it was made already. */
void making_drop(engine *e, making *m);

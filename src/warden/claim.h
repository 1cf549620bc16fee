/* Claims: the FIFO of those that wait, and the threads that turn slots into sandboxes. */
#pragma once

#include "base/err.h"
#include "warden/conn.h"

#define CLAIMERS 2

struct warden;

/* Takes a checked CLAIM job: answered now (refused) or later. */
void claim_add(struct warden *w, job *j);
/* With warden.lock held: drops the waiting claim of this sandbox; true if there was one. */
bool claim_cancel(struct warden *w, const char *id);
/* Drops all waiting claims of a connection that closed. */
void claim_drop_of(struct warden *w, const conn *c);
/* A claimer; arg is the warden. Aborts if it cannot make its staging namespace. */
void *claim_run(void *arg);

/* The queue of claims: claims that wait for a slot, and which of them meets a slot when.
 *
 * Each owner has a line of its own; the lines are served in turn (core/rounds.h), a line in the
 * order of arrival. A claim that admission cannot take now holds up its own line, so that small
 * ones of the same owner never overtake it for ever, and no other. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/admit.h"
#include "core/rounds.h"
#include "warden/conn.h"
#include "warden/layers.h"
#include "warden/slot.h"
#include "wire/wardenp.h"

struct warden;

typedef struct claim_job {         /* a CLAIM under way; owns its job */
    struct claim_job *prev, *next; /* of all, in the order of arrival */
    rounds_entry turn;             /* among those of its owner */
    uint64_t owner;                /* 0: bothyd did not say */
    job *j;
    struct wp_claim spec;         /* with the defaults filled in */
    const struct wp_tmpfs *tmpfs; /* in the job's body */
    char hostname[sizeof((struct wp_id){0}.id)];
    uint64_t deadline_ns;
    enum admit_verdict held; /* why admission could not take it when its turn came */
    unsigned retry_after;    /* seconds, when it expires */
    layers_stack stack;      /* held from the start: no prune takes a layer away */
} claim_job;

/* Answers with the error and frees it. It writes to bothyd: never with warden.lock held. */
void claim_job_end(claim_job *c, err *e);
/* After its job has been answered and freed. */
void claim_job_free(claim_job *c);

/* Takes a checked CLAIM job: answered now (refused) or later. */
void fifo_add(struct warden *w, job *j);
/* Waits until the claim whose turn it is and a ready slot meet: the slot is SLOT_CLAIMING then, counted
 * as claimed, and the caller holds a reference. NULL: no claim waits, and the slot is for
 * ahead_give(). */
claim_job *fifo_take(struct warden *w, slot **ret_slot);
/* With warden.lock held: takes the waiting claim of this sandbox out; NULL if there is none. The
 * caller ends it after the lock. */
claim_job *fifo_cancel(struct warden *w, const char *id) ERR_MUST;
/* With warden.lock held: may a sandbox with these limits come in? instead_of (may be NULL): it
 * takes the place of this one. */
enum admit_verdict fifo_admit(struct warden *w, const admit_ask *ask, const slot *instead_of);
/* Drops all waiting claims of a connection that closed. */
void fifo_drop_of(struct warden *w, const conn *of);

/* The FIFO of claims: what waits for a slot, and who meets which slot when.
 *
 * Claims are served in the order of their arrival. What admission cannot take now holds up those
 * behind it: a large sandbox is never overtaken for ever by small ones. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "core/admit.h"
#include "warden/conn.h"
#include "warden/layers.h"
#include "warden/slot.h"
#include "wire/wardenp.h"

struct warden;

typedef struct claim_job { /* a CLAIM under way; owns its job */
    struct claim_job *prev, *next;
    job *j;
    struct wp_claim spec;         /* with the defaults filled in */
    const struct wp_tmpfs *tmpfs; /* in the job's body */
    char hostname[sizeof((struct wp_id){0}.id)];
    uint64_t deadline_ns;
    bool held;            /* admission could not take it when its turn came */
    unsigned retry_after; /* seconds, when it expires */
    layers_stack stack;   /* held from the start: no prune takes a layer away */
} claim_job;

/* Answers with the error and frees it. It writes to bothyd: never with warden.lock held. */
void claim_job_end(claim_job *c, err *e);
/* After its job has been answered and freed. */
void claim_job_free(claim_job *c);

/* Takes a checked CLAIM job: answered now (refused) or later. */
void fifo_add(struct warden *w, job *j);
/* Waits until the head of the FIFO and a ready slot meet: the slot is SLOT_CLAIMING then, counted
 * as claimed, and the caller holds a reference. NULL: no claim waits, and the slot is for
 * ahead_give(). */
claim_job *fifo_take(struct warden *w, slot **ret_slot);
/* With warden.lock held: takes the waiting claim of this sandbox out; NULL if there is none. The
 * caller ends it after the lock. */
claim_job *fifo_cancel(struct warden *w, const char *id) ERR_MUST;
/* With warden.lock held: may a sandbox with this memory limit come in? instead_of (may be NULL): it
 * takes the place of this one. */
enum admit_verdict fifo_admit(struct warden *w, uint64_t memory, const slot *instead_of);
/* Drops all waiting claims of a connection that closed. */
void fifo_drop_of(struct warden *w, const conn *of);

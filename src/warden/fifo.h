/* The queue of claims that wait for a slot. It decides which claim gets a slot, and when.
 *
 * Each owner has a line of its own. The lines are served in turn (core/rounds.h), a line in the
 * order of arrival. A claim that admission cannot take now holds up its own line, so that small
 * ones of the same owner never overtake it for ever, and no other line. */
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
    struct claim_job *prev, *next; /* of all claims, in the order of arrival */
    rounds_entry turn;             /* among those of its owner */
    uint64_t owner;                /* 0: bothyd did not name it */
    job *j;
    struct wp_claim spec;         /* with the defaults filled in */
    const struct wp_tmpfs *tmpfs; /* in the job's body */
    char hostname[sizeof((struct wp_id){0}.id)];
    uint64_t deadline_ns;
    enum admit_verdict held; /* why admission could not take it when its turn came */
    unsigned retry_after;    /* seconds, when it expires */
    layers_stack stack;      /* held from the start: no prune takes a layer away */
} claim_job;

/* Answers with the error and frees the claim. Takes ownership of e. It writes to bothyd: never with
 * warden.lock held. */
void claim_job_end(claim_job *c, err *e);
/* Frees a claim after its job has been answered and freed. */
void claim_job_free(claim_job *c);

/* Queues a checked CLAIM job, or refuses it at once. Takes ownership of j. */
void fifo_add(struct warden *w, job *j);
/* Waits until a claim whose turn it is and a ready slot meet, and returns the claim. The slot is
 * then SLOT_CLAIMING and counted as claimed, and the caller holds a reference. Returns NULL if the
 * slot is for ahead_give() instead. */
claim_job *fifo_take(struct warden *w, slot **ret_slot);
/* Takes the waiting claim of this sandbox out of the queue. Returns NULL if there is none.
 * warden.lock held; the caller ends the claim after unlocking. */
claim_job *fifo_cancel(struct warden *w, const char *id) ERR_MUST;
/* Returns whether admission allows a sandbox with these limits now. They replace the limits of
 * instead_of, a claimed slot, unless it is NULL. warden.lock held. */
enum admit_verdict fifo_admit(struct warden *w, const admit_ask *ask, const slot *instead_of);
/* Ends all waiting claims of a connection that closed. */
void fifo_drop_of(struct warden *w, const conn *of);

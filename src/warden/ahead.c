#include "warden/ahead.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"
#include "warden/counters.h"
#include "warden/destroy.h"
#include "warden/root.h"
#include "warden/warden.h"

#define PICK_MAX 64 /* how many of the oldest are searched for the right image */

void ahead_expect(warden *w, const struct wp_claim *c)
{
    if (c->flags & WP_CLAIM_SETUID)
        return;
    w->expected = c->image;
    w->expects = true;
}

static bool is_bare(const slot *s)
{
    return !s->ahead.owner;
}

bool ahead_fits(const slot *s, const struct wp_claim *c)
{
    return !is_bare(s) && !(c->flags & WP_CLAIM_SETUID) &&
           !memcmp(s->ahead.image, c->image.sha256, sizeof s->ahead.image);
}

static slot *ahead_best(const warden *w, const struct wp_claim *c)
{
    slot *bare = NULL;
    unsigned n = 0;

    for (slot *s = w->ready_head; s && n < PICK_MAX; s = s->next, n++) {
        if (ahead_fits(s, c))
            return s;
        if (!bare && is_bare(s))
            bare = s;
    }
    return bare ? bare : w->ready_head;
}

slot *ahead_pick(warden *w, const struct wp_claim *c)
{
    slot *s;

    while ((s = ahead_best(w, c)) && slot_dead(s))
        destroy_slot(w, s); /* it died while it waited */
    return s;
}

/* Returns true if the slot may get its image now. After a claim the processors are left to it for a
 * moment. A slot that was made since gets its image at once: its refill was just as much in the
 * way. */
static bool is_due(const warden *w, const slot *s, uint64_t now)
{
    return s->ready_ns > w->pool.claimed_at_ns || now >= w->pool.claimed_at_ns + POOL_HOLD_NS;
}

slot *ahead_begin(warden *w, uint64_t *ret_again_ns)
{
    uint64_t now = now_mono_ns();

    *ret_again_ns = 0;
    /* Claims that wait for room, not for a slot, take no ready slot: they are no reason to stop. */
    if (!w->expects || (w->fifo.head && w->fifo.held_by == ADMIT_NOW))
        return NULL;
    for (slot *s = w->ready_tail; s; s = s->prev) {
        if (!is_bare(s))
            continue;
        if (!is_due(w, s, now)) {
            *ret_again_ns = w->pool.claimed_at_ns + POOL_HOLD_NS;
            continue;
        }
        slot_leave_ready(w, s);
        s->state = SLOT_MAKING;
        w->giving++; /* the watermarks count it among the ready */
        slot_ref(s);
        s->image = w->expected; /* until it is given back */
        return s;
    }
    return NULL;
}

static err *warden_ahead_give(stage *st, slot *s, const layers_stack *stack)
{
    CLEANUP(closep) int record = -1;
    CLEANUP(closep) int mount = -1;
    char upper[32];

    TRY(slot_ahead_begin(s, &record));
    FAULT_KILL("ahead.begun");
    snprintf(upper, sizeof upper, "uppers/%u", s->n);
    TRY(stage_build(st,
                    &(stage_spec){.layers = stack->path,
                                  .nlayers = stack->n,
                                  .upper = upper,
                                  .userns = s->userns,
                                  .uid_base = slot_uid_base(s->n),
                                  .nosuid = true},
                    &mount));
    FAULT_KILL("ahead.built");
    TRY(root_change(st, s->pidfd, mount));
    FAULT_KILL("ahead.changed");
    TRY(slot_claim_done(record));
    FAULT_KILL("ahead.recorded");
    return NULL;
}

static void give_back(warden *w, slot *s, const layers_stack *stack, bool bare, const err *e)
{
    pthread_mutex_lock(&w->lock);
    w->giving--;
    s->ahead = *stack; /* also if the slot is to go: it is released with it */
    s->image = (struct wp_digest){0};
    if (e) {
        log_warn("ahead", "slot %u: %s: %s", s->n, e->message, str_or(e->cause, "no cause"));
        w->expects = false; /* until a claim names it, and gets the reason */
    } else if (!s->doomed) {
        count_ahead();
    }
    if (bare) /* a good slot as before: it never got the image that was forgotten */
        s->doomed = false;
    if (bare || (!e && !s->doomed))
        slot_enter_ready(w, s);
    else
        destroy_slot(w, s);
    slot_unref(w, s);
    pthread_cond_signal(&w->claims);
    slot_unlock_release(w);
}

void ahead_give(warden *w, stage *st, slot *s)
{
    layers_stack stack = {0};
    err *e = layers_stack_of(w->layers, s->image.sha256, &stack);
    bool bare = e; /* nothing was done to the slot */

    if (!e)
        e = warden_ahead_give(st, s, &stack);
    stage_drop(st);
    give_back(w, s, &stack, bare, e);
    err_free(e);
}

static bool is_one_of(const uint8_t image[32], const uint8_t (*images)[32], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!memcmp(image, images[i], 32))
            return true;
    return false;
}

void ahead_forget(warden *w, const uint8_t (*images)[32], size_t n)
{
    if (w->expects && is_one_of(w->expected.sha256, images, n))
        w->expects = false;
    for (slot *s = w->ready_head, *next; s; s = next) {
        next = s->next;
        if (is_bare(s) || !is_one_of(s->ahead.image, images, n))
            continue;
        slot_drop_ahead(w, s);
        destroy_slot(w, s);
    }
    for (uint32_t i = 0; w->giving && i < w->nslots; i++)
        if (w->slots[i] && w->slots[i]->state == SLOT_MAKING &&
            is_one_of(w->slots[i]->image.sha256, images, n))
            w->slots[i]->doomed = true;
}

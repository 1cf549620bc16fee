/* Puts an image under a ready slot before it is claimed.
 *
 * Most claims name the image of the one before: the same task many times, or a burst of one kind.
 * So a ready slot gets that image ahead, and a claim that names it only has to write its names and
 * limits. A claim of another image puts its own root under the slot as if it were bare, with a
 * second upper: nothing of the first is left but what the kernel is still putting away.
 *
 * An image is identified by its digest: the root that was put under a slot is the one that a claim
 * of that digest would get. When an image is forgotten, the slots that have it are destroyed.
 * Set-uid grants change the mount's flags: such claims never use what was done ahead.
 *
 * All functions with warden.lock held, except ahead_give(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "warden/slot.h"
#include "warden/stage.h"
#include "wire/wardenp.h"

struct warden;

/* Remembers the image of a claim as the one that the next claim will probably name. */
void ahead_expect(struct warden *w, const struct wp_claim *c);
/* Returns true if the root that the claim wants is under the slot already. */
bool ahead_fits(const slot *s, const struct wp_claim *c);
/* Returns the ready slot that suits the claim best, or NULL if there is none. Destroys the dead
 * ones that it meets. */
slot *ahead_pick(struct warden *w, const struct wp_claim *c);

/* Takes a bare slot out of the ready ones, references it and returns it, so that ahead_give() puts
 * the expected image under it. Returns NULL if there is nothing to do; *ret_again_ns is then the
 * time to ask again (0: at the next event). */
slot *ahead_begin(struct warden *w, uint64_t *ret_again_ns);
/* Puts the expected image under a slot of ahead_begin() and drops the reference. Claimer threads
 * only. Afterwards the slot is ready again, or destroyed. */
void ahead_give(struct warden *w, stage *st, slot *s);

/* Forgets these images: destroys the slots that have one of them ahead of a claim, and expects none
 * of them any more. */
void ahead_forget(struct warden *w, const uint8_t (*images)[32], size_t n);

/* A slot's image, put under it before anybody has claimed it.
 *
 * Most claims name the image of the one before: the same task many times, or a burst of one kind.
 * So a slot that is ready gets that image ahead, and a claim that names it only has to write its
 * names and limits. A claim of another image puts its own root under the slot as if it were bare,
 * with a second upper: nothing of the first is left but what the kernel is still putting away.
 *
 * An image is its digest: what was put under a slot is what a claim of that digest would get.
 * Images that are forgotten take the slots that wear them along. Set-uid grants change the mount's
 * flags: such claims never use what was done ahead.
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

/* What a claim has asked for: what the next one will probably ask for. */
void ahead_expect(struct warden *w, const struct wp_claim *c);
/* True if the slot has the claim's root already. */
bool ahead_fits(const slot *s, const struct wp_claim *c);
/* The ready slot that suits the claim best; NULL: there is none. Dead ones go. */
slot *ahead_pick(struct warden *w, const struct wp_claim *c);

/* A bare slot to be given the expected image, out of the ready ones and referenced; or NULL, and
 * when to ask again (0: when something happens). */
slot *ahead_begin(struct warden *w, uint64_t *ret_again_ns);
/* By a claimer. The slot is ready again, or destroyed. */
void ahead_give(struct warden *w, stage *st, slot *s);

/* These images are to go. */
void ahead_forget(struct warden *w, const uint8_t (*images)[32], size_t n);

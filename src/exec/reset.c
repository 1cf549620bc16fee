/* A reset: the sandbox continues in another box, with the same journal.
 *
 * The record is written first and names the new box; the store's commit then says which box the
 * sandbox has. A record that the store does not confirm is ignored. So after a kill at any
 * instruction, an exec without an end still runs in the old box, or was killed with it. No exec
 * begins between the record and the commit: execs behind the record belong to the new box. */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

/* Drops what is known of the old box. Lock held. */
static void forget_box(exec_table *t, uint64_t first)
{
    t->reset_id = first;
    t->start_id = 0;
    t->ooms = t->ooms_before = t->ooms_ns = 0;
}

void table_reset_load(exec_table *t, const journal_rec *r)
{
    if (strcmp(r->reset.box, t->box_id) != 0)
        return; /* of an earlier reset, or of one that failed */
    t->reset = r->reset;
    forget_box(t, r->exec);
}

box *exec_box(exec *x)
{
    exec_table *t = x->table;
    LOCK_SCOPE(&t->lock);

    if (!t->box || x->reset)
        return NULL;
    t->ops->box_ref(t->box);
    return t->box;
}

err *exec_table_reset_begin(exec_table *t, const char *box_id, const exec_key *key,
                            uint64_t *ret_first)
{
    journal_rec r = {.type = JOURNAL_RESET};
    LOCK_SCOPE(&t->lock);

    r.exec = t->next_id;
    r.reset.real_ns = now_real_ns();
    str_copy(r.reset.box, sizeof r.reset.box, box_id);
    if (key) {
        memcpy(r.reset.key, key->key, 16);
        memcpy(r.reset.body, key->body, 16);
    }
    TRY(journal_append(&t->journal, &r, NULL));
    FAULT_KILL("reset.noted");
    t->shut = true;
    t->reset_next = r.reset;
    *ret_first = t->next_id;
    return NULL;
}

void exec_table_reset_undo(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    t->shut = false;
}

void exec_table_reset_end(exec_table *t, box *x)
{
    LOCK_SCOPE(&t->lock);

    for (exec *old = t->live; old; old = old->live_next) {
        old->reset = old->lost = true;
        pump_kick(&old->job);
    }
    tunnels_lose(t);
    t->reset = t->reset_next;
    str_copy(t->box_id, sizeof t->box_id, t->reset.box);
    forget_box(t, t->next_id);
    t->ops->box_ref(x);
    if (t->box) /* NULL: it was hibernated before a restart */
        t->ops->box_unref(t->box);
    t->box = x;
    t->attached = t->shut = false;
    t->busy_ns = now_mono_ns();
}

err *exec_table_reset_was(exec_table *t, const exec_key *key, bool *ret_was)
{
    LOCK_SCOPE(&t->lock);
    const struct journal_reset *r = &t->reset;

    *ret_was = exec_key_is_set(key->key) && !memcmp(r->key, key->key, 16) &&
               now_real_ns() < r->real_ns + KEY_LIFE_NS;
    if (*ret_was && memcmp(r->body, key->body, 16) != 0)
        return err_new(ERR_IDEMPOTENCY_MISMATCH,
                       "this idempotency key was used for another request");
    return NULL;
}

uint64_t exec_table_reset_id(exec_table *t)
{
    LOCK_SCOPE(&t->lock);
    return t->reset_id;
}

void exec_table_sleep(exec_table *t, backend *b)
{
    LOCK_SCOPE(&t->lock);

    t->backend = b;
    t->ops = b->ops;
    t->frames = b->caps.frames;
    t->shut = true;
    if (!t->bound) {
        t->bound = true; /* until `gone`, of the box that a reset will bring */
        exec_table_ref(t);
    }
}

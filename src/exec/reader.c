/* State that doors keep with an exec for clients that reconnect without an offset. In memory only.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "exec/internal.h"

struct reader { /* kept by the exec's id: it outlives an unreferenced exec */
    uint64_t number;
    uint64_t at[2];
    char *note;
};

/* Returns the reader of an exec; makes one if there is none. Lock held. */
static struct reader *reader_of(exec_table *t, uint64_t id)
{
    struct reader *r = map_get_u64(&t->readers, id);

    if (!r) {
        r = xcalloc(1, sizeof *r);
        map_put_u64(&t->readers, id, r);
    }
    return r;
}

uint64_t exec_reader_new(exec *x, uint64_t ret_at[2])
{
    LOCK_SCOPE(&x->table->lock);
    struct reader *r = reader_of(x->table, x->id);

    ret_at[0] = r->at[0];
    ret_at[1] = r->at[1];
    return ++r->number;
}

void exec_reader_move(exec *x, uint64_t number, const uint64_t at[2])
{
    LOCK_SCOPE(&x->table->lock);
    struct reader *r = reader_of(x->table, x->id);

    if (r->number != number)
        return;
    r->at[0] = at[0];
    r->at[1] = at[1];
}

void exec_note_set(exec *x, char *owned)
{
    LOCK_SCOPE(&x->table->lock);
    struct reader *r = reader_of(x->table, x->id);

    free(r->note);
    r->note = x->ended ? NULL : owned;
    if (x->ended)
        free(owned);
}

char *exec_note(exec *x)
{
    LOCK_SCOPE(&x->table->lock);
    const struct reader *r = map_get_u64(&x->table->readers, x->id);

    return r && r->note ? xstrdup(r->note) : NULL;
}

void reader_ended(exec_table *t, uint64_t id)
{
    struct reader *r = map_get_u64(&t->readers, id);

    if (r)
        free(TAKE_PTR(r->note));
}

void readers_free(exec_table *t)
{
    map_iter it = {0};

    while (map_next(&t->readers, &it)) {
        struct reader *r = it.entry->value;
        free(r->note);
        free(r);
    }
    map_done(&t->readers);
}

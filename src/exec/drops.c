/* The index of marks: which bytes of which streams are gone. */
#include <stdlib.h>

#include "base/str.h"
#include "exec/internal.h"

static uint64_t drop_key(uint64_t id, unsigned stream)
{
    return 2 * id + stream - 1;
}

static uint64_t drop_span(exec_table *t, uint64_t key, const struct journal_mark *m)
{
    spans *s = map_get_u64(&t->drops, key);

    if (!s) {
        s = xcalloc(1, sizeof *s);
        map_put_u64(&t->drops, key, s);
    }
    uint64_t before = spans_bytes(s, 0, UINT64_MAX);
    spans_add(s, m->from, m->to);
    return spans_bytes(s, 0, UINT64_MAX) - before;
}

/* For an evicted stream keeps only the number of its record, so that a million of them need no
 * memory. */
uint64_t drops_add(exec_table *t, struct past *p, const struct journal_mark *m, uint32_t index)
{
    uint64_t key = drop_key(p->id, m->stream);
    uint32_t *gone = &p->gone[m->stream - 1];
    journal_rec old;

    if (p->end && !m->from && !*gone && !map_get_u64(&t->drops, key)) {
        *gone = index + 1;
        return m->to;
    }
    if (*gone) { /* another mark follows the first: rare */
        err *e = journal_read(&t->journal, *gone - 1, &old);
        if (!e)
            drop_span(t, key, &old.mark);
        err_drop(e, "mark");
        *gone = 0;
    }
    return drop_span(t, key, m);
}

err *drops_load(exec_table *t, const struct past *p, exec *x)
{
    for (unsigned i = 0; i < 2; i++) {
        const spans *s = map_get_u64(&t->drops, drop_key(p->id, i + 1));
        journal_rec r;
        for (size_t k = 0; s && k < s->n; k++)
            spool_set_mark(&x->out[i], s->at[k].from, s->at[k].to);
        if (!p->gone[i])
            continue;
        TRY(journal_read(&t->journal, p->gone[i] - 1, &r));
        spool_set_mark(&x->out[i], r.mark.from, r.mark.to);
    }
    return NULL;
}

void drops_free(exec_table *t)
{
    map_iter it = {0};

    while (map_next(&t->drops, &it)) {
        spans_done(it.entry->value);
        free(it.entry->value);
    }
    map_done(&t->drops);
}

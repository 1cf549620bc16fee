/* POST /sandboxes/{id}/fork: sandboxes that begin with the files of one; processes are not in
 * them, nor the environment that it was created with. All that are asked for, or none. */
#include <stdatomic.h>

#include "door/e2b/templates.h"
#include "door/shared/wait.h"

typedef struct forking {
    const e2b *door;
    caller who; /* a copy */
    wait_ticket *ticket;
    _Atomic bool left; /* who asked has gone */
    _Atomic int holders;
} forking;

static void forking_unref(forking *f)
{
    if (--f->holders)
        return;
    free(f->who.owner);
    free(f);
}

static void fork_over(void *arg, bool early)
{
    forking *f = arg;

    f->left = early;
    forking_unref(f);
}

static void on_forked(void *arg, err *failure, sandbox *const *children, size_t n,
                      uint64_t still_ns)
{
    forking *f = arg;
    json_t *list = json_array();

    (void)still_ns;
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_pack("{s:o}", "sandbox", view_made(f->door, children[i])));
        if (f->left) /* nobody knows its id */
            err_drop(engine_delete(f->door->o.engine, &f->who, children[i], CAUSE_REQUESTED, NULL),
                     "e2b");
    }
    wait_finish(f->ticket, failure, 201, list, false);
    forking_unref(f);
}

static err *parse_count(const json_t *body, unsigned *ret_count)
{
    const json_t *v = json_object_get(body, "count");
    json_int_t n = v && !json_is_null(v) ? json_integer_value(v) : 1;

    if (n < 1 || n > (json_int_t)FORK_MAX)
        return err_new(ERR_INVALID_REQUEST, "count: must be 1 to %u", FORK_MAX);
    *ret_count = (unsigned)n;
    return NULL;
}

/* What the door keeps with the parent, but for its time. */
static char *note_for(const sandbox *parent, uint64_t ttl_ms)
{
    CLEANUP(e2b_note_done) e2b_note note = {0};

    e2b_note_read(parent, &note);
    note.ttl_ms = ttl_ms;
    return e2b_note_write(&note);
}

err *fork_sandboxes(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    fork_request r = {0};
    const e2b *d = e2b_of(rq);

    TRY(control_body(rq, NULL, &body));
    TRY(parse_count(body, &r.count));
    TRY(control_timeout(body, d->o.default_ttl_ms, &r.spec.ttl_ms));
    TRY(control_find(rq, &sb));
    r.spec.door = note_for(sb, r.spec.ttl_ms);
    forking *f = xcalloc(1, sizeof *f);
    *f = (forking){.door = d, .who = *e2b_caller(rq), .holders = 2};
    f->who.owner = xstrdup(f->who.owner);
    f->ticket = wait_start(rq, rs, false);
    wait_over(f->ticket, fork_over, f);
    err *refused = engine_fork(d->o.engine, e2b_caller(rq), sb, &r, on_forked, f);
    if (refused)
        on_forked(f, refused, NULL, 0, 0);
    sandbox_spec_done(&r.spec);
    return NULL;
}

/* POST /sandboxes/{id}/fork: creates sandboxes with a copy of the files of one, all that are asked
 * for or none. Its processes and the environment it was created with are not copied. */
#include "door/shared/fork.h"

#include "door/e2b/templates.h"

static json_t *view_forked(const void *door, sandbox *const *children, size_t n, uint64_t still_ns)
{
    json_t *list = json_array();

    (void)still_ns;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:o}", "sandbox", view_made(door, children[i])));
    return list;
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

/* Returns the parent's note with another time to live. */
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
    const e2b *d = e2b_of(rq);
    fork_asked a = {.engine = d->o.engine, .who = e2b_caller(rq), .view = view_forked, .arg = d};
    fork_request *r = &a.what;

    TRY(control_body(rq, NULL, &body));
    TRY(parse_count(body, &r->count));
    TRY(control_timeout(body, d->o.default_ttl_ms, &r->spec.ttl_ms));
    TRY(control_find(rq, &sb));
    TRY(request_hold_new(rq, r->count * FORK_HELD, &a.hold));
    a.parent = sb;
    r->spec.door = note_for(sb, r->spec.ttl_ms);
    fork_start(rq, rs, &a);
    return NULL;
}

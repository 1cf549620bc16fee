#include "door/shared/fork.h"

#include <stdatomic.h>

#include "base/str.h"
#include "door/shared/wait.h"

typedef struct forking {
    engine *engine;
    caller who; /* a copy */
    fork_view *view;
    const void *arg;
    wait_ticket *ticket;
    _Atomic bool left; /* the caller has disconnected */
    _Atomic int holders;
} forking;

static void fork_unref(forking *f)
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
    fork_unref(f);
}

static bool is_left(void *arg)
{
    const forking *f = arg;

    return f->left;
}

static void on_forked(void *arg, err *failure, sandbox *const *children, size_t n,
                      uint64_t still_ns)
{
    forking *f = arg;

    json_t *answer = failure ? NULL : f->view(f->arg, children, n, still_ns);
    bool heard = wait_finish(f->ticket, failure, 201, answer, false);
    for (size_t i = 0; !heard && i < n; i++)
        err_drop(engine_delete(f->engine, &f->who, children[i], CAUSE_REQUESTED, NULL), "fork");
    fork_unref(f);
}

void fork_start(request *rq, response *rs, fork_asked *a)
{
    forking *f = xcalloc(1, sizeof *f);

    *f = (forking){
        .engine = a->engine, .who = *a->who, .view = a->view, .arg = a->arg, .holders = 2};
    f->who.owner = xstrdup(f->who.owner);
    f->ticket = wait_start(rq, rs, false);
    wait_hold(f->ticket, a->hold);
    wait_over(f->ticket, fork_over, f);
    a->what.is_left = is_left;
    err *refused = engine_fork(f->engine, a->who, a->parent, &a->what, on_forked, f);
    if (refused)
        on_forked(f, refused, NULL, 0, 0);
    sandbox_spec_done(&a->what.spec);
}

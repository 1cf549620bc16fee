/* Forks a sandbox, and answers when the children are made. */
#pragma once

#include "base/json.h"
#include "engine/engine.h"
#include "net/http.h"

#define FORK_HELD (128u << 10) /* memory that each child counts for, in addition to its request */

typedef json_t *fork_view(const void *arg, sandbox *const *children, size_t n, uint64_t still_ns);

typedef struct fork_asked {
    engine *engine;
    const caller *who;
    sandbox *parent;
    fork_request what;  /* its spec is taken */
    request_hold *hold; /* or NULL; released at the end */
    fork_view *view;    /* makes the answer (201) from all children */
    const void *arg;
} fork_asked;

/* Starts a fork. If the caller disconnects before the answer, it cannot know the ids: children that
 * exist are deleted, and no more are made. */
void fork_start(request *rq, response *rs, fork_asked *a);

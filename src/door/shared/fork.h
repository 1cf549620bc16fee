/* Forks for who waits for the answer. */
#pragma once

#include "base/json.h"
#include "engine/engine.h"
#include "net/http.h"

#define FORK_HELD (128u << 10) /* what each child counts for beside what is asked of it */

typedef json_t *fork_view(const void *arg, sandbox *const *children, size_t n, uint64_t still_ns);

typedef struct fork_asked {
    engine *engine;
    const caller *who;
    sandbox *parent;
    fork_request what;  /* of it the spec is taken */
    request_hold *hold; /* or NULL; given back at the end */
    fork_view *view;    /* makes the answer, 201, of all children */
    const void *arg;
} fork_asked;

/* A caller that has gone before the answer knows no ids: its children are unmade, and those to come
 * are not made. */
void fork_start(request *rq, response *rs, fork_asked *a);

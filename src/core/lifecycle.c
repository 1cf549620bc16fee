#include "core/lifecycle.h"

#include "base/cleanup.h"
#include "base/sm.h"
#include "base/str.h"

static const char *const NAMES[LIFE_STATES] = {
    [LIFE_CREATING] = "creating",     [LIFE_RUNNING] = "running", [LIFE_PAUSED] = "paused",
    [LIFE_HIBERNATED] = "hibernated", [LIFE_GONE] = "gone",
};

static const sm_edge EDGES[] = {
    {LIFE_CREATING, LIFE_RUNNING},   {LIFE_CREATING, LIFE_GONE}, {LIFE_RUNNING, LIFE_PAUSED},
    {LIFE_RUNNING, LIFE_HIBERNATED}, {LIFE_RUNNING, LIFE_GONE},  {LIFE_PAUSED, LIFE_RUNNING},
    {LIFE_PAUSED, LIFE_HIBERNATED},  {LIFE_PAUSED, LIFE_GONE},   {LIFE_HIBERNATED, LIFE_RUNNING},
    {LIFE_HIBERNATED, LIFE_GONE},
};

const char *lifecycle_name(enum lifecycle s)
{
    return s < LIFE_STATES ? NAMES[s] : "unknown";
}

enum lifecycle lifecycle_by_name(const char *name)
{
    for (int i = 0; i < LIFE_STATES; i++)
        if (str_eq(name, NAMES[i]))
            return (enum lifecycle)i;
    return LIFE_STATES;
}

bool lifecycle_allows(enum lifecycle from, enum lifecycle to)
{
    return sm_allows(EDGES, ARRAY_LEN(EDGES), (int)from, (int)to);
}

err *lifecycle_move(enum lifecycle *state, enum lifecycle to)
{
    if (lifecycle_allows(*state, to)) {
        *state = to;
        return NULL;
    }
    if (*state == LIFE_GONE)
        return err_kind(err_new(ERR_SANDBOX_GONE, "the sandbox is gone"), "sandbox");
    if (*state == LIFE_PAUSED)
        return err_kind(err_new(ERR_SANDBOX_PAUSED, "the sandbox is paused"), "sandbox");
    return err_kind(err_new(ERR_CONFLICT, "a sandbox that is %s cannot become %s",
                            lifecycle_name(*state), lifecycle_name(to)),
                    "state");
}

#include "door/shared/usage.h"

#include <string.h>

#include "base/str.h"

box_usage *usage_of(engine *e, const sandbox_view *views, size_t n)
{
    backend *b = engine_backend(e);
    box_usage *all = xcalloc(n + 1, sizeof *all);
    char(*ids)[SANDBOX_ID_LEN + 1] = xcalloc(n + 1, sizeof *ids);

    for (size_t i = 0; i < n; i++)
        memcpy(ids[i], views[i].box, sizeof ids[i]);
    if (n && b->caps.stats != CAP_ABSENT)
        err_drop(b->ops->usage_many(b, (const char(*)[SANDBOX_ID_LEN + 1]) ids, n, all), "usage");
    free(ids);
    return all;
}

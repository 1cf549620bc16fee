/* Backup of the store, for administrators of the node. */
#include "engine/internal.h"

err *engine_backup(engine *e, const caller *c, int *ret_fd)
{
    TRY(caller_require(c, CALLER_ADMIN));
    return store_backup(e->o.store, ret_fd);
}

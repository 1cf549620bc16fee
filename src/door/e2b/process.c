/* process.Process over Connect. */
#include "door/e2b/internal.h"

err *process_rpc(envd_call *c, request *rq, response *rs)
{
    (void)c;
    (void)rs;
    return e2b_missing(MISSING_PROCESS, "%s is not served yet", request_path(rq));
}

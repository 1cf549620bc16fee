/* GET and POST /files. */
#include "door/e2b/internal.h"

err *files_http(envd_call *c, request *rq, response *rs)
{
    (void)c;
    (void)rs;
    return e2b_missing(MISSING_FILES, "%s %s is not served yet", request_method(rq),
                       request_path(rq));
}

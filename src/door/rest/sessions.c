/* …/sessions: open, run, look, interrupt, end. */
#include "api/openapi.h"
#include "door/rest/internal.h"

static err *not_yet(void)
{
    return err_new(ERR_UNSUPPORTED, "this node has no sessions yet");
}

#define STUB(name)                       \
    err *name(request *rq, response *rs) \
    {                                    \
        (void)rq;                        \
        (void)rs;                        \
        return not_yet();                \
    }

STUB(rest_session_list)
STUB(rest_session_create)
STUB(rest_session_get)
STUB(rest_session_delete)
STUB(rest_session_interrupt)
STUB(rest_command_list)
STUB(rest_command_run)
STUB(rest_command_get)
STUB(rest_command_output)

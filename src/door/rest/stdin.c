/* POST …/stdin: appends input at once, or when the command has read enough; no thread waits. */
#include <string.h>

#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/internal.h"
#include "door/shared/feed.h"

#define STDIN_MAX (1 << 20) /* of one request */

static void stdin_answer(relay_io *io, exec *x, const char *request_id)
{
    CLEANUP(json_decrefp)
    json_t *body = json_pack("{s:I}", "length", (json_int_t)exec_stdin_length(x));

    http_json_answer(io->out, 200, body, io->keep_alive, request_id, NULL);
}

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

err *rest_process_stdin(request *rq, response *rs)
{
    CLEANUP(process_stdin_query_done) process_stdin_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(exec_unrefp) exec *x = NULL;
    CLEANUP(body_wipe) buf body = {0};

    TRY(process_stdin_query_decode(query_find, rq, &q));
    TRY(rest_find_exec(rq, &sb, &x));
    TRY(engine_awake(sb));
    TRY(request_body(rq, STDIN_MAX, &body));
    return feed_start(rq, rs, x, &body,
                      &(feed_options){.offset = q.has_offset ? q.offset : UINT64_MAX,
                                      .eof = q.eof,
                                      .answer = stdin_answer});
}

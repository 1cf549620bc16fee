/* What the files of process.Process share. */
#pragma once

#include "door/e2b/internal.h"
#include "door/e2b/process.h"

err *process_find(sandbox *sb, const process_selector *s, exec **ret) ERR_MUST;
err *process_not_found(const process_selector *s) ERR_MUST;
/* An error of an exec's verb, as envd's callers know it. Takes it. */
err *process_told(exec *x, err *e) ERR_MUST;
/* The body of a unary call, and whom it means. */
err *process_read(envd_call *c, request *rq, process_request *ret_in, exec **ret_exec) ERR_MUST;

/* process_stream.c: Start and Connect from there on */
typedef struct process_stream {
    bool is_new;            /* that it could not be started is an error */
    const char *cwd, *user; /* of a new one, for that error; or NULL */
    uint64_t keepalive_ns;
    uint64_t deadline_ns; /* monotonic; 0: none */
} process_stream;
void process_stream_start(request *rq, response *rs, sandbox *sb, exec *x, const process_stream *o);

/* process_input.c */
err *process_send_input_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;
err *process_stream_input_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;
err *process_close_stdin_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;

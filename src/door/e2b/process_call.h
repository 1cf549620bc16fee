/* Shared declarations of process.Process. */
#pragma once

#include "door/e2b/internal.h"
#include "door/e2b/process.h"

err *process_find(sandbox *sb, const process_selector *s, exec **ret) ERR_MUST;
err *process_not_found(const process_selector *s) ERR_MUST;
/* Maps an error of an exec verb to the one that envd's clients know. Takes it. */
err *process_told(exec *x, err *e) ERR_MUST;
/* Reads the body of a unary call and finds the process it names. */
err *process_read(envd_call *c, request *rq, process_request *ret_in, exec **ret_exec) ERR_MUST;

/* process_stream.c: the event stream of Start and Connect */
typedef struct process_stream {
    bool is_new;            /* a Start: a process that could not be started is an error */
    const char *cwd, *user; /* of a new process, for the text of that error; or NULL */
    uint64_t keepalive_ns;
    uint64_t deadline_ns; /* monotonic; 0: none */
} process_stream;
void process_stream_start(request *rq, response *rs, sandbox *sb, exec *x, const process_stream *o);

/* process_input.c */
err *process_send_input_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;
err *process_stream_input_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;
err *process_close_stdin_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;

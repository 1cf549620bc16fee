/* Runs a snippet of code in a sandbox of its own, which is deleted afterwards.
 *
 * No network, a read-only root, /sandbox of 64 MiB that is writable and executable, 256 MiB of
 * memory with swap, 50 processes and threads, uid 65534, no new privileges. The sandbox comes from
 * the same pool as all others: none is reserved. For jobs of the relay; no thread waits. */
#pragma once

#include "base/buf.h"
#include "door/shared/making.h"

#define CODE_MAX        (1u << 20) /* bytes of a snippet */
#define CODE_TIMED_OUT  124        /* the exit status of `timeout` */
#define CODE_UNKNOWN    125
#define CODE_OUTPUT_MAX (1u << 20) /* bytes of a stream in an answer */

typedef struct code_snippet {
    const char *image;    /* "": this node has none */
    const char *language; /* as the image's `code-run` names it */
    const char *text;
    uint64_t timeout_ms;
} code_snippet;

typedef struct code_run code_run;
/* Starts the create of the sandbox. Request threads. ERR_UNSUPPORTED, ERR_TOO_LARGE. */
err *code_run_new(engine *e, const caller *c, const code_snippet *s, code_run **ret_run) ERR_MUST;
/* Wakes the job from now on whenever it should poll. */
void code_run_attach(code_run *r, relay_job *job);
err *code_run_poll(code_run *r, bool *ret_done) ERR_MUST;
/* Deletes the sandbox, so that its owner may have another one. Call it after the output was read
 * and before the answer is sent. */
void code_run_release(code_run *r);
/* Ends a running snippet and deletes the sandbox, if it still exists. */
void code_run_free(code_run *r);

/* ---- after the end ---- */
typedef struct code_end {
    int exit_code; /* 124: timed out, 128 + n: a signal, 125: unknown */
    const char *how;
    bool timed_out, oom, known;
    double seconds;
    uint64_t length[2]; /* of out and err, without bothy's own text */
} code_end;
code_end code_run_end(const code_run *r);
/* Appends the line that says the snippet timed out, on a line of its own. */
void code_put_late(buf *errors);
/* Reads output, as exec_read(). */
err *code_run_read(code_run *r, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                   uint64_t *ret_gap_to) ERR_MUST;

/* Pulls the image in the background; "" does nothing. */
void code_fetch_ahead(engine *e, const char *named);

/* A snippet of code, run in a sandbox of its own that is gone afterwards (requirements E1 to E4).
 *
 * No network, a read-only root, /sandbox of 64 MiB that is written and executed, 256 MiB of memory
 * with swap, 50 processes and threads, nobody's uid, no new privileges. It is claimed from the pool
 * that all sandboxes come from: nothing is kept for it. For jobs of the relay; no thread waits. */
#pragma once

#include "base/buf.h"
#include "door/shared/making.h"

#define CODE_MAX        (1u << 20) /* bytes of a snippet */
#define CODE_TIMED_OUT  124        /* what `timeout` exits with */
#define CODE_UNKNOWN    125
#define CODE_OUTPUT_MAX (1u << 20) /* of a stream, in an answer */

typedef struct code_snippet {
    const char *image;    /* "" : this node has none */
    const char *language; /* as the image's `code-run` knows it */
    const char *text;
    uint64_t timeout_ms;
} code_snippet;

typedef struct code_run code_run;
/* In a request's thread: its create begins. ERR_UNSUPPORTED, ERR_TOO_LARGE. */
err *code_run_new(engine *e, const caller *c, const code_snippet *s, code_run **ret_run) ERR_MUST;
/* From here on the job is woken when there is something to poll for. */
void code_run_attach(code_run *r, relay_job *job);
err *code_run_poll(code_run *r, bool *ret_done) ERR_MUST;
/* Before anything is answered, and after its output was read: the sandbox is gone, and its owner
 * may have another one. */
void code_run_release(code_run *r);
/* Ends what runs; the sandbox goes, if it has not. */
void code_run_free(code_run *r);

/* ---- when it is done ---- */
typedef struct code_end {
    int exit_code; /* 124: timed out, 128 + n: a signal, 125: it is not known */
    const char *how;
    bool timed_out, oom, known;
    double seconds;
    uint64_t length[2]; /* of out and err, without our own words */
} code_end;
code_end code_run_end(const code_run *r);
/* Of one that timed out: the last line of what it wrote there. */
void code_put_late(buf *errors);
/* As exec_read. */
err *code_run_read(code_run *r, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                   uint64_t *ret_gap_to) ERR_MUST;

/* Fetches the image ahead, in the background; "" does nothing. */
void code_fetch_ahead(engine *e, const char *named);

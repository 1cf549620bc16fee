/* process.Process: what its messages say (proto3 as JSON), and how events look. Pure. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "engine/engine.h"

typedef struct process_selector {
    uint32_t pid; /* an exec's id; or: */
    char *tag;
} process_selector;

typedef struct process_start {
    char **argv; /* cmd and args */
    char **env;
    char *cwd;      /* NULL: none */
    char *tag;      /* NULL: none */
    json_t *config; /* as it was sent */
    bool has_pty;
    uint16_t rows, cols;
    bool no_stdin; /* said so; otherwise it is a pipe that stays open */
} process_start;
err *process_start_decode(const char *p, size_t n, process_start *ret) ERR_MUST;
void process_start_done(process_start *s);

enum process_input_kind {
    INPUT_NONE,
    INPUT_STDIN,
    INPUT_PTY
};
typedef struct process_request { /* of the other methods; members that one has not are empty */
    process_selector process;
    bool has_process;
    enum process_input_kind input;
    buf bytes;
    int signo; /* 0: none, or none that is known */
    bool has_pty;
    uint16_t rows, cols;
} process_request;
err *process_request_decode(const char *p, size_t n, process_request *ret) ERR_MUST;
/* A message of StreamInput: at most a process and an input, or neither. */
err *process_input_decode(const char *p, size_t n, process_request *ret) ERR_MUST;
void process_request_done(process_request *r);

/* {"config":{…},"tag":…}, for exec_note_set(); what is long in it is cut. */
char *process_note(const process_start *s);

/* ---- events: each appends one envelope ---- */
void process_event_start(buf *out, uint64_t pid);
void process_event_data(buf *out, const char *stream, const void *p, size_t n);
void process_event_keepalive(buf *out);
/* Not for how == EXEC_NOT_STARTED or EXEC_UNKNOWN. */
void process_event_end(buf *out, const exec_end *end);

/* Messages of process.Process (proto3 as JSON) and its events. Pure. */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "engine/engine.h"

typedef struct process_selector {
    uint32_t pid; /* an exec's id; unused if there is a tag */
    char *tag;
} process_selector;

typedef struct process_start {
    char **argv; /* cmd and args */
    char **env;
    char *cwd;      /* NULL: none */
    char *tag;      /* NULL: none */
    json_t *config; /* as the client sent it */
    bool has_pty;
    uint16_t rows, cols;
    bool no_stdin; /* stdin false; otherwise stdin is a pipe that stays open */
} process_start;
err *process_start_decode(const char *p, size_t n, process_start *ret) ERR_MUST;
void process_start_done(process_start *s);

enum process_input_kind {
    INPUT_NONE,
    INPUT_STDIN,
    INPUT_PTY
};
typedef struct process_request { /* the other methods; members a method does not have are empty */
    process_selector process;
    bool has_process;
    enum process_input_kind input;
    buf bytes;
    int signo; /* 0: none, or an unknown signal */
    bool has_pty;
    uint16_t rows, cols;
} process_request;
err *process_request_decode(const char *p, size_t n, process_request *ret) ERR_MUST;
/* Decodes one message of StreamInput, which has at most a process or an input. */
err *process_input_decode(const char *p, size_t n, process_request *ret) ERR_MUST;
void process_request_done(process_request *r);

/* Returns {"config":{…},"tag":…} for exec_note_set(). Long members are truncated. */
char *process_note(const process_start *s);

/* ---- events: each function appends one envelope ---- */
void process_event_start(buf *out, uint64_t pid);
void process_event_data(buf *out, const char *stream, const void *p, size_t n);
void process_event_keepalive(buf *out);
/* Not for ends with how == EXEC_NOT_STARTED or EXEC_UNKNOWN. */
void process_event_end(buf *out, const exec_end *end);

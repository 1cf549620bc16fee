/* Structured logs: one JSON object a line on stderr.
 *
 * {"t":"2026-01-02T03:04:05.678Z","level":"warn","program":"bothyd","event":"create","msg":"...",
 *  "request":"...","sandbox":"...","exec":"...","session":"...", further members}
 *
 * Any thread may log. The ids belong to the thread and are printed with every line until they are
 * cleared. A thread that works on another thread's request borrows that request's ids (log_lend).
 * Secrets and queries of callers are never passed to a log function (docs/guide/logs.md). */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum log_level {
    LOG_DEBUG,
    LOG_INFO,
    LOG_WARN,
    LOG_ERROR
};

enum log_id {
    LOG_REQUEST,
    LOG_SANDBOX,
    LOG_EXEC,
    LOG_SESSION
};
#define LOG_REQUEST_MAX 64
#define LOG_ID_MAX      23
typedef struct log_ids {
    char request[LOG_REQUEST_MAX + 1];
    char sandbox[LOG_ID_MAX + 1];
    char exec[LOG_ID_MAX + 1];
    char session[LOG_ID_MAX + 1];
} log_ids;

void log_init(const char *name, enum log_level level);
/* Human-readable lines instead of JSON (the command line, tests). */
void log_set_plain(void);
void log_write(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Further members of one line. */
typedef struct log_field {
    const char *key;
    const char *text; /* NULL: number */
    int64_t number;
} log_field;
void log_write_fields(enum log_level level, const char *event, const log_field *fields, size_t n,
                      const char *msg);

/* Sets one of the thread's own ids. NULL or "" clears it; a value that is too long is cut. */
void log_id(enum log_id which, const char *value);
void log_id_number(enum log_id which, uint64_t value);
void log_ids_clear(void);
/* Returns the ids that a line of this thread would carry now. */
const log_ids *log_ids_now(void);
/* Makes lines of this thread carry these ids, which must outlive the loan; NULL: its own again. */
void log_lend(const log_ids *ids);

/* Marks the lines to the end of the enclosing block as being about this sandbox, and about request
 * or exec unless they are NULL or 0. Allocates nothing; not for hot paths. */
typedef struct log_scope {
    log_ids ids;
    const log_ids *before;
} log_scope;
void log_scope_begin(log_scope *s, const char *sandbox, const char *request, uint64_t exec);
void log_scope_end(log_scope *s);
#define LOG_ABOUT(sandbox, request, exec)                              \
    __attribute__((cleanup(log_scope_end))) log_scope log_about_scope; \
    log_scope_begin(&log_about_scope, sandbox, request, exec)

#define log_debug(event, ...) log_write(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...)  log_write(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...)  log_write(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_write(LOG_ERROR, event, __VA_ARGS__)

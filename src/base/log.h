/* Structured logs: one JSON object a line on stderr.
 *
 * {"t":"2026-01-02T03:04:05.678Z","level":"info","event":"claim","msg":"...","request":"...",...}
 *
 * Any thread may log. The context (request, sandbox, exec) belongs to the thread and is printed
 * with every line until it is cleared. Secrets are never passed to a log function. */
#pragma once

enum log_level {
    LOG_DEBUG,
    LOG_INFO,
    LOG_WARN,
    LOG_ERROR
};

void log_init(const char *name, enum log_level level);
/* Human-readable lines instead of JSON (the command line, tests). */
void log_set_plain(void);
void log_write(enum log_level level, const char *event, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* key: "request", "sandbox", "exec". value NULL clears it. */
void log_context(const char *key, const char *value);

#define log_debug(event, ...) log_write(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...)  log_write(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...)  log_write(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_write(LOG_ERROR, event, __VA_ARGS__)

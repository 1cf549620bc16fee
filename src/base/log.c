#include "base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

static const char *const LEVELS[] = {"debug", "info", "warn", "error"};

static const struct {
    const char *key;
    size_t at, size;
} IDS[] = {
    [LOG_REQUEST] = {"request", offsetof(log_ids, request), sizeof((log_ids *)0)->request},
    [LOG_SANDBOX] = {"sandbox", offsetof(log_ids, sandbox), sizeof((log_ids *)0)->sandbox},
    [LOG_EXEC] = {"exec", offsetof(log_ids, exec), sizeof((log_ids *)0)->exec},
    [LOG_SESSION] = {"session", offsetof(log_ids, session), sizeof((log_ids *)0)->session},
};

static const char *program = "bothy";
static enum log_level threshold = LOG_INFO;
static int plain;
static __thread log_ids own;
static __thread const log_ids *lent;

void log_init(const char *name, enum log_level level)
{
    program = name;
    threshold = level;
}

void log_set_plain(void)
{
    plain = 1;
}

static char *log_place(log_ids *ids, enum log_id which)
{
    return (char *)ids + IDS[which].at;
}

static void log_put(log_ids *ids, enum log_id which, const char *value)
{
    snprintf(log_place(ids, which), IDS[which].size, "%s", value ? value : "");
}

void log_id(enum log_id which, const char *value)
{
    log_put(&own, which, value);
}

void log_id_number(enum log_id which, uint64_t value)
{
    snprintf(log_place(&own, which), IDS[which].size, "%" PRIu64, value);
}

void log_ids_clear(void)
{
    for (size_t i = 0; i < ARRAY_LEN(IDS); i++)
        *log_place(&own, i) = 0;
}

const log_ids *log_ids_now(void)
{
    return lent ? lent : &own;
}

void log_lend(const log_ids *ids)
{
    lent = ids;
}

void log_scope_begin(log_scope *s, const char *sandbox, const char *request, uint64_t exec)
{
    s->before = lent;
    s->ids = *log_ids_now();
    log_put(&s->ids, LOG_SANDBOX, sandbox);
    if (request)
        log_put(&s->ids, LOG_REQUEST, request);
    if (exec)
        snprintf(s->ids.exec, sizeof s->ids.exec, "%" PRIu64, exec);
    lent = &s->ids;
}

void log_scope_end(log_scope *s)
{
    lent = s->before;
}

static void log_member(buf *b, const char *key, const char *value)
{
    buf_printf(b, ",\"%s\":", key);
    buf_json_string(b, value, strlen(value));
}

static void log_members(buf *line, const log_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].text)
            log_member(line, fields[i].key, fields[i].text);
        else
            buf_printf(line, ",\"%s\":%" PRId64, fields[i].key, fields[i].number);
}

void log_write_fields(enum log_level level, const char *event, const log_field *fields, size_t n,
                      const char *msg)
{
    CLEANUP(buf_done) buf line = {0};
    char when[CLOCK_TEXT_MAX];

    if (level < threshold)
        return;
    if (plain) {
        buf_printf(&line, "%s: %s: %s\n", program, event, msg);
    } else {
        clock_format(now_real_ns(), when);
        buf_printf(&line, "{\"t\":\"%s\",\"level\":\"%s\"", when, LEVELS[level]);
        log_member(&line, "program", program);
        log_member(&line, "event", event);
        log_member(&line, "msg", msg);
        for (size_t i = 0; i < ARRAY_LEN(IDS); i++) {
            const char *id = (const char *)log_ids_now() + IDS[i].at;
            if (*id)
                log_member(&line, IDS[i].key, id);
        }
        log_members(&line, fields, n);
        buf_str(&line, "}\n");
    }
    /* One write per line, so that lines of several threads and processes do not mix. */
    if (write(STDERR_FILENO, line.p, line.len) < 0)
        return; /* a failed log line cannot be reported anywhere */
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
    va_list ap;

    if (level < threshold)
        return;
    va_start(ap, fmt);
    CLEANUP(freep) char *msg = str_vprintf(fmt, ap);
    va_end(ap);
    log_write_fields(level, event, NULL, 0, msg);
}

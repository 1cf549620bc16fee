#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

static const char *const LEVELS[] = {"debug", "info", "warn", "error"};
static const char *const KEYS[] = {"request", "sandbox", "exec"};

static const char *program = "bothy";
static enum log_level threshold = LOG_INFO;
static int plain;
static __thread char context[ARRAY_LEN(KEYS)][48];

void log_init(const char *name, enum log_level level)
{
    program = name;
    threshold = level;
}

void log_set_plain(void)
{
    plain = 1;
}

void log_context(const char *key, const char *value)
{
    for (size_t i = 0; i < ARRAY_LEN(KEYS); i++)
        if (!strcmp(KEYS[i], key))
            snprintf(context[i], sizeof context[i], "%s", value ? value : "");
}

static void member(buf *b, const char *key, const char *value)
{
    buf_printf(b, ",\"%s\":", key);
    buf_json_string(b, value, strlen(value));
}

void log_write(enum log_level level, const char *event, const char *fmt, ...)
{
    CLEANUP(buf_done) buf line = {0};
    char when[CLOCK_TEXT_MAX];
    va_list ap;

    if (level < threshold)
        return;
    va_start(ap, fmt);
    CLEANUP(freep) char *msg = str_vprintf(fmt, ap);
    va_end(ap);
    if (plain) {
        buf_printf(&line, "%s: %s: %s\n", program, event, msg);
    } else {
        clock_format(now_real_ns(), when);
        buf_printf(&line, "{\"t\":\"%s\",\"level\":\"%s\"", when, LEVELS[level]);
        member(&line, "program", program);
        member(&line, "event", event);
        member(&line, "msg", msg);
        for (size_t i = 0; i < ARRAY_LEN(KEYS); i++)
            if (context[i][0])
                member(&line, KEYS[i], context[i]);
        buf_str(&line, "}\n");
    }
    /* One write a line: lines of several threads and processes do not mix. */
    if (write(STDERR_FILENO, line.p, line.len) < 0)
        return; /* nowhere to complain */
}

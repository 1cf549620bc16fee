/* Records every answer: metrics, and a log line for errors, or for all answers.
 *
 * An error is noted when it becomes an answer, and recorded with it by the same thread a moment
 * later, because the answer's bytes show only its status. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"
#include "net/internal.h"

#define CLASSES_N      5
#define LINES_A_SECOND 200 /* callers cause them, so further lines are only counted */
#define MESSAGE_MAX    256

static __thread struct {
    const char *code; /* NULL: none noted */
    char message[MESSAGE_MAX];
} note;
static enum server_access told = ACCESS_ERRORS;
static _Atomic uint64_t second;  /* the one that `lines` counts for */
static _Atomic unsigned lines;   /* in that second */
static _Atomic unsigned skipped; /* lines not written since the last written one */

void access_init(enum server_access what)
{
    told = what;
}

void access_note_error(const err *e)
{
    note.code = err_info_of(e->code)->name;
    snprintf(note.message, sizeof note.message, "%s%s%s", e->message, e->cause ? ": " : "",
             str_or(e->cause, ""));
    metric_add(&NET_METRICS[M_ERRORS], e->code, 1);
}

void access_forget(void)
{
    note.code = NULL;
}

static bool may_write(uint64_t now)
{
    uint64_t current = now / NS_PER_S, before = atomic_load(&second);

    if (before != current && atomic_compare_exchange_strong(&second, &before, current))
        atomic_store(&lines, 0);
    if (atomic_fetch_add(&lines, 1) < LINES_A_SECOND)
        return true;
    atomic_fetch_add(&skipped, 1);
    return false;
}

static void write_line(const access_answer *a, uint64_t now)
{
    CLEANUP(freep)
    char *msg =
        str_printf("%s: %d%s%s%s%s", a->operation_name, a->status, note.code ? " " : "",
                   str_or(note.code, ""), note.code ? ": " : "", note.code ? note.message : "");
    log_field f[5] = {{.key = "operation", .text = a->operation_name},
                      {.key = "status", .number = a->status},
                      {.key = "us", .number = (int64_t)((now - a->begun) / 1000)}};
    size_t n = 3;
    unsigned missing = atomic_exchange(&skipped, 0);

    if (note.code)
        f[n++] = (log_field){.key = "code", .text = note.code};
    if (missing)
        f[n++] = (log_field){.key = "skipped", .number = missing};
    log_write_fields(a->status >= 500 ? LOG_WARN : LOG_INFO, "http", f, n, msg);
}

void access_answered(const access_answer *a)
{
    uint64_t now = now_mono_ns();

    if (a->status >= 100 && a->status < 600) {
        metric_add(&NET_METRICS[M_REQUESTS], a->door * CLASSES_N + (size_t)a->status / 100 - 1, 1);
        metric_observe_ns(&NET_METRICS[M_SECONDS], a->operation, now - a->begun);
        if ((told == ACCESS_ALL || (told == ACCESS_ERRORS && note.code)) && may_write(now))
            write_line(a, now);
    }
    note.code = NULL;
}

/* bothy events: prints what happens to sandboxes. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/follow.h"
#include "cli/out.h"
#include "cli/verbs.h"
#include "wire/sse.h"

typedef struct events_args {
    common_args common;
    const char *sandbox, *after;
    char **type;
    bool follow, new_only;
} events_args;

static const opt OPTS[] = {
    OPT('f', "follow", NULL, OPT_FLAG, events_args, follow, "go on with those that come"),
    OPT(0, "new", NULL, OPT_FLAG, events_args, new_only, "only those that come from now on"),
    OPT(0, "after", "ID", OPT_TEXT, events_args, after, "only those after this one"),
    OPT(0, "sandbox", "SANDBOX", OPT_TEXT, events_args, sandbox, "only of this one"),
    OPT(0, "type", "TYPE", OPT_LIST, events_args, type,
        "only creating, running, paused, gone, updated, reset; may be repeated"),
    COMMON_OPTS(events_args),
};

/* Appends "gone (killed by host)". */
static void what_of(const json_t *event, buf *out)
{
    const json_t *cause = json_object_get(event, "cause");
    const char *kind = json_str(cause, "kind"), *by = json_str(cause, "by");

    buf_str(out, str_or(json_str(event, "type"), "?"));
    if (kind)
        buf_printf(out, " (%s%s%s)", kind, by ? " by " : "", by ? by : "");
}

static void print_event(const cli *c, const json_t *event)
{
    CLEANUP(buf_done) buf line = {0};

    if (c->common.json) {
        json_write(&line, event);
    } else {
        CLEANUP(buf_done) buf what = {0}, safe = {0};
        what_of(event, &what);
        out_safe(&safe, buf_cstr(&what));
        buf_printf(&line, "%s  %s  %s", str_or(json_str(event, "time"), "-"),
                   str_or(json_str(event, "sandbox"), "-"), buf_cstr(&safe));
    }
    buf_char(&line, '\n');
    fputs(buf_cstr(&line), stdout);
    fflush(stdout);
}

static char *path_of(const events_args *a, const char *sandbox, const char *after)
{
    CLEANUP(buf_done) buf path = {0};

    buf_printf(&path, "/v1/events?limit=1000&after=%s", after);
    if (sandbox)
        buf_printf(&path, "&sandbox=%s", sandbox);
    for (char **t = a->type; t && *t; t++) {
        CLEANUP(freep) char *escaped = client_escape(*t);
        buf_printf(&path, "&type=%s", escaped);
    }
    return buf_take(&path);
}

/* Prints all stored events, page by page, and moves *after behind them. */
static err *print_kept(cli *c, const events_args *a, const char *sandbox, char **after)
{
    for (bool more = true; more;) {
        CLEANUP(json_decrefp) json_t *page = NULL;
        CLEANUP(freep) char *path = path_of(a, sandbox, *after);
        size_t i;
        json_t *event;

        TRY(cli_call(c, "GET", NULL, &page, "%s", path));
        if (json_flag(page, "gap"))
            fputs("bothy: some events have been forgotten\n", stderr);
        json_array_foreach(json_object_get(page, "events"), i, event) print_event(c, event);
        free(*after);
        *after = xstrdup(str_or(json_str(page, "next"), "0"));
        more = json_flag(page, "more");
    }
    return NULL;
}

/* ---- following ---- */

typedef struct tail {
    const cli *c;
    char **after; /* the last event printed */
    sse_decoder sse;
    bool any; /* events came on this connection */
} tail;

static bool on_event(void *arg, const sse_event *e)
{
    tail *t = arg;
    CLEANUP(json_decrefp) json_t *event = json_loadb(e->data, e->len, 0, NULL);

    if (*e->id) {
        free(*t->after);
        *t->after = xstrdup(e->id);
    }
    t->any = true;
    if (str_eq(e->event, "gap"))
        fputs("bothy: some events have been forgotten\n", stderr);
    else if (event && !str_eq(e->event, "ping"))
        print_event(t->c, event);
    return true;
}

static bool on_bytes(void *arg, const void *p, size_t n)
{
    tail *t = arg;
    CLEANUP(err_freep) err *e = sse_feed(&t->sse, p, n, on_event, t);

    return !e;
}

/* Makes one connection. Returns NULL if it ended and may be made again. */
static err *follow_once(cli *c, const events_args *a, const char *sandbox, tail *t)
{
    CLEANUP(freep) char *path = path_of(a, sandbox, *t->after);
    CLEANUP(client_answer_done) client_answer answer = {0};
    client_call call = {.method = "GET",
                        .path = path,
                        .accept = "text/event-stream",
                        .on_bytes = on_bytes,
                        .arg = t};

    TRY(cli_connect(c));
    t->any = false;
    CLEANUP(err_freep) err *e = client_do(c->client, &call, &answer);
    sse_decoder_done(&t->sse);
    return e && e->code != ERR_UNAVAILABLE && e->code != ERR_DRAINING ? TAKE_PTR(e) : NULL;
}

/* Follows until Ctrl-C, or until the daemon stays away for too long. */
static err *follow_on(cli *c, const events_args *a, const char *sandbox, char **after)
{
    tail t = {.c = c, .after = after};
    uint64_t lost = now_mono_ns();

    for (;;) {
        TRY(follow_once(c, a, sandbox, &t));
        if (t.any)
            lost = now_mono_ns();
        if (now_mono_ns() - lost > follow_patience_ns())
            return err_new(ERR_UNAVAILABLE, "the daemon has not come back");
        follow_pause_ms(200);
    }
}

static err *events_run(cli *c, void *args, const opt_words *words, int *status)
{
    const events_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    CLEANUP(freep) char *after = xstrdup(a->new_only ? "now" : str_or(a->after, "0"));

    (void)words, (void)status;
    if (a->new_only && (a->after || !a->follow))
        return err_remedy(usage_error("--new goes with -f and without --after"),
                          "Say 'bothy events -f --new'.");
    if (a->sandbox)
        TRY(cli_sandbox(c, a->sandbox, true, &sandbox));
    const char *id = json_str(sandbox, "id");
    TRY(print_kept(c, a, id, &after));
    return a->follow ? follow_on(c, a, id, &after) : NULL;
}

const verb VERB_EVENTS = {
    .name = "events",
    .usage = "[OPTIONS]",
    .summary = "Show what has happened to sandboxes",
    .text = "Each line has the time, the sandbox, and the state it came to with its cause; with\n"
            "--json each is an object of its own line. None is left out or told twice, also when\n"
            "the daemon is restarted meanwhile. They are kept for a day.",
    .opts = OPTS,
    .args_size = sizeof(events_args),
    .run = events_run,
};

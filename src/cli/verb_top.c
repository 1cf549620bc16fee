/* bothy top: shows live what sandboxes use. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/top_view.h"
#include "cli/tty.h"
#include "cli/verbs.h"

#define DELAY_MS     2000
#define DELAY_MIN_MS 100
#define ONCE_MS      500 /* between the two samples that a rate needs */
#define CTRL(c)      ((c) - '@')

typedef struct top_args {
    common_args common;
    char **label;
    const char *sort;
    uint64_t delay;
    bool once, reverse;
} top_args;

static const opt OPTS[] = {
    OPT('d', "delay", "TIME", OPT_DURATION, top_args, delay, "between two looks (default 2s)"),
    OPT('s', "sort", "cpu|memory|pids|io|net|execs|idle|age", OPT_CHOICE, top_args, sort,
        "the column to sort by (default cpu)"),
    OPT('r', "reverse", NULL, OPT_FLAG, top_args, reverse, "the smallest first"),
    OPT('1', "once", NULL, OPT_FLAG, top_args, once,
        "print the table and end; also without a terminal"),
    OPT(0, "label", "KEY[=VALUE]", OPT_LIST, top_args, label, "only those with this label"),
    COMMON_OPTS(top_args),
};

typedef struct top {
    cli *c;
    char *path;
    uint64_t delay_ms;
    int column;
    bool reverse;
    top_sample now;
    err *trouble; /* error of the last request */
} top;

static void top_done(top *t)
{
    top_sample_done(&t->now);
    err_free(t->trouble);
    free(t->path);
}

static char *path_of(const top_args *a)
{
    CLEANUP(buf_done) buf path = {0};

    buf_str(&path, "/v1/sandboxes?limit=1000&usage=true");
    for (char **l = a->label; l && *l; l++) {
        CLEANUP(freep) char *escaped = client_escape(*l);
        buf_printf(&path, "&label=%s", escaped);
    }
    return buf_take(&path);
}

static err *cli_top_look(top *t)
{
    CLEANUP(json_decrefp) json_t *items = NULL;
    top_sample next;

    TRY(cli_list(t->c, t->path, "sandboxes", &items));
    top_sample_read(items, &t->now, now_real_ns(), &next);
    top_sample_done(&t->now);
    t->now = next;
    return NULL;
}

/* ---- once ---- */

static err *print_once(top *t)
{
    CLEANUP(buf_done) buf out = {0};

    TRY(cli_top_look(t));
    poll(NULL, 0, ONCE_MS);
    TRY(cli_top_look(t));
    top_sort(&t->now, t->column, t->reverse);
    if (t->c->common.json) {
        CLEANUP(json_decrefp) json_t *all = top_json(&t->now);
        out_json(stdout, all);
        return NULL;
    }
    top_draw(&t->now, &(top_look){.column = t->column, .colours = out_colours(stdout)}, &out);
    fwrite(out.p, 1, out.len, stdout);
    return NULL;
}

/* ---- live ---- */

static void write_all(const char *p, size_t n)
{
    while (n) {
        ssize_t w = write(STDOUT_FILENO, p, n);
        if (w < 0 && errno != EINTR && errno != EAGAIN)
            return;
        p += w > 0 ? w : 0;
        n -= w > 0 ? (size_t)w : 0;
    }
}

static void top_say(const char *text)
{
    write_all(text, strlen(text));
}

/* Switch to the alternate screen without a cursor, and back. */
#define ENTER "\033[?1049h\033[?25l\033[2J"
#define LEAVE "\033[?25h\033[?1049l"

/* Writes a frame at once over the one before. Nothing that stays is erased, so nothing flickers. */
static void cli_top_draw(top *t)
{
    CLEANUP(buf_done) buf out = {0};
    uint16_t rows = 24, cols = 80;

    tty_size(&rows, &cols);
    top_sort(&t->now, t->column, t->reverse);
    buf_str(&out, "\033[?2026h\033[H");
    top_draw(&t->now,
             &(top_look){.rows = rows,
                         .cols = cols,
                         .column = t->column,
                         .trouble = t->trouble ? t->trouble->message : NULL,
                         .screen = true,
                         .colours = out_colours(stdout)},
             &out);
    buf_str(&out, "\033[J\033[?2026l");
    write_all(out.p, out.len);
}

static void look_again(top *t)
{
    err_free(t->trouble);
    t->trouble = cli_top_look(t);
}

/* Returns false if the user wants to leave. */
static bool on_key(top *t, char key)
{
    int column = top_column_of_key(key);

    if (key == 'q' || key == CTRL('C') || key == CTRL('D'))
        return false;
    if (key == 'r')
        t->reverse = !t->reverse;
    if (key == CTRL('Z'))
        raise(SIGTSTP);
    if (key == ' ')
        look_again(t);
    if (column >= 0)
        t->column = column;
    return true;
}

static bool on_keys(top *t)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);

    if (n <= 0)
        return n < 0 && errno == EINTR;
    for (ssize_t i = 0; i < n; i++)
        if (!on_key(t, keys[i]))
            return false;
    return true;
}

static bool on_signals(void)
{
    for (int signo; (signo = tty_signal());) {
        if (signo == SIGTSTP) {
            top_say(LEAVE);
            tty_suspend();
            top_say(ENTER);
        } else if (signo != SIGWINCH && signo != SIGCONT) {
            return false;
        }
    }
    return true;
}

static void top_watch(top *t, int signals)
{
    uint64_t next = now_mono_ns() + t->delay_ms * NS_PER_MS;

    for (bool go = true; go;) {
        cli_top_draw(t);
        uint64_t now = now_mono_ns();
        struct pollfd p[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                             {.fd = signals, .events = POLLIN}};
        int n = poll(p, 2, now < next ? (int)((next - now) / NS_PER_MS) + 1 : 0);
        if (n > 0 && p[0].revents)
            go = on_keys(t);
        if (n > 0 && p[1].revents)
            go &= on_signals();
        if (go && now_mono_ns() >= next) {
            look_again(t);
            next = now_mono_ns() + t->delay_ms * NS_PER_MS;
        }
    }
}

static err *top_live(top *t)
{
    TRY(cli_top_look(t)); /* an error at the start ends the program */
    poll(NULL, 0, ONCE_MS);
    look_again(t);
    TRY(tty_raw());
    int signals = tty_signals_start();
    top_say(ENTER);
    top_watch(t, signals);
    top_say(LEAVE);
    tty_signals_stop();
    tty_restore();
    return NULL;
}

static err *top_run(cli *c, void *args, const opt_words *words, int *status)
{
    const top_args *a = args;
    CLEANUP(top_done)
    top t = {.c = c,
             .path = path_of(a),
             .delay_ms = a->delay ? a->delay : DELAY_MS,
             .column = top_column(str_or(a->sort, "cpu")),
             .reverse = a->reverse};

    (void)words, (void)status;
    if (t.delay_ms < DELAY_MIN_MS)
        return usage_error("--delay: at least 100 ms");
    if (a->once || c->common.json)
        return print_once(&t);
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return usage_error(
            "top needs a terminal; --once prints the table, --json the same for programs");
    return top_live(&t);
}

const verb VERB_TOP = {
    .name = "top",
    .usage = "[OPTIONS]",
    .summary = "Show what sandboxes use, live",
    .text =
        "CPU% is of one core. MEMORY counts caches, too; LIMIT is where processes are killed. IO and "
        "NET are bytes a second, both directions; 0 where the node does not count. IDLE is for how "
        "long nothing happened and after how long it ends, where it has an idle time. Keys: c, m, p, i, "
        "n, e, d, a sort by cpu, memory, pids, io, net, execs, idle, age; r turns the order round; space looks "
        "at once; q ends.",
    .opts = OPTS,
    .args_size = sizeof(top_args),
    .run = top_run,
};

#include "cli/attach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/str.h"
#include "cli/exit.h"
#include "cli/follow.h"
#include "cli/input.h"
#include "cli/modes.h"
#include "cli/out.h"
#include "cli/tty.h"
#include "wire/ws.h"

#define PROTOCOL     "bothy.v1"
#define MESSAGE_MAX  (1U << 20)
#define PIECE        (16U * 1024) /* bytes of input: the daemon takes messages of 64 KiB */
#define OUT_MAX      (64U * 1024) /* unsent bytes; beyond that no input is read */
#define PAUSE_MIN_MS 50
#define PAUSE_MAX_MS 2000
#define STEADY_NS    (5 * NS_PER_S) /* a connection that lasted so long resets the retries */

typedef struct attached {
    cli *cli;
    const attach_args *a;
    client_stream *stream; /* NULL: not connected */
    ws *ws;
    buf out; /* frames for the daemon */
    keys keys;
    modes modes;
    uint64_t at[2]; /* offset of the next byte of out, err */
    bool known;     /* the offsets in `at` are known */
    bool pty, raw;
    bool reads; /* reads our stdin for the command */
    bool fed;   /* a thread sends stdin by offset */
    bool again; /* make the program redraw its screen */
    int signals;
    unsigned asked; /* signals passed on to the command */
    json_t *end;
    err *fatal;
    bool detached;
    int signo;
} attached;

static void attach_say(const attached *s, const char *text)
{
    fprintf(stderr, "bothy: %s%s\n", text, s->raw ? "\r" : "");
}

/* ---- to the command ---- */

static void attach_put(attached *s, char kind, const void *p, size_t n)
{
    if (s->ws && n)
        ws_put(s->ws, &s->out, &kind, 1, p, n);
}

static void put_control(attached *s, json_t *owned)
{
    CLEANUP(json_decrefp) json_t *j = owned;
    CLEANUP(buf_done) buf text = {0};

    json_write(&text, j);
    attach_put(s, 3, text.p, text.len);
}

static void put_size(attached *s, unsigned more_rows)
{
    uint16_t rows, cols;

    if (s->pty && tty_size(&rows, &cols))
        put_control(s, json_pack("{s:{s:i,s:i}}", "resize", "rows",
                                 rows < 1000 ? (int)(rows + more_rows) : rows, "cols", (int)cols));
}

static void attach_type(attached *s)
{
    char p[PIECE];
    CLEANUP(buf_done) buf keys_out = {0};
    ssize_t n = read(STDIN_FILENO, p, sizeof p);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0 && s->raw) { /* our window was closed; the command continues */
        s->signo = SIGHUP;
        return;
    }
    if (n <= 0) {
        s->reads = false;
        put_control(s, json_pack("{s:s}", "stdin", "eof"));
        return;
    }
    s->detached = s->raw && keys_feed(&s->keys, p, (size_t)n, &keys_out);
    if (s->raw)
        attach_put(s, 0, keys_out.p, keys_out.len);
    else
        attach_put(s, 0, p, (size_t)n);
}

/* ---- from the command ---- */

static void write_out(attached *s, int stream, const char *p, size_t n)
{
    s->at[stream] += n;
    if (!stream)
        modes_see(&s->modes, p, n);
    int rc = s->fatal ? 0 : fs_write_all(stream ? STDERR_FILENO : STDOUT_FILENO, p, n);
    if (rc)
        s->fatal = out_failed(-rc, "the command's output");
}

static void take_gap(attached *s, const json_t *gap)
{
    int stream = str_eq(json_str(gap, "stream"), "err");
    int64_t to = json_int(gap, "to", -1);
    char text[96];

    if (to < 0 || (uint64_t)to <= s->at[stream])
        return;
    snprintf(text, sizeof text, "%llu bytes are not kept any more and left out here",
             (unsigned long long)((uint64_t)to - s->at[stream]));
    attach_say(s, text);
    s->at[stream] = (uint64_t)to;
}

static void go_raw(attached *s)
{
    if (s->raw || !s->pty || !s->a->input || !isatty(STDIN_FILENO))
        return;
    s->fatal = tty_raw();
    s->raw = !s->fatal;
}

/* Sends a file or a pipe by offset, so that a lost connection loses nothing. Typed bytes, and input
 * of a terminal, are sent as they come: others may type there, too. */
static void feed_stdin(attached *s)
{
    if (!s->reads || s->pty || isatty(STDIN_FILENO))
        return;
    s->reads = false;
    if (!s->fed)
        s->fatal = input_start(s->cli, s->a->sandbox, s->a->exec, STDIN_FILENO, true);
    s->fed = true;
}

/* Starts at the offset that the daemon announces. A terminal's size is changed and changed back, as
 * in docker, to make a full-screen program redraw itself. */
static void take_hello(attached *s, const json_t *hello)
{
    const char *offset = str_or(json_str(hello, "offset"), "");
    const char *dot = strchr(offset, '.');
    CLEANUP(freep) char *first = xstrndup(offset, dot ? (size_t)(dot - offset) : strlen(offset));

    s->known = dot && str_to_u64(first, UINT64_MAX, &s->at[0]) &&
               str_to_u64(dot + 1, UINT64_MAX, &s->at[1]);
    if (!s->known) {
        s->fatal = err_new(ERR_INTERNAL, "the daemon does not say where the output begins");
        return;
    }
    s->pty = str_eq(json_str(hello, "stdio"), "pty");
    s->reads = s->a->input && json_flag(hello, "stdin");
    go_raw(s);
    feed_stdin(s);
    if (s->again)
        put_size(s, 1);
    put_size(s, 0);
    s->again = true; /* for a reconnect */
}

static void take_error(attached *s, const json_t *error)
{
    CLEANUP(buf_done) buf text = {0};

    out_safe(&text, str_or(json_str(error, "message"), "something had no effect"));
    attach_say(s, buf_cstr(&text));
}

static void take_control(attached *s, const char *p, size_t n)
{
    CLEANUP(json_decrefp) json_t *j = NULL;
    json_t *end = NULL;
    CLEANUP(err_freep) err *bad = json_parse(p, n, &j);

    if (bad || s->fatal)
        return;
    if (json_object_get(j, "attached"))
        take_hello(s, json_object_get(j, "attached"));
    if (json_object_get(j, "gap"))
        take_gap(s, json_object_get(j, "gap"));
    if (json_object_get(j, "error"))
        take_error(s, json_object_get(j, "error"));
    if ((end = json_object_get(j, "end")) && !s->end)
        s->end = json_incref(end);
}

static void on_message(void *arg, bool text, const void *p, size_t n)
{
    attached *s = arg;
    const char *bytes = p;

    if (text || !n || s->end)
        return;
    if (*bytes == 3)
        take_control(s, bytes + 1, n - 1);
    else if ((*bytes == 1 || *bytes == 2) && s->known)
        write_out(s, *bytes - 1, bytes + 1, n - 1);
}

/* ---- signals ---- */

static void pass_on(attached *s, int signo)
{
    if (s->raw) { /* let the terminal find its foreground process */
        attach_put(s, 0, signo == SIGINT ? "\003" : "\034", 1);
        return;
    }
    /* The second signal ends us. So does the first one to an attach without stdin. */
    if (s->asked++ || (s->a->again && !s->a->input))
        s->signo = signo;
    else
        put_control(s, json_pack("{s:s,s:s}", "signal", sigabbrev_np(signo), "scope", "group"));
}

static void take_signals(attached *s)
{
    int signo;

    while ((signo = tty_signal())) {
        if (signo == SIGTSTP)
            tty_suspend();
        if (signo == SIGCONT)
            tty_again();
        if (signo == SIGWINCH || signo == SIGCONT || signo == SIGTSTP)
            put_size(s, 0);
        else if (signo == SIGINT || signo == SIGQUIT)
            pass_on(s, signo);
        else
            s->signo = signo;
    }
}

static bool is_over(const attached *s)
{
    return s->end || s->fatal || s->detached || s->signo;
}

/* ---- one connection ---- */

static void hang_up(attached *s)
{
    ws_free(TAKE_PTR(s->ws));
    client_stream_free(TAKE_PTR(s->stream));
    buf_done(&s->out);
}

static char *path_of(const attached *s)
{
    const attach_args *a = s->a;
    CLEANUP(freep)
    char *query = s->known        ? str_printf("?offset=%llu.%llu", (unsigned long long)s->at[0],
                                               (unsigned long long)s->at[1])
                  : a->offset     ? str_printf("?offset=%s", a->offset)
                  : a->scrollback ? str_printf("?scrollback=%s", a->scrollback)
                                  : xstrdup("");

    return str_printf("/v1/sandboxes/%s/processes/%s/attach%s", a->sandbox, a->exec, query);
}

static err *attach_dial(attached *s)
{
    CLEANUP(freep) char *path = path_of(s);
    CLEANUP(buf_done) buf lines = {0};
    char key[WS_KEY_LEN + 1];
    uint8_t random[16];

    random_bytes(random, sizeof random);
    ws_key(random, key);
    ws_ask(&lines, key, PROTOCOL);
    TRY(client_upgrade(s->cli->client, path, "websocket", buf_cstr(&lines), &s->stream));
    if (!ws_accepted(key, client_stream_header(s->stream, "Sec-WebSocket-Accept")))
        return err_new(ERR_INTERNAL, "what answers there is not the daemon");
    s->ws = ws_new(&(ws_options){.client = true,
                                 .message_max = MESSAGE_MAX,
                                 .on_message = on_message,
                                 .arg = s,
                                 .random = random_bytes});
    return NULL;
}

/* Returns false if the connection is lost. */
static bool send_some(attached *s)
{
    ws_flush(s->ws, &s->out);
    while (s->out.len) {
        ssize_t n = client_stream_send(s->stream, s->out.p, s->out.len);
        if (n <= 0)
            return n == -EAGAIN;
        buf_consume(&s->out, (size_t)n);
    }
    return true;
}

static bool receive_some(attached *s)
{
    char p[PIECE];

    for (int i = 0; i < 8 && !is_over(s); i++) {
        ssize_t n = client_stream_recv(s->stream, p, sizeof p);
        if (n == -EAGAIN)
            return true;
        if (n <= 0)
            return false;
        ws_feed(s->ws, p, (size_t)n);
        if (ws_is_closing(s->ws))
            return false;
    }
    return true;
}

static void wait_for_news(attached *s, uint64_t wake)
{
    uint64_t now = now_mono_ns();
    bool types = s->reads && s->out.len < OUT_MAX;
    struct pollfd p[] = {
        {.fd = client_stream_fd(s->stream), .events = s->out.len ? POLLIN | POLLOUT : POLLIN},
        {.fd = s->signals, .events = POLLIN},
        {.fd = types ? STDIN_FILENO : -1, .events = POLLIN},
    };

    poll(p, ARRAY_LEN(p), wake > now ? (int)((wake - now) / NS_PER_MS) + 1 : 0);
    if (p[1].revents)
        take_signals(s);
    if (p[2].revents)
        attach_type(s);
}

/* Moves bytes until the command ends, the user detaches, or the connection is lost. */
static void attach_talk(attached *s)
{
    uint64_t wake = 0;

    while (receive_some(s) && !is_over(s) && ws_alive(s->ws, now_mono_ns(), false, &wake) &&
           send_some(s))
        wait_for_news(s, wake);
    if (s->end || s->detached || s->signo)
        ws_close(s->ws, WS_NORMAL, NULL);
    (void)send_some(s); /* the last keys, and the close */
}

/* ---- reconnecting ---- */

/* Waits before the next try. Keys do not reach the command meanwhile; Ctrl-C detaches. */
static void pause_for(attached *s, unsigned ms)
{
    uint64_t now, until = now_mono_ns() + ms * NS_PER_MS;

    while ((now = now_mono_ns()) < until && !is_over(s)) {
        struct pollfd p[] = {{.fd = s->signals, .events = POLLIN},
                             {.fd = s->raw ? STDIN_FILENO : -1, .events = POLLIN}};
        char typed[256];
        poll(p, ARRAY_LEN(p), (int)((until - now) / NS_PER_MS) + 1);
        if (p[0].revents)
            take_signals(s);
        ssize_t n = p[1].revents ? read(STDIN_FILENO, typed, sizeof typed) : 0;
        if (n > 0 && memchr(typed, '\003', (size_t)n))
            s->detached = true;
    }
}

static bool may_come_back(const err *e)
{
    return e->code == ERR_UNAVAILABLE || e->code == ERR_DRAINING || e->code == ERR_TIMEOUT;
}

static err *gave_up(const attached *s)
{
    err *e = err_new(ERR_UNAVAILABLE, "the connection was lost and the daemon did not come back");

    return err_remedy(e, "The command goes on. When the daemon is back: bothy attach %s %s",
                      s->a->sandbox, s->a->exec);
}

static err *keep_talking(attached *s)
{
    uint64_t patience = follow_patience_ns(), deadline = 0;
    unsigned pause = PAUSE_MIN_MS;

    for (bool told = false;;) {
        CLEANUP(err_freep) err *e = attach_dial(s);
        if (e && (!s->known || !may_come_back(e)))
            return TAKE_PTR(e);
        uint64_t begun = now_mono_ns(), had = s->at[0] + s->at[1];
        if (!e)
            attach_talk(s);
        hang_up(s);
        if (!e && (now_mono_ns() - begun >= STEADY_NS || s->at[0] + s->at[1] != had)) {
            deadline = 0;
            pause = PAUSE_MIN_MS;
            told = false;
        }
        if (is_over(s))
            return NULL;
        if (!deadline)
            deadline = now_mono_ns() + patience;
        if (now_mono_ns() >= deadline)
            return gave_up(s);
        if (e && !told) {
            attach_say(s, s->raw ? "\r\nthe connection is lost, trying again; Ctrl-C leaves"
                                 : "the connection is lost, trying again");
            told = true;
        }
        pause_for(s, pause);
        pause = pause * 2 < PAUSE_MAX_MS ? pause * 2 : PAUSE_MAX_MS;
    }
}

/* ---- the whole ---- */

/* Restores our terminal. If the program still runs, also switches off the modes that it has set. */
static void give_back(attached *s)
{
    CLEANUP(buf_done) buf undo = {0};

    if (s->pty && isatty(STDOUT_FILENO) && !s->end) {
        modes_undo(&s->modes, &undo);
        buf_str(&undo, "\r\n");
        fs_write_all(STDOUT_FILENO, undo.p, undo.len);
    }
    if (s->raw)
        tty_restore();
    s->raw = false;
    tty_signals_stop();
}

static void tell_end(const attached *s)
{
    CLEANUP(err_freep) err *e = exit_error_of_end(s->end);

    if (e)
        out_error(stderr, e, false, out_colours(stderr));
}

err *attach_run(cli *c, const attach_args *a, enum attach_how *ret_how, int *status)
{
    attached s = {.cli = c, .a = a, .keys = a->detach, .again = a->again};

    s.signals = tty_signals_start();
    CLEANUP(err_freep) err *e = keep_talking(&s);
    give_back(&s);
    *ret_how = s.end ? ATTACH_ENDED : s.signo ? ATTACH_SIGNAL : ATTACH_DETACHED;
    if (s.end) {
        *status = exit_of_end(s.end);
        tell_end(&s);
    } else if (!e && !s.fatal) {
        *status = s.signo ? CLI_SIGNAL + s.signo : 0;
        if (!s.signo || !a->bound)
            fprintf(stderr,
                    "bothy: detached, the command goes on; come back with: bothy attach %s %s\n",
                    a->sandbox, a->exec);
    }
    json_decref(s.end);
    if (s.fatal && s.fatal->errnum == EPIPE) { /* our stdout was closed: as with a broken pipe */
        *ret_how = ATTACH_SIGNAL;
        *status = CLI_SIGNAL + SIGPIPE;
        err_free(TAKE_PTR(s.fatal));
        return NULL;
    }
    if (s.fatal)
        return s.fatal;
    return TAKE_PTR(e);
}

err *attach_check_tty(bool input, const char *otherwise)
{
    if (!input || isatty(STDIN_FILENO))
        return NULL;
    return err_remedy(usage_error("stdin is no terminal"), "%s", otherwise);
}

static void pass_env(json_t *env, const char *name)
{
    const char *value = cli_setting(name);

    if (value && !json_object_get(env, name))
        json_object_set_new(env, name, json_string(value));
}

void attach_set_tty(json_t *body, bool input)
{
    uint16_t rows, cols;
    json_t *env = json_object_get(body, "env");

    json_object_set_new(body, "stdio", json_string("pty"));
    if (input)
        json_object_set_new(body, "stdin_open", json_true());
    if (tty_size(&rows, &cols)) {
        json_object_set_new(body, "rows", json_integer(rows));
        json_object_set_new(body, "cols", json_integer(cols));
    }
    if (!env) {
        env = json_object();
        json_object_set_new(body, "env", env);
    }
    pass_env(env, "TERM");
    pass_env(env, "COLORTERM");
}

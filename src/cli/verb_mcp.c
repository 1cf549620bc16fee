/* bothy mcp: carries lines of stdio to the daemon's /mcp and back.
 *
 * It only knows which messages are requests, and which of them are in progress. Each request has a
 * thread and a connection of its own; closing the connection cancels it. We name the session, and
 * the daemon keeps a sandbox for it until we end it. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"
#include "base/thread.h"
#include "cli/mcp_line.h"
#include "cli/user.h"
#include "cli/verbs.h"
#include "wire/sse.h"

#define LINE_MAX_BYTES (4 << 20)
#define ASKED_MAX      64              /* requests in progress */
#define GRACE_NS       (10 * NS_PER_S) /* for requests in progress when stdin ends */
#define TELL_MS        3000            /* for notifications: the reading thread waits for them */
#define RPC_PARSE      (-32700)
#define RPC_BUSY       (-32000)
#define RPC_CANCELLED  (-32800)

typedef struct mcp_args {
    common_args common;
    const char *sandbox, *image, *template, *network;
    uint64_t memory;
    bool keep;
} mcp_args;

static const opt OPTS[] = {
    OPT(0, "sandbox", "NAME", OPT_TEXT, mcp_args, sandbox,
        "work in the sandbox of this name, made if there is none; it stays"),
    OPT(0, "image", "IMAGE", OPT_TEXT, mcp_args, image,
        "of the sandbox (default the daemon's mcp.image)"),
    OPT(0, "template", "NAME", OPT_TEXT, mcp_args, template, "of the sandbox, instead of an image"),
    OPT(0, "network", "none|open", OPT_CHOICE, mcp_args, network,
        "what it may reach (default none)"),
    OPT('m', "memory", "SIZE", OPT_BYTES, mcp_args, memory, "its memory with swap, such as 512m"),
    OPT(0, "keep", NULL, OPT_FLAG, mcp_args, keep, "leave the sandbox when this ends"),
    COMMON_OPTS(mcp_args),
};

typedef struct asked { /* a request in progress; owned by its thread */
    struct bridge *b;
    char *line;
    json_t *id;
    sse_decoder events;
    buf body; /* of an answer that is not a stream */
    bool is_stream, begun;
    atomic_bool cancelled;
    struct asked *next;
} asked;

typedef struct bridge {
    client *client;
    const char *own;          /* user's own daemon's address, to restart it; or NULL */
    pthread_mutex_t starting; /* one thread at a time restarts it */
    char *path, *header;
    pthread_mutex_t lock; /* guards stdout and the list */
    pthread_cond_t idle;
    asked *asked;
    size_t n;
    bool closed; /* stdout was closed */
} bridge;

/* ---- output ---- */

static void put_locked(bridge *b, const char *p, size_t n)
{
    if (b->closed)
        return;
    b->closed = fwrite(p, 1, n, stdout) != n || putc('\n', stdout) == EOF || fflush(stdout) == EOF;
}

static void put_json(bridge *b, const json_t *o)
{
    CLEANUP(buf_done) buf line = {0};
    LOCK_SCOPE(&b->lock);

    json_write(&line, o);
    put_locked(b, line.p, line.len);
}

static void put_error(bridge *b, const json_t *id, int code, const char *text)
{
    CLEANUP(json_decrefp)
    json_t *o = json_pack("{s:s,s:o,s:{s:i,s:s}}", "jsonrpc", "2.0", "id",
                          id ? json_incref((json_t *)id) : json_null(), "error", "code", code,
                          "message", text);

    put_json(b, o);
}

static bool is_cancelled_answer(const char *p, size_t n)
{
    CLEANUP(json_decrefp) json_t *o = NULL;
    CLEANUP(err_freep) err *e = json_parse_foreign(p, n, &o);

    return !e && json_int(json_object_get(o, "error"), "code", 0) == RPC_CANCELLED;
}

/* Writes an answer, unless its request was cancelled: over stdio no client waits for that one. */
static void put_message(asked *a, const char *p, size_t n)
{
    if (atomic_load(&a->cancelled) || !n || is_cancelled_answer(p, n))
        return;
    LOCK_SCOPE(&a->b->lock);
    put_locked(a->b, p, n);
}

/* ---- a request ---- */

static bool on_event(void *arg, const sse_event *event)
{
    put_message(arg, event->data, event->len);
    return true;
}

static bool on_bytes(void *arg, const void *p, size_t n)
{
    asked *a = arg;

    if (!a->begun && n)
        a->is_stream = *(const char *)p != '{';
    a->begun = a->begun || n;
    if (!a->is_stream) {
        buf_append(&a->body, p, n);
        return !atomic_load(&a->cancelled);
    }
    err *e = sse_feed(&a->events, p, n, on_event, a);
    err_drop(e, "mcp");
    return !e && !atomic_load(&a->cancelled);
}

static bool on_tick(void *arg)
{
    return !atomic_load(&((asked *)arg)->cancelled);
}

static err *mcp_post(bridge *b, const char *line, asked *a, client_answer *ret_answer)
{
    return client_do(b->client,
                     &(client_call){.method = "POST",
                                    .path = b->path,
                                    .bytes = line,
                                    .nbytes = strlen(line),
                                    .type = "application/json",
                                    .accept = "application/json, text/event-stream",
                                    .line = b->header,
                                    .on_bytes = a ? on_bytes : NULL,
                                    .on_tick = a ? on_tick : NULL,
                                    .arg = a,
                                    .timeout_ms = a ? 0 : TELL_MS,
                                    .any_status = true},
                     ret_answer);
}

/* Writes the daemon's error with the request's id: the daemon may have answered before it read the
 * request. */
static void put_refusal(asked *a, const client_answer *answer)
{
    CLEANUP(json_decrefp) json_t *o = NULL;
    CLEANUP(err_freep) err *e = json_parse_foreign(answer->body.p, answer->body.len, &o);
    const json_t *failure = json_object_get(o, "error");

    if (e || !json_is_object(failure) || !json_is_integer(json_object_get(failure, "code"))) {
        put_error(
            a->b, a->id, RPC_BUSY,
            str_or(json_str(failure, "message"), "the daemon's answer is none of this protocol"));
        return;
    }
    json_object_set(o, "id", a->id);
    put_json(a->b, o);
}

/* Returns true if no daemon received the request. */
static bool is_absent(const err *e)
{
    return e && e->code == ERR_UNAVAILABLE && e->errnum;
}

/* Restarts the user's own daemon, which ends when it is idle. Returns true if it answers there
 * again. */
static bool start_again(bridge *b)
{
    CLEANUP(freep) char *url = NULL;

    if (!b->own)
        return false;
    LOCK_SCOPE(&b->starting);
    CLEANUP(err_freep) err *e = user_start(false, &url);
    return !e && str_eq(url, b->own);
}

static void put_failure(const asked *a, const err *e)
{
    bool lost = e->code == ERR_UNAVAILABLE && !e->errnum;
    CLEANUP(freep)
    char *text = lost ? str_printf("the connection to the daemon was lost: whether the call was "
                                   "done is not known. Look at what it may have changed before you "
                                   "repeat it.")
                      : str_printf("%s. %s", e->message, err_remedy_of(e));

    put_error(a->b, a->id, RPC_BUSY, text);
}

static void mcp_carry(asked *a)
{
    CLEANUP(client_answer_done) client_answer answer = {0};
    CLEANUP(err_freep) err *e = mcp_post(a->b, a->line, a, &answer);

    if (is_absent(e) && start_again(a->b)) {
        err_free(e);
        e = mcp_post(a->b, a->line, a, &answer);
    }
    if (atomic_load(&a->cancelled))
        return;
    if (e) {
        put_failure(a, e);
    } else if (answer.status < 200 || answer.status > 299) {
        put_refusal(a, &answer);
    } else {
        put_message(a, a->body.p, a->body.len);
    }
}

static void mcp_forget(asked *a)
{
    LOCK_SCOPE(&a->b->lock);
    for (asked **at = &a->b->asked; *at; at = &(*at)->next)
        if (*at == a) {
            *at = a->next;
            break;
        }
    a->b->n--;
    pthread_cond_broadcast(&a->b->idle);
}

static void *mcp_serve(void *arg)
{
    asked *a = arg;

    mcp_carry(a);
    mcp_forget(a);
    sse_decoder_done(&a->events);
    buf_done(&a->body);
    json_decref(a->id);
    secret_freep(&a->line);
    free(a);
    return NULL;
}

static void mcp_ask(bridge *b, char *line, const json_t *id)
{
    asked *a = xcalloc(1, sizeof *a);

    a->b = b;
    a->line = line;
    a->id = json_deep_copy(id);
    pthread_mutex_lock(&b->lock);
    bool room = b->n < ASKED_MAX;
    if (room) {
        a->next = b->asked;
        b->asked = a;
        b->n++;
    }
    pthread_mutex_unlock(&b->lock);
    if (room && thread_try_detach(mcp_serve, a))
        return;
    put_error(b, id, RPC_BUSY, "too many requests are under way; wait for one of them");
    if (room)
        mcp_forget(a);
    json_decref(a->id);
    secret_freep(&a->line);
    free(a);
}

/* ---- input ---- */

static void mcp_cancel(bridge *b, const json_t *id)
{
    LOCK_SCOPE(&b->lock);
    for (asked *a = b->asked; a; a = a->next)
        if (!id || json_equal(a->id, id))
            atomic_store(&a->cancelled, true);
}

static void mcp_tell(bridge *b, const char *line)
{
    CLEANUP(client_answer_done) client_answer answer = {0};

    err_drop(mcp_post(b, line, NULL, &answer), "mcp");
}

/* Answers a line that cannot be parsed. The answer needs the line's id, or a client over stdio
 * would wait for ever. */
static void refuse_line(bridge *b, const char *p, size_t n, const err *e)
{
    CLEANUP(json_decrefp) json_t *id = mcp_line_id(p, n);
    CLEANUP(freep) char *text = mcp_line_refusal(e);

    put_error(b, id, RPC_PARSE, text);
}

static void take_line(bridge *b, const char *p, size_t n)
{
    CLEANUP(json_decrefp) json_t *o = NULL;
    CLEANUP(err_freep) err *e = NULL;

    if (n && p[n - 1] == '\r')
        n--;
    if (!n)
        return;
    e = json_parse(p, n, &o);
    if (e) {
        refuse_line(b, p, n, e);
        return;
    }
    CLEANUP(secret_freep) char *line = xstrndup(p, n);
    const json_t *id = json_object_get(o, "id");
    if (id && json_str(o, "method")) {
        mcp_ask(b, TAKE_PTR(line), id);
        return;
    }
    const json_t *which = json_object_get(json_object_get(o, "params"), "requestId");
    if (which && str_eq(json_str(o, "method"), "notifications/cancelled"))
        mcp_cancel(b, which);
    mcp_tell(b, line); /* sent for a cancel, too: the daemon may then act at once */
}

static err *take_lines(bridge *b, buf *in)
{
    for (;;) {
        const char *end = in->len ? memchr(in->p, '\n', in->len) : NULL;
        if (!end)
            break;
        size_t n = (size_t)(end - in->p);
        take_line(b, in->p, n);
        buf_consume(in, n + 1);
    }
    if (in->len > LINE_MAX_BYTES)
        return err_new(ERR_TOO_LARGE, "a message of more than 4 MiB");
    return NULL;
}

/* Runs until stdin ends or a signal comes; *ret_hurry: it was a signal. */
static err *run_loop(bridge *b, int signals, bool *ret_hurry)
{
    struct pollfd fds[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                           {.fd = signals, .events = POLLIN}};
    CLEANUP(buf_done) buf in = {0};

    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return err_sys(ERR_INTERNAL, errno, "cannot wait for stdin");
        if (fds[1].revents) {
            *ret_hurry = true;
            return NULL;
        }
        if (!fds[0].revents)
            continue;
        buf_reserve(&in, 65536);
        ssize_t n = read(STDIN_FILENO, in.p + in.len, 65536);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            break;
        in.len += (size_t)n;
        TRY(take_lines(b, &in));
    }
    take_line(b, in.p, in.len);
    return NULL;
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Waits for requests in progress, up to GRACE_NS or a signal. */
static void wait_idle(bridge *b, int signals)
{
    uint64_t until = now_mono_ns() + GRACE_NS;
    struct pollfd fd = {.fd = signals, .events = POLLIN};

    for (;;) {
        pthread_mutex_lock(&b->lock);
        bool busy = b->n && !b->closed;
        if (busy)
            cond_wait_until(&b->idle, &b->lock, now_mono_ns() + 50 * NS_PER_MS);
        pthread_mutex_unlock(&b->lock);
        if (!busy || now_mono_ns() >= until || poll(&fd, 1, 0) > 0)
            return;
    }
}

static void end_session(const bridge *b)
{
    CLEANUP(client_answer_done) client_answer answer = {0};

    err_drop(client_do(b->client,
                       &(client_call){.method = "DELETE",
                                      .path = b->path,
                                      .line = b->header,
                                      .timeout_ms = 5000,
                                      .any_status = true},
                       &answer),
             "mcp");
}

static void mcp_add(buf *path, const char *name, const char *value)
{
    if (!value)
        return;
    CLEANUP(freep) char *escaped = client_escape(value);
    buf_printf(path, "%c%s=%s", strchr(buf_cstr(path), '?') ? '&' : '?', name, escaped);
}

static char *path_of(const mcp_args *a)
{
    CLEANUP(buf_done) buf path = {0};
    CLEANUP(freep) char *memory = a->memory ? str_printf("%lu", a->memory) : NULL;

    buf_str(&path, "/mcp");
    mcp_add(&path, "sandbox", a->sandbox);
    mcp_add(&path, "image", a->image);
    mcp_add(&path, "template", a->template);
    mcp_add(&path, "network", a->network);
    mcp_add(&path, "memory", memory);
    return buf_take(&path);
}

static err *bridge_run(cli *c, bridge *b, const mcp_args *a)
{
    CLEANUP(closep) int signals = open_signals();
    CLEANUP(freep) char *named = NULL;
    bool hurry = false;

    TRY(cli_connect(c));
    TRY(cli_client(c, &b->client));
    TRY(cli_address(&c->common, &named));
    b->own = !named && user_has_no_node() ? c->url : NULL;
    err *e = run_loop(b, signals, &hurry);
    if (!hurry && !e)
        wait_idle(b, signals);
    mcp_cancel(b, NULL);
    if (!a->keep)
        end_session(b);
    return e;
}

/* Frees the bridge, unless threads still use it: the process is about to end anyway. */
static void bridge_leave(bridge *b)
{
    pthread_mutex_lock(&b->lock);
    bool busy = b->n;
    pthread_mutex_unlock(&b->lock);
    if (busy)
        return;
    free(TAKE_PTR(b->path));
    free(TAKE_PTR(b->header));
    client_free(TAKE_PTR(b->client));
}

static err *cli_mcp_run(cli *c, void *args, const opt_words *words, int *status)
{
    static bridge b = {.lock = PTHREAD_MUTEX_INITIALIZER, .starting = PTHREAD_MUTEX_INITIALIZER};
    char id[33];

    (void)words, (void)status;
    signal(SIGPIPE, SIG_IGN);
    cond_init(&b.idle);
    id_random(id, sizeof id - 1);
    b.path = path_of(args);
    b.header = str_printf("Bothy-Mcp-Session: %s", id);
    err *e = bridge_run(c, &b, args);
    bridge_leave(&b);
    return e;
}

const verb VERB_MCP = {
    .name = "mcp",
    .usage = "[--image IMAGE | --template NAME | --sandbox NAME]",
    .summary = "Serve the Model Context Protocol on stdio, for agents",
    .text =
        "Give a harness 'bothy mcp' as the command of an MCP server: its model gets tools to run\n"
        "commands and to work with files in a sandbox. The first tool that needs one makes it; it\n"
        "ends with the harness, unless --keep or --sandbox says otherwise. The same tools are at\n"
        "/mcp of the daemon, over HTTP.",
    .opts = OPTS,
    .args_size = sizeof(mcp_args),
    .run = cli_mcp_run,
};

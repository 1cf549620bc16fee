/* Decodes messages of process.Process, as leniently as proto3's JSON: unknown members are ignored,
 * null is the default, numbers may be strings, enums may be numbers. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "door/e2b/process.h"
#include "wire/connect.h"

#define NOTE_STRING_MAX 4096 /* bytes of an argument or variable in List; longer are truncated */
#define NOTE_MAX        65536
#define TAG_MAX         256u

/* ---- members ---- */

static const json_t *process_wire_member(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);

    return json_is_null(v) ? NULL : v;
}

static err *process_wire_wrong(const char *name, const char *what)
{
    return err_new(ERR_INVALID_REQUEST, "%s: not %s", name, what);
}

static err *get_object(const json_t *o, const char *name, const json_t **ret)
{
    const json_t *v = process_wire_member(o, name);

    if (v && !json_is_object(v))
        return process_wire_wrong(name, "an object");
    *ret = v;
    return NULL;
}

static err *get_string(const json_t *o, const char *name, char **ret)
{
    const json_t *v = process_wire_member(o, name);

    if (v && !json_is_string(v))
        return process_wire_wrong(name, "a string");
    *ret = v ? xstrdup(json_string_value(v)) : NULL;
    return NULL;
}

static err *get_u32(const json_t *o, const char *name, uint32_t max, uint32_t *ret)
{
    const json_t *v = process_wire_member(o, name);
    uint64_t n = 0;

    if (!v)
        return NULL;
    if (json_is_string(v) && str_to_u64(json_string_value(v), max, &n)) {
        *ret = (uint32_t)n;
        return NULL;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > max)
        return process_wire_wrong(name, "a number in its range");
    *ret = (uint32_t)json_integer_value(v);
    return NULL;
}

/* Decodes base64 of either alphabet, with or without padding. */
static err *get_bytes(const json_t *o, const char *name, buf *ret)
{
    const json_t *v = process_wire_member(o, name);
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(freep) void *bytes = NULL;
    size_t n = 0;

    if (!json_is_string(v))
        return process_wire_wrong(name, "base64");
    buf_append(&text, json_string_value(v), json_string_length(v));
    for (size_t i = 0; i < text.len; i++)
        text.p[i] = text.p[i] == '-' ? '+' : text.p[i] == '_' ? '/' : text.p[i];
    while (text.len % 4)
        buf_char(&text, '=');
    if (!base64_decode(buf_cstr(&text), text.len, &bytes, &n))
        return process_wire_wrong(name, "base64");
    buf_append(ret, bytes, n);
    secret_wipe(bytes, n);
    secret_wipe(text.p, text.len);
    return NULL;
}

static err *get_size(const json_t *o, bool *ret_has, uint16_t *ret_rows, uint16_t *ret_cols)
{
    const json_t *pty = NULL, *size = NULL;
    uint32_t rows = 0, cols = 0;

    TRY(get_object(o, "pty", &pty));
    if (!pty)
        return NULL;
    TRY(get_object(pty, "size", &size));
    TRY(get_u32(size, "rows", UINT16_MAX, &rows));
    TRY(get_u32(size, "cols", UINT16_MAX, &cols));
    *ret_has = true;
    *ret_rows = (uint16_t)rows;
    *ret_cols = (uint16_t)cols;
    return NULL;
}

static err *get_selector(const json_t *o, process_request *ret)
{
    const json_t *sel = NULL;

    TRY(get_object(o, "process", &sel));
    if (!sel || !(process_wire_member(sel, "pid") || process_wire_member(sel, "tag")))
        return err_new(ERR_INVALID_REQUEST, "process: neither a pid nor a tag");
    TRY(get_u32(sel, "pid", INT32_MAX, &ret->process.pid));
    TRY(get_string(sel, "tag", &ret->process.tag));
    ret->has_process = true;
    return NULL;
}

static err *get_input(const json_t *o, process_request *ret)
{
    const json_t *in = NULL;

    TRY(get_object(o, "input", &in));
    if (!in)
        return NULL;
    if (process_wire_member(in, "stdin")) {
        ret->input = INPUT_STDIN;
        return get_bytes(in, "stdin", &ret->bytes);
    }
    if (process_wire_member(in, "pty")) {
        ret->input = INPUT_PTY;
        return get_bytes(in, "pty", &ret->bytes);
    }
    return NULL;
}

static err *get_signal(const json_t *o, int *ret)
{
    const json_t *v = process_wire_member(o, "signal");
    const char *name = json_string_value(v);

    if (!v)
        return NULL;
    if (str_eq(name, "SIGNAL_SIGKILL") || json_integer_value(v) == SIGKILL)
        *ret = SIGKILL;
    else if (str_eq(name, "SIGNAL_SIGTERM") || json_integer_value(v) == SIGTERM)
        *ret = SIGTERM;
    return NULL;
}

static err *process_wire_parse(const char *p, size_t n, json_t **ret)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(json_parse(p, n, &root));
    if (!json_is_object(root))
        return err_new(ERR_INVALID_REQUEST, "the message is not an object");
    *ret = TAKE_PTR(root);
    return NULL;
}

/* ---- Start ---- */

static err *get_args(const json_t *config, char ***argv)
{
    const json_t *args = process_wire_member(config, "args"), *v;
    size_t i;

    if (args && !json_is_array(args))
        return process_wire_wrong("args", "an array");
    json_array_foreach(args, i, v)
    {
        if (!json_is_string(v))
            return process_wire_wrong("args", "an array of strings");
        strv_push(argv, xstrdup(json_string_value(v)));
    }
    return NULL;
}

static err *get_env(const json_t *config, char ***env)
{
    const json_t *envs = NULL, *v;
    const char *name;
    void *at;

    TRY(get_object(config, "envs", &envs));
    for (at = json_object_iter((json_t *)envs); at;
         at = json_object_iter_next((json_t *)envs, at)) {
        name = json_object_iter_key(at);
        v = json_object_iter_value(at);
        if (!json_is_string(v))
            return process_wire_wrong("envs", "a map of strings");
        if (!*name || strchr(name, '='))
            return process_wire_wrong("envs", "names of variables");
        strv_push(env, str_printf("%s=%s", name, json_string_value(v)));
    }
    return NULL;
}

/* Reads the tag. Its length is limited because it is kept as long as the process, and sent with
 * every list. */
static err *get_tag(const json_t *root, char **ret)
{
    const json_t *v = process_wire_member(root, "tag");

    if (json_string_length(v) > TAG_MAX)
        return err_new(ERR_INVALID_REQUEST, "tag: %zu bytes, the limit is %u",
                       json_string_length(v), TAG_MAX);
    return get_string(root, "tag", ret);
}

static err *decode_start(const json_t *root, process_start *s)
{
    const json_t *config = NULL, *in = process_wire_member(root, "stdin");
    char *cmd = NULL;

    TRY(get_object(root, "process", &config));
    TRY(get_string(config, "cmd", &cmd));
    if (!cmd || !*cmd) {
        free(cmd);
        return err_new(ERR_INVALID_REQUEST, "process.cmd: missing");
    }
    strv_push(&s->argv, cmd);
    TRY(get_args(config, &s->argv));
    TRY(get_env(config, &s->env));
    TRY(get_string(config, "cwd", &s->cwd));
    TRY(get_tag(root, &s->tag));
    TRY(get_size(root, &s->has_pty, &s->rows, &s->cols));
    if (in && !json_is_boolean(in))
        return process_wire_wrong("stdin", "true or false");
    s->no_stdin = json_is_false(in);
    s->config = json_incref((json_t *)config);
    return NULL;
}

err *process_start_decode(const char *p, size_t n, process_start *ret)
{
    CLEANUP(process_start_done) process_start s = {0};
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(process_wire_parse(p, n, &root));
    TRY(decode_start(root, &s));
    if (s.cwd && !*s.cwd)
        free(TAKE_PTR(s.cwd));
    *ret = s;
    s = (process_start){0};
    return NULL;
}

void process_start_done(process_start *s)
{
    strv_free(s->argv);
    for (char **v = s->env; v && *v; v++)
        secret_wipe(*v, strlen(*v));
    strv_free(s->env);
    free(s->cwd);
    free(s->tag);
    json_decref(s->config);
    *s = (process_start){0};
}

/* ---- the other messages ---- */

static err *decode_request(const json_t *root, process_request *r)
{
    TRY(get_selector(root, r));
    TRY(get_input(root, r));
    TRY(get_signal(root, &r->signo));
    return get_size(root, &r->has_pty, &r->rows, &r->cols);
}

static err *process_wire_decode(const char *p, size_t n,
                                err *(*take)(const json_t *root, process_request *r),
                                process_request *ret)
{
    CLEANUP(process_request_done) process_request r = {0};
    CLEANUP(json_decrefp) json_t *root = NULL;

    TRY(process_wire_parse(p, n, &root));
    TRY(take(root, &r));
    *ret = r;
    r = (process_request){0};
    return NULL;
}

err *process_request_decode(const char *p, size_t n, process_request *ret)
{
    return process_wire_decode(p, n, decode_request, ret);
}

static err *decode_input(const json_t *root, process_request *r)
{
    const json_t *start = NULL, *data = NULL, *keepalive = NULL;

    TRY(get_object(root, "start", &start));
    TRY(get_object(root, "data", &data));
    TRY(get_object(root, "keepalive", &keepalive));
    if (start)
        return get_selector(start, r);
    if (data)
        return get_input(data, r);
    return keepalive ? NULL
                     : err_new(ERR_INVALID_REQUEST, "neither start, nor data, nor keepalive");
}

err *process_input_decode(const char *p, size_t n, process_request *ret)
{
    return process_wire_decode(p, n, decode_input, ret);
}

void process_request_done(process_request *r)
{
    free(r->process.tag);
    secret_wipe(r->bytes.p, r->bytes.cap);
    buf_done(&r->bytes);
    *r = (process_request){0};
}

/* ---- the note: what a list of processes reports ---- */

static json_t *process_wire_cut(const json_t *v)
{
    const char *s = json_string_value(v);

    if (json_string_length(v) <= NOTE_STRING_MAX)
        return json_string(s);
    size_t n = NOTE_STRING_MAX;
    while (n && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    return json_stringn(s, n);
}

static json_t *short_config(const process_start *s, size_t max)
{
    const json_t *args = process_wire_member(s->config, "args"),
                 *envs = process_wire_member(s->config, "envs"), *v;
    json_t *o = json_pack("{s:s}", "cmd", s->argv[0]), *list = json_array(), *map = json_object();
    size_t i, used = 0;

    json_array_foreach(args, i, v)
    {
        used += json_string_length(v) < NOTE_STRING_MAX ? json_string_length(v) : NOTE_STRING_MAX;
        if (used > max)
            break;
        json_array_append_new(list, process_wire_cut(v));
    }
    for (void *at = json_object_iter((json_t *)envs); at && used <= max;
         at = json_object_iter_next((json_t *)envs, at)) {
        v = json_object_iter_value(at);
        used += json_object_iter_key_len(at) + json_string_length(v);
        if (used <= max)
            json_object_set_new(map, json_object_iter_key(at), process_wire_cut(v));
    }
    json_object_set_new(o, "args", list);
    json_object_set_new(o, "envs", map);
    if (s->cwd)
        json_object_set_new(o, "cwd", json_string(s->cwd));
    return o;
}

char *process_note(const process_start *s)
{
    CLEANUP(json_decrefp)
    json_t *note = json_pack("{s:o}", "config", short_config(s, NOTE_MAX));
    CLEANUP(buf_done) buf text = {0};

    if (s->tag)
        json_object_set_new(note, "tag", json_string(s->tag));
    json_write(&text, note);
    return buf_take(&text);
}

/* ---- events ---- */

void process_event_start(buf *out, uint64_t pid)
{
    char text[64];

    int n = snprintf(text, sizeof text, "{\"event\":{\"start\":{\"pid\":%lu}}}", pid);
    connect_message(out, text, (size_t)n);
}

void process_event_data(buf *out, const char *stream, const void *p, size_t n)
{
    CLEANUP(freep) char *b64 = base64_encode(p, n);
    CLEANUP(freep) char *text = str_printf("{\"event\":{\"data\":{\"%s\":\"%s\"}}}", stream, b64);

    connect_message(out, text, strlen(text));
}

void process_event_keepalive(buf *out)
{
    static const char TEXT[] = "{\"event\":{\"keepalive\":{}}}";

    connect_message(out, TEXT, sizeof TEXT - 1);
}

/* Names a signal as Go's os.ProcessState does; clients compare the text. */
static void signal_text(int signo, char *ret, size_t size)
{
    static const char *const NAMES[] = {[SIGHUP] = "hangup",
                                        [SIGINT] = "interrupt",
                                        [SIGQUIT] = "quit",
                                        [SIGILL] = "illegal instruction",
                                        [SIGTRAP] = "trace/breakpoint trap",
                                        [SIGABRT] = "aborted",
                                        [SIGBUS] = "bus error",
                                        [SIGFPE] = "floating point exception",
                                        [SIGKILL] = "killed",
                                        [SIGUSR1] = "user defined signal 1",
                                        [SIGSEGV] = "segmentation fault",
                                        [SIGUSR2] = "user defined signal 2",
                                        [SIGPIPE] = "broken pipe",
                                        [SIGALRM] = "alarm clock",
                                        [SIGTERM] = "terminated"};
    size_t n = sizeof NAMES / sizeof NAMES[0];

    if (signo > 0 && (size_t)signo < n && NAMES[signo])
        snprintf(ret, size, "signal: %s", NAMES[signo]);
    else
        snprintf(ret, size, "signal: signal %d", signo);
}

void process_event_end(buf *out, const exec_end *end)
{
    /* A command that timed out has failed, whatever status it exits with after the signal. */
    int signo = end->signal ? end->signal : end->how == EXEC_TIMED_OUT ? SIGKILL : 0;
    char status[64];

    if (signo)
        signal_text(signo, status, sizeof status);
    else
        snprintf(status, sizeof status, "exit status %d", end->exit_code);
    bool failed = signo || end->exit_code;
    CLEANUP(freep)
    char *text =
        str_printf("{\"event\":{\"end\":{\"exitCode\":%d,\"exited\":%s,\"status\":\"%s\"%s%s%s}}}",
                   signo ? -1 : end->exit_code, signo ? "false" : "true", status,
                   failed ? ",\"error\":\"" : "", failed ? status : "", failed ? "\"" : "");

    connect_message(out, text, strlen(text));
}

/* The channel protocol of exec: each message is binary, and its first byte is the channel. */
#include <string.h>

#include "backend/kubernetes/kube_exec.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "wire/ws.h"

enum channel {
    CHANNEL_IN,
    CHANNEL_OUT,
    CHANNEL_ERR,
    CHANNEL_STATUS,
    CHANNEL_RESIZE,
    CHANNEL_CLOSE = 255, /* version 5: the next byte is the channel to close */
};

struct kube_frames {
    ws *ws;
    int version;
    buf out, err;
    kube_end end;
};

/* Reads the exit status: decimal text among the causes. */
static bool exit_code_of(const json_t *status, int *ret_code)
{
    size_t i;
    json_t *cause;
    uint64_t code = 0;

    json_array_foreach(json_object_get(json_object_get(status, "details"), "causes"), i, cause)
    {
        const char *text = json_str(cause, "message");
        if (str_eq(json_str(cause, "reason"), "ExitCode") && text && str_to_u64(text, 255, &code)) {
            *ret_code = (int)code;
            return true;
        }
    }
    return false;
}

static void take_status(kube_frames *f, const void *p, size_t n)
{
    CLEANUP(json_decrefp) json_t *root = NULL;

    if (f->end.known)
        return;
    err_free(json_parse(p, n, &root)); /* without a Status the end stays unknown */
    if (!json_is_object(root))
        return;
    if (str_eq(json_str(root, "status"), "Success")) {
        f->end = (kube_end){.known = true, .started = true};
        return;
    }
    if (!str_eq(json_str(root, "status"), "Failure"))
        return;
    f->end.known = true;
    f->end.exit_code = -1;
    f->end.started = exit_code_of(root, &f->end.exit_code);
    f->end.message = xstrdup(str_or(json_str(root, "message"), "it failed"));
}

static void on_message(void *arg, bool text, const void *p, size_t n)
{
    kube_frames *f = arg;
    const uint8_t *b = p;

    (void)text;
    if (!n)
        return;
    if (b[0] == CHANNEL_OUT) {
        buf_append(&f->out, b + 1, n - 1);
    } else if (b[0] == CHANNEL_ERR) {
        size_t room = KUBE_STDERR_MAX - f->err.len;
        buf_append(&f->err, b + 1, n - 1 < room ? n - 1 : room);
    } else if (b[0] == CHANNEL_STATUS) {
        take_status(f, b + 1, n - 1);
    }
}

kube_frames *kube_frames_new(int version, void (*random)(void *p, size_t n))
{
    kube_frames *f = xcalloc(1, sizeof *f);

    f->version = version;
    f->ws = ws_new(&(ws_options){.client = true,
                                 .message_max = KUBE_MESSAGE_MAX,
                                 .on_message = on_message,
                                 .arg = f,
                                 .random = random});
    return f;
}

void kube_frames_free(kube_frames *f)
{
    if (!f)
        return;
    ws_free(f->ws);
    buf_done(&f->out);
    buf_done(&f->err);
    kube_end_done(&f->end);
    free(f);
}

void kube_end_done(kube_end *e)
{
    free(e->message);
    *e = (kube_end){0};
}

void kube_frames_feed(kube_frames *f, const void *p, size_t n)
{
    ws_feed(f->ws, p, n);
}

buf *kube_frames_out(kube_frames *f)
{
    return &f->out;
}

const buf *kube_frames_err(const kube_frames *f)
{
    return &f->err;
}

const kube_end *kube_frames_end(const kube_frames *f)
{
    return &f->end;
}

bool kube_frames_over(const kube_frames *f)
{
    return ws_is_closing(f->ws);
}

static void kube_frames_put(kube_frames *f, buf *out, enum channel channel, const void *p, size_t n)
{
    uint8_t head = (uint8_t)channel;

    ws_put(f->ws, out, &head, 1, p, n);
}

void kube_frames_stdin(kube_frames *f, buf *out, const void *p, size_t n)
{
    kube_frames_put(f, out, CHANNEL_IN, p, n);
}

bool kube_frames_stdin_end(kube_frames *f, buf *out)
{
    uint8_t which = CHANNEL_IN;

    if (f->version < 5)
        return false;
    kube_frames_put(f, out, CHANNEL_CLOSE, &which, 1);
    return true;
}

void kube_frames_resize(kube_frames *f, buf *out, unsigned rows, unsigned cols)
{
    CLEANUP(freep) char *text = str_printf("{\"Width\":%u,\"Height\":%u}", cols, rows);

    kube_frames_put(f, out, CHANNEL_RESIZE, text, strlen(text));
}

void kube_frames_flush(kube_frames *f, buf *out)
{
    ws_flush(f->ws, out);
}

bool kube_frames_flooded(const kube_frames *f)
{
    return ws_is_full(f->ws);
}

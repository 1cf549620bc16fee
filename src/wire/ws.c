#include "wire/ws.h"

#include <assert.h>
#include <string.h>
#include <wslay/wslay.h>

#include "base/cleanup.h"
#include "base/str.h"

#define QUEUE_MAX  64   /* control frames waiting to be flushed */
#define REASON_MAX 123  /* a control frame has 125 bytes */
#define KEEP       4096 /* capacity of the message buffer that is kept between messages */

struct ws {
    ws_options o;
    wslay_event_context_ptr ctx;
    const uint8_t *in; /* while feeding */
    size_t nin;
    buf *out; /* while flushing */
    buf message;
    bool text;
    bool in_data; /* the current frame is a data frame */
    bool broken;  /* nothing more is read */
    bool closed;  /* a close was queued or sent */
    uint64_t heard, pinged;
    bool fresh; /* fed since the last ws_alive */
};

/* ---- wslay's calls ---- */

static ssize_t on_recv(wslay_event_context_ptr ctx, uint8_t *p, size_t n, int flags, void *arg)
{
    ws *w = arg;

    (void)flags;
    if (!w->nin) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    n = n < w->nin ? n : w->nin;
    memcpy(p, w->in, n);
    w->in += n;
    w->nin -= n;
    return (ssize_t)n;
}

static ssize_t on_send(wslay_event_context_ptr ctx, const uint8_t *p, size_t n, int flags,
                       void *arg)
{
    ws *w = arg;

    (void)ctx;
    (void)flags;
    buf_append(w->out, p, n);
    return (ssize_t)n;
}

static int on_mask(wslay_event_context_ptr ctx, uint8_t *p, size_t n, void *arg)
{
    ws *w = arg;

    (void)ctx;
    w->o.random(p, n);
    return 0;
}

static void on_frame(wslay_event_context_ptr ctx,
                     const struct wslay_event_on_frame_recv_start_arg *f, void *arg)
{
    ws *w = arg;

    (void)ctx;
    w->in_data = !wslay_is_ctrl_frame(f->opcode);
}

/* Appends a piece of a message. wslay would reserve the announced size of a frame; this buffer
 * grows only with bytes received. */
static void on_chunk(wslay_event_context_ptr ctx,
                     const struct wslay_event_on_frame_recv_chunk_arg *c, void *arg)
{
    ws *w = arg;

    (void)ctx;
    if (!w->in_data || w->broken)
        return;
    if (c->data_length > w->o.message_max - w->message.len) {
        ws_close(w, WS_TOO_BIG, NULL);
        w->broken = true;
        return;
    }
    buf_append(&w->message, c->data, c->data_length);
}

static void on_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
                       void *arg)
{
    ws *w = arg;

    (void)ctx;
    if (wslay_is_ctrl_frame(m->opcode) || w->broken)
        return;
    if (!ws_is_closing(w))
        w->o.on_message(w->o.arg, m->opcode == WSLAY_TEXT_FRAME, w->message.p, w->message.len);
    if (w->message.cap > KEEP)
        buf_done(&w->message);
    else
        buf_clear(&w->message);
}

/* ---- the connection ---- */

ws *ws_new(const ws_options *o)
{
    static const struct wslay_event_callbacks CALLS = {
        .recv_callback = on_recv,
        .send_callback = on_send,
        .genmask_callback = on_mask,
        .on_frame_recv_start_callback = on_frame,
        .on_frame_recv_chunk_callback = on_chunk,
        .on_msg_recv_callback = on_message,
    };
    ws *w = xcalloc(1, sizeof *w);

    w->o = *o;
    int r = o->client ? wslay_event_context_client_init(&w->ctx, &CALLS, w)
                      : wslay_event_context_server_init(&w->ctx, &CALLS, w);
    assert(!r);
    wslay_event_config_set_no_buffering(w->ctx, 1);
    wslay_event_config_set_max_recv_msg_length(w->ctx, o->message_max);
    return w;
}

void ws_free(ws *w)
{
    if (!w)
        return;
    wslay_event_context_free(w->ctx);
    buf_done(&w->message);
    free(w);
}

void ws_feed(ws *w, const void *p, size_t n)
{
    w->fresh = true;
    if (w->broken)
        return;
    w->in = p;
    w->nin = n;
    /* wslay returns early only when it has stopped reading for good. */
    if (wslay_event_recv(w->ctx) || !wslay_event_get_read_enabled(w->ctx))
        w->broken = true;
    w->in = NULL;
    w->nin = 0;
}

static void ws_queue(ws *w, unsigned opcode, const void *p, size_t n)
{
    int r = wslay_event_queue_msg(
        w->ctx, &(struct wslay_event_msg){.opcode = (uint8_t)opcode, .msg = p, .msg_length = n});

    assert(!r || r == WSLAY_ERR_NO_MORE_MSG);
}

void ws_put(ws *w, buf *out, const void *head, size_t nhead, const void *p, size_t n)
{
    CLEANUP(buf_done) buf whole = {0};

    buf_reserve(&whole, nhead + n);
    buf_append(&whole, head, nhead);
    buf_append(&whole, p, n);
    ws_queue(w, WSLAY_BINARY_FRAME, whole.p, whole.len);
    ws_flush(w, out);
}

void ws_close(ws *w, enum ws_code code, const char *reason)
{
    size_t n = reason ? strlen(reason) : 0;

    n = n < REASON_MAX ? n : REASON_MAX;
    if (!ws_is_closing(w))
        wslay_event_queue_close(w->ctx, (uint16_t)code, (const uint8_t *)reason, n);
    w->closed = true;
}

void ws_flush(ws *w, buf *out)
{
    w->out = out;
    if (wslay_event_send(w->ctx))
        w->broken = true;
    w->out = NULL;
}

bool ws_is_full(const ws *w)
{
    return wslay_event_get_queued_msg_count(w->ctx) >= QUEUE_MAX;
}

bool ws_is_closing(const ws *w)
{
    return w->broken || w->closed || wslay_event_get_close_sent(w->ctx) ||
           wslay_event_get_close_received(w->ctx) || !wslay_event_get_write_enabled(w->ctx);
}

bool ws_is_over(const ws *w)
{
    bool heard_all = w->broken || wslay_event_get_close_received(w->ctx);

    return heard_all && !wslay_event_want_write(w->ctx);
}

unsigned ws_peer_code(const ws *w)
{
    return wslay_event_get_close_received(w->ctx) ? wslay_event_get_status_code_received(w->ctx)
                                                  : 0;
}

bool ws_alive(ws *w, uint64_t now, bool deaf, uint64_t *ret_wake)
{
    if (w->fresh || deaf || !w->heard)
        w->heard = now;
    w->fresh = false;
    if (now - w->heard >= WS_DEAD_NS)
        return false;
    uint64_t last = w->heard > w->pinged ? w->heard : w->pinged;
    if (now - last >= WS_PING_NS) {
        ws_queue(w, WSLAY_PING, NULL, 0);
        w->pinged = last = now;
    }
    *ret_wake = last + WS_PING_NS;
    return true;
}

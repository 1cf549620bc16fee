#include "wire/connect.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

#define TIMEOUT_DIGITS 10

static void put_head(buf *out, unsigned flags, size_t n)
{
    char head[CONNECT_HEAD] = {(char)flags, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8),
                               (char)n};

    buf_append(out, head, sizeof head);
}

void connect_message(buf *out, const void *p, size_t n)
{
    put_head(out, 0, n);
    buf_append(out, p, n);
}

void connect_error(buf *out, const char *code, const char *message)
{
    buf_str(out, "{\"code\":");
    buf_json_string(out, code, strlen(code));
    buf_str(out, ",\"message\":");
    buf_json_string(out, message, strlen(message));
    buf_char(out, '}');
}

void connect_end(buf *out, const char *code, const char *message)
{
    CLEANUP(buf_done) buf text = {0};

    buf_char(&text, '{');
    if (code) {
        buf_str(&text, "\"error\":");
        connect_error(&text, code, message);
    }
    buf_char(&text, '}');
    put_head(out, CONNECT_END, text.len);
    buf_append(out, text.p, text.len);
}

int connect_status(const char *code)
{
    static const struct {
        const char *code;
        int status;
    } CODES[] = {
        {"canceled", 499},
        {"unknown", 500},
        {"invalid_argument", 400},
        {"deadline_exceeded", 504},
        {"not_found", 404},
        {"already_exists", 409},
        {"permission_denied", 403},
        {"resource_exhausted", 429},
        {"failed_precondition", 400},
        {"aborted", 409},
        {"out_of_range", 400},
        {"unimplemented", 501},
        {"internal", 500},
        {"unavailable", 503},
        {"data_loss", 500},
        {"unauthenticated", 401},
    };

    for (size_t i = 0; i < sizeof CODES / sizeof CODES[0]; i++)
        if (!strcmp(CODES[i].code, code))
            return CODES[i].status;
    return 500;
}

err *connect_timeout(const char *header, uint64_t *ret_ms)
{
    uint64_t ms = 0;

    if (header && (strlen(header) > TIMEOUT_DIGITS || !str_to_u64(header, UINT64_MAX, &ms)))
        return err_remedy(
            err_new(ERR_INVALID_REQUEST, "Connect-Timeout-Ms: not a number of milliseconds"),
            "Send up to ten digits, or leave the header out for no time limit.");
    *ret_ms = ms;
    return NULL;
}

/* ---- decoding ---- */

static err *check_head(const uint8_t head[CONNECT_HEAD], uint32_t max, uint32_t *ret_length)
{
    uint32_t n =
        (uint32_t)head[1] << 24 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 8 | head[4];

    if (head[0] & CONNECT_COMPRESSED)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "the message is compressed"),
                          "Send messages without compression.");
    if (head[0])
        return err_new(ERR_INVALID_REQUEST, "a message has the flags 0x%02x", head[0]);
    if (n > max)
        return err_new(ERR_TOO_LARGE, "a message of %u bytes, the limit is %u", n, max);
    *ret_length = n;
    return NULL;
}

/* Takes bytes of the head. *ret_used is 0 if the head was complete before. */
static err *feed_head(connect_decoder *d, const char *p, size_t n, size_t *ret_used)
{
    size_t want = CONNECT_HEAD - d->nhead;
    size_t used = n < want ? n : want;

    memcpy(d->head + d->nhead, p, used);
    d->nhead += used;
    if (used && d->nhead == CONNECT_HEAD)
        TRY(check_head(d->head, d->max ? d->max : CONNECT_MESSAGE_MAX, &d->length));
    *ret_used = used;
    return NULL;
}

err *connect_feed(connect_decoder *d, const void *p, size_t n,
                  err *(*on_message)(void *arg, const char *p, size_t n), void *arg)
{
    const char *at = p;

    while (n) {
        size_t used = 0;
        if (d->nhead < CONNECT_HEAD) {
            TRY(feed_head(d, at, n, &used));
            at += used;
            n -= used;
            if (d->nhead < CONNECT_HEAD)
                return NULL;
        }
        size_t want = d->length - d->message.len;
        size_t take = n < want ? n : want;
        if (take)
            buf_append(&d->message, at, take);
        at += take;
        n -= take;
        if (d->message.len < d->length)
            return NULL;
        d->nhead = 0;
        err *e = on_message(arg, buf_cstr(&d->message), d->message.len);
        buf_done(&d->message); /* freed: streams live long, and messages may be large */
        TRY(e);
    }
    return NULL;
}

err *connect_finish(const connect_decoder *d)
{
    return d->nhead ? err_new(ERR_INVALID_REQUEST, "the stream ends in the middle of a message")
                    : NULL;
}

void connect_decoder_done(connect_decoder *d)
{
    secret_wipe(d->message.p, d->message.cap); /* may hold secrets typed into a terminal */
    buf_done(&d->message);
    *d = (connect_decoder){0};
}

err *connect_single(const void *p, size_t n, const char **ret_message, size_t *ret_n)
{
    uint32_t length = 0;

    if (n < CONNECT_HEAD)
        return err_new(ERR_INVALID_REQUEST, "the body is no message of the Connect protocol");
    TRY(check_head(p, CONNECT_MESSAGE_MAX, &length));
    if (length != n - CONNECT_HEAD)
        return err_new(ERR_INVALID_REQUEST, "the message says %u bytes, the body has %zu", length,
                       n - CONNECT_HEAD);
    *ret_message = (const char *)p + CONNECT_HEAD;
    *ret_n = length;
    return NULL;
}

/* Messages and pongs do not depend on how the bytes are cut (when a mistake in a close frame is
 * noticed, and which, does); a message is never longer than allowed; what is put is read by the
 * other side as the same. */
#include "wire/ws.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void masks(void *p, size_t n)
{
    memset(p, 0x3c, n);
}

static void collect(void *arg, bool text, const void *p, size_t n)
{
    if (n > MAX)
        abort();
    buf_printf(arg, "%d %zu ", text, n);
    buf_append(arg, p, n);
}

static void same(const buf *a, const buf *b)
{
    if (a->len != b->len || (a->len && memcmp(a->p, b->p, a->len)))
        abort();
}

/* got: messages; said: what goes back. True: that is a close. */
static bool run(const uint8_t *p, size_t n, size_t step, bool client, buf *got, buf *said)
{
    CLEANUP(ws_freep)
    ws *w = ws_new(&(ws_options){
        .client = client, .message_max = MAX, .on_message = collect, .arg = got, .random = masks});

    for (size_t at = 0; at < n; at += step)
        ws_feed(w, p + at, step < n - at ? step : n - at);
    ws_flush(w, said);
    if (ws_is_over(w) && !ws_is_closing(w))
        abort();
    return ws_is_closing(w);
}

static void frames(const uint8_t *data, size_t size, bool client)
{
    CLEANUP(buf_done) buf whole = {0}, pieces = {0}, said = {0}, said_too = {0};

    bool closes = run(data, size, size ? size : 1, client, &whole, &said);
    closes |= run(data, size, 1, client, &pieces, &said_too);
    same(&whole, &pieces);
    if (!closes)
        same(&said, &said_too);
}

static void put_is_read(const uint8_t *data, size_t size, bool client)
{
    CLEANUP(buf_done) buf out = {0}, got = {0}, said = {0}, want = {0};
    CLEANUP(ws_freep)
    ws *w = ws_new(&(ws_options){
        .client = client, .message_max = MAX, .on_message = collect, .arg = &got, .random = masks});

    size = size < MAX - 1 ? size : MAX - 1;
    ws_put(w, &out, "\1", 1, data, size);
    buf_printf(&want, "0 %zu \1", size + 1);
    buf_append(&want, data, size);
    run((const uint8_t *)out.p, out.len, 7, !client, &got, &said);
    same(&got, &want);
}

static void offers(const uint8_t *data, size_t size)
{
    CLEANUP(buf_done) buf text = {0}, lines = {0};

    buf_append(&text, data, size);
    const char *s = buf_cstr(&text);
    err_free(ws_accept(&(ws_offer){"13", s, NULL}, "p", &lines));
    err_free(ws_accept(&(ws_offer){"13", "dGhlIHNhbXBsZSBub25jZQ==", s}, "p", &lines));
    err_free(ws_accept(&(ws_offer){s, s, s}, "p", &lines));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    frames(data, size, false);
    frames(data, size, true);
    put_is_read(data, size, true);
    put_is_read(data, size, false);
    offers(data, size);
    return 0;
}

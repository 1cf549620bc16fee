/* The decoder gives the same events however the stream is cut, and what it gives, written and read
 * again, is the same. */
#include "wire/sse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool collect(void *arg, const sse_event *e)
{
    /* NUL bytes are data; the names are text. */
    if (strlen(e->event) && strcmp(e->event, "message"))
        sse_write(arg, e->event, e->id, e->data, e->len);
    else
        sse_write(arg, NULL, e->id, e->data, e->len);
    return true;
}

static void run(const uint8_t *p, size_t n, size_t step, buf *out)
{
    sse_decoder d = {0};

    for (size_t at = 0; at < n; at += step)
        err_free(sse_feed(&d, p + at, step < n - at ? step : n - at, collect, out));
    sse_decoder_done(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(buf_done) buf whole = {0}, pieces = {0}, again = {0};

    run(data, size, size ? size : 1, &whole);
    run(data, size, 1, &pieces);
    if (whole.len != pieces.len || (whole.len && memcmp(whole.p, pieces.p, whole.len)))
        abort();
    run((const uint8_t *)whole.p, whole.len, 7, &again);
    if (whole.len != again.len || (whole.len && memcmp(whole.p, again.p, whole.len)))
        abort();
    return 0;
}

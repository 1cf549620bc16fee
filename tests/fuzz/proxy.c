/* An answer of skopeo's image proxy; what it tells of is a stranger's. A first byte 'l': its log,
 * of which one line is told. */
#include "image/skopeo.h"

#include "fuzz.h"

static void read_log(const void *p, size_t n)
{
    buf log = {0};

    if (n)
        buf_append(&log, p, n);
    char *text = skopeo_log_text(&log);
    MUST(text && !strchr(text, '\n'));
    err *e = skopeo_reason("h/x:1", text);
    MUST(e && e->message && *e->message);
    err_free(e);
    free(text);
    buf_done(&log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proxy_reply r = {.fd = -1};

    if (size && data[0] == 'l') {
        read_log(data + 1, size - 1);
        return 0;
    }
    err *e = proxy_reply_parse(data, size, "h/x:1", &r);
    MUST(!e || (e->message && *e->message && !r.value && !r.pipe));
    err_free(e);
    proxy_reply_done(&r);
    return 0;
}

/* An answer of skopeo's image proxy; what it tells of is a stranger's. A first byte 'l': its log.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "image/skopeo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proxy_reply r = {.fd = -1};
    buf log = {0};

    if (size && data[0] == 'l') {
        buf_append(&log, data + 1, size - 1);
        free(skopeo_log_text(&log));
        buf_done(&log);
        return 0;
    }
    err_free(proxy_reply_parse(data, size, "h/x:1", &r));
    proxy_reply_done(&r);
    return 0;
}

/* Bodies of the native API: every generated decoder over the same bytes. */
#include <stdint.h>
#include <stdlib.h>

#include "api/openapi.h"
#include "base/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DECODE(type)                                 \
    do {                                             \
        CLEANUP(type##_done) type value = {0};       \
        err *e_ = type##_decode(data, size, &value); \
        if (e_ && e_->code != ERR_INVALID_REQUEST)   \
            abort();                                 \
        if (e_ && (!e_->message || !*e_->message))   \
            abort();                                 \
        err_free(e_);                                \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DECODE(create_sandbox);
    DECODE(reset_sandbox);
    DECODE(exec_request);
    DECODE(signal_request);
    DECODE(resize);
    DECODE(attach_control);
    DECODE(pull_image);
    DECODE(prune_images);
    DECODE(create_key);
    DECODE(registry_login);
    DECODE(patch_pool);
    DECODE(sandbox_limits);
    DECODE(tmpfs_mount);
    return 0;
}

/* The warden's record of an image: what is read as whole is written again as the same bytes, and
 * names layers and nothing else. */
#include "base/buf.h"
#include "base/err.h"

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes);
static err *file_write(int dir, const char *name, const void *p, size_t n, unsigned mode,
                       bool sync);
#define fs_read  file_read
#define fs_write file_write
#include "../../src/warden/images.c"
#undef fs_read
#undef fs_write

#include "fuzz.h"

static fuzz_in file;
static buf written;

static err *file_read(int dir, const char *name, size_t max, buf *ret_bytes)
{
    buf b = {0};

    (void)dir;
    if (file.n > max)
        return err_new(ERR_TOO_LARGE, "%s is larger than %zu bytes", name, max);
    if (file.n)
        buf_append(&b, file.p, file.n);
    buf_cstr(&b);
    *ret_bytes = b;
    return NULL;
}

static err *file_write(int dir, const char *name, const void *p, size_t n, unsigned mode, bool sync)
{
    (void)dir, (void)name, (void)mode, (void)sync;
    buf_clear(&written);
    buf_append(&written, p, n);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(image_def_done) image_def d = {0};

    file = (fuzz_in){data, size};
    err *e = image_def_read(-1, "fuzz", &d);
    if (!e) {
        MUST(d.n <= LAYERS_MAX);
        for (size_t i = 0; i < d.n; i++)
            MUST(is_hex(d.layer[i].text));
        err_free(image_def_write(-1, "fuzz", &d)); /* it cannot sync nothing */
        MUST(written.len == size && !memcmp(written.p, data, size));
    }
    err_free(e);
    buf_done(&written);
    written = (buf){0};
    return 0;
}

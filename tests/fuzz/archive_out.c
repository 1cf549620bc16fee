/* Whatever a sandbox answers as an entry stream: making an archive of it takes bounded steps, and
 * what was ended can be read to its end. */
#include <locale.h>

#include "base/cleanup.h"
#include "wire/archive.h"

#include "fuzz.h"

#define STEP_MAX  (512u * 1024) /* a head with its attributes, and the content of one step */
#define TURNS_MAX 64            /* of one input; an endless file is not read to its end here */

static err *give(void *arg, void *p, size_t max, size_t *ret_n)
{
    buf *b = arg;
    size_t n = b->len < max ? b->len : max;

    memcpy(p, b->p, n);
    buf_consume(b, n);
    *ret_n = n;
    return NULL;
}

static err *forget(void *arg, const kit_record *r)
{
    (void)arg;
    (void)r;
    return NULL;
}

/* False: no further. */
static bool put(archive_out *o, const kit_record *r, buf *made, unsigned *turns)
{
    bool again = true;

    while (again && ++*turns < TURNS_MAX) {
        size_t before = made->len;
        err *e = archive_out_put(o, r, &again);
        MUST(made->len - before <= STEP_MAX + KIT_XATTRS_MAX * KIT_XATTR_MAX * 4ul);
        err_free(e);
        if (e)
            return false;
    }
    return !again;
}

static bool run(archive_out *o, const uint8_t *p, size_t n, buf *made)
{
    kit_order order = {0};
    kit_record r;
    size_t used;
    unsigned turns = 0;

    while (kit_decode(p, n, &r, &used) == KIT_OK && kit_order_check(&order, &r)) {
        if (!put(o, &r, made, &turns))
            return false;
        if (r.type == KIT_END)
            return true;
        p += used;
        n -= used;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    enum archive_format format = fuzz_byte(&in) & 1 ? ARCHIVE_ZIP : ARCHIVE_TAR;
    archive_out *o = NULL;
    buf made = {0};

    setlocale(LC_CTYPE, "C.UTF-8");
    err_free(archive_out_new(format, "file", &made, &o));
    bool whole = run(o, in.p, in.n, &made);
    archive_out_free(o);
    if (whole && format == ARCHIVE_TAR) {
        archive_in again = {.read = give, .emit = forget, .arg = &made};
        err *e = made.len ? archive_in_run(&again) : NULL;
        MUST(!e);
    }
    buf_done(&made);
    return 0;
}

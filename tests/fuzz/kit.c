/* The entry stream, as bothyd reads it from a sandbox and as the kit reads it from bothyd; and a
 * kit's argv. What decodes is encoded to the same bytes, however the stream is cut; names lead
 * nowhere but down; of each entry no more data are taken than it says. */
#include "wire/kit.h"

#include "fuzz.h"

static void check_name(const char *p, size_t n)
{
    MUST(n <= KIT_PATH_MAX);
    MUST(!n || (p[0] != '/' && p[n - 1] != '/'));
    MUST(!memmem(p, n, "\0", 1) && !memmem(p, n, "//", 2));
    for (size_t i = 0; i + 1 < n; i++)
        if (p[i] == '.' && p[i + 1] == '.' && (!i || p[i - 1] == '/'))
            MUST(i + 2 < n && p[i + 2] != '/');
}

static void check_round_trip(const kit_record *r, const char *p, size_t used)
{
    static char again[KIT_RECORD_MAX];
    size_t n;

    if (r->type == KIT_EXTENTS) {
        struct kit_extent *v = xcalloc(r->extents + 1, sizeof *v);
        for (uint32_t i = 0; i < r->extents; i++)
            v[i] = kit_extent_get(r, i);
        n = kit_encode_extents(v, r->extents, again);
        free(v);
    } else {
        n = kit_encode(r, again);
    }
    MUST(n == used);
    kit_record twice;
    MUST(kit_decode(again, n, &twice, &used) == KIT_OK && twice.type == r->type);
    if (r->type != KIT_ENTRY && r->type != KIT_EVENT) /* theirs have a field that is not kept */
        MUST(!memcmp(again, p, n));
}

static void run_stream(const uint8_t *data, size_t size)
{
    char *p = memcpy(xmalloc(size ? size : 1), data, size);
    kit_order order = {0};
    kit_record r, early;
    uint64_t data_of_entry = 0;
    size_t at = 0, used;

    while (at < size && kit_decode(p + at, size - at, &r, &used) == KIT_OK) {
        size_t none;
        MUST(used <= size - at && used <= KIT_RECORD_MAX);
        if (r.type == KIT_AT || (r.type == KIT_DETAIL && r.bytes_len))
            MUST(r.bytes[0] == '/' && !memchr(r.bytes, 0, r.bytes_len));
        MUST(kit_decode(p + at, used - 1, &early, &none) == KIT_SHORT);
        check_round_trip(&r, p + at, used);
        if (r.type == KIT_ENTRY || r.type == KIT_EVENT || r.type == KIT_ERROR)
            check_name(r.name, r.name_len);
        if (r.type == KIT_ENTRY && r.entry.flags & KIT_E_HARDLINK)
            check_name(r.bytes, r.bytes_len);
        if (!kit_order_check(&order, &r))
            break;
        data_of_entry = r.type == KIT_DATA ? data_of_entry + r.bytes_len : 0;
        MUST(data_of_entry <= order.size || order.size == INT64_MAX);
        at += used;
    }
    free(p);
}

/* Arguments with NUL between them. */
static void run_request(const uint8_t *data, size_t size)
{
    char *argv[KIT_ARGC + 2] = {0}, *p = memcpy(xcalloc(1, size + 1), data, size);
    int argc = 0;
    kit_request rq;

    for (size_t at = 0; at <= size && argc <= KIT_ARGC; at += strlen(p + at) + 1)
        argv[argc++] = p + at;
    if (kit_request_read(argc, argv, &rq)) {
        char numbers[KIT_NUMBERS];
        const char *again[KIT_ARGC + 1];
        kit_request twice;
        kit_request_write(&rq, numbers, again);
        MUST(kit_request_read(KIT_ARGC, (char *const *)again, &twice));
        MUST(rq.verb == twice.verb && rq.offset == twice.offset && rq.flags == twice.flags &&
             rq.max == twice.max && rq.path == twice.path);
    }
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    if (data[0] & 1)
        run_request(data + 1, size - 1);
    else
        run_stream(data + 1, size - 1);
    return 0;
}

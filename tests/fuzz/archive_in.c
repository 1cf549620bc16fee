/* Whatever a caller sends as an archive: what becomes of it is a row of records that the kit would
 * take, with names that lead down only; and made an archive again it can be read again. */
#include <locale.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "wire/archive.h"

#include "fuzz.h"
#include "tar_mend.h"

#define OUT_MAX (4u << 20)

typedef struct world {
    fuzz_in in;
    kit_order order;
    archive_out *out;
    buf made;
    uint64_t entries, size;
} world;

static err *give(void *arg, void *p, size_t max, size_t *ret_n)
{
    world *w = arg;
    size_t n = w->in.n < max ? w->in.n : max;

    if (n)
        memcpy(p, w->in.p, n);
    w->in.p += n;
    w->in.n -= n;
    *ret_n = n;
    return NULL;
}

/* Holes of many GiB are gone over, not written; files whose zeros would be are not made. */
static err *put_again(world *w, const kit_record *r)
{
    bool again = true;

    if (r->type == KIT_ENTRY && (r->entry.mode & S_IFMT) == S_IFREG)
        w->size += r->entry.flags & KIT_E_UNSIZED ? OUT_MAX : r->entry.size;
    while (again && w->size < OUT_MAX)
        TRY(archive_out_put(w->out, r, &again));
    MUST(w->made.len < 4 * OUT_MAX);
    return NULL;
}

static err *take(void *arg, const kit_record *r)
{
    static char room[KIT_RECORD_MAX];
    world *w = arg;
    kit_record same;
    size_t used = 0, n = kit_encode(r, room);

    MUST(n);
    MUST(kit_decode(room, n, &same, &used) == KIT_OK && used == n);
    MUST(kit_order_check(&w->order, &same));
    if (r->type == KIT_ENTRY)
        MUST(kit_name_valid(same.name, same.name_len));
    w->entries += r->type == KIT_ENTRY;
    return put_again(w, &same);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max) __attribute__((weak));
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* Seven times in eight the sums are mended; what is compressed, or a zip, is left to chance. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max);
    bool other = size > 1 && ((data[0] == 0x1f && data[1] == 0x8b) || data[0] == 0x28 ||
                              (data[0] == 'P' && data[1] == 'K'));
    if (!other && seed % 8)
        tar_mend(data, size);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    world w = {.in = {data, size}};
    archive_in in = {.read = give, .emit = take, .arg = &w};

    setlocale(LC_CTYPE, "C.UTF-8");
    err_free(archive_out_new(ARCHIVE_TAR, "file", &w.made, &w.out));
    CLEANUP(err_freep) err *e = archive_in_run(&in);
    if (e)
        MUST(e->code == ERR_INVALID_REQUEST && e->message &&
             utf8_valid(e->message, strlen(e->message)));
    else
        MUST(w.order.ended);
    archive_out_free(w.out);
    buf_done(&w.made);
    return 0;
}

/* A file on its way to a model, in pieces with holes: the part is the file's own bytes from where
 * it begins, zeros where nothing came, no more than its limit; by lines it begins and ends with
 * those that are asked for. However the same file is cut, the part is the same. */
#include "base/cleanup.h"
#include "door/mcp/page.h"

#include "fuzz.h"

#define FILE_MAX 4096
#define FAR      (UINT64_C(1) << 50) /* a hole that nobody may make bytes of */

typedef struct file {
    char bytes[FILE_MAX];
    bool hole[FILE_MAX]; /* begins or goes on here */
    size_t n;
} file;

typedef struct wish {
    bool by_lines;
    uint64_t from, first, last;
    size_t limit;
} wish;

static void begin(page *p, const wish *w)
{
    if (w->by_lines)
        page_of_lines(p, w->first, w->last, w->limit);
    else
        page_of_bytes(p, w->from, w->limit);
}

/* Data and holes in turn, each as long as its first byte says. */
static void read_file(fuzz_in *in, file *f)
{
    for (bool hole = false; in->n && f->n < FILE_MAX; hole = !hole) {
        size_t n = fuzz_byte(in), room = FILE_MAX - f->n;
        n = n < room ? n : room;
        for (size_t i = 0; i < n; i++, f->n++) {
            f->hole[f->n] = hole;
            f->bytes[f->n] = hole ? 0 : (char)fuzz_byte(in);
        }
    }
}

/* Pieces of at most `most` bytes, each an allocation of its own; holes are told of by nobody. */
static void put_file(page *p, const file *f, size_t most)
{
    for (size_t i = 0, n; i < f->n; i += n) {
        for (n = 1; n < most && i + n < f->n && f->hole[i + n] == f->hole[i];)
            n++;
        if (f->hole[i])
            continue;
        char *piece = xmalloc(n);
        memcpy(piece, f->bytes + i, n);
        page_take(p, i, piece, n);
        free(piece);
    }
    page_end(p, f->n);
}

/* Where the wish begins, and where it ends if nothing but the file does; by the plain way. */
static size_t start_of(const file *f, const wish *w)
{
    uint64_t line = 1;
    size_t at = 0;

    if (!w->by_lines)
        return w->from < f->n ? (size_t)w->from : f->n;
    for (; at < f->n && line < w->first; at++)
        line += f->bytes[at] == '\n';
    return at;
}

static size_t end_of(const file *f, const wish *w, size_t start)
{
    size_t end = start;

    for (uint64_t line = w->first; end < f->n && end - start < w->limit; end++)
        if (w->by_lines && f->bytes[end] == '\n' && ++line > w->last)
            return end + 1;
    return end;
}

static void check_part(const page *p, const file *f, const wish *w)
{
    size_t start = start_of(f, w), end = end_of(f, w, start);

    MUST(p->bytes.len == end - start && p->bytes.len <= w->limit);
    MUST(!p->bytes.len || !memcmp(p->bytes.p, f->bytes + start, p->bytes.len));
    MUST(!p->bytes.len || p->at == end);
    MUST(p->seen == f->n);
    MUST(!p->full || p->bytes.len);
}

/* A hole of any length behind the file costs no more than the part has room for. */
static void check_far(const file *f, const wish *w)
{
    page p;

    begin(&p, w);
    put_file(&p, f, f->n);
    page_end(&p, FAR);
    MUST(p.bytes.len <= w->limit && p.seen == FAR);
    MUST(p.full || p.at >= FAR || !p.bytes.len);
    page_done(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_in in = {data, size};
    uint8_t how = fuzz_byte(&in);
    wish w = {.by_lines = how & 1,
              .from = fuzz_number(&in, 2),
              .first = 1 + fuzz_number(&in, 1),
              .limit = 1 + fuzz_number(&in, 2) % FILE_MAX};
    size_t cuts[] = {1 + fuzz_byte(&in), FILE_MAX};
    file f = {0};

    w.last = how & 2 ? UINT64_MAX : w.first + (how >> 2);
    read_file(&in, &f);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        page p;
        begin(&p, &w);
        put_file(&p, &f, cuts[i]);
        check_part(&p, &f, &w);
        page_done(&p);
    }
    check_far(&f, &w);
    return 0;
}

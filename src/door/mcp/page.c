#include "door/mcp/page.h"

#include <string.h>

void page_of_bytes(page *p, uint64_t from, size_t limit)
{
    *p = (page){.at = from, .limit = limit};
}

void page_of_lines(page *p, uint64_t first, uint64_t last, size_t limit)
{
    *p = (page){.first = first, .last = last, .line = 1, .limit = limit};
}

void page_done(page *p)
{
    buf_done(&p->bytes);
}

static bool is_before(const page *p)
{
    return p->line < p->first; /* in a part by bytes: never */
}

/* Keeps bytes of the part, as far as there is room. bytes NULL: zeros. */
static void page_keep(page *p, const char *bytes, uint64_t n)
{
    size_t room = p->limit - p->bytes.len, take = n < room ? (size_t)n : room;

    buf_reserve(&p->bytes, take);
    if (bytes)
        memcpy(p->bytes.p + p->bytes.len, bytes, take);
    else
        memset(p->bytes.p + p->bytes.len, 0, take);
    p->bytes.len += take;
    p->at += take;
    p->full = p->bytes.len == p->limit;
}

/* Adds a hole. A hole has no line ends. */
static void take_hole(page *p, uint64_t n)
{
    if (is_before(p))
        p->at += n;
    else
        page_keep(p, NULL, n);
}

/* Skips to the first requested line, and stops behind the last one. */
static void take_lines(page *p, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && !p->full;) {
        const char *end = memchr(bytes + i, '\n', n - i);
        size_t len = end ? (size_t)(end - bytes) + 1 - i : n - i;
        if (is_before(p))
            p->at += len;
        else
            page_keep(p, bytes + i, len);
        if (end && !p->full)
            p->line++;
        p->full = p->full || p->line > p->last;
        i += len;
    }
}

void page_take(page *p, uint64_t offset, const char *bytes, size_t n)
{
    p->seen = offset + n;
    if (p->full || p->seen <= p->at)
        return;
    if (offset < p->at) {
        bytes += p->at - offset;
        n = (size_t)(p->seen - p->at);
    } else if (offset > p->at) {
        take_hole(p, offset - p->at);
    }
    if (p->full)
        return;
    if (p->line)
        take_lines(p, bytes, n);
    else
        page_keep(p, bytes, n);
}

void page_end(page *p, uint64_t size)
{
    if (!p->full && p->at < size)
        take_hole(p, size - p->at);
    if (p->seen < size)
        p->seen = size;
}

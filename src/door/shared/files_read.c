/* Sends a file's content: head, range, holes. The kit's records are checked
 * against the head that was sent. */
#include <string.h>

#include "base/log.h"
#include "door/shared/files.h"

#define FILL 32768 /* zeros appended at a time */

/* ---- the request ---- */

char *file_etag(const struct kit_entry *e)
{
    return str_printf("\"%lx-%lx-%lx.%x-%lx\"", e->dev, e->ino, (unsigned long)e->mtime,
                      e->mtime_ns, e->size);
}

/* Parses "bytes=FROM-TO", "bytes=FROM-", "bytes=-LAST". Returns false for anything
 * else, which gets the whole file. */
static bool parse_range(const char *text, kit_request *q)
{
    const char *p = text + 6, *dash = strchr(p, '-');
    uint64_t first = 0, last = 0;

    if (!str_starts(text, "bytes=") || !dash)
        return false;
    CLEANUP(freep) char *from = xstrndup(p, (size_t)(dash - p));
    bool has_last = str_to_u64(dash + 1, INT64_MAX, &last);
    if (!*from) {
        q->flags |= has_last ? KIT_F_SUFFIX : 0;
        q->length = has_last ? last : UINT64_MAX;
        return has_last;
    }
    if (!str_to_u64(from, INT64_MAX, &first) || (dash[1] && (!has_last || last < first)))
        return false;
    q->offset = first;
    q->length = has_last ? last - first + 1 : UINT64_MAX;
    return true;
}

file_wish file_read_wish(const request *rq, kit_request *q)
{
    const char *range = request_header(rq, "Range");

    return (file_wish){.ranged = range && str_starts(range, "bytes=") && parse_range(range, q),
                       .if_range = request_header(rq, "If-Range"),
                       .if_none_match = request_header(rq, "If-None-Match")};
}

void file_read_begin(file_job *f, const file_wish *w)
{
    f->ranged = w->ranged;
    f->if_range = w->if_range ? xstrdup(w->if_range) : NULL;
    f->if_none_match = w->if_none_match ? xstrdup(w->if_none_match) : NULL;
}

/* ---- the answer ---- */

/* Starts again without the range: the file has changed since the client got its ETag (If-Range). */
static enum file_go begin_again(file_job *f)
{
    kit_call *call = NULL;

    f->rq.offset = 0;
    f->rq.length = UINT64_MAX;
    f->rq.flags &= ~KIT_F_SUFFIX;
    f->ranged = false;
    err *e = engine_kit(f->engine, &f->who, f->sb, &f->rq, f->user, &call);
    if (e) {
        err_drop(e, "files");
        return FILE_CUT;
    }
    kit_call_free(f->call);
    f->call = call;
    kit_call_watch(call, (void (*)(void *))relay_wake, f->job);
    relay_wake(f->job);
    return FILE_ON;
}

static bool files_read_matches(const char *header, const char *etag)
{
    return header && (str_eq(header, "*") || strstr(header, etag));
}

static char *extra_lines(const file_job *f, const kit_record *r, const char *etag)
{
    CLEANUP(freep) char *more = f->form->lines ? f->form->lines(f, r) : NULL;
    CLEANUP(freep)
    char *range = f->ranged ? str_printf("Content-Range: bytes %lu-%lu/%lu\r\n", f->from,
                                         f->end - 1, r->entry.size)
                            : xstrdup("");

    return str_printf("ETag: %s\r\n%sAccept-Ranges: bytes\r\n%s", etag, str_or(more, ""), range);
}

static void write_head(file_job *f, relay_io *io, const kit_record *r, const char *etag, int status)
{
    CLEANUP(freep) char *extra = extra_lines(f, r, etag);
    bool sized = status == 304 || f->sized;

    http_head_write(io->out, &(http_head){.status = status,
                                          .type = "application/octet-stream",
                                          .length = sized ? (int64_t)(f->end - f->from) : -1,
                                          .chunked = !sized && io->http11,
                                          .keep_alive = io->keep_alive && (sized || io->http11),
                                          .request_id = f->request_id,
                                          .extra = extra});
    f->head_sent = true;
    f->stream = !sized;
}

/* Sets which bytes to send. Returns false if the range lies outside the file. */
static bool set_span(file_job *f, const struct kit_entry *e)
{
    f->sized = !(e->flags & KIT_E_UNSIZED);
    f->ranged = f->ranged && f->sized;
    f->from = 0;
    f->end = e->size;
    if (!f->ranged)
        return true;
    uint64_t n = f->rq.length;
    if (f->rq.flags & KIT_F_SUFFIX)
        f->from = n < e->size ? e->size - n : 0;
    else
        f->from = f->rq.offset;
    if (f->from >= e->size || !n)
        return false;
    f->end = n < e->size - f->from ? f->from + n : e->size;
    return true;
}

static enum file_go files_read_outside(file_job *f, relay_io *io, uint64_t size)
{
    CLEANUP(err_freep)
    err *e = err_because(err_kind(err_new(ERR_RANGE, "the range lies outside the file"), "path"),
                         "the file has %lu bytes", size);

    http_error_answer_as(io->out, f->errors, e, io->keep_alive, f->request_id);
    f->stream = false;
    return FILE_DONE;
}

static enum file_go read_entry(file_job *f, relay_io *io, const kit_record *r)
{
    CLEANUP(freep) char *etag = file_etag(&r->entry);

    if (f->head_sent)
        return FILE_CUT;
    if (files_read_matches(f->if_none_match, etag)) {
        f->from = f->end = 0;
        f->ranged = false;
        write_head(f, io, r, etag, 304);
        return FILE_DONE;
    }
    if (f->ranged && f->if_range && !str_eq(f->if_range, etag))
        return begin_again(f);
    if (!set_span(f, &r->entry))
        return files_read_outside(f, io, r->entry.size);
    write_head(f, io, r, etag, f->ranged ? 206 : 200);
    return FILE_ON;
}

/* Sends a hole's zeros up to `to`. Returns false if the output is full. */
static bool files_read_fill(file_job *f, relay_io *io, uint64_t to)
{
    static const char ZEROS[FILL];

    while (f->from < to) {
        size_t n = to - f->from < FILL ? (size_t)(to - f->from) : FILL;
        if (io->out->len >= 2 * FILL)
            return false;
        if (f->sized)
            buf_append(io->out, ZEROS, n);
        else
            stream_put(io, ZEROS, n);
        f->from += n;
    }
    return true;
}

enum file_go file_read_record(file_job *f, relay_io *io, const kit_record *r)
{
    if (r->type == KIT_ENTRY)
        return read_entry(f, io, r);
    if (r->type != KIT_DATA)
        return FILE_ON;
    if (!f->head_sent || r->offset < f->from || (f->sized && r->offset + r->bytes_len > f->end))
        return FILE_CUT; /* contradicts the head */
    if (!files_read_fill(f, io, r->offset))
        return FILE_AGAIN;
    if (f->sized)
        buf_append(io->out, r->bytes, r->bytes_len);
    else
        stream_put(io, r->bytes, r->bytes_len);
    f->from += r->bytes_len;
    return FILE_ON;
}

enum file_go file_read_over(file_job *f, relay_io *io, const kit_record *end)
{
    (void)end;
    if (!f->head_sent)
        return FILE_CUT;
    if (f->sized)
        return files_read_fill(f, io, f->end) ? FILE_DONE : FILE_AGAIN;
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

/* ---- HEAD ---- */

enum file_go file_head_record(file_job *f, relay_io *io, const kit_record *r)
{
    CLEANUP(freep) char *etag = file_etag(&r->entry);

    if (r->type != KIT_ENTRY || f->head_sent)
        return FILE_ON;
    f->sized = true;
    f->end = r->entry.size;
    write_head(f, io, r, etag, 200);
    return FILE_ON;
}

enum file_go file_head_over(file_job *f, relay_io *io, const kit_record *end)
{
    (void)end, (void)io;
    return f->head_sent ? FILE_DONE : FILE_CUT;
}

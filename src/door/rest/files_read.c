/* A file's content as an answer: head, range, holes. What the kit says is checked against what the
 * head has promised. */
#include <string.h>

#include "door/rest/files.h"

#define FILL 32768 /* zeros at a time */

/* Begins again from the first byte: the file is not the one that the range was meant for. */
static enum file_go begin_again(file_job *f)
{
    kit_call *call = NULL;

    f->rq.offset = 0;
    f->rq.length = UINT64_MAX;
    f->rq.flags = 0;
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

static bool matches(const char *header, const char *etag)
{
    return header && (str_eq(header, "*") || strstr(header, etag));
}

static char *extra_lines(const file_job *f, const kit_record *r, const char *etag)
{
    CLEANUP(json_decrefp) json_t *o = view_file(r, "", 0);
    CLEANUP(buf_done) buf text = {0};

    json_object_del(o, "name");
    json_object_del(o, "target");
    json_write(&text, o);
    CLEANUP(freep)
    char *range = f->ranged ? str_printf("Content-Range: bytes %lu-%lu/%lu\r\n", f->at, f->end - 1,
                                         r->entry.size)
                            : xstrdup("");
    return str_printf("ETag: %s\r\nBothy-File: %s\r\nAccept-Ranges: bytes\r\n%s", etag,
                      buf_cstr(&text), range);
}

static void write_head(file_job *f, relay_io *io, const kit_record *r, const char *etag, int status)
{
    CLEANUP(freep) char *extra = extra_lines(f, r, etag);
    bool sized = status == 304 || f->sized;

    http_head_write(io->out, &(http_head){.status = status,
                                          .type = "application/octet-stream",
                                          .length = sized ? (int64_t)(f->end - f->at) : -1,
                                          .chunked = !sized && io->http11,
                                          .keep_alive = io->keep_alive && (sized || io->http11),
                                          .request_id = f->request_id,
                                          .extra = extra});
    f->head_sent = true;
    f->stream = !sized;
}

/* Which bytes are going to be sent; false: none of them are there. */
static bool set_span(file_job *f, const struct kit_entry *e)
{
    f->sized = !(e->flags & KIT_E_UNSIZED);
    f->ranged = f->ranged && f->sized;
    f->at = 0;
    f->end = e->size;
    if (!f->ranged)
        return true;
    uint64_t n = f->rq.length;
    if (f->rq.flags & KIT_F_SUFFIX)
        f->at = n < e->size ? e->size - n : 0;
    else
        f->at = f->rq.offset;
    if (f->at >= e->size || !n)
        return false;
    f->end = n < e->size - f->at ? f->at + n : e->size;
    return true;
}

static enum file_go outside(file_job *f, relay_io *io, uint64_t size)
{
    CLEANUP(err_freep)
    err *e = err_because(err_kind(err_new(ERR_RANGE, "the range lies outside the file"), "path"),
                         "the file has %lu bytes", size);

    http_error_answer(io->out, e, io->keep_alive, f->request_id);
    f->stream = false;
    return FILE_DONE;
}

static enum file_go read_entry(file_job *f, relay_io *io, const kit_record *r)
{
    CLEANUP(freep) char *etag = file_etag(&r->entry);

    if (f->head_sent)
        return FILE_CUT;
    if (matches(f->if_none_match, etag)) {
        f->at = f->end = 0;
        f->ranged = false;
        write_head(f, io, r, etag, 304);
        return FILE_DONE;
    }
    if (f->ranged && f->if_range && !str_eq(f->if_range, etag))
        return begin_again(f);
    if (!set_span(f, &r->entry))
        return outside(f, io, r->entry.size);
    write_head(f, io, r, etag, f->ranged ? 206 : 200);
    return FILE_ON;
}

/* Bytes of a hole up to `to`; false: the step is full. */
static bool fill(file_job *f, relay_io *io, uint64_t to)
{
    static const char ZEROS[FILL];

    while (f->at < to) {
        size_t n = to - f->at < FILL ? (size_t)(to - f->at) : FILL;
        if (io->out->len >= 2 * FILL)
            return false;
        if (f->sized)
            buf_append(io->out, ZEROS, n);
        else
            stream_put(io, ZEROS, n);
        f->at += n;
    }
    return true;
}

static enum file_go read_record(file_job *f, relay_io *io, const kit_record *r)
{
    if (r->type == KIT_ENTRY)
        return read_entry(f, io, r);
    if (r->type != KIT_DATA)
        return FILE_ON;
    if (!f->head_sent || r->offset < f->at || (f->sized && r->offset + r->bytes_len > f->end))
        return FILE_CUT; /* not what the head has promised */
    if (!fill(f, io, r->offset))
        return FILE_AGAIN;
    if (f->sized)
        buf_append(io->out, r->bytes, r->bytes_len);
    else
        stream_put(io, r->bytes, r->bytes_len);
    f->at += r->bytes_len;
    return FILE_ON;
}

static enum file_go read_over(file_job *f, relay_io *io, const kit_record *end)
{
    (void)end;
    if (!f->head_sent)
        return FILE_CUT;
    if (f->sized)
        return fill(f, io, f->end) ? FILE_DONE : FILE_AGAIN;
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

const file_form FILE_READ = {.record = read_record, .over = read_over};

/* ---- HEAD ---- */

static enum file_go head_record(file_job *f, relay_io *io, const kit_record *r)
{
    CLEANUP(freep) char *etag = file_etag(&r->entry);

    if (r->type != KIT_ENTRY || f->head_sent)
        return FILE_ON;
    f->sized = true;
    f->end = r->entry.size;
    write_head(f, io, r, etag, 200);
    return FILE_ON;
}

static enum file_go head_over(file_job *f, relay_io *io, const kit_record *end)
{
    (void)end, (void)io;
    return f->head_sent ? FILE_DONE : FILE_CUT;
}

const file_form FILE_HEAD = {.record = head_record, .over = head_over};

/* Lists and searches, in pages or as lines; changes as events. */
#include <string.h>

#include "base/clock.h"
#include "door/rest/files.h"
#include "wire/sse.h"

#define PAGE_BYTES (1 << 20)
#define PING_NS    (15 * NS_PER_S)

static rest_files *files_list_own(const file_job *f)
{
    return f->own;
}

/* ---- lines and pages ---- */

static void stream_head(file_job *f, relay_io *io, const char *type)
{
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = type,
                                          .length = -1,
                                          .chunked = io->http11,
                                          .keep_alive = io->keep_alive && io->http11,
                                          .request_id = f->request_id,
                                          .extra = "Cache-Control: no-store\r\n"});
    f->head_sent = true;
}

static void put_line(file_job *f, relay_io *io, json_t *owned)
{
    CLEANUP(json_decrefp) json_t *o = owned;
    CLEANUP(buf_done) buf line = {0};

    if (!f->head_sent)
        stream_head(f, io, "application/x-ndjson");
    json_write(&line, o);
    buf_char(&line, '\n');
    stream_put(io, line.p, line.len);
}

static enum file_go end_lines(file_job *f, relay_io *io, bool more)
{
    put_line(f, io,
             json_pack("{s:{s:I,s:b}}", "end", "entries", (json_int_t)files_list_own(f)->count,
                       "more", more));
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

static enum file_go failed_lines(file_job *f, relay_io *io, const err *e)
{
    put_line(f, io, json_pack("{s:o}", "error", json_of_err(e, f->request_id)));
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

/* Adds an item to the page or the lines. Returns false if the page is full. */
static bool put_item(file_job *f, relay_io *io, json_t *owned)
{
    files_list_own(f)->count++;
    if (f->stream) {
        put_line(f, io, owned);
        return true;
    }
    CLEANUP(json_decrefp) json_t *o = owned;
    if (files_list_own(f)->body.len)
        buf_char(&files_list_own(f)->body, ',');
    json_write(&files_list_own(f)->body, o);
    return files_list_own(f)->body.len < PAGE_BYTES && files_list_own(f)->count < f->rq.max;
}

static enum file_go answer_page(file_job *f, relay_io *io, const char *what, const char *last,
                                bool quoted)
{
    CLEANUP(buf_done) buf text = {0};
    const char *quote = quoted ? "\"" : "";

    buf_printf(&text, "{\"%s\":[", what);
    buf_append(&text, files_list_own(f)->body.p, files_list_own(f)->body.len);
    buf_printf(&text, "],\"%s\":%s%s%s}\n", f->rq.verb == KIT_LIST ? "next" : "more", quote, last,
               quote);
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "application/json",
                                          .length = (int64_t)text.len,
                                          .keep_alive = io->keep_alive,
                                          .request_id = f->request_id});
    buf_append(io->out, text.p, text.len);
    return FILE_DONE;
}

static void keep_name(file_job *f, const kit_record *r)
{
    free(files_list_own(f)->last);
    files_list_own(f)->last = xstrndup(r->name, r->name_len);
    files_list_own(f)->last_len = r->name_len;
    files_list_own(f)->size = r->entry.size;
}

/* ---- list ---- */

static enum file_go page_of_files(file_job *f, relay_io *io, bool more)
{
    if (!more || !files_list_own(f)->last)
        return answer_page(f, io, "entries", "null", false);
    CLEANUP(freep)
    char *cursor = base64_encode(files_list_own(f)->last, files_list_own(f)->last_len);
    return answer_page(f, io, "entries", cursor, true);
}

/* Adds an entry. The kit sends at most rq.max entries, and says in END whether there are more: a
 * further entry cuts the answer. A page of PAGE_BYTES ends early. */
static enum file_go list_record(file_job *f, relay_io *io, const kit_record *r)
{
    if (r->type == KIT_ERROR) {
        bool room = put_item(f, io, view_file_error(r));
        files_list_own(f)->count--;
        return room || files_list_own(f)->body.len < PAGE_BYTES ? FILE_ON
                                                                : page_of_files(f, io, true);
    }
    if (r->type != KIT_ENTRY)
        return FILE_ON;
    if (!f->stream && files_list_own(f)->count >= f->rq.max)
        return FILE_CUT;
    keep_name(f, r);
    put_item(f, io, view_file(r, r->name, r->name_len));
    return f->stream || files_list_own(f)->body.len < PAGE_BYTES ? FILE_ON
                                                                 : page_of_files(f, io, true);
}

static enum file_go list_over(file_job *f, relay_io *io, const kit_record *end)
{
    bool more = end->end.flags & KIT_E_MORE;

    return f->stream ? end_lines(f, io, more) : page_of_files(f, io, more);
}

const file_form FILE_LIST = {
    .record = list_record, .over = list_over, .failed = failed_lines, .done = rest_files_done};

/* ---- search ---- */

static json_t *view_match(const file_job *f, const kit_record *r)
{
    return json_pack("{s:o,s:I,s:I,s:I,s:o}", "name",
                     view_name(files_list_own(f)->last, files_list_own(f)->last_len), "size",
                     (json_int_t)files_list_own(f)->size, "line", (json_int_t)r->match.line,
                     "offset", (json_int_t)r->match.offset, "text",
                     view_name(r->bytes, r->bytes_len));
}

static enum file_go search_record(file_job *f, relay_io *io, const kit_record *r)
{
    bool with_text = f->rq.text && *f->rq.text, room = true;

    if (r->type == KIT_ENTRY)
        keep_name(f, r);
    if (r->type == KIT_ERROR)
        room = put_item(f, io, view_file_error(r));
    else if (r->type == KIT_ENTRY && !with_text)
        room = put_item(f, io, view_file(r, r->name, r->name_len));
    else if (r->type == KIT_MATCH && with_text)
        room = put_item(f, io, view_match(f, r));
    if (room && (!f->stream || files_list_own(f)->count < f->rq.max))
        return FILE_ON;
    return f->stream ? end_lines(f, io, true) : answer_page(f, io, "matches", "true", false);
}

static enum file_go search_over(file_job *f, relay_io *io, const kit_record *end)
{
    bool more = end->end.flags & KIT_E_MORE;

    return f->stream ? end_lines(f, io, more)
                     : answer_page(f, io, "matches", more ? "true" : "false", false);
}

const file_form FILE_SEARCH = {
    .record = search_record, .over = search_over, .failed = failed_lines, .done = rest_files_done};

/* ---- watch ---- */

static void put_event(file_job *f, relay_io *io, const char *event, json_t *owned)
{
    CLEANUP(json_decrefp) json_t *data = owned;
    CLEANUP(buf_done) buf text = {0}, out = {0};
    CLEANUP(freep) char *id = str_printf("%lu", files_list_own(f)->sequence++);

    json_write(&text, data);
    sse_write(&out, event, id, text.p, text.len);
    stream_put(io, out.p, out.len);
    files_list_own(f)->last_sent = io->now;
}

static json_t *view_change(const kit_record *r)
{
    bool move = r->event.change == KIT_MOVED;
    json_t *o = json_object();

    if (r->name_len || !move)
        json_object_set_new(o, "name", view_name(r->name, r->name_len));
    if (move && r->bytes_len)
        json_object_set_new(o, "to", view_name(r->bytes, r->bytes_len));
    json_object_set_new(o, "directory", json_boolean(r->event.directory));
    return o;
}

static enum file_go watch_record(file_job *f, relay_io *io, const kit_record *r)
{
    static const char *const NAMES[KIT_CHANGES] = {
        [KIT_CREATED] = "create", [KIT_MODIFIED] = "modify", [KIT_DELETED] = "delete",
        [KIT_MOVED] = "move",     [KIT_ATTRIB] = "attrib",   [KIT_OVERFLOW] = "overflow",
        [KIT_READY] = "ready",
    };

    if (r->type != KIT_EVENT)
        return FILE_ON;
    if (!f->head_sent) {
        stream_head(f, io, "text/event-stream");
        if (files_list_own(f)->resumed)
            put_event(f, io, "overflow", json_pack("{s:s}", "why", "reconnected"));
    }
    if (r->event.change == KIT_OVERFLOW)
        put_event(f, io, "overflow", json_pack("{s:s}", "why", "queue"));
    else
        put_event(f, io, NAMES[r->event.change],
                  r->event.change == KIT_READY ? json_object() : view_change(r));
    return FILE_ON;
}

static enum file_go watch_over(file_job *f, relay_io *io, const kit_record *end)
{
    (void)end;
    if (!f->head_sent)
        stream_head(f, io, "text/event-stream");
    put_event(f, io, "end", json_object());
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

static enum file_go watch_failed(file_job *f, relay_io *io, const err *e)
{
    put_event(f, io, "error", json_pack("{s:o}", "error", json_of_err(e, f->request_id)));
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

static void watch_idle(file_job *f, relay_io *io)
{
    CLEANUP(buf_done) buf out = {0};

    if (!f->head_sent)
        return;
    if (io->now - files_list_own(f)->last_sent >= PING_NS) {
        sse_write(&out, "ping", NULL, "{}", 2);
        stream_put(io, out.p, out.len);
        files_list_own(f)->last_sent = io->now;
    }
    if (files_list_own(f)->last_sent + PING_NS < io->wake_at)
        io->wake_at = files_list_own(f)->last_sent + PING_NS;
}

const file_form FILE_WATCH = {.record = watch_record,
                              .over = watch_over,
                              .failed = watch_failed,
                              .idle = watch_idle,
                              .done = rest_files_done};

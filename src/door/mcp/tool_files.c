/* The tools read, write, edit, list and search: file verbs of the kit, a record at a time. */
#include <string.h>
#include <sys/stat.h>

#include "api/mcp.h"
#include "door/mcp/fit.h"
#include "door/mcp/internal.h"
#include "door/mcp/page.h"

#define EDIT_MAX (768u << 10) /* goes to the kit at once, as relay threads must not wait */
#define SHOW_MAX (48u << 10)  /* bytes of a list */
#define RECORDS  512          /* in a step, as the kit may send records without end */

/* State of one file verb. */
typedef struct work {
    page page;
    bool unsized, full;
    struct kit_entry entry;
    uint64_t size; /* of the written file */
    json_t *list;
    buf name; /* of the last entry */
    uint64_t replaced;
    bool writing;
} work;

static void work_free(void *own)
{
    work *w = own;

    page_done(&w->page);
    buf_done(&w->name);
    json_decref(w->list);
    free(w);
}

static work *work_of(mcp_call *c)
{
    if (!c->own) {
        c->own = xcalloc(1, sizeof(work));
        c->own_free = work_free;
    }
    return c->own;
}

/* Gives each record to `take` until the part is full or the records end. */
static err *each_record(mcp_call *c, uint64_t now, err *(*take)(mcp_call *c, const kit_record *r),
                        bool *ret_over, bool *ret_more)
{
    work *w = work_of(c);

    for (unsigned i = 0; i < RECORDS && !w->full; i++) {
        enum kit_next next;
        kit_record r;
        TRY(kit_call_next(c->k, now, &next, &r));
        c->wake_at = kit_call_deadline(c->k);
        if (next == KIT_WAIT)
            return NULL;
        if (next == KIT_OVER) {
            *ret_over = true;
            *ret_more = r.end.flags & KIT_E_MORE;
            return NULL;
        }
        TRY(take(c, &r));
    }
    *ret_over = *ret_more = w->full;
    if (!w->full)
        mcp_call_wake(c); /* continue after other jobs had their turn */
    return NULL;
}

/* ---- read ---- */

err *tool_read_begin(mcp_call *c)
{
    const mcp_read *in = c->args;
    bool by_line = in->has_line || in->has_lines;
    uint64_t first = in->has_line ? in->line : 1;
    page *p = &work_of(c)->page;
    kit_request rq = {.verb = KIT_READ,
                      .path = in->path,
                      .offset = by_line ? 0 : in->offset,
                      .length = by_line ? UINT64_MAX : in->limit};

    if (by_line && in->offset)
        return err_new(ERR_INVALID_REQUEST, "line, offset: not both");
    if (by_line)
        page_of_lines(p, first, in->has_lines ? first + in->lines - 1 : UINT64_MAX, in->limit);
    else
        page_of_bytes(p, in->offset, in->limit);
    return mcp_call_kit(c, &rq, in->user);
}

/* Takes a record of a read, for read and edit. */
static void take_piece(work *w, const kit_record *r)
{
    if (r->type == KIT_ENTRY) {
        w->entry = r->entry;
        w->unsized = r->entry.flags & KIT_E_UNSIZED;
    }
    if (r->type == KIT_DATA)
        page_take(&w->page, r->offset, r->bytes, r->bytes_len);
}

/* Adds the hole at a file's end, for which no record comes. */
static void take_end(work *w)
{
    if (!w->unsized)
        page_end(&w->page, w->entry.size);
}

static err *read_record(mcp_call *c, const kit_record *r)
{
    work *w = c->own;

    take_piece(w, r);
    w->full = w->page.full;
    return NULL;
}

static void put_read(mcp_call *c, const mcp_read *in, size_t shown, bool whole)
{
    work *w = c->own;
    const page *p = &w->page;
    uint64_t next = p->at - (p->bytes.len - shown);
    uint64_t size = !w->unsized ? w->entry.size : next < p->seen ? next : p->seen;

    bool text = fit_text(&c->text, p->bytes.p ? p->bytes.p : "", shown);
    c->data =
        json_pack("{s:s,s:o,s:I,s:I,s:b,s:b}", "path", in->path, "text",
                  json_stringn(c->text.p ? c->text.p : "", c->text.len), "size", (json_int_t)size,
                  "next", (json_int_t)next, "whole", whole, "binary", !text);
    if (p->line)
        json_object_set_new(c->data, "next_line", json_integer((json_int_t)p->line));
    if (!shown && whole)
        buf_str(&c->text, size ? "(nothing there)" : "(empty)");
    if (whole)
        return;
    if (p->line && shown == p->bytes.len)
        buf_printf(&c->text, "\n[the file goes on: line=%lu]", p->line);
    else
        buf_printf(&c->text, "\n[the file has %lu bytes; go on with offset=%lu]", size, next);
}

err *tool_read_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    const mcp_read *in = c->args;
    work *w = c->own;
    page *p = &w->page;
    bool over = false, more = false;

    TRY(each_record(c, now, read_record, &over, &more));
    if (!over)
        return NULL;
    *ret_done = true;
    if (!w->full)
        take_end(w);
    bool whole = w->unsized ? !p->full : p->at >= w->entry.size;
    bool cut = !whole && !(p->line && p->bytes.len < in->limit) && p->bytes.len > 4;
    put_read(c, in, cut ? fit_head(p->bytes.p, p->bytes.len, p->bytes.len - 1) : p->bytes.len,
             whole);
    return NULL;
}

/* ---- write ---- */

static err *no_room(void *arg, int fd, int ms)
{
    (void)arg, (void)fd, (void)ms;
    return err_new(ERR_UNAVAILABLE, "the sandbox does not take the file");
}

/* Sends a file at once: it fits into what a kit may leave unread. */
static err *send_file(mcp_call *c, const char *path, const char *user, uint32_t mode, const char *p,
                      size_t n)
{
    CLEANUP(buf_done) buf batch = {0};

    TRY(mcp_call_kit(
        c, &(kit_request){.verb = KIT_WRITE, .path = path, .mode = mode, .flags = KIT_F_PARENTS},
        user));
    kit_call_wait_by(c->k, no_room, NULL);
    kit_call_add(c->k, &(kit_record){.type = KIT_ENTRY, .entry = {.flags = KIT_E_UNSIZED}}, &batch);
    for (size_t at = 0; at < n; at += KIT_DATA_MAX) {
        size_t left = n - at;
        kit_call_add(c->k,
                     &(kit_record){.type = KIT_DATA,
                                   .offset = at,
                                   .bytes = p + at,
                                   .bytes_len = left < KIT_DATA_MAX ? left : KIT_DATA_MAX},
                     &batch);
    }
    kit_call_add(c->k, &(kit_record){.type = KIT_END}, &batch);
    err *e = kit_call_send_bytes(c->k, batch.p, batch.len, true);
    secret_wipe(batch.p, batch.cap);
    return e;
}

static err *too_large(const char *what)
{
    return err_remedy(err_new(ERR_TOO_LARGE, "%s: more than 768 KiB", what),
                      "Write it in parts with run (cat >> FILE, with stdin), or make it inside.");
}

err *tool_write_begin(mcp_call *c)
{
    const mcp_write *in = c->args;
    CLEANUP(freep) void *bytes = NULL;
    const char *p = in->content;
    size_t n = strlen(in->content);

    if (in->encoding == MCP_WRITE_ENCODING_BASE64) {
        if (!base64_decode(p, n, &bytes, &n))
            return err_new(ERR_INVALID_REQUEST, "content: is not base64");
        p = bytes;
    }
    if (n > EDIT_MAX)
        return too_large("content");
    work_of(c)->size = n;
    return send_file(c, in->path, in->user, in->executable ? 0755 : KIT_MODE_NONE, p, n);
}

static err *skip_record(mcp_call *c, const kit_record *r)
{
    (void)c, (void)r;
    return NULL;
}

err *tool_write_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    const mcp_write *in = c->args;
    work *w = c->own;
    bool more = false;

    TRY(each_record(c, now, skip_record, ret_done, &more));
    if (!*ret_done)
        return NULL;
    buf_printf(&c->text, "Wrote %lu bytes to ", w->size);
    fit_text(&c->text, in->path, strlen(in->path));
    c->data = json_pack("{s:s,s:I}", "path", in->path, "size", (json_int_t)w->size);
    return NULL;
}

/* ---- edit ---- */

err *tool_edit_begin(mcp_call *c)
{
    const mcp_edit *in = c->args;

    if (!strcmp(in->old, in->new))
        return err_new(ERR_INVALID_REQUEST, "old, new: are the same");
    page_of_bytes(&work_of(c)->page, 0, EDIT_MAX + 1);
    return mcp_call_kit(
        c, &(kit_request){.verb = KIT_READ, .path = in->path, .length = EDIT_MAX + 1}, in->user);
}

static err *edit_record(mcp_call *c, const kit_record *r)
{
    work *w = c->own;

    if (w->writing)
        return NULL;
    take_piece(w, r);
    if (w->entry.size > EDIT_MAX)
        return err_remedy(
            err_new(ERR_TOO_LARGE, "the file has %lu bytes, more than 768 KiB", w->entry.size),
            "Change it with run: sed -i, or a script.");
    return w->page.full ? too_large("the file") : NULL;
}

static size_t count_places(const buf *b, const char *old, size_t n)
{
    const char *p = b->p, *end = b->p + b->len;
    size_t places = 0;

    while (p && (p = memmem(p, (size_t)(end - p), old, n))) {
        places++;
        p += n;
    }
    return places;
}

static void tool_files_replace(const buf *from, const mcp_edit *in, buf *to)
{
    const char *p = from->p, *end = from->p + from->len;
    size_t n = strlen(in->old), m = strlen(in->new);

    for (const char *at; (at = memmem(p, (size_t)(end - p), in->old, n)); p = at + n) {
        buf_append(to, p, (size_t)(at - p));
        buf_append(to, in->new, m);
    }
    buf_append(to, p, (size_t)(end - p));
}

static err *check_places(size_t places, bool all)
{
    if (!places)
        return err_remedy(err_kind(err_new(ERR_CONFLICT, "old: is not in the file"), "text"),
                          "Read the file again and copy the piece as it is, with its white space.");
    if (places > 1 && !all)
        return err_remedy(
            err_kind(err_new(ERR_CONFLICT, "old: is in the file %zu times", places), "text"),
            "Take more lines around it into old, or set all to change every place.");
    return NULL;
}

static err *write_edit(mcp_call *c)
{
    const mcp_edit *in = c->args;
    work *w = c->own;
    CLEANUP(buf_done) buf made = {0};

    take_end(w);
    w->replaced = count_places(&w->page.bytes, in->old, strlen(in->old));
    TRY(check_places(w->replaced, in->all));
    tool_files_replace(&w->page.bytes, in, &made);
    if (made.len > EDIT_MAX)
        return too_large("what it becomes");
    w->writing = true;
    w->size = made.len;
    return send_file(c, in->path, in->user, w->entry.mode & 07777, made.p, made.len);
}

err *tool_edit_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    const mcp_edit *in = c->args;
    work *w = c->own;
    bool over = false, more = false;

    TRY(each_record(c, now, edit_record, &over, &more));
    if (over && !w->writing) {
        TRY(write_edit(c));
        over = false;
        TRY(each_record(c, now, edit_record, &over, &more));
    }
    if (!over)
        return NULL;
    *ret_done = true;
    buf_printf(&c->text, "Replaced %lu place%s in ", w->replaced, w->replaced == 1 ? "" : "s");
    fit_text(&c->text, in->path, strlen(in->path));
    c->data = json_pack("{s:s,s:I,s:I}", "path", in->path, "replaced", (json_int_t)w->replaced,
                        "size", (json_int_t)w->size);
    return NULL;
}

/* ---- list ---- */

static const char *type_of(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    default:
        return "other";
    }
}

static void put_item(mcp_call *c, json_t *item)
{
    work *w = c->own;

    json_array_append_new(w->list, item);
    buf_char(&c->text, '\n');
    w->full = c->text.len >= SHOW_MAX;
}

err *tool_list_begin(mcp_call *c)
{
    const mcp_list *in = c->args;

    work_of(c)->list = json_array();
    return mcp_call_kit(c,
                        &(kit_request){.verb = KIT_LIST,
                                       .path = in->path,
                                       .to = "",
                                       .depth = (uint32_t)in->depth,
                                       .max = in->limit},
                        in->user);
}

static err *list_record(mcp_call *c, const kit_record *r)
{
    if (r->type != KIT_ENTRY)
        return NULL;
    const char *type = type_of(r->entry.mode);
    json_t *item = json_pack("{s:o,s:s}", "name", fit_json(r->name, r->name_len), "type", type);
    fit_text(&c->text, r->name, r->name_len);
    if (S_ISDIR(r->entry.mode))
        buf_char(&c->text, '/');
    if (S_ISREG(r->entry.mode)) {
        buf_printf(&c->text, "  %lu", r->entry.size);
        json_object_set_new(item, "size", json_integer((json_int_t)r->entry.size));
    }
    if (S_ISLNK(r->entry.mode)) {
        buf_str(&c->text, " -> ");
        fit_text(&c->text, r->bytes, r->bytes_len);
        json_object_set_new(item, "target", fit_json(r->bytes, r->bytes_len));
    }
    put_item(c, item);
    return NULL;
}

static void put_list(mcp_call *c, const char *member, bool more, const char *rest)
{
    work *w = c->own;

    if (!json_array_size(w->list))
        buf_str(&c->text, "(nothing)\n");
    if (more)
        buf_printf(&c->text, "[there are more; %s]", rest);
    c->data = json_pack("{s:O,s:b}", member, w->list, "more", more);
}

err *tool_list_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    bool more = false;

    TRY(each_record(c, now, list_record, ret_done, &more));
    if (*ret_done)
        put_list(c, "entries", more, "list a directory below, or search by name");
    return NULL;
}

/* ---- search ---- */

err *tool_search_begin(mcp_call *c)
{
    const mcp_search *in = c->args;

    if (!in->name && !in->text)
        return err_new(ERR_INVALID_REQUEST, "name, text: one of them is needed");
    work_of(c)->list = json_array();
    return mcp_call_kit(c,
                        &(kit_request){.verb = KIT_SEARCH,
                                       .path = in->path,
                                       .to = in->name,
                                       .text = in->text,
                                       .depth = (uint32_t)in->depth,
                                       .max = in->limit,
                                       .flags = in->caseless ? KIT_F_CASELESS : 0},
                        in->user);
}

static err *search_record(mcp_call *c, const kit_record *r)
{
    bool by_text = ((const mcp_search *)c->args)->text;
    work *w = c->own;

    if (r->type == KIT_ENTRY) {
        buf_clear(&w->name);
        buf_append(&w->name, r->name, r->name_len);
    }
    if (r->type != (by_text ? KIT_MATCH : KIT_ENTRY))
        return NULL;
    json_t *item = json_pack("{s:o}", "name", fit_json(w->name.p ? w->name.p : "", w->name.len));
    fit_text(&c->text, w->name.p ? w->name.p : "", w->name.len);
    if (by_text) {
        buf_printf(&c->text, ":%lu: ", r->match.line);
        fit_text(&c->text, r->bytes, r->bytes_len);
        json_object_set_new(item, "line", json_integer((json_int_t)r->match.line));
        json_object_set_new(item, "text", fit_json(r->bytes, r->bytes_len));
    }
    put_item(c, item);
    return NULL;
}

err *tool_search_poll(mcp_call *c, uint64_t now, bool *ret_done)
{
    bool more = false;

    TRY(each_record(c, now, search_record, ret_done, &more));
    if (*ret_done)
        put_list(c, "matches", more, "search in a directory below, or for something rarer");
    return NULL;
}

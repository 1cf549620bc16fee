/* Directory trees as archives: GET and PUT .../files/archive.
 *
 * bothyd and the kit exchange an entry stream; tar and zip are written and parsed here. A download
 * is a relay job. An upload holds its request's thread while the body comes, and then waits for the
 * kit's end record without a thread. */
#include "wire/archive.h"

#include <string.h>
#include <sys/stat.h>

#include "api/openapi.h"
#include "base/str.h"
#include "door/rest/files.h"

#define STEP_BYTES   (64u * 1024)
#define STEP_RECORDS 512u          /* records may come without end and produce no output */
#define STEP_WORK    (256u * 1024) /* bytes to compress in a step, even if they produce no output */
#define BATCH        (256u * 1024) /* bytes of records that go to the kit at a time */
#define LISTED_MAX   100           /* left-out entries that are named in the answer */
#define TAIL_MAX     (1u << 20)    /* bytes of padding behind an archive */

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

/* ---- downloads ---- */

typedef struct packing {
    kit_call *call;
    archive_out *out;
    buf made; /* archive bytes that are not sent yet */
    request_hold *memory;
    kit_record record;
    bool again; /* the record has more output to give */
    bool over;  /* it is the last record */
    bool head_sent;
    bool notes;        /* the number of unreadable entries also follows the archive */
    uint64_t left_out; /* raw: entries that the shell reported */
    bool raw;          /* no kit: DATA records are the bytes of a tar */
    const char *type;
    char *request_id;
} packing;

static void packing_wake(void *arg)
{
    relay_wake(arg);
}

static void packing_start(void *ctx, relay_job *job)
{
    kit_call_watch(((packing *)ctx)->call, packing_wake, job);
}

static void packing_free(void *ctx)
{
    packing *p = ctx;

    kit_call_free(p->call);
    archive_out_free(p->out);
    request_hold_free(p->memory);
    buf_done(&p->made);
    free(p->request_id);
    free(p);
}

/* Ends a failed download. Before the first byte an error is sent; after it the connection is cut,
 * so that the client does not take a part for the whole. */
static enum relay_next packing_fail(packing *p, relay_io *io, err *owned)
{
    CLEANUP(err_freep) err *e = owned;

    if (p->head_sent)
        return RELAY_CLOSE;
    http_error_answer(io->out, e, io->keep_alive, p->request_id);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static void packing_send(packing *p, relay_io *io)
{
    if (!p->made.len)
        return;
    if (!p->head_sent)
        http_head_write(io->out, &(http_head){.status = 200,
                                              .type = p->type,
                                              .length = -1,
                                              .chunked = io->http11,
                                              .keep_alive = io->keep_alive && io->http11,
                                              .request_id = p->request_id,
                                              .extra = "Trailer: Bothy-Left-Out\r\n"});
    p->head_sent = true;
    stream_put(io, p->made.p, p->made.len);
    buf_clear(&p->made);
}

/* Sends the last chunk, with the number of entries that are not in the archive. */
static enum relay_next packing_end(packing *p, relay_io *io)
{
    unsigned long long unread = p->left_out + archive_out_unread(p->out);

    if (p->notes && unread) {
        char note[ARCHIVE_NOTE_SIZE] = "";
        snprintf(note, sizeof note, ARCHIVE_NOTE "%llu\n", unread);
        buf_append(&p->made, note, sizeof note);
    }
    packing_send(p, io);
    if (io->http11)
        buf_printf(io->out, "0\r\nBothy-Left-Out: %llu\r\n\r\n",
                   (unsigned long long)(p->left_out + archive_out_left_out(p->out)));
    return stream_done(io);
}

static err *packing_next(packing *p, const relay_io *io, enum kit_next *ret_next)
{
    if (!p->again) {
        TRY(kit_call_next(p->call, io->now, ret_next, &p->record));
        if (*ret_next == KIT_WAIT)
            return NULL;
        p->over = *ret_next == KIT_OVER;
    }
    *ret_next = KIT_RECORD;
    if (!p->raw)
        return archive_out_put(p->out, &p->record, &p->again);
    if (p->record.type == KIT_DATA)
        buf_append(&p->made, p->record.bytes, p->record.bytes_len);
    p->left_out += p->record.type == KIT_ERROR;
    return NULL;
}

static enum relay_next packing_step(void *ctx, relay_io *io)
{
    packing *p = ctx;
    enum kit_next next = KIT_RECORD;
    size_t work = 0;

    if (io->stalled)
        return RELAY_CLOSE;
    for (unsigned n = 0; n < STEP_RECORDS && work < STEP_WORK && p->made.len < STEP_BYTES; n++) {
        err *e = packing_next(p, io, &next);
        if (e)
            return packing_fail(p, io, e);
        if (p->over && !p->again)
            return packing_end(p, io);
        if (p->again || next == KIT_WAIT)
            break;
        work += p->record.bytes_len;
    }
    packing_send(p, io);
    io->wake_at = kit_call_deadline(p->call);
    return next == KIT_WAIT ? RELAY_WAIT : RELAY_MORE;
}

static const relay_ops PACKING_OPS = {
    .kind = STREAM_FILES, .start = packing_start, .step = packing_step, .free = packing_free};

static char *name_of(const char *path)
{
    const char *end = path + strlen(path), *from;

    while (end > path && end[-1] == '/')
        end--;
    for (from = end; from > path && from[-1] != '/';)
        from--;
    return end > from ? xstrndup(from, (size_t)(end - from)) : xstrdup("file");
}

err *rest_archive_get(request *rq, response *rs)
{
    CLEANUP(archive_get_query_done) archive_get_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(kit_call_freep) kit_call *call = NULL;

    TRY(archive_get_query_decode(query_find, rq, &q));
    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    bool raw = engine_files_cap(rest_engine(rq)) != CAP_NATIVE;
    bool zip = q.format == ARCHIVE_GET_QUERY_FORMAT_ZIP;
    if (zip && raw)
        return err_remedy(err_new(ERR_UNSUPPORTED, "this node makes no zips: it has no kit"),
                          "Ask for a tar.");
    if (zip && q.notes)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "notes: a zip has no place for them"),
                          "Ask for a tar, or read the trailer Bothy-Left-Out.");
    const kit_request kr = {.verb = KIT_PACK,
                            .flags =
                                (q.follow ? KIT_F_FOLLOW : 0) | (zip ? KIT_F_COPIES : KIT_F_XATTRS),
                            .mode = KIT_MODE_NONE,
                            .path = q.path};
    TRY(engine_kit(rest_engine(rq), rest_caller(rq), sb, &kr, q.user, &call));
    packing *p = xcalloc(1, sizeof *p);
    CLEANUP(freep) char *name = name_of(q.path);
    err *e = zip ? request_hold_new(rq, ARCHIVE_ZIP_DIRECTORY_MAX, &p->memory) : NULL;
    if (!e)
        e = archive_out_new(zip ? ARCHIVE_ZIP : ARCHIVE_TAR, name, &p->made, &p->out);
    if (e) {
        packing_free(p);
        return e;
    }
    p->call = TAKE_PTR(call);
    p->raw = raw;
    p->notes = q.notes;
    p->type = zip ? "application/zip" : "application/x-tar";
    p->request_id = xstrdup(request_id(rq));
    response_relay(rs, &PACKING_OPS, p);
    return NULL;
}

/* ---- uploads ---- */

typedef struct unpacking {
    kit_call *call;
    request *rq; /* only while the body comes */
    request_hold *memory;
    buf batch;
    archive_out *tar; /* no kit: the image's tar gets this one */
    bool skips;       /* the current entry is skipped */
    uint64_t entries, bytes, left_out;
    json_t *listed; /* the first left-out entries */
    char *request_id;
} unpacking;

static void unpacking_free(void *ctx)
{
    unpacking *u = ctx;

    kit_call_free(u->call);
    request_hold_free(u->memory);
    archive_out_free(u->tar);
    buf_done(&u->batch);
    json_decref(u->listed);
    free(u->request_id);
    free(u);
}

static void unpacking_freep(unpacking **u)
{
    if (*u)
        unpacking_free(*u);
}

static void note_left_out(unpacking *u, const kit_record *r)
{
    u->left_out++;
    if (json_array_size(u->listed) < LISTED_MAX)
        json_array_append_new(u->listed, view_file_error(r));
}

/* Reads the kit's records so far. A record about an entry that failed is noted for the answer;
 * returns an error only if the kit itself failed, which ends the upload. *ret_next is KIT_RECORD if
 * more records may be there already. */
static err *take_answers(unpacking *u, uint64_t now, enum kit_next *ret_next, kit_record *ret_last)
{
    for (unsigned n = 0; n < STEP_RECORDS; n++) {
        TRY(kit_call_next(u->call, now, ret_next, ret_last));
        if (*ret_next != KIT_RECORD)
            return NULL;
        if (ret_last->type == KIT_ERROR)
            note_left_out(u, ret_last);
    }
    return NULL;
}

static err *archive_flush(unpacking *u, bool last)
{
    enum kit_next next;
    kit_record r;

    TRY(kit_call_send_bytes(u->call, u->batch.p, u->batch.len, last));
    buf_clear(&u->batch);
    return last ? NULL : take_answers(u, now_mono_ns(), &next, &r);
}

/* Returns whether the entry is a device. No user of a sandbox can make one, and the image's tar
 * would fail for the whole archive. */
static bool is_device(const kit_record *r)
{
    return S_ISCHR(r->entry.mode) || S_ISBLK(r->entry.mode);
}

/* Writes a record as tar again, with checked names and in the one form that every tar reads. */
static err *to_tar(unpacking *u, const kit_record *r)
{
    bool again = true;

    if (r->type == KIT_ENTRY && r->entry.flags & KIT_E_UNSIZED)
        return err_remedy(err_new(ERR_UNSUPPORTED, "the zip does not say how long its files are"),
                          "Send a tar: this node has no kit.");
    if (r->type == KIT_ENTRY) {
        u->skips = is_device(r);
        u->left_out += u->skips;
    }
    if (u->skips && r->type != KIT_END)
        return NULL;
    while (again) {
        TRY(archive_out_put(u->tar, r, &again));
        if (u->batch.len >= BATCH && (again || r->type != KIT_END))
            TRY(archive_flush(u, false));
    }
    return r->type == KIT_END ? archive_flush(u, true) : NULL;
}

static err *on_record(void *arg, const kit_record *r)
{
    unpacking *u = arg;

    u->entries += r->type == KIT_ENTRY;
    u->bytes += r->type == KIT_DATA ? r->bytes_len : 0;
    if (u->tar)
        return to_tar(u, r);
    buf_reserve(&u->batch, KIT_RECORD_MAX);
    size_t n = kit_encode(r, u->batch.p + u->batch.len);
    if (!n)
        return err_new(ERR_INVALID_REQUEST, "an entry of the archive is too large");
    u->batch.len += n;
    return r->type == KIT_END || u->batch.len >= BATCH ? archive_flush(u, r->type == KIT_END)
                                                       : NULL;
}

static err *on_read(void *arg, void *p, size_t max, size_t *ret_n)
{
    return request_body_read(((unpacking *)arg)->rq, p, max, ret_n);
}

/* Reserves memory for a zstd stream. The sender chooses its window, so the sender pays for it. */
static err *on_packed(void *arg, const char *by)
{
    unpacking *u = arg;

    return str_eq(by, "zstd") ? request_hold_new(u->rq, ARCHIVE_IN_MEMORY, &u->memory) : NULL;
}

/* Reads the zeros behind a tar's end, so that the connection can be reused. */
static err *drop_tail(request *rq)
{
    char skipped[4096];
    size_t n = 1, all = 0;

    while (n && all < TAIL_MAX) {
        TRY(request_body_read(rq, skipped, sizeof skipped, &n));
        all += n;
    }
    return NULL;
}

static err *archive_receive(unpacking *u)
{
    archive_in in = {.read = on_read, .emit = on_record, .packed = on_packed, .arg = u};

    TRY(archive_in_run(&in));
    u->left_out += in.left_out;
    request_hold_free(TAKE_PTR(u->memory));
    return drop_tail(u->rq);
}

static void unpacking_start(void *ctx, relay_job *job)
{
    kit_call_watch(((unpacking *)ctx)->call, packing_wake, job);
}

static enum relay_next unpacking_step(void *ctx, relay_io *io)
{
    unpacking *u = ctx;
    enum kit_next next;
    kit_record r;
    CLEANUP(err_freep) err *e = take_answers(u, io->now, &next, &r);

    if (!e && next != KIT_OVER) {
        io->wake_at = kit_call_deadline(u->call);
        return next == KIT_WAIT ? RELAY_WAIT : RELAY_MORE;
    }
    if (e) {
        http_error_answer(io->out, e, io->keep_alive, u->request_id);
    } else {
        CLEANUP(json_decrefp)
        json_t *body = json_pack("{s:I,s:I,s:I,s:O}", "entries", (json_int_t)u->entries, "bytes",
                                 (json_int_t)u->bytes, "left_out", (json_int_t)u->left_out,
                                 "left_out_entries", u->listed);
        http_json_answer(io->out, 200, body, io->keep_alive, u->request_id, NULL);
    }
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static const relay_ops UNPACKING_OPS = {
    .kind = STREAM_FILES, .start = unpacking_start, .step = unpacking_step, .free = unpacking_free};

err *rest_archive_put(request *rq, response *rs)
{
    CLEANUP(archive_put_query_done) archive_put_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(unpacking_freep) unpacking *u = xcalloc(1, sizeof *u);

    request_set_kind(rq, STREAM_FILES);
    TRY(archive_put_query_decode(query_find, rq, &q));
    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    const kit_request kr = {.verb = KIT_UNPACK,
                            .flags = KIT_F_XATTRS | (q.owners ? KIT_F_OWNERS : 0) |
                                     (q.mkdir ? KIT_F_PARENTS : 0),
                            .mode = KIT_MODE_NONE,
                            .path = q.path};
    *u = (unpacking){.rq = rq, .listed = json_array(), .request_id = xstrdup(request_id(rq))};
    if (engine_files_cap(rest_engine(rq)) != CAP_NATIVE)
        TRY(archive_out_new(ARCHIVE_TAR, "file", &u->batch, &u->tar));
    TRY(engine_kit(rest_engine(rq), rest_caller(rq), sb, &kr, q.user, &u->call));
    kit_call_wait_by(u->call, file_wait, rq);
    TRY(archive_receive(u));
    u->rq = NULL;
    response_relay(rs, &UNPACKING_OPS, TAKE_PTR(u));
    return NULL;
}

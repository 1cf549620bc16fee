/* read_file, write_file, upload: each one a run of the kit. */
#include "door/shared/files.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "door/swerex/internal.h"
#include "door/swerex/text.h"
#include "wire/archive.h"
#include "wire/multipart.h"

#define TARGET_MAX  KIT_PATH_MAX
#define PIECE       65536u
#define BATCH       (256u << 10)
#define ANSWERS_MAX 512u

static file_place place_of(request *rq, sandbox *sb)
{
    return (file_place){.engine = rex_engine(rq), .who = rex_caller(rq), .sb = sb};
}

/* Turns the kit's error for a path into Python's OSError. Takes the error. */
static err *as_os_error(err *e, const char *path)
{
    if (!e || !e->errnum || !str_eq(e->kind, "path"))
        return e;
    err *told = rex_os_error(e->errnum, path);
    err_free(e);
    return told;
}

static err *files_refused(file_job *f, relay_io *io, err *e)
{
    (void)io;
    return as_os_error(e, f->rq.path);
}

/* ---- read ---- */

typedef struct reading {
    rex_file file;
    request_hold *hold;
    buf bytes;
    uint64_t size; /* 0: unknown */
} reading;

static void reading_free(void *own)
{
    reading *r = own;

    rex_file_done(&r->file);
    request_hold_free(r->hold);
    buf_done(&r->bytes);
    free(r);
}

static enum file_go tell_error(file_job *f, relay_io *io, err *owned)
{
    CLEANUP(err_freep) err *e = owned;

    http_error_answer_as(io->out, f->errors, e, io->keep_alive, f->request_id);
    return FILE_DONE;
}

/* Reserves memory for bytes up to `until`, and fills up to `from` with zeroes: the kit does not
 * send holes. */
static err *files_extend(reading *r, uint64_t from, uint64_t until)
{
    buf *b = &r->bytes;

    if (from > REX_READ_MAX || until > REX_READ_MAX)
        return err_remedy(
            err_new(ERR_TOO_LARGE, "the file has more than %u MiB", REX_READ_MAX >> 20),
            "Read it in parts with execute, or by GET /v1/sandboxes/{id}/files.");
    TRY(request_hold_more(r->hold, until - b->len));
    buf_reserve(b, until - b->len);
    if (from > b->len)
        memset(b->p + b->len, 0, from - b->len);
    b->len = from;
    return NULL;
}

static enum file_go read_record(file_job *f, relay_io *io, const kit_record *r)
{
    reading *me = f->own;

    if (r->type == KIT_ENTRY && !(r->entry.flags & KIT_E_UNSIZED))
        me->size = r->entry.size;
    if (r->type != KIT_DATA)
        return FILE_ON;
    if (r->offset < me->bytes.len)
        return tell_error(f, io, err_new(ERR_INTERNAL, "the file's bytes came in disorder"));
    err *e = files_extend(me, r->offset, r->offset + r->bytes_len);
    if (e)
        return tell_error(f, io, e);
    buf_append(&me->bytes, r->bytes, r->bytes_len);
    return FILE_ON;
}

static enum file_go read_over(file_job *f, relay_io *io, const kit_record *end)
{
    reading *me = f->own;
    CLEANUP(buf_done) buf text = {0};
    CLEANUP(buf_done) buf why = {0};
    CLEANUP(buf_done) buf body = {0};
    const char *class = NULL;

    (void)end;
    err *e = me->size > me->bytes.len ? files_extend(me, me->size, me->size) : NULL;
    if (e)
        return tell_error(f, io, e);
    if (!rex_read_text(me->bytes.p, me->bytes.len, me->file.encoding, me->file.errors, &text,
                       &class, &why)) {
        CLEANUP(freep) char *path = str_printf("builtins.%s", class);
        rex_exception(io, path, why.p, why.len, f->request_id);
        return FILE_DONE;
    }
    buf_str(&body, "{\"content\":");
    buf_json_string(&body, text.p, text.len);
    buf_char(&body, '}');
    rex_answer(io, 200, &body, f->request_id);
    buf_done(&me->bytes); /* the connection's own charge covers the answer from here on */
    request_hold_free(TAKE_PTR(me->hold));
    return FILE_DONE;
}

static const file_form READ = {
    .record = read_record, .over = read_over, .refused = files_refused, .done = reading_free};

err *rex_read_file(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    CLEANUP(rex_file_done) rex_file in = {0};
    CLEANUP(body_wipe) buf body = {0};
    file_place place = place_of(rq, sb);
    request_hold *hold = NULL;
    file_job *f = NULL;

    (void)w;
    TRY(request_body(rq, REX_BODY_MAX, &body));
    TRY(rex_file_decode(body.p, body.len, false, &in));
    kit_request q = {.verb = KIT_READ, .path = *in.path ? in.path : ".", .length = UINT64_MAX};
    TRY(request_hold_new(rq, PIECE, &hold));
    reading *r = xcalloc(1, sizeof *r);
    r->hold = hold;
    err *e = file_start(rq, rs, &place, &READ, &q, &f);
    if (e) {
        reading_free(r);
        return e;
    }
    r->file = in;
    in = (rex_file){0};
    f->own = r;
    return NULL;
}

/* ---- write ---- */

static enum file_go wrote_record(file_job *f, relay_io *io, const kit_record *r)
{
    (void)f, (void)io, (void)r;
    return FILE_ON;
}

static enum file_go files_wrote(file_job *f, relay_io *io, const kit_record *end)
{
    CLEANUP(buf_done) buf body = {0};

    (void)end;
    buf_str(&body, "{}");
    rex_answer(io, 200, &body, f->request_id);
    return FILE_DONE;
}

static const file_form WROTE = {
    .record = wrote_record, .over = files_wrote, .refused = files_refused};

/* Sends the bytes of a new file, from memory or from fd. */
static err *send_file(file_sender *s, const char *p, size_t n, int fd)
{
    CLEANUP(freep) char *piece = fd < 0 ? NULL : xmalloc(PIECE);
    kit_record head = {.type = KIT_ENTRY};
    ssize_t got = fd < 0 ? 0 : 1;

    head.entry.flags = KIT_E_UNSIZED;
    TRY(file_send_record(s, &head));
    TRY(file_send(s, p, n));
    while (got > 0) {
        got = read(fd, piece, PIECE);
        if (got < 0)
            return err_sys(ERR_INTERNAL, errno, "the upload cannot be read back");
        TRY(file_send(s, piece, (size_t)got));
    }
    return file_send_end(s);
}

/* Writes a file as write_text() and shutil.move() do: missing parents are made. */
static err *write_path(request *rq, response *rs, sandbox *sb, const char *path, const char *p,
                       size_t n, int fd)
{
    const kit_request q = {
        .verb = KIT_WRITE, .flags = KIT_F_PARENTS, .mode = KIT_MODE_NONE, .path = path};
    CLEANUP(kit_call_freep) kit_call *call = NULL;
    CLEANUP(file_sender_done) file_sender s = {0};

    TRY(engine_kit(rex_engine(rq), rex_caller(rq), sb, &q, NULL, &call));
    kit_call_wait_by(call, file_wait, rq);
    s.call = call;
    TRY(as_os_error(send_file(&s, p, n, fd), path));
    file_relay(rq, rs, &WROTE, &q, TAKE_PTR(call));
    return NULL;
}

err *rex_write_file(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    CLEANUP(rex_file_done) rex_file in = {0};
    CLEANUP(body_wipe) buf body = {0};

    (void)w;
    TRY(request_body(rq, REX_BODY_MAX, &body));
    TRY(rex_file_decode(body.p, body.len, true, &in));
    return write_path(rq, rs, sb, *in.path ? in.path : ".", in.content, in.n, -1);
}

/* ---- upload ---- */

/* The file comes before the name of its target, so it is kept on the node's disk meanwhile. */
typedef struct upload {
    request *rq;
    rex_stage stage;
    buf target, unzip;
    enum {
        PART_OTHER,
        PART_FILE,
        PART_TARGET,
        PART_UNZIP
    } part;
    bool has_file;
} upload;

static void upload_done(upload *u)
{
    rex_stage_done(&u->stage);
    buf_done(&u->target);
    buf_done(&u->unzip);
}

static err *on_begin(void *arg, const multipart_part *p)
{
    upload *u = arg;

    u->part = str_eq(p->name, "file")          ? PART_FILE
              : str_eq(p->name, "target_path") ? PART_TARGET
              : str_eq(p->name, "unzip")       ? PART_UNZIP
                                               : PART_OTHER;
    u->has_file = u->has_file || u->part == PART_FILE;
    return NULL;
}

static err *on_data(void *arg, const void *p, size_t n)
{
    upload *u = arg;
    buf *to = u->part == PART_TARGET ? &u->target : u->part == PART_UNZIP ? &u->unzip : NULL;

    if (u->part == PART_FILE)
        return rex_stage_write(&u->stage, p, n);
    if (to && to->len + n > TARGET_MAX)
        return err_new(ERR_INVALID_REQUEST, "body.target_path: too long");
    if (to)
        buf_append(to, p, n);
    return NULL;
}

static err *on_end(void *arg)
{
    (void)arg;
    return NULL;
}

static const multipart_ops PARTS = {on_begin, on_data, on_end};

static err *swerex_files_receive(upload *u)
{
    CLEANUP(multipart_freep) multipart *m = NULL;
    CLEANUP(freep) char *piece = xmalloc(PIECE);
    size_t n = 1;

    TRY(multipart_new(str_or(request_header(u->rq, "Content-Type"), ""), &PARTS, u, &m));
    while (n) {
        TRY(request_body_read(u->rq, piece, PIECE, &n));
        TRY(multipart_feed(m, piece, n));
    }
    TRY(multipart_finish(m));
    if (!u->has_file || !u->target.len || memchr(u->target.p, 0, u->target.len))
        return err_new(ERR_INVALID_REQUEST, "body: file and target_path must be there");
    if (lseek(u->stage.fd, 0, SEEK_SET) < 0)
        return err_sys(ERR_INTERNAL, errno, "the upload cannot be read back");
    return NULL;
}

/* ---- a directory, uploaded as a zip ---- */

typedef struct unzipping {
    int fd;
    kit_call *call;
    buf batch;
} unzipping;

static void unzipping_done(unzipping *u)
{
    kit_call_free(u->call);
    buf_done(&u->batch);
}

static err *on_read(void *arg, void *p, size_t max, size_t *ret_n)
{
    ssize_t n = read(((unzipping *)arg)->fd, p, max);

    if (n < 0)
        return err_sys(ERR_INTERNAL, errno, "the upload cannot be read back");
    *ret_n = (size_t)n;
    return NULL;
}

static err *take_answers(unzipping *u)
{
    enum kit_next next = KIT_RECORD;
    kit_record r;

    for (unsigned i = 0; i < ANSWERS_MAX && next == KIT_RECORD; i++)
        TRY(kit_call_next(u->call, now_mono_ns(), &next, &r));
    return NULL;
}

static err *on_record(void *arg, const kit_record *r)
{
    unzipping *u = arg;
    bool last = r->type == KIT_END;

    buf_reserve(&u->batch, KIT_RECORD_MAX);
    size_t n = kit_encode(r, u->batch.p + u->batch.len);
    if (!n)
        return err_new(ERR_INVALID_REQUEST, "an entry of the archive is too large");
    u->batch.len += n;
    if (!last && u->batch.len < BATCH)
        return NULL;
    TRY(kit_call_send_bytes(u->call, u->batch.p, u->batch.len, last));
    buf_clear(&u->batch);
    return last ? NULL : take_answers(u);
}

static err *files_unzip(request *rq, response *rs, sandbox *sb, const char *path, int fd)
{
    const kit_request q = {
        .verb = KIT_UNPACK, .flags = KIT_F_PARENTS, .mode = KIT_MODE_NONE, .path = path};
    CLEANUP(unzipping_done) unzipping u = {.fd = fd};
    archive_in in = {.read = on_read, .emit = on_record, .arg = &u};

    if (engine_files_cap(rex_engine(rq)) != CAP_NATIVE)
        return err_remedy(err_new(ERR_UNSUPPORTED, "this node has no kit to unpack a zip with"),
                          "Upload files one by one.");
    TRY(engine_kit(rex_engine(rq), rex_caller(rq), sb, &q, NULL, &u.call));
    kit_call_wait_by(u.call, file_wait, rq);
    TRY(as_os_error(archive_in_run(&in), path));
    file_relay(rq, rs, &WROTE, &q, TAKE_PTR(u.call));
    return NULL;
}

static bool is_true(const buf *b)
{
    static const char *const WORDS[] = {"true", "True", "1", "on", "yes"};

    for (size_t i = 0; i < ARRAY_LEN(WORDS); i++)
        if (b->len == strlen(WORDS[i]) && memcmp(b->p, WORDS[i], b->len) == 0)
            return true;
    return false;
}

err *rex_upload(request *rq, response *rs, const rex_who *w, sandbox *sb)
{
    CLEANUP(upload_done) upload u = {.rq = rq, .stage.fd = -1};

    (void)w;
    TRY(rex_stage_open(rex_of(rq), rex_caller(rq)->owner, &u.stage));
    request_set_kind(rq, STREAM_FILES);
    TRY(swerex_files_receive(&u));
    const char *target = buf_cstr(&u.target);
    return is_true(&u.unzip) ? files_unzip(rq, rs, sb, target, u.stage.fd)
                             : write_path(rq, rs, sb, target, NULL, 0, u.stage.fd);
}

/* GET and POST /files: reads one file, writes any number of files.
 *
 * An upload holds its request's thread while the body comes. One run of the kit writes all its
 * files, each whole or not at all. The relay waits for the kit's final record, without a thread. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/map.h"
#include "door/e2b/filesystem.h"
#include "wire/gunzip.h"
#include "wire/multipart.h"

#define FILES_MAX      65536u     /* in one request */
#define KEPT_MAX       (8u << 20) /* bytes of names and answer in one request */
#define KEPT_STEP      (1u << 20) /* bytes charged at a time, after the first KEPT_FREE */
#define KEPT_FREE      (64u << 10)
#define KEPT_STEPS     (KEPT_MAX / KEPT_STEP)
#define ENTRY_MARKS    40u                 /* constant bytes of each file's entry in the answer */
#define ANSWERS_EVERY  256u                /* files between two reads of the kit's records */
#define DRAIN_MAX      (UINT64_C(4) << 30) /* bytes read of a body after the kit has ended */
#define METADATA_NAME  "X-Metadata-"
#define METADATA_TOTAL 4096u
#define METADATA_KEY   (255u - (unsigned)sizeof FS_METADATA_PREFIX + 1)

/* ---- download ---- */

static err *in_words(err *e, err_code code, const char *format, const char *path)
{
    err *told = err_new(code, format, path);

    err_free(e);
    return told;
}

static err *read_refused(file_job *f, relay_io *io, err *e)
{
    if (fs_errno(e) == ENOENT)
        return in_words(e, ERR_NOT_FOUND, "path '%s' does not exist", file_path(f));
    if (fs_errno(e) == EISDIR)
        return in_words(e, ERR_INVALID_REQUEST, "path '%s' is a directory", file_path(f));
    return fs_refused(f, io, e);
}

/* Returns the Content-Disposition header, which names the file for clients that save it. */
static char *read_lines(const file_job *f, const kit_record *r)
{
    CLEANUP(freep) char *name = fs_base_name(file_path(f));
    CLEANUP(buf_done) buf line = {0};

    (void)r;
    buf_str(&line, "Content-Disposition: inline; filename*=UTF-8''");
    for (const char *p = name; *p; p++)
        if (isalnum((unsigned char)*p) || strchr("-._~", *p))
            buf_char(&line, *p);
        else
            buf_printf(&line, "%%%02X", (unsigned char)*p);
    buf_str(&line, "\r\n");
    return buf_take(&line);
}

static const file_form READ = {.record = file_read_record,
                               .over = file_read_over,
                               .refused = read_refused,
                               .lines = read_lines};
static const file_form HEAD = {.record = file_head_record,
                               .over = file_head_over,
                               .refused = read_refused,
                               .lines = read_lines};

static err *files_get(envd_call *c, request *rq, response *rs, bool head)
{
    kit_request q = {.verb = head ? KIT_STAT : KIT_READ,
                     .flags = KIT_F_HOME | (head ? KIT_F_FOLLOW : 0),
                     .length = UINT64_MAX};
    const file_wish wish = head ? (file_wish){0} : file_read_wish(rq, &q);
    file_place place;
    file_job *f = NULL;

    TRY(fs_check_path(str_or(request_query(rq, "path"), ""), &q.path));
    TRY(fs_place(c, rq, &place));
    TRY(file_start(rq, rs, &place, head ? &HEAD : &READ, &q, &f));
    file_read_begin(f, &wish);
    return NULL;
}

/* ---- the kit's records of written files ---- */

typedef struct written {
    buf json;
    char *user; /* the files are for this user, if not for root */
    char *path; /* of the file under way */
    bool is;    /* the kit has written that file */
    json_t *metadata;
    size_t names;    /* bytes of all paths sent */
    size_t expected; /* estimated bytes of names and answer */
    request_hold *holds[KEPT_STEPS];
    size_t nholds;
    bool full;
} written;

static void written_done(written *w)
{
    buf_done(&w->json);
    free(w->user);
    free(w->path);
    json_decref(w->metadata);
    for (size_t i = 0; i < w->nholds; i++)
        request_hold_free(w->holds[i]);
    *w = (written){0};
}

static void written_free(void *own)
{
    if (own)
        written_done(own);
    free(own);
}

static err *too_much(void)
{
    return err_remedy(err_new(ERR_TOO_LARGE,
                              "names and answer of one request have more than %u MiB",
                              KEPT_MAX >> 20),
                      "Send fewer files in one request.");
}

/* Counts one more file before it is sent, and charges memory for its name and its entry in the
 * answer. */
static err *expect_written(written *w, request *rq, const char *path, const json_t *metadata)
{
    CLEANUP(freep) char *name = fs_base_name(path);
    const char *key;
    json_t *value;

    w->names += strlen(path);
    w->expected += 2 * strlen(path) + strlen(name) + ENTRY_MARKS;
    json_object_foreach((json_t *)metadata, key, value)
    {
        w->expected += strlen(key) + json_string_length(value);
    }
    if (w->full || w->expected > KEPT_MAX)
        return too_much();
    while (w->expected > KEPT_FREE + w->nholds * KEPT_STEP && w->nholds < KEPT_STEPS) {
        TRY(request_hold_new(rq, KEPT_STEP, &w->holds[w->nholds]));
        w->nholds++;
    }
    return NULL;
}

/* Appends the finished file to the answer. Checks the limit again: the kit's path may be longer
 * than the one sent, and so are escaped characters. */
static void put_written(written *w)
{
    w->full = w->full || w->names + w->json.len > KEPT_MAX;
    if (!w->is || w->full)
        return;
    CLEANUP(freep) char *name = fs_base_name(w->path);
    buf_str(&w->json, w->json.len ? ",{\"path\":" : "{\"path\":");
    buf_json_string(&w->json, w->path, strlen(w->path));
    buf_str(&w->json, ",\"name\":");
    buf_json_string(&w->json, name, strlen(name));
    buf_str(&w->json, ",\"type\":\"file\"");
    if (w->metadata) {
        buf_str(&w->json, ",\"metadata\":");
        json_write(&w->json, w->metadata);
    }
    buf_char(&w->json, '}');
}

static void next_written(written *w, const kit_record *at)
{
    put_written(w);
    json_decref(w->metadata);
    w->metadata = NULL;
    w->is = false;
    free(w->path);
    w->path = at ? xstrndup(at->bytes, at->bytes_len) : NULL;
}

static void take_written(written *w, const kit_record *r)
{
    if (r->type == KIT_AT)
        next_written(w, r);
    if (r->type == KIT_ENTRY && w->path)
        w->is = true;
    if (r->type == KIT_XATTR && w->is)
        fs_metadata_add(&w->metadata, r);
}

static err *write_error(const written *w, err *e)
{
    const char *path = str_or(w->path, "");
    int errnum = fs_errno(e);

    if (errnum == ENOKEY)
        return e2b_user_error(
            in_words(e, ERR_USER_NOT_FOUND, "the image has no user '%s'", str_or(w->user, "")));
    if (errnum == EISDIR)
        return in_words(e, ERR_INVALID_REQUEST, "path is a directory: %s", path);
    if (errnum == ENOSPC || errnum == EDQUOT)
        return in_words(e, ERR_DISK_FULL, "not enough disk space available for '%s'", path);
    if (errnum && errnum != EPIPE && errnum != EPROTO) {
        err_free(e);
        e = kit_error(KIT_WRITE, errnum, path);
    }
    return e2b_user_error(e);
}

static enum file_go write_record(file_job *f, relay_io *io, const kit_record *r)
{
    (void)io;
    take_written(f->own, r);
    return FILE_ON;
}

static enum file_go write_over(file_job *f, relay_io *io, const kit_record *end)
{
    written *w = f->own;

    (void)end;
    next_written(w, NULL);
    if (w->full) {
        CLEANUP(err_freep) err *e = too_much();
        http_error_answer_as(io->out, f->errors, e, io->keep_alive, f->request_id);
        return FILE_DONE;
    }
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "application/json",
                                          .length = (int64_t)w->json.len + 2,
                                          .keep_alive = io->keep_alive,
                                          .request_id = f->request_id});
    buf_char(io->out, '[');
    buf_append(io->out, w->json.p, w->json.len);
    buf_char(io->out, ']');
    return FILE_DONE;
}

static err *write_refused(file_job *f, relay_io *io, err *e)
{
    (void)io;
    return write_error(f->own, e);
}

static const file_form WRITE = {
    .record = write_record, .over = write_over, .refused = write_refused, .done = written_free};

/* ---- upload ---- */

typedef struct upload {
    request *rq;
    const char *path; /* from the query, or NULL */
    kit_call *call;
    file_sender sender;
    gunzip *gz;
    json_t *metadata; /* attributes for every file, by their full names */
    map seen;         /* paths already uploaded */
    size_t files;
    bool in_file; /* the current part is a file */
    written *done;
} upload;

static void upload_done(upload *u)
{
    kit_call_free(u->call);
    file_sender_done(&u->sender);
    gunzip_free(u->gz);
    json_decref(u->metadata);
    map_done(&u->seen);
    written_free(u->done);
}

/* Takes the kit's records that have arrived. A failure of the kit fails the upload. */
static err *take_answers(upload *u)
{
    enum kit_next next = KIT_RECORD;
    kit_record r;

    while (next == KIT_RECORD) {
        err *e = kit_call_next(u->call, now_mono_ns(), &next, &r);
        if (e)
            return write_error(u->done, e);
        if (next == KIT_RECORD)
            take_written(u->done, &r);
    }
    return NULL;
}

static err *send_metadata(upload *u)
{
    const char *key;
    json_t *value;

    json_object_foreach(u->metadata, key, value)
    {
        const char *text = json_string_value(value);
        TRY(file_send_record(&u->sender, &(kit_record){.type = KIT_XATTR,
                                                       .name = key,
                                                       .name_len = strlen(key),
                                                       .bytes = text,
                                                       .bytes_len = strlen(text)}));
    }
    return NULL;
}

static err *begin_file(upload *u, const char *given)
{
    const char *path;

    TRY(fs_check_path(given, &path));
    if (map_put_str(&u->seen, path, u))
        return err_new(ERR_INVALID_REQUEST,
                       "you cannot upload multiple files to the same path '%s' in one upload "
                       "request, only the first specified file was uploaded",
                       path);
    if (++u->files > FILES_MAX)
        return err_new(ERR_TOO_LARGE, "more than %u files in one request", FILES_MAX);
    TRY(expect_written(u->done, u->rq, path, u->metadata));
    if (u->files % ANSWERS_EVERY == 0)
        TRY(take_answers(u));
    kit_record r = {.type = KIT_ENTRY, .bytes = path, .bytes_len = strlen(path)};
    r.entry.flags = KIT_E_UNSIZED;
    TRY(file_send_record(&u->sender, &r));
    return send_metadata(u);
}

static err *on_begin(void *arg, const multipart_part *p)
{
    upload *u = arg;

    u->in_file = str_eq(p->name, "file");
    if (!u->in_file)
        return NULL;
    if (!u->path && !p->filename)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "a part of the form has no file name"),
                          "Name the file in the part, or the path in the query.");
    return begin_file(u, u->path ? u->path : p->filename);
}

static err *on_data(void *arg, const void *p, size_t n)
{
    upload *u = arg;

    return u->in_file ? file_send(&u->sender, p, n) : NULL;
}

static err *on_end(void *arg)
{
    (void)arg;
    return NULL;
}

static const multipart_ops PARTS = {on_begin, on_data, on_end};

static err *read_sent(void *arg, void *p, size_t max, size_t *ret_n)
{
    return request_body_read(((upload *)arg)->rq, p, max, ret_n);
}

static err *read_plain(upload *u, void *p, size_t max, size_t *ret_n)
{
    return u->gz ? gunzip_read(u->gz, p, max, ret_n) : read_sent(u, p, max, ret_n);
}

/* Passes the body to the kit: as one file, or as the files of a form (m). Reads on after the kit
 * has ended, up to DRAIN_MAX: clients read no answer before they have sent everything. */
static err *files_receive(upload *u, multipart *m)
{
    CLEANUP(freep) char *piece = xmalloc(KIT_DATA_MAX);
    uint64_t unwanted = 0;
    size_t n = 1;

    while (n && unwanted < DRAIN_MAX) {
        TRY(read_plain(u, piece, KIT_DATA_MAX, &n));
        if (kit_call_is_over(u->call))
            unwanted += n;
        else
            TRY(m ? multipart_feed(m, piece, n) : file_send(&u->sender, piece, n));
    }
    return m && !unwanted ? multipart_finish(m) : NULL;
}

static err *receive_all(upload *u)
{
    const char *type = str_or(request_header(u->rq, "Content-Type"), "");
    CLEANUP(multipart_freep) multipart *m = NULL;

    if (mime_is(type, "multipart/"))
        TRY(multipart_new(type, &PARTS, u, &m));
    else if (!mime_is(type, "application/octet-stream"))
        return err_new(ERR_INVALID_REQUEST,
                       "unsupported content type: %.80s, expected multipart/form-data or "
                       "application/octet-stream",
                       type);
    else if (!u->path)
        return err_new(ERR_INVALID_REQUEST, "path query parameter is required for raw body upload");
    else
        TRY(begin_file(u, u->path));
    TRY(files_receive(u, m));
    return file_send_end(&u->sender);
}

/* ---- metadata ---- */

typedef struct headers {
    json_t *metadata;
    size_t total;
    err *failure;
} headers;

static bool is_printable(const char *s)
{
    for (; *s; s++)
        if (*s < ' ' || *s > '~')
            return false;
    return true;
}

static err *check_metadata(const char *key, const char *value, size_t total)
{
    if (strlen(key) > METADATA_KEY)
        return err_new(ERR_INVALID_REQUEST, "invalid metadata: key '%.40s…' exceeds %u bytes", key,
                       METADATA_KEY);
    if (!is_printable(key) || !is_printable(value))
        return err_new(ERR_INVALID_REQUEST,
                       "invalid metadata: '%.80s' contains a byte that is not printable ASCII",
                       key);
    if (total > METADATA_TOTAL)
        return err_new(ERR_INVALID_REQUEST,
                       "invalid metadata: total metadata size %zu exceeds %u bytes", total,
                       METADATA_TOTAL);
    return NULL;
}

static void on_header(void *arg, const char *name, const char *value)
{
    headers *h = arg;
    size_t prefix = strlen(METADATA_NAME);

    if (h->failure || strncasecmp(name, METADATA_NAME, prefix) != 0 || !name[prefix])
        return;
    CLEANUP(freep) char *key = str_printf("%s%s", FS_METADATA_PREFIX, name + prefix);
    for (char *p = key; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    if (json_object_get(h->metadata, key))
        return; /* the first header of a name counts */
    h->total += strlen(key) + strlen(value);
    h->failure = check_metadata(key + strlen(FS_METADATA_PREFIX), value, h->total);
    if (!h->failure)
        json_object_set_new(h->metadata, key, json_string(value));
}

static err *read_metadata(upload *u)
{
    headers h = {.metadata = u->metadata = json_object()};

    request_header_each(u->rq, on_header, &h);
    return h.failure;
}

static err *set_encoding(upload *u)
{
    const char *encoding = request_header(u->rq, "Content-Encoding");

    if (!encoding || !*encoding || !strcasecmp(encoding, "identity"))
        return NULL;
    if (strcasecmp(encoding, "gzip") != 0)
        return err_remedy(
            err_new(ERR_INVALID_REQUEST, "unsupported Content-Encoding: %.40s", encoding),
            "Send the body as it is, or as gzip.");
    u->gz = gunzip_new(read_sent, u);
    return NULL;
}

static bool is_root(const char *user)
{
    return !user || !*user || str_eq(user, "0") || str_eq(user, "root");
}

/* Lets the kit write as root for the user, if the user is not root. As in E2B, an upload makes
 * missing directories where its user may not, and the user owns them: harnesses put their files
 * below the root of images that have a user. */
static void set_user(const envd_call *c, kit_request *q, file_place *place)
{
    const char *user = place->user ? place->user : sandbox_user(c->sb);

    if (is_root(user))
        return;
    q->flags |= KIT_F_FOR;
    q->to = user;
    place->user = "0";
}

static err *files_post(envd_call *c, request *rq, response *rs)
{
    CLEANUP(upload_done) upload u = {.rq = rq, .path = request_query(rq, "path")};
    kit_request q = {.verb = KIT_WRITE,
                     .mode = KIT_MODE_NONE,
                     .flags = FS_FLAGS | KIT_F_MANY | KIT_F_PARENTS,
                     .path = "-"};
    file_place place;

    request_set_kind(rq, STREAM_FILES);
    TRY(read_metadata(&u));
    TRY(set_encoding(&u));
    TRY(fs_place(c, rq, &place));
    set_user(c, &q, &place);
    TRY(engine_kit(place.engine, place.who, place.sb, &q, place.user, &u.call));
    kit_call_wait_by(u.call, file_wait, rq);
    u.sender.call = u.call;
    u.done = xcalloc(1, sizeof *u.done);
    u.done->user = q.to ? xstrdup(q.to) : NULL;
    TRY(receive_all(&u));
    file_job *f = file_relay(rq, rs, &WRITE, &q, TAKE_PTR(u.call));
    f->own = TAKE_PTR(u.done);
    return NULL;
}

err *files_http(envd_call *c, request *rq, response *rs)
{
    const char *method = request_method(rq);

    if (str_eq(method, "POST"))
        return files_post(c, rq, rs);
    if (str_eq(method, "GET") || str_eq(method, "HEAD"))
        return files_get(c, rq, rs, *method == 'H');
    return err_new(ERR_METHOD_NOT_ALLOWED, "/files knows GET and POST");
}

/* filesystem.Filesystem over Connect: the calls with one answer. */
#include "door/e2b/filesystem.h"

#include <errno.h>
#include <string.h>

#include "wire/connect.h"

#define BODY_MAX  (64u * 1024)
#define WHOLE_MAX (256u * 1024) /* a longer list is sent in chunks */

/* ---- the request ---- */

static const json_t *filesystem_member(const json_t *in, const char *name, const char *camel)
{
    const json_t *v = json_object_get(in, name);

    if (!v && camel)
        v = json_object_get(in, camel);
    return json_is_null(v) ? NULL : v;
}

static err *filesystem_wrong(const char *name, const char *what)
{
    return err_new(ERR_INVALID_REQUEST, "%s: is not %s", name, what);
}

err *fs_text(const json_t *in, const char *name, const char *camel, const char **ret_text)
{
    const json_t *v = filesystem_member(in, name, camel);

    if (v && !json_is_string(v))
        return filesystem_wrong(name, "a text");
    *ret_text = v ? json_string_value(v) : "";
    return NULL;
}

err *fs_number(const json_t *in, const char *name, uint32_t *ret_number)
{
    const json_t *v = filesystem_member(in, name, NULL);
    uint64_t n = 0;

    if (json_is_string(v)) { /* JSON of a protobuf may write numbers as strings */
        if (!str_to_u64(json_string_value(v), UINT32_MAX, &n))
            return filesystem_wrong(name, "a number of 32 bits");
    } else if (v) {
        double d = json_number_value(v);
        if (!json_is_number(v) || d < 0 || d > UINT32_MAX || d != (double)(uint64_t)d)
            return filesystem_wrong(name, "a number of 32 bits");
        n = (uint64_t)d;
    }
    *ret_number = (uint32_t)n;
    return NULL;
}

err *fs_flag(const json_t *in, const char *name, const char *camel, bool *ret_flag)
{
    const json_t *v = filesystem_member(in, name, camel);

    if (v && !json_is_boolean(v))
        return filesystem_wrong(name, "true or false");
    *ret_flag = json_is_true(v);
    return NULL;
}

err *fs_check_path(const char *path, const char **ret_path)
{
    if (path[0] == '~' && path[1] && path[1] != '/')
        return err_remedy(
            err_new(ERR_INVALID_REQUEST, "path '%s': cannot expand user-specific home dir", path),
            "Write the directory itself; '~' alone is the user's own.");
    if (strlen(path) > KIT_PATH_MAX)
        return err_new(ERR_INVALID_REQUEST, "the path has more than %u bytes", KIT_PATH_MAX);
    *ret_path = *path ? path : "~";
    return NULL;
}

bool fs_is_brief(const request *rq)
{
    const char *agent = request_header(rq, "User-Agent");

    return agent && str_starts(agent, "connect-python");
}

err *fs_place(envd_call *c, request *rq, file_place *ret_place)
{
    if (engine_files_cap(c->door->o.engine) != CAP_NATIVE)
        return e2b_missing(MISSING_FILESYSTEM, "files: this node has no kit to send inside");
    (void)rq;
    *ret_place = (file_place){c->door->o.engine, c->as, c->sb, c->user};
    return NULL;
}

/* ---- answers ---- */

typedef struct fs_job { /* file_job.own */
    bool brief;
    fs_entry now;
    buf body; /* of a list: the answer so far */
    uint64_t count;
} fs_job;

static void fs_done(void *own)
{
    fs_job *j = own;

    if (!j)
        return;
    fs_entry_done(&j->now);
    buf_done(&j->body);
    free(j);
}

static enum file_go filesystem_answer(file_job *f, relay_io *io, const buf *body)
{
    http_head_write(io->out, &(http_head){.status = 200,
                                          .type = "application/json",
                                          .length = (int64_t)body->len,
                                          .keep_alive = io->keep_alive,
                                          .request_id = f->request_id});
    buf_append(io->out, body->p, body->len);
    return FILE_DONE;
}

static err *in_words(const file_job *f, err *e, const char *format)
{
    err *told = err_sys(ERR_INVALID_REQUEST, e->errnum, format, file_path(f));

    err_free(e);
    return told;
}

int fs_errno(const err *e)
{
    return str_eq(e->kind, "path") ? e->errnum : 0;
}

err *fs_refused(file_job *f, relay_io *io, err *e)
{
    enum kit_verb verb = f->rq.verb;
    bool directory = verb == KIT_LIST || verb == KIT_WATCH;
    int errnum = fs_errno(e);

    (void)io;
    if (errnum == ENOTDIR && directory)
        return in_words(f, e, "path is not a directory: %s");
    if (errnum == ENOTDIR && verb == KIT_MKDIR)
        return in_words(f, e, "path already exists but it is not a directory: %s");
    if (errnum && f->at) { /* the same error, with the whole path */
        err_free(e);
        e = kit_error(verb, errnum, verb == KIT_MOVE ? f->rq.path : f->at);
    }
    return e2b_user_error(e);
}

/* Handles a failed removal. A path that does not exist counts as removed. */
static err *remove_refused(file_job *f, relay_io *io, err *e)
{
    static const buf NOTHING = {.p = (char *)"{}", .len = 2};

    if (fs_errno(e) != ENOENT)
        return fs_refused(f, io, e);
    err_free(e);
    filesystem_answer(f, io, &NOTHING);
    return NULL;
}

static enum file_go one_record(file_job *f, relay_io *io, const kit_record *r)
{
    fs_job *j = f->own;

    (void)io;
    fs_entry_take(&j->now, r);
    return FILE_ON;
}

static enum file_go one_over(file_job *f, relay_io *io, const kit_record *end)
{
    CLEANUP(buf_done) buf body = {0};
    fs_job *j = f->own;

    (void)end;
    buf_char(&body, '{');
    if (j->now.is) {
        buf_str(&body, "\"entry\":");
        fs_entry_write(&body, &j->now, file_path(f), j->brief);
    }
    buf_char(&body, '}');
    return filesystem_answer(f, io, &body);
}

static const file_form ONE = {
    .record = one_record, .over = one_over, .refused = fs_refused, .done = fs_done};
static const file_form REMOVE = {
    .record = one_record, .over = one_over, .refused = remove_refused, .done = fs_done};

/* ---- list ---- */

/* Appends the current entry to the list, once all its records have come. */
static void put_entry(file_job *f)
{
    fs_job *j = f->own;

    if (!j->now.is)
        return;
    CLEANUP(freep) char *path = fs_join(file_path(f), j->now.name, strlen(j->now.name));
    buf_str(&j->body, j->count++ ? "," : "{\"entries\":[");
    fs_entry_write(&j->body, &j->now, path, j->brief);
    fs_entry_done(&j->now);
}

static void send_piece(file_job *f, relay_io *io)
{
    fs_job *j = f->own;

    if (!f->head_sent)
        http_head_write(io->out, &(http_head){.status = 200,
                                              .type = "application/json",
                                              .length = -1,
                                              .chunked = io->http11,
                                              .keep_alive = io->keep_alive && io->http11,
                                              .request_id = f->request_id});
    f->head_sent = f->stream = true;
    stream_put(io, j->body.p, j->body.len);
    buf_clear(&j->body);
}

/* Takes one record of a list. Paths below the directory that cannot be read are left out. */
static enum file_go list_record(file_job *f, relay_io *io, const kit_record *r)
{
    fs_job *j = f->own;

    if (r->type == KIT_ENTRY)
        put_entry(f);
    fs_entry_take(&j->now, r);
    if (j->body.len >= (f->head_sent ? WHOLE_MAX / 8 : WHOLE_MAX))
        send_piece(f, io);
    return FILE_ON;
}

static enum file_go list_over(file_job *f, relay_io *io, const kit_record *end)
{
    fs_job *j = f->own;

    (void)end;
    put_entry(f);
    buf_str(&j->body, j->count ? "]}" : "{\"entries\":[]}");
    if (!f->head_sent)
        return filesystem_answer(f, io, &j->body);
    send_piece(f, io);
    stream_put(io, NULL, 0);
    return FILE_DONE;
}

static const file_form LIST = {
    .record = list_record, .over = list_over, .refused = fs_refused, .done = fs_done};

/* ---- calls ---- */

static err *filesystem_start(envd_call *c, request *rq, response *rs, const file_form *form,
                             const kit_request *q)
{
    file_place place;
    file_job *f = NULL;

    TRY(fs_place(c, rq, &place));
    TRY(file_start(rq, rs, &place, form, q, &f));
    fs_job *j = xcalloc(1, sizeof *j);
    j->brief = fs_is_brief(rq);
    f->own = j;
    return NULL;
}

static err *path_of(const json_t *in, const char *name, const char **ret_path)
{
    const char *text = "";

    TRY(fs_text(in, name, NULL, &text));
    return fs_check_path(text, ret_path);
}

static err *fs_stat(envd_call *c, request *rq, response *rs, const json_t *in)
{
    kit_request q = {.verb = KIT_STAT, .flags = FS_FLAGS};

    TRY(path_of(in, "path", &q.path));
    return filesystem_start(c, rq, rs, &ONE, &q);
}

static err *fs_make_dir(envd_call *c, request *rq, response *rs, const json_t *in)
{
    kit_request q = {.verb = KIT_MKDIR,
                     .mode = KIT_MODE_NONE,
                     .flags = FS_FLAGS | KIT_F_PARENTS | KIT_F_NEW | KIT_F_DIRECTORY};

    TRY(path_of(in, "path", &q.path));
    return filesystem_start(c, rq, rs, &ONE, &q);
}

static err *fs_move(envd_call *c, request *rq, response *rs, const json_t *in)
{
    kit_request q = {.verb = KIT_MOVE, .flags = FS_FLAGS | KIT_F_PARENTS};

    TRY(path_of(in, "source", &q.path));
    TRY(path_of(in, "destination", &q.to));
    return filesystem_start(c, rq, rs, &ONE, &q);
}

static err *fs_remove(envd_call *c, request *rq, response *rs, const json_t *in)
{
    kit_request q = {.verb = KIT_REMOVE, .flags = KIT_F_HOME | KIT_F_RECURSIVE};

    TRY(path_of(in, "path", &q.path));
    return filesystem_start(c, rq, rs, &REMOVE, &q);
}

static err *fs_list_dir(envd_call *c, request *rq, response *rs, const json_t *in)
{
    kit_request q = {.verb = KIT_LIST, .flags = FS_FLAGS, .max = UINT64_MAX};

    TRY(path_of(in, "path", &q.path));
    TRY(fs_number(in, "depth", &q.depth));
    q.depth = q.depth ? q.depth : 1;
    return filesystem_start(c, rq, rs, &LIST, &q);
}

static const struct method {
    const char *name;
    err *(*serve)(envd_call *c, request *rq, response *rs, const json_t *in);
    bool stream;
} METHODS[] = {
    {"Stat", fs_stat, false},
    {"ListDir", fs_list_dir, false},
    {"MakeDir", fs_make_dir, false},
    {"Move", fs_move, false},
    {"Remove", fs_remove, false},
    {"WatchDir", fs_watch_dir, true},
    {"CreateWatcher", fs_create_watcher, false},
    {"GetWatcherEvents", fs_watcher_events, false},
    {"RemoveWatcher", fs_remove_watcher, false},
};

static const struct method *method_of(const char *path)
{
    const char *name = strrchr(path, '/') + 1;

    for (size_t i = 0; i < ARRAY_LEN(METHODS); i++)
        if (str_eq(METHODS[i].name, name))
            return &METHODS[i];
    return NULL;
}

err *filesystem_rpc(envd_call *c, request *rq, response *rs)
{
    const struct method *m = method_of(request_path(rq));
    CLEANUP(buf_done) buf body = {0};
    CLEANUP(json_decrefp) json_t *in = NULL;

    if (!m)
        return e2b_missing(MISSING_FILESYSTEM, "there is no %s", request_path(rq));
    if (!str_eq(request_method(rq), "POST"))
        return err_new(ERR_METHOD_NOT_ALLOWED, "%s is called by POST", request_path(rq));
    TRY(request_body(rq, BODY_MAX, &body));
    const char *text = body.p;
    size_t n = body.len;
    if (m->stream)
        TRY(connect_single(body.p, body.len, &text, &n));
    TRY(json_parse(n ? text : "{}", n ? n : 2, &in));
    if (!json_is_object(in))
        return err_new(ERR_INVALID_REQUEST, "the message is not an object");
    return m->serve(c, rq, rs, in);
}

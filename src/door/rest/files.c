/* …/files: the handlers, and single answers. */
#include "door/rest/files.h"

#include <string.h>

#include "api/openapi.h"

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

/* ---- the job ---- */

void rest_files_done(void *own)
{
    rest_files *v = own;

    if (!v)
        return;
    json_decref(v->entry);
    buf_done(&v->body);
    free(v->last);
    free(v);
}

/* Starts the verb. ret_job (or NULL) lets the handler set more members. */
static err *files_start(request *rq, response *rs, const file_form *form, const kit_request *q,
                        const char *user, file_job **ret_job)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    file_job *f = NULL;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    const file_place place = {rest_engine(rq), rest_caller(rq), sb, user};
    TRY(file_start(rq, rs, &place, form, q, &f));
    f->own = xcalloc(1, sizeof(rest_files));
    if (ret_job)
        *ret_job = f;
    return NULL;
}

/* ---- single answers ---- */

static enum file_go once_record(file_job *f, relay_io *io, const kit_record *r)
{
    const char *name = file_path(f);
    rest_files *v = f->own;

    (void)io;
    if (r->type == KIT_ENTRY && !v->entry)
        v->entry = view_file(r, name, strlen(name));
    return FILE_ON;
}

static enum file_go once_over(file_job *f, relay_io *io, const kit_record *end)
{
    rest_files *v = f->own;

    if (!v->entry && f->rq.verb == KIT_REMOVE)
        v->entry = json_pack("{s:I}", "removed", (json_int_t)end->end.entries);
    if (!v->entry)
        v->entry = json_object();
    http_json_answer(io->out, 200, v->entry, io->keep_alive, f->request_id, NULL);
    return FILE_DONE;
}

static const file_form ONCE = {.record = once_record, .over = once_over, .done = rest_files_done};

err *rest_file_stat(request *rq, response *rs)
{
    CLEANUP(file_stat_query_done) file_stat_query q = {0};

    TRY(file_stat_query_decode(query_find, rq, &q));
    return files_start(
        rq, rs, &ONCE,
        &(kit_request){.verb = KIT_STAT, .path = q.path, .flags = q.follow ? KIT_F_FOLLOW : 0},
        q.user, NULL);
}

static uint32_t mode_of(bool has, uint32_t mode)
{
    return has ? mode : KIT_MODE_NONE;
}

err *rest_file_mkdir(request *rq, response *rs)
{
    CLEANUP(file_mkdir_query_done) file_mkdir_query q = {0};

    TRY(file_mkdir_query_decode(query_find, rq, &q));
    return files_start(
        rq, rs, &ONCE,
        &(kit_request){.verb = KIT_MKDIR,
                       .path = q.path,
                       .mode = mode_of(q.has_mode, q.mode),
                       .flags = (q.parents ? KIT_F_PARENTS : 0) | (q.new ? KIT_F_NEW : 0)},
        q.user, NULL);
}

err *rest_file_move(request *rq, response *rs)
{
    CLEANUP(file_move_query_done) file_move_query q = {0};

    TRY(file_move_query_decode(query_find, rq, &q));
    return files_start(
        rq, rs, &ONCE,
        &(kit_request){.verb = KIT_MOVE,
                       .path = q.path,
                       .to = q.to,
                       .flags = (q.mkdir ? KIT_F_PARENTS : 0) | (q.new ? KIT_F_NEW : 0)},
        q.user, NULL);
}

err *rest_file_remove(request *rq, response *rs)
{
    CLEANUP(file_remove_query_done) file_remove_query q = {0};

    TRY(file_remove_query_decode(query_find, rq, &q));
    return files_start(rq, rs, &ONCE,
                       &(kit_request){.verb = KIT_REMOVE,
                                      .path = q.path,
                                      .flags = q.recursive ? KIT_F_RECURSIVE : 0},
                       q.user, NULL);
}

/* ---- write ---- */

/* Sends the body as DATA. If the kit has ended early, the relay answers, and
 * the rest of the body is not read. */
static err *send_body(request *rq, kit_call *k)
{
    CLEANUP(freep) char *chunk = xmalloc(KIT_DATA_MAX);
    CLEANUP(file_sender_done) file_sender s = {.call = k};
    size_t n = 1;

    request_set_kind(rq, STREAM_FILES);
    TRY(file_send_record(&s, &(kit_record){.type = KIT_ENTRY, .entry = {.flags = KIT_E_UNSIZED}}));
    while (n && !kit_call_is_over(k)) {
        TRY(request_body_read(rq, chunk, KIT_DATA_MAX, &n));
        TRY(file_send(&s, chunk, n));
    }
    return file_send_end(&s);
}

err *rest_file_write(request *rq, response *rs)
{
    CLEANUP(file_write_query_done) file_write_query q = {0};
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(kit_call_freep) kit_call *k = NULL;

    TRY(file_write_query_decode(query_find, rq, &q));
    const kit_request what = {.verb = KIT_WRITE,
                              .path = q.path,
                              .mode = mode_of(q.has_mode, q.mode),
                              .flags = (q.mkdir ? KIT_F_PARENTS : 0) | (q.new ? KIT_F_NEW : 0)};
    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(engine_kit(rest_engine(rq), rest_caller(rq), sb, &what, q.user, &k));
    kit_call_wait_by(k, file_wait, rq);
    TRY(send_body(rq, k));
    file_job *f = file_relay(rq, rs, &ONCE, &what, TAKE_PTR(k));
    f->own = xcalloc(1, sizeof(rest_files));
    return NULL;
}

/* ---- read ---- */

/* Returns the header line with the file's metadata. */
static char *read_lines(const file_job *f, const kit_record *r)
{
    CLEANUP(json_decrefp) json_t *o = view_file(r, "", 0);
    CLEANUP(buf_done) buf text = {0};

    (void)f;
    json_object_del(o, "name");
    json_object_del(o, "target");
    json_write(&text, o);
    return str_printf("Bothy-File: %s\r\n", buf_cstr(&text));
}

static const file_form READ = {.record = file_read_record,
                               .over = file_read_over,
                               .lines = read_lines,
                               .done = rest_files_done};
static const file_form HEAD = {.record = file_head_record,
                               .over = file_head_over,
                               .lines = read_lines,
                               .done = rest_files_done};

err *rest_file_read(request *rq, response *rs)
{
    CLEANUP(file_read_query_done) file_read_query q = {0};
    kit_request what = {.verb = KIT_READ, .length = UINT64_MAX};
    const file_wish wish = file_read_wish(rq, &what);
    file_job *f = NULL;

    TRY(file_read_query_decode(query_find, rq, &q));
    what.path = q.path;
    TRY(files_start(rq, rs, &READ, &what, q.user, &f));
    file_read_begin(f, &wish);
    return NULL;
}

err *rest_file_head(request *rq, response *rs)
{
    CLEANUP(file_head_query_done) file_head_query q = {0};

    TRY(file_head_query_decode(query_find, rq, &q));
    return files_start(rq, rs, &HEAD,
                       &(kit_request){.verb = KIT_STAT, .path = q.path, .flags = KIT_F_FOLLOW},
                       q.user, NULL);
}

/* ---- list, search, watch ---- */

static bool wants_lines(const request *rq)
{
    const char *accept = request_header(rq, "Accept");

    return accept && strstr(accept, "application/x-ndjson");
}

err *rest_file_list(request *rq, response *rs)
{
    CLEANUP(file_list_query_done) file_list_query q = {0};
    CLEANUP(freep) void *after = NULL;
    CLEANUP(freep) char *to = NULL;
    file_job *f = NULL;
    size_t n = 0;
    bool lines = wants_lines(rq);

    TRY(file_list_query_decode(query_find, rq, &q));
    if (q.cursor &&
        (!base64_decode(q.cursor, strlen(q.cursor), &after, &n) || !kit_name_valid(after, n)))
        return err_new(ERR_INVALID_REQUEST, "cursor: is not one of ours");
    to = xstrndup(n ? after : "", n);
    TRY(files_start(rq, rs, &FILE_LIST,
                    &(kit_request){.verb = KIT_LIST,
                                   .path = q.path,
                                   .to = to,
                                   .depth = (uint32_t)q.depth,
                                   .max = lines ? UINT64_MAX : (uint64_t)q.limit},
                    q.user, &f));
    f->stream = lines;
    return NULL;
}

err *rest_file_search(request *rq, response *rs)
{
    CLEANUP(file_search_query_done) file_search_query q = {0};
    file_job *f = NULL;

    TRY(file_search_query_decode(query_find, rq, &q));
    if (!str_or(q.name, "")[0] && !str_or(q.text, "")[0])
        return err_new(ERR_INVALID_REQUEST, "name, text: one of them is needed");
    TRY(files_start(rq, rs, &FILE_SEARCH,
                    &(kit_request){.verb = KIT_SEARCH,
                                   .path = q.path,
                                   .to = q.name,
                                   .text = q.text,
                                   .depth = (uint32_t)q.depth,
                                   .max = (uint64_t)q.limit,
                                   .flags = q.caseless ? KIT_F_CASELESS : 0},
                    q.user, &f));
    f->stream = wants_lines(rq);
    return NULL;
}

err *rest_file_watch(request *rq, response *rs)
{
    CLEANUP(file_watch_query_done) file_watch_query q = {0};
    file_job *f = NULL;

    TRY(file_watch_query_decode(query_find, rq, &q));
    TRY(files_start(rq, rs, &FILE_WATCH,
                    &(kit_request){.verb = KIT_WATCH,
                                   .path = q.path,
                                   .flags = q.recursive ? KIT_F_RECURSIVE : 0},
                    q.user, &f));
    f->stream = true;
    ((rest_files *)f->own)->resumed = request_header(rq, "Last-Event-ID") != NULL;
    return NULL;
}

/* …/files: handlers, and answers that come once. */
#include "door/rest/files.h"

#include <string.h>

#include "api/openapi.h"

#define STEP_BYTES   (64 * 1024)
#define BATCH        (192 * 1024) /* of an upload, given to the kit at once */
#define STEP_RECORDS 512          /* what is said inside may go on for ever and become nothing */

static const char *query_find(void *arg, const char *name)
{
    return request_query(arg, name);
}

/* ---- the job ---- */

static void on_bytes(void *arg)
{
    relay_wake(arg);
}

static void on_start(void *ctx, relay_job *job)
{
    file_job *f = ctx;

    f->job = job;
    kit_call_watch(f->call, on_bytes, job);
}

static void on_free(void *ctx)
{
    file_job *f = ctx;

    kit_call_free(f->call);
    sandbox_unref(f->sb);
    json_decref(f->entry);
    buf_done(&f->body);
    char *strings[] = {(char *)f->rq.path, (char *)f->rq.to, (char *)f->rq.text, f->user,
                       f->request_id,      f->if_range,      f->if_none_match,   f->last,
                       f->who.owner};
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        free(strings[i]);
    free(f);
}

static enum relay_next finish(const file_job *f, const relay_io *io, enum file_go go)
{
    if (go == FILE_CUT)
        return RELAY_CLOSE;
    return (f->stream ? io->keep_alive && io->http11 : io->keep_alive) ? RELAY_DONE : RELAY_CLOSE;
}

static enum relay_next fail(file_job *f, relay_io *io, err *failure)
{
    CLEANUP(err_freep) err *e = failure;

    if (f->head_sent)
        return finish(f, io, f->form->failed ? f->form->failed(f, io, e) : FILE_CUT);
    /* What hindered a removal says more than that something is left. */
    if (f->errnum && e->code == ERR_CONFLICT) {
        err_free(e);
        e = kit_error(f->rq.verb, f->errnum, f->rq.path);
    }
    http_error_answer(io->out, e, io->keep_alive, f->request_id);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static enum relay_next on_step(void *ctx, relay_io *io)
{
    file_job *f = ctx;

    if (io->stalled)
        return RELAY_CLOSE;
    for (unsigned n = 0; n < STEP_RECORDS && io->out->len < STEP_BYTES; n++) {
        if (!f->has_pending) {
            err *e = kit_call_next(f->call, io->now, &f->pending_is, &f->pending);
            if (e)
                return fail(f, io, e);
        }
        if (f->pending_is == KIT_WAIT) {
            io->wake_at = kit_call_deadline(f->call);
            if (f->form->idle)
                f->form->idle(f, io);
            return RELAY_WAIT;
        }
        f->has_pending = true;
        enum file_go go = f->pending_is == KIT_OVER ? f->form->over(f, io, &f->pending)
                                                    : f->form->record(f, io, &f->pending);
        if (go == FILE_AGAIN)
            return RELAY_MORE;
        if (go != FILE_ON)
            return finish(f, io, go);
        f->has_pending = false;
    }
    return RELAY_MORE;
}

static const relay_ops FILE_OPS = {
    .kind = STREAM_FILES, .start = on_start, .step = on_step, .free = on_free};

static char *copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static file_job *job_new(request *rq, const file_form *form, const kit_request *q)
{
    file_job *f = xcalloc(1, sizeof *f);

    f->form = form;
    f->rq = *q;
    f->rq.path = copy(q->path);
    f->rq.to = copy(q->to);
    f->rq.text = copy(q->text);
    f->request_id = xstrdup(request_id(rq));
    return f;
}

void file_relay(request *rq, response *rs, const file_form *form, const kit_request *q,
                kit_call *call)
{
    file_job *f = job_new(rq, form, q);

    f->call = call;
    response_relay(rs, &FILE_OPS, f);
}

err *file_start(request *rq, response *rs, const file_form *form, const kit_request *q,
                const char *user, file_job **ret_job)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    kit_call *call = NULL;

    TRY(engine_find(rest_engine(rq), rest_caller(rq), request_param(rq, 0), &sb));
    TRY(engine_kit(rest_engine(rq), rest_caller(rq), sb, q, user, &call));
    file_job *f = job_new(rq, form, q);
    f->call = call;
    if (ret_job) { /* for forms that begin again */
        f->engine = rest_engine(rq);
        f->sb = TAKE_PTR(sb);
        f->who = (caller){.owner = xstrdup(rest_caller(rq)->owner), .role = rest_caller(rq)->role};
        f->user = copy(user);
        *ret_job = f;
    }
    response_relay(rs, &FILE_OPS, f);
    return NULL;
}

/* ---- answers that come once ---- */

static enum file_go once_record(file_job *f, relay_io *io, const kit_record *r)
{
    const char *name = f->rq.verb == KIT_MOVE ? f->rq.to : f->rq.path;

    (void)io;
    if (r->type == KIT_ENTRY && !f->entry)
        f->entry = view_file(r, name, strlen(name));
    if (r->type == KIT_ERROR && !f->errnum)
        f->errnum = r->error.errnum;
    return FILE_ON;
}

static enum file_go once_over(file_job *f, relay_io *io, const kit_record *end)
{
    if (!f->entry && f->rq.verb == KIT_REMOVE)
        f->entry = json_pack("{s:I}", "removed", (json_int_t)end->end.entries);
    if (!f->entry)
        f->entry = json_object();
    http_json_answer(io->out, 200, f->entry, io->keep_alive, f->request_id, NULL);
    return FILE_DONE;
}

static const file_form ONCE = {.record = once_record, .over = once_over};

err *rest_file_stat(request *rq, response *rs)
{
    CLEANUP(file_stat_query_done) file_stat_query q = {0};

    TRY(file_stat_query_decode(query_find, rq, &q));
    return file_start(
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
    return file_start(
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
    return file_start(
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
    return file_start(rq, rs, &ONCE,
                      &(kit_request){.verb = KIT_REMOVE,
                                     .path = q.path,
                                     .flags = q.recursive ? KIT_F_RECURSIVE : 0},
                      q.user, NULL);
}

/* ---- write ---- */

err *file_wait(void *rq, int fd, int ms)
{
    return request_wait(rq, fd, ms);
}

/* The body as DATA. A kit that has ended early is answered for by the relay; the rest of the body
 * is nobody's. */
static err *send_body(request *rq, kit_call *k)
{
    CLEANUP(freep) char *chunk = xmalloc(KIT_DATA_MAX);
    CLEANUP(buf_done) buf batch = {0};
    kit_record r = {.type = KIT_ENTRY, .entry = {.flags = KIT_E_UNSIZED}};

    request_set_kind(rq, STREAM_FILES);
    kit_call_add(k, &r, &batch);
    for (uint64_t at = 0; !kit_call_is_over(k); at += r.bytes_len) {
        r = (kit_record){.type = KIT_DATA, .offset = at, .bytes = chunk};
        TRY(request_body_read(rq, chunk, KIT_DATA_MAX, &r.bytes_len));
        if (!r.bytes_len)
            break;
        kit_call_add(k, &r, &batch);
        if (batch.len < BATCH)
            continue;
        TRY(kit_call_send_bytes(k, batch.p, batch.len, false));
        buf_clear(&batch);
    }
    kit_call_add(k, &(kit_record){.type = KIT_END}, &batch);
    return kit_call_send_bytes(k, batch.p, batch.len, true);
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
    file_relay(rq, rs, &ONCE, &what, TAKE_PTR(k));
    return NULL;
}

/* ---- read ---- */

/* "bytes=FROM-TO", "bytes=FROM-", "bytes=-LAST"; anything else is answered with the whole. */
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

static const char *range_of(const request *rq)
{
    const char *range = request_header(rq, "Range");

    return range && str_starts(range, "bytes=") ? range : NULL;
}

err *rest_file_read(request *rq, response *rs)
{
    CLEANUP(file_read_query_done) file_read_query q = {0};
    kit_request what = {.verb = KIT_READ, .length = UINT64_MAX};
    const char *range = range_of(rq);
    file_job *f = NULL;

    TRY(file_read_query_decode(query_find, rq, &q));
    what.path = q.path;
    bool ranged = range && parse_range(range, &what);
    TRY(file_start(rq, rs, &FILE_READ, &what, q.user, &f));
    f->ranged = ranged;
    f->if_range = copy(request_header(rq, "If-Range"));
    f->if_none_match = copy(request_header(rq, "If-None-Match"));
    return NULL;
}

err *rest_file_head(request *rq, response *rs)
{
    CLEANUP(file_head_query_done) file_head_query q = {0};

    TRY(file_head_query_decode(query_find, rq, &q));
    return file_start(rq, rs, &FILE_HEAD,
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
    TRY(file_start(rq, rs, &FILE_LIST,
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
    TRY(file_start(rq, rs, &FILE_SEARCH,
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
    TRY(file_start(rq, rs, &FILE_WATCH,
                   &(kit_request){.verb = KIT_WATCH,
                                  .path = q.path,
                                  .flags = q.recursive ? KIT_F_RECURSIVE : 0},
                   q.user, &f));
    f->stream = true;
    f->resumed = request_header(rq, "Last-Event-ID") != NULL;
    return NULL;
}

/* The relay job of file verbs, and uploads. */
#include "door/shared/files.h"

#include <string.h>

#include "base/log.h"
#include "base/str.h"

#define STEP_BYTES   (64 * 1024)
#define BATCH        (192 * 1024) /* bytes of an upload that are given to the kit at once */
#define STEP_RECORDS 512 /* limit of a step: records may come without end and produce no output */

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
    if (f->form->done)
        f->form->done(f->own);
    char *strings[] = {(char *)f->rq.path, (char *)f->rq.to, (char *)f->rq.text, f->user,
                       f->request_id,      f->if_range,      f->if_none_match,   f->at,
                       f->who.owner};
    for (size_t i = 0; i < ARRAY_LEN(strings); i++)
        free(strings[i]);
    free(f);
}

static enum relay_next files_finish(const file_job *f, const relay_io *io, enum file_go go)
{
    if (go == FILE_CUT)
        return RELAY_CLOSE;
    return (f->stream ? io->keep_alive && io->http11 : io->keep_alive) ? RELAY_DONE : RELAY_CLOSE;
}

static enum relay_next files_fail(file_job *f, relay_io *io, err *failure)
{
    CLEANUP(err_freep) err *e = failure;

    if (f->head_sent) {
        /* The peer sees only a closed connection, so the reason is logged. */
        log_warn("files", "request %s is cut: %s%s%s", f->request_id, e->message,
                 e->cause ? ": " : "", str_or(e->cause, ""));
        return files_finish(f, io, f->form->failed ? f->form->failed(f, io, e) : FILE_CUT);
    }
    /* If a removal was incomplete, the error of the first entry says more than the conflict. */
    if (f->errnum && e->code == ERR_CONFLICT) {
        err_free(e);
        e = kit_error(f->rq.verb, f->errnum, f->rq.path);
    }
    if (f->form->refused)
        e = f->form->refused(f, io, e);
    if (e)
        http_error_answer_as(io->out, f->errors, e, io->keep_alive, f->request_id);
    return io->keep_alive ? RELAY_DONE : RELAY_CLOSE;
}

static void keep_path(file_job *f, const kit_record *r)
{
    free(f->at);
    f->at = xstrndup(r->bytes, r->bytes_len);
}

static enum file_go take_record(file_job *f, relay_io *io)
{
    if (f->pending_is == KIT_OVER)
        return f->form->over(f, io, &f->pending);
    if (f->pending.type == KIT_AT)
        keep_path(f, &f->pending);
    if (f->pending.type == KIT_ERROR && !f->errnum)
        f->errnum = f->pending.error.errnum;
    return f->form->record(f, io, &f->pending);
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
                return files_fail(f, io, e);
        }
        if (f->pending_is == KIT_WAIT) {
            io->wake_at = kit_call_deadline(f->call);
            if (f->form->idle)
                f->form->idle(f, io);
            return RELAY_WAIT;
        }
        f->has_pending = true;
        enum file_go go = take_record(f, io);
        if (go == FILE_AGAIN)
            return RELAY_MORE;
        if (go != FILE_ON)
            return files_finish(f, io, go);
        f->has_pending = false;
    }
    return RELAY_MORE;
}

static const relay_ops FILE_OPS = {
    .kind = STREAM_FILES, .start = on_start, .step = on_step, .free = on_free};

static char *files_copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

file_job *file_relay(request *rq, response *rs, const file_form *form, const kit_request *q,
                     kit_call *call)
{
    file_job *f = xcalloc(1, sizeof *f);

    f->form = form;
    f->errors = response_form(rs);
    f->rq = *q;
    f->rq.path = files_copy(q->path);
    f->rq.to = files_copy(q->to);
    f->rq.text = files_copy(q->text);
    f->request_id = xstrdup(request_id(rq));
    f->call = call;
    response_relay(rs, &FILE_OPS, f);
    return f;
}

err *file_start(request *rq, response *rs, const file_place *place, const file_form *form,
                const kit_request *q, file_job **ret_job)
{
    kit_call *call = NULL;

    TRY(engine_kit(place->engine, place->who, place->sb, q, place->user, &call));
    file_job *f = file_relay(rq, rs, form, q, call);
    if (ret_job) {
        f->engine = place->engine;
        f->sb = sandbox_ref(place->sb);
        f->who = (caller){.owner = xstrdup(place->who->owner), .role = place->who->role};
        f->user = files_copy(place->user);
        *ret_job = f;
    }
    return NULL;
}

const char *file_path(const file_job *f)
{
    return f->at ? f->at : f->rq.verb == KIT_MOVE ? f->rq.to : f->rq.path;
}

/* ---- uploads ---- */

err *file_wait(void *rq, int fd, int ms)
{
    return request_wait(rq, fd, ms);
}

static err *files_flush(file_sender *s, bool last)
{
    if (!last && s->batch.len < BATCH)
        return NULL;
    TRY(kit_call_send_bytes(s->call, s->batch.p, s->batch.len, last));
    buf_clear(&s->batch);
    return NULL;
}

err *file_send_record(file_sender *s, const kit_record *r)
{
    if (r->type == KIT_ENTRY)
        s->at = 0;
    kit_call_add(s->call, r, &s->batch);
    return files_flush(s, false);
}

err *file_send(file_sender *s, const void *p, size_t n)
{
    for (size_t done = 0; done < n && !kit_call_is_over(s->call);) {
        kit_record r = {.type = KIT_DATA, .offset = s->at, .bytes = (const char *)p + done};
        r.bytes_len = n - done < KIT_DATA_MAX ? n - done : KIT_DATA_MAX;
        kit_call_add(s->call, &r, &s->batch);
        s->at += r.bytes_len;
        done += r.bytes_len;
        TRY(files_flush(s, false));
    }
    return NULL;
}

err *file_send_end(file_sender *s)
{
    kit_call_add(s->call, &(kit_record){.type = KIT_END}, &s->batch);
    return files_flush(s, true);
}

void file_sender_done(file_sender *s)
{
    buf_done(&s->batch);
}

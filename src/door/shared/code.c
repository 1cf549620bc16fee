#include "door/shared/code.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"

#define MEMORY   (UINT64_C(256) << 20)
#define PIDS     50u
#define ROOM     (UINT64_C(64) << 20)
#define NOBODY   "65534:65534"
#define LATE     "Execution timed out\n"
#define SPARE_MS 60000 /* added to the snippet's time: for the create, and in case bothyd dies */

struct code_run {
    engine *engine;
    caller who;
    char *language;
    char *text; /* may hold secrets */
    uint64_t timeout_ms;
    making *making;
    making_waiter waiter;
    sandbox *sb;
    exec *x;
    exec_watch watch;
    exec_state st;
};

/* ---- start ---- */

/* Returns the sandbox's ttl. Where the key's limit allows less than the spare time, that is cut. A
 * limit below the snippet's own time makes the create fail with an error that says so. */
static uint64_t ttl_of(const engine *e, const caller *c, uint64_t timeout_ms)
{
    uint64_t ttl = engine_ttl_within(e, c, timeout_ms + SPARE_MS);

    return ttl > timeout_ms ? ttl : timeout_ms;
}

static void fill_spec(const engine *e, const caller *c, const code_snippet *s, sandbox_spec *spec)
{
    *spec = (sandbox_spec){.image = xstrdup(s->image),
                           .read_only = true,
                           .has_network = true,
                           .network = NETWORK_NONE,
                           .no_start = true,
                           .ttl_ms = ttl_of(e, c, s->timeout_ms),
                           .limits = {.memory = MEMORY, .pids = PIDS},
                           .tmpfs = xcalloc(1, sizeof(tmpfs_spec)),
                           .ntmpfs = 1};
    spec->tmpfs[0] =
        (tmpfs_spec){.path = xstrdup("/sandbox"), .size = ROOM, .mode = 01777, .exec = true};
    strv_push(&spec->labels, xstrdup("code-run=1"));
}

err *code_run_new(engine *e, const caller *c, const code_snippet *s, code_run **ret_run)
{
    CLEANUP(sandbox_spec_done) sandbox_spec spec = {0};

    if (!*s->image)
        return err_remedy(err_new(ERR_UNSUPPORTED, "this node has no image for code_run"),
                          "Have an administrator make one with tools/code-images, and name it as "
                          "code.image.");
    if (strlen(s->text) > CODE_MAX)
        return err_new(ERR_TOO_LARGE, "code: more than 1 MiB");
    fill_spec(e, c, s, &spec);
    code_run *r = xcalloc(1, sizeof *r);
    r->engine = e;
    r->who = *c;
    r->who.owner = xstrdup(c->owner);
    r->language = xstrdup(s->language);
    r->text = xstrdup(s->text);
    r->timeout_ms = s->timeout_ms;
    r->making = making_new(e, c, &spec, NULL);
    *ret_run = r;
    return NULL;
}

void code_run_attach(code_run *r, relay_job *job)
{
    r->waiter.job = job;
    making_wait(r->making, &r->waiter);
}

static void on_news(void *arg)
{
    relay_wake(arg);
}

static err *code_begin(code_run *r)
{
    CLEANUP(exec_spec_done)
    exec_spec spec = {.user = xstrdup(NOBODY),
                      .cwd = xstrdup("/sandbox"),
                      .stdio = STDIO_PIPES,
                      .stdin_open = true,
                      .timeout_ms = r->timeout_ms,
                      .exec_fd = -1};
    const idempotency none = {0};
    bool replay = false;

    strv_push(&spec.argv, xstrdup("code-run"));
    strv_push(&spec.argv, xstrdup(r->language));
    strv_push(&spec.env, xstrdup("HOME=/sandbox"));
    TRY(engine_exec(r->engine, &r->who, r->sb, &spec, &none, &r->x, &replay));
    r->watch = (exec_watch){.notify = on_news, .arg = r->waiter.job};
    exec_watch_add(r->x, &r->watch);
    return exec_stdin_all(r->x, r->text, strlen(r->text));
}

err *code_run_poll(code_run *r, bool *ret_done)
{
    err *failure = NULL;

    if (!r->sb && !making_look(r->making, &r->sb, &failure))
        return NULL;
    if (failure)
        return failure;
    if (!r->x)
        TRY(code_begin(r));
    exec_get(r->x, &r->st);
    if (r->st.end.how == EXEC_RUNNING)
        return NULL;
    TRY(err_remedy(exec_end_error(&r->st.end),
                   "The image that code.image names has no 'code-run': make one with "
                   "tools/code-images."));
    *ret_done = true;
    return NULL;
}

void code_run_release(code_run *r)
{
    making_drop(r->engine, r->making);
}

void code_run_free(code_run *r)
{
    if (!r)
        return;
    if (r->waiter.job)
        making_unwait(r->making, &r->waiter);
    if (r->watch.notify)
        exec_unwatch(r->x, &r->watch);
    code_run_release(r);
    exec_unref(r->x);
    sandbox_unref(r->sb);
    making_unref(r->making);
    secret_freep(&r->text);
    free(r->language);
    free(r->who.owner);
    free(r);
}

/* ---- after the end ---- */

static int exit_code_of(const exec_end *end)
{
    switch (end->how) {
    case EXEC_EXITED:
        return end->exit_code;
    case EXEC_TIMED_OUT:
        return CODE_TIMED_OUT;
    case EXEC_SIGNALLED:
    case EXEC_KILLED:
        return 128 + end->signal;
    default:
        return CODE_UNKNOWN;
    }
}

code_end code_run_end(const code_run *r)
{
    const exec_end *end = &r->st.end;

    return (code_end){.exit_code = exit_code_of(end),
                      .how = exec_how_name(end->how),
                      .timed_out = end->how == EXEC_TIMED_OUT,
                      .oom = end->oom,
                      .known = end->how != EXEC_UNKNOWN,
                      .seconds = (double)(end->ended_ns - end->started_ns) / (double)NS_PER_S,
                      .length = {end->out_bytes, end->err_bytes}};
}

void code_put_late(buf *errors)
{
    if (errors->len && errors->p[errors->len - 1] != '\n')
        buf_char(errors, '\n');
    buf_str(errors, LATE);
}

err *code_run_read(code_run *r, int stream, uint64_t offset, void *p, size_t max, size_t *ret_n,
                   uint64_t *ret_gap_to)
{
    return exec_read(r->x, stream, offset, p, max, ret_n, ret_gap_to);
}

/* ---- pulling ahead ---- */

static void on_fetched(void *arg, err *failure, image *got)
{
    (void)arg;
    image_unref(got);
    if (failure)
        log_warn("code_run", "its image is not here: %s%s%s", failure->message,
                 failure->cause ? ": " : "", str_or(failure->cause, ""));
    err_free(failure);
}

void code_fetch_ahead(engine *e, const char *named)
{
    if (*named)
        image_ensure(engine_images(e), named, NULL, PULL_MISSING,
                     &(pull_events){.done = on_fetched});
}

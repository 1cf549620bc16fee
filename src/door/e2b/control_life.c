/* A sandbox's life on the control plane: connect, resume, timeout, pause, kill. */
#include <string.h>

#include "door/e2b/control.h"

#define RESUME_MS  (UINT64_C(300) * 1000) /* time to live after a resume without a timeout */
#define REFRESH_MS (UINT64_C(60) * 1000)

static bool is_paused(sandbox *sb)
{
    enum lifecycle state = sandbox_state(sb);

    return state == LIFE_PAUSED || state == LIFE_HIBERNATED;
}

static err *not_running(const sandbox *sb)
{
    return err_kind(err_new(ERR_NOT_FOUND, "sandbox %s is not running", sandbox_id(sb)), "sandbox");
}

/* Resumes a sandbox with a new time to live. A paused one gets it first: it is measured from the
 * pause and shifts with the resume. */
static err *control_life_wake(const e2b *d, const caller *c, sandbox *sb, const sandbox_patch *p)
{
    resumed ignored;

    if (sandbox_state(sb) == LIFE_HIBERNATED) {
        TRY(engine_wait_awake(sb));
        return engine_update(d->o.engine, c, sb, p);
    }
    TRY(engine_update(d->o.engine, c, sb, p));
    return engine_resume(d->o.engine, c, sb, &ignored);
}

err *e2b_wake(const e2b *d, const caller *c, sandbox *sb)
{
    CLEANUP(e2b_note_done) e2b_note note = {0};

    e2b_note_read(sb, &note);
    uint64_t ttl = note.ttl_ms > RESUME_MS ? note.ttl_ms : RESUME_MS;
    return control_life_wake(
        d, c, sb, &(sandbox_patch){.has_ttl = true, .ttl_ms = ttl, .ttl_only_later = true});
}

err *control_connect(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(json_decrefp) json_t *body = NULL;
    sandbox_patch p = {.has_ttl = true, .ttl_only_later = true};
    e2b *d = e2b_of(rq);

    TRY(control_body(rq, NULL, &body));
    TRY(control_timeout(body, d->o.default_ttl_ms, &p.ttl_ms));
    TRY(control_find(rq, &sb));
    if (!is_paused(sb)) /* extends the time, never shortens it */
        TRY(engine_update(d->o.engine, e2b_caller(rq), sb, &p));
    bool paused = is_paused(sb); /* checked again: a pause may have been under way */
    if (paused)
        TRY(control_life_wake(d, e2b_caller(rq), sb, &p));
    response_json(rs, paused ? 201 : 200, view_made(d, sb));
    return NULL;
}

/* Resumes a paused sandbox: the call that SDKs 2.0 to 2.5 use. */
err *control_resume(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(json_decrefp) json_t *body = NULL;
    sandbox_patch p = {.has_ttl = true};
    e2b *d = e2b_of(rq);

    TRY(control_body(rq, NULL, &body));
    TRY(control_timeout(body, d->o.default_ttl_ms, &p.ttl_ms));
    p.has_ttl_pauses = json_is_boolean(json_object_get(body, "autoPause"));
    p.ttl_pauses = json_flag(body, "autoPause");
    TRY(control_find(rq, &sb));
    if (!is_paused(sb))
        return err_new(ERR_CONFLICT, "sandbox %s is running already", sandbox_id(sb));
    TRY(control_life_wake(d, e2b_caller(rq), sb, &p));
    response_json(rs, 201, view_made(d, sb));
    return NULL;
}

/* Changes the time to live of a running sandbox. A paused one is not found: that tells SDKs 2.0 to
 * 2.5 to resume it. */
static err *control_life_extend(request *rq, response *rs, const sandbox_patch *p)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(control_find(rq, &sb));
    if (is_paused(sb))
        return not_running(sb);
    TRY(engine_update(e2b_engine(rq), e2b_caller(rq), sb, p));
    if (is_paused(sb))
        return not_running(sb);
    response_status(rs, 204);
    return NULL;
}

err *control_set_timeout(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    sandbox_patch p = {.has_ttl = true};

    TRY(control_body(rq, NULL, &body));
    if (!json_is_integer(json_object_get(body, "timeout")))
        return err_new(ERR_INVALID_REQUEST, "timeout: must be a number of seconds");
    TRY(control_timeout(body, 0, &p.ttl_ms));
    return control_life_extend(rq, rs, &p);
}

err *control_refresh(request *rq, response *rs)
{
    CLEANUP(json_decrefp) json_t *body = NULL;
    sandbox_patch p = {.has_ttl = true, .ttl_ms = REFRESH_MS, .ttl_only_later = true};

    TRY(control_body(rq, NULL, &body));
    int64_t s = json_int(body, "duration", REFRESH_MS / 1000);
    if (s < 1 || s > 3600)
        return err_new(ERR_INVALID_REQUEST, "duration: must be 1 to 3600 seconds");
    p.ttl_ms = (uint64_t)s * 1000;
    return control_life_extend(rq, rs, &p);
}

err *control_pause(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    CLEANUP(json_decrefp) json_t *body = NULL;

    TRY(control_body(rq, NULL, &body));
    if (json_is_false(json_object_get(body, "memory")))
        return e2b_missing(MISSING_FIELD, "memory: a pause always keeps the memory");
    TRY(control_find(rq, &sb));
    if (is_paused(sb))
        return err_new(ERR_CONFLICT, "sandbox %s is paused already", sandbox_id(sb));
    TRY(engine_pause(e2b_engine(rq), e2b_caller(rq), sb));
    response_status(rs, 204);
    return NULL;
}

err *control_kill(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    TRY(control_find(rq, &sb));
    TRY(engine_delete(e2b_engine(rq), e2b_caller(rq), sb, CAUSE_REQUESTED, NULL));
    response_status(rs, 204);
    return NULL;
}

err *control_network(request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;

    (void)rs;
    TRY(control_find(rq, &sb));
    return e2b_missing(MISSING_NETWORK, "the network of a sandbox that lives cannot be changed");
}

/* The control plane: its routes, and the check of the caller's key and role. */
#include "door/e2b/control.h"

#include <string.h>

#include "door/e2b/templates.h"
#include "door/shared/admit.h"
#include "door/shared/stream.h"
#include "net/router.h"

static err *not_templates(request *rq, response *rs)
{
    (void)rs;
    return e2b_missing(MISSING_TEMPLATES, "%s of %s is not served", request_method(rq),
                       request_path(rq));
}
static err *not_volumes(request *rq, response *rs)
{
    (void)rs;
    return e2b_missing(MISSING_VOLUMES, "%s: volumes are not served", request_path(rq));
}
static err *not_secrets(request *rq, response *rs)
{
    (void)rs;
    return e2b_missing(MISSING_SECRETS, "%s: secrets are not served", request_path(rq));
}

static const route ROUTES[] = {
    {"POST", "/sandboxes", control_create, ROLE_USER, "e2b_create"},
    {"POST", "/v2/sandboxes", control_create_v2, ROLE_USER, "e2b_create"},
    {"GET", "/sandboxes", control_list, ROLE_READ, "e2b_list"},
    {"GET", "/v2/sandboxes", control_list_v2, ROLE_READ, "e2b_list"},
    {"GET", "/sandboxes/metrics", control_metrics_many, ROLE_READ, "e2b_metrics"},
    {"GET", "/sandboxes/{id}", control_info, ROLE_READ, "e2b_info"},
    {"DELETE", "/sandboxes/{id}", control_kill, ROLE_USER, "e2b_kill"},
    {"POST", "/sandboxes/{id}/connect", control_connect, ROLE_USER, "e2b_connect"},
    {"POST", "/v2/sandboxes/{id}/connect", control_connect, ROLE_USER, "e2b_connect"},
    {"POST", "/sandboxes/{id}/resume", control_resume, ROLE_USER, "e2b_resume"},
    {"POST", "/sandboxes/{id}/timeout", control_set_timeout, ROLE_USER, "e2b_timeout"},
    {"POST", "/sandboxes/{id}/refreshes", control_refresh, ROLE_USER, "e2b_timeout"},
    {"POST", "/sandboxes/{id}/pause", control_pause, ROLE_USER, "e2b_pause"},
    {"GET", "/sandboxes/{id}/metrics", control_metrics, ROLE_READ, "e2b_metrics"},
    {"GET", "/sandboxes/{id}/logs", control_logs, ROLE_READ, "e2b_logs"},
    {"GET", "/v2/sandboxes/{id}/logs", control_logs_v2, ROLE_READ, "e2b_logs"},
    {"PUT", "/sandboxes/{id}/network", control_network, ROLE_USER, "e2b_network"},
    {"POST", "/sandboxes/{id}/snapshots", snapshots_take, ROLE_USER, "e2b_snapshots"},
    {"POST", "/sandboxes/{id}/fork", fork_sandboxes, ROLE_USER, "e2b_fork"},
    {"GET", "/snapshots", snapshots_list, ROLE_READ, "e2b_snapshots"},
    {"POST", "/v3/templates", templates_new, ROLE_USER, "e2b_templates"},
    {"POST", "/v2/templates", templates_new, ROLE_USER, "e2b_templates"},
    {"POST", "/v2/templates/{id}/builds/{build}", templates_start, ROLE_USER, "e2b_templates"},
    {"GET", "/templates/{id}/builds/{build}/status", templates_status, ROLE_READ, "e2b_templates"},
    {"GET", "/templates/{id}/builds/{build}/logs", templates_logs, ROLE_READ, "e2b_templates"},
    {"GET", "/templates/{id}/files/{hash}", templates_link, ROLE_USER, "e2b_templates"},
    {"PUT", "/templates/{id}/files/{hash}", templates_upload, ROLE_ANYONE, "e2b_templates"},
    {"GET", "/templates/aliases/{alias}", templates_alias, ROLE_READ, "e2b_templates"},
    {"POST", "/templates/tags", templates_tag, ROLE_USER, "e2b_templates"},
    {"DELETE", "/templates/tags", templates_untag, ROLE_USER, "e2b_templates"},
    {"GET", "/templates/{id}/tags", templates_tags, ROLE_READ, "e2b_templates"},
    {"GET", "/templates", templates_list, ROLE_READ, "e2b_templates"},
    {"GET", "/v2/templates", templates_list, ROLE_READ, "e2b_templates"},
    {"DELETE", "/templates/{id}", templates_delete, ROLE_USER, "e2b_templates"},
    {"*", "/templates", not_templates, ROLE_READ, "e2b_templates"},
    {"*", "/templates/{rest*}", not_templates, ROLE_READ, "e2b_templates"},
    {"*", "/v2/templates/{rest*}", not_templates, ROLE_READ, "e2b_templates"},
    {"*", "/volumes", not_volumes, ROLE_READ, "e2b_volumes"},
    {"*", "/volumes/{rest*}", not_volumes, ROLE_READ, "e2b_volumes"},
    {"*", "/secrets", not_secrets, ROLE_READ, "e2b_secrets"},
    {"*", "/secrets/{rest*}", not_secrets, ROLE_READ, "e2b_secrets"},
};

static const char *key_of(const request *rq)
{
    const char *key = request_header(rq, "X-API-Key");
    const char *bearer = request_header(rq, "Authorization");

    if (key)
        return key;
    return bearer && str_starts(bearer, "Bearer ") ? bearer + strlen("Bearer ") : NULL;
}

static err *control_admit(const e2b *d, request *rq, enum route_role role)
{
    const char *key = key_of(rq);
    caller *c = NULL;

    if (!key)
        return err_remedy(err_new(ERR_UNAUTHENTICATED, "the request carries no key"),
                          "Set E2B_API_KEY; 'bothy e2b-env' prints what to set.");
    TRY(caller_by_key(d->o.engine, key, &c));
    TRY(admit_as(d->o.engine, rq, c));
    return caller_require(c, role == ROLE_READ ? CALLER_READ : CALLER_USER);
}

err *control_dispatch(e2b *d, request *rq, response *rs)
{
    const route *found = NULL;

    TRY(router_match(ROUTES, ARRAY_LEN(ROUTES), rq, rs, &found));
    e2b_set_operation(rq, found->operation);
    if (found->role != ROLE_ANYONE)
        TRY(control_admit(d, rq, found->role));
    return found->handle(rq, rs);
}

/* ---- shared by the handlers ---- */

err *control_body(request *rq, buf *ret_text, json_t **ret_body)
{
    CLEANUP(body_wipe) buf own = {0};
    buf *text = ret_text ? ret_text : &own;
    CLEANUP(json_decrefp) json_t *body = NULL;

    TRY(request_body(rq, CONTROL_BODY_MAX, text));
    if (text->len)
        TRY(json_parse(text->p, text->len, &body));
    else
        body = json_object();
    if (json_is_null(body)) {
        json_decref(body);
        body = json_object();
    }
    if (!json_is_object(body))
        return err_new(ERR_INVALID_REQUEST, "the body must be a JSON object");
    *ret_body = TAKE_PTR(body);
    return NULL;
}

static err *unknown_sandbox(const char *id)
{
    return err_kind(err_new(ERR_NOT_FOUND, "sandbox %.64s was not found", id), "sandbox");
}

/* Waits for a sandbox in creation: after a restart of bothyd its client may know the id already. If
 * it is still being created (ERR_CONFLICT), no client has its id yet, so it is not found. */
static err *wait_known(sandbox *sb, const char *named)
{
    err *e = engine_wait_awake(sb);

    if (!e || e->code != ERR_CONFLICT)
        return e;
    err_free(e);
    return unknown_sandbox(named);
}

/* Does not find ended sandboxes: SDKs know running, paused and not found. */
err *control_find_id(request *rq, const char *named, sandbox **ret_sandbox)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    char id[SANDBOX_ID_LEN + 1];

    e2b_id(named, id);
    err *e = id[0] ? engine_find(e2b_engine(rq), e2b_caller(rq), id, &sb) : NULL;
    if (e && e->code != ERR_NOT_FOUND)
        return e;
    err_free(e);
    enum lifecycle state = sb ? sandbox_state(sb) : LIFE_GONE;
    if (state == LIFE_GONE)
        return unknown_sandbox(named);
    if (state == LIFE_CREATING)
        TRY(wait_known(sb, named));
    *ret_sandbox = TAKE_PTR(sb);
    return NULL;
}

err *control_find(request *rq, sandbox **ret_sandbox)
{
    return control_find_id(rq, request_param(rq, 0), ret_sandbox);
}

err *control_timeout(const json_t *body, uint64_t otherwise_ms, uint64_t *ret_ms)
{
    const json_t *v = json_object_get(body, "timeout");

    *ret_ms = otherwise_ms;
    if (!v || json_is_null(v))
        return NULL;
    json_int_t s = json_integer_value(v);
    if (!json_is_integer(v) || s < 0 || (uint64_t)s > SPEC_TTL_MAX_MS / 1000)
        return err_new(ERR_INVALID_REQUEST, "timeout: must be seconds, at most 30 days");
    *ret_ms = s ? (uint64_t)s * 1000 : 1; /* no time left: it ends at once */
    return NULL;
}

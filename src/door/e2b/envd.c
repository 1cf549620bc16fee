/* envd, a sandbox's data plane. Finds the sandbox, checks the token and the user, then calls a
 * service of envd or a server inside. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "door/e2b/internal.h"
#include "door/shared/admit.h"
#include "door/shared/port.h"

#define START_NS   (60 * NS_PER_S) /* for a start command to open its ports, from its begin */
#define PATIENT_NS (30 * NS_PER_S) /* limit of that wait for one request */

void envd_not_found(response *rs, const char *id)
{
    response_json(rs, 502,
                  json_pack("{s:s,s:s,s:i}", "sandboxId", id, "message",
                            "The sandbox was not found", "code", 502));
}

/* ---- who may call ---- */

static e2b_signed signature_of(const request *rq)
{
    return (e2b_signed){.path = str_or(request_query(rq, "path"), ""),
                        .operation = str_eq(request_method(rq), "POST") ? "write" : "read",
                        .user = str_or(request_query(rq, "username"), ""),
                        .expiry = request_query(rq, "signature_expiration"),
                        .signature = request_query(rq, "signature")};
}

/* Checks a signature's form and expiry, before any hash is computed, let alone one for each
 * sandbox. */
static err *check_signed(const e2b_signed *s)
{
    if (!e2b_signature_formed(s->signature))
        return err_new(ERR_UNAUTHENTICATED, "the signature does not fit");
    if (e2b_signature_expired(s, now_real_ns() / NS_PER_S))
        return err_new(ERR_UNAUTHENTICATED, "the signature has expired");
    return NULL;
}

static err *check_signature(const e2b *d, const char *id, uint64_t epoch, const request *rq)
{
    e2b_signed s = signature_of(rq);
    char token[E2B_TOKEN_LEN + 1];

    e2b_token(d, id, epoch, E2B_FOR_ENVD, token);
    if (!s.signature)
        return err_remedy(err_new(ERR_UNAUTHENTICATED, "the request has no access token"),
                          "Send the sandbox's envdAccessToken in X-Access-Token, or sign the URL.");
    TRY(check_signed(&s));
    if (!e2b_signature_is(&s, token))
        return err_new(ERR_UNAUTHENTICATED, "the signature does not fit");
    return NULL;
}

/* Checks an API key; *ret_key is the caller it belongs to. */
static err *check_key(const e2b *d, const sandbox *sb, const char *key, caller **ret_key)
{
    CLEANUP(sandbox_unrefp) sandbox *found = NULL;
    caller *c = NULL;

    TRY(caller_by_key(d->o.engine, key, &c));
    err *e = caller_require(c, CALLER_USER);
    if (!e)
        e = engine_find(d->o.engine, c, sandbox_id(sb), &found);
    if (e)
        caller_free(c);
    else
        *ret_key = c;
    return e;
}

static err *no_token(void)
{
    return err_remedy(err_new(ERR_UNAUTHENTICATED, "the request has no access token"),
                      "Send the sandbox's envdAccessToken in X-Access-Token.");
}

static err *check_token(const e2b *d, const sandbox *sb, uint64_t epoch, enum e2b_purpose purpose,
                        const char *token)
{
    if (e2b_token_is(d, sandbox_id(sb), epoch, purpose, token))
        return NULL;
    return err_new(ERR_UNAUTHENTICATED, "the access token is not this sandbox's");
}

/* How a request was admitted. */
typedef struct admission {
    bool is_signed; /* by a signed URL: only the parts that the signature covers are trusted */
    bool by_token;  /* by a token, or by a signature, which is made of the token */
    uint64_t epoch; /* of the owner */
    caller *key;    /* the caller whose key admitted it; NULL: a token did, or none is needed */
} admission;

static void admission_done(admission *a)
{
    caller_free(a->key);
}

/* Admits a caller by the sandbox's token, its token for ports, an API key, or a signed URL. */
static err *admit_secured(const e2b *d, const e2b_way *way, const sandbox *sb, request *rq,
                          admission *a)
{
    const char *token = request_header(rq, "X-Access-Token");
    const char *traffic = request_header(rq, "E2B-Traffic-Access-Token");
    const char *key = request_header(rq, "X-API-Key");
    bool port = way->port != E2B_ENVD_PORT;

    a->by_token = token || !key || (port && traffic);
    if (port && traffic) /* X-Access-Token may be meant for the server inside */
        return check_token(d, sb, a->epoch, E2B_FOR_TRAFFIC, traffic);
    if (token)
        return check_token(d, sb, a->epoch, E2B_FOR_ENVD, token);
    if (key)
        return check_key(d, sb, key, &a->key);
    a->is_signed = !port && str_eq(request_path(rq), "/files");
    return a->is_signed ? check_signature(d, sandbox_id(sb), a->epoch, rq) : no_token();
}

/* Checks who may use the data plane. As in E2B, a sandbox without a token is open to everyone who
 * knows its id. */
static err *envd_admit(const e2b *d, const e2b_way *way, const sandbox *sb, request *rq,
                       admission *ret)
{
    CLEANUP(e2b_note_done) e2b_note note = {0};
    bool public = way->port != E2B_ENVD_PORT && way->by_host && d->o.public_ports;

    e2b_note_read(sb, &note);
    *ret = (admission){.is_signed = way->plane == PLANE_SIGNED, /* its sender may not know the id */
                       .epoch = engine_key_epoch(d->o.engine, sandbox_owner(sb))};
    if (!note.secure || (public && note.ours))
        return NULL;
    return admit_secured(d, way, sb, rq, ret);
}

err *envd_basic_user(const char *header, char **ret_user)
{
    CLEANUP(freep) char *bytes = NULL;
    size_t n = 0;
    const char *text = header + (str_starts(header, "Basic ") ? strlen("Basic ") : 0);

    if (!base64_decode(text, strlen(text), (void **)&bytes, &n))
        return err_new(ERR_UNAUTHENTICATED, "Authorization: not base64");
    const char *colon = memchr(bytes, ':', n);
    size_t len = colon ? (size_t)(colon - bytes) : n;
    if (memchr(bytes, 0, len))
        return err_new(ERR_UNAUTHENTICATED, "Authorization: not a user's name");
    *ret_user = len ? xstrndup(bytes, len) : NULL;
    return NULL;
}

/* Returns the user that the request names. A signed URL covers the name in the query, but no
 * header, so the header is then ignored. */
static err *user_of(const request *rq, bool is_signed, char **ret_user)
{
    const char *basic = request_header(rq, "Authorization");
    const char *name = request_query(rq, "username");

    if (str_eq(request_path(rq), "/files") && name && *name)
        *ret_user = xstrdup(name);
    else if (!is_signed && basic && str_starts(basic, "Basic "))
        return envd_basic_user(basic, ret_user);
    return NULL;
}

/* Makes the holder of a token act for the sandbox's owner, with the role user, and only as long as
 * the token or the key is valid. */
static err *act_for_owner(const e2b *d, request *rq, const sandbox *sb, const admission *a,
                          const caller **ret_caller)
{
    caller *c = xcalloc(1, sizeof *c);

    if (a->key)
        *c = *a->key;
    c->owner = xstrdup(sandbox_owner(sb));
    c->role = CALLER_USER;
    c->quota = (quota){0};
    c->by_token = a->by_token;
    c->epoch = a->epoch;
    *ret_caller = c;
    return admit_as(d->o.engine, rq, c);
}

/* ---- which sandbox ---- */

/* Finds the live sandbox whose token signed the URL: a signed URL names no sandbox. */
static err *find_signer(const e2b *d, const request *rq, sandbox **ret_sandbox)
{
    e2b_signed s = signature_of(rq);
    sandbox *found = NULL;

    TRY(check_signed(&s));
    size_t n = 0;
    sandbox **all = engine_live_all(d->o.engine, &n);

    for (size_t i = 0; i < n; i++) {
        char token[E2B_TOKEN_LEN + 1];
        if (!found)
            e2b_token(d, sandbox_id(all[i]), engine_key_epoch(d->o.engine, sandbox_owner(all[i])),
                      E2B_FOR_ENVD, token);
        if (!found && e2b_signature_is(&s, token))
            found = all[i];
        else
            sandbox_unref(all[i]);
    }
    free(all);
    *ret_sandbox = found;
    return found ? NULL : err_new(ERR_UNAUTHENTICATED, "the signature fits no sandbox that lives");
}

static err *envd_find(const e2b *d, const e2b_way *way, const request *rq, sandbox **ret_sandbox)
{
    if (way->plane == PLANE_SIGNED)
        return find_signer(d, rq, ret_sandbox);
    *ret_sandbox = way->id[0] ? engine_find_live(d->o.engine, way->id) : NULL;
    if (*ret_sandbox)
        return NULL;
    if (!way->id[0] && !request_header(rq, "E2b-Sandbox-Id"))
        return err_remedy(err_new(ERR_INVALID_REQUEST, "the request names no sandbox"),
                          "Send E2b-Sandbox-Id, or an access token of this server, or use the host "
                          "49983-<sandbox id>.<domain>.");
    return NULL;
}

/* ---- services ---- */

static err *envd_health(envd_call *c, request *rq, response *rs)
{
    (void)c;
    (void)rq;
    response_status(rs, 204);
    return NULL;
}

static err *envd_metrics(envd_call *c, request *rq, response *rs)
{
    usage_look u;

    (void)rq;
    look_usage(c->door->o.engine, c->sb, &u);
    response_json(rs, 200,
                  json_pack("{s:I,s:i,s:f,s:I,s:I,s:I,s:I}", "ts", (json_int_t)(u.at_ns / NS_PER_S),
                            "cpu_count", (int)u.cores, "cpu_used_pct", u.cpu_pct, "mem_total",
                            (json_int_t)u.memory_max, "mem_used", (json_int_t)u.memory, "disk_used",
                            (json_int_t)u.disk, "disk_total", (json_int_t)u.disk_max));
    return NULL;
}

/* Returns the real time at which the start command was begun, or now if it will be: a create may
 * have pulled an image first, and a reset begins it once more. */
static uint64_t start_begun(sandbox *sb, const sandbox_view *v, uint64_t now)
{
    CLEANUP(exec_unrefp) exec *x = NULL;
    exec_state st = {0};
    char id[24];

    if (!v->start_exec)
        return now;
    snprintf(id, sizeof id, "%llu", (unsigned long long)v->start_exec);
    CLEANUP(err_freep) err *e = engine_exec_find(sb, id, &x);
    if (e)
        return v->created_ns;
    exec_get(x, &st);
    return st.begun_ns;
}

/* Returns until when a request to a closed port waits. E2B's sandboxes begin with their servers
 * running; here the start command may open its ports during its first minute. */
static uint64_t patience_of(sandbox *sb)
{
    CLEANUP(sandbox_view_done) sandbox_view v;
    uint64_t real = now_real_ns();

    sandbox_get(sb, &v);
    uint64_t until = v.start ? start_begun(sb, &v, real) + START_NS : 0;
    uint64_t left = until > real ? until - real : 0;
    return left ? now_mono_ns() + (left < PATIENT_NS ? left : PATIENT_NS) : 0;
}

static err *envd_port(envd_call *c, request *rq, response *rs)
{
    const e2b_options *o = &c->door->o;

    return port_start(rq, rs, o->engine, c->as, c->sb,
                      &(port_way){.port = c->port,
                                  .answer_ms = o->port_answer_ms,
                                  .idle_ms = o->port_idle_ms,
                                  .patient_until = patience_of(c->sb)});
}

typedef struct service {
    const char *path; /* ending in "/": everything below it */
    err *(*serve)(envd_call *c, request *rq, response *rs);
    const char *operation;
} service;

static const service SERVICES[] = {
    {"/process.Process/", process_rpc, "e2b_process"},
    {"/filesystem.Filesystem/", filesystem_rpc, "e2b_filesystem"},
    {"/files", files_http, "e2b_files"},
    {"/health", envd_health, "e2b_envd"},
    {"/metrics", envd_metrics, "e2b_envd"},
};

static const service *service_of(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(SERVICES); i++)
        if (str_ends(SERVICES[i].path, "/") ? str_starts(path, SERVICES[i].path)
                                            : str_eq(path, SERVICES[i].path))
            return &SERVICES[i];
    return NULL;
}

void envd_set_form(const e2b_way *way, const request *rq, response *rs)
{
    const char *type = request_header(rq, "Content-Type");
    bool stream = type && str_starts(type, "application/connect+");

    if (way->port != E2B_ENVD_PORT)
        response_set_form(rs, &E2B_FORM_PORT);
    else if (!e2b_is_rpc_path(request_path(rq)))
        response_set_form(rs, &E2B_FORM_HTTP);
    else
        response_set_form(rs, stream ? &E2B_FORM_STREAM : &E2B_FORM_UNARY);
}

static err *envd_serve(envd_call *c, const e2b_way *way, request *rq, response *rs)
{
    const service *s = way->port == E2B_ENVD_PORT ? service_of(request_path(rq)) : NULL;
    CLEANUP(admission_done) admission a = {0};
    CLEANUP(freep) char *user = NULL;
    bool port = way->port != E2B_ENVD_PORT;

    e2b_set_operation(rq, port ? "e2b_port" : s ? s->operation : "e2b_envd");
    if (s && s->serve == envd_health)
        return envd_health(c, rq, rs); /* needs no token: it reveals and changes nothing */
    TRY(envd_admit(c->door, way, c->sb, rq, &a));
    TRY(act_for_owner(c->door, rq, c->sb, &a, &c->as));
    if (port)
        return envd_port(c, rq, rs);
    if (!s)
        return e2b_missing(MISSING_ROUTE, "envd has no %s", request_path(rq));
    TRY(user_of(rq, a.is_signed, &user));
    c->user = user;
    TRY(e2b_user(c, rq));
    return s->serve(c, rq, rs);
}

/* Returns true if requests resume the sandbox when it is paused. */
static bool envd_wakes(const sandbox *sb)
{
    CLEANUP(e2b_note_done) e2b_note note = {0};

    e2b_note_read(sb, &note);
    return note.auto_resume;
}

/* Waits for a sandbox that is being created or woken, and resumes a paused one if requests may.
 * *ret_runs is false if it does not run and will not. Only an admitted caller causes a resume. */
static err *envd_awake(const e2b *d, const e2b_way *way, sandbox *sb, request *rq, bool *ret_runs)
{
    enum lifecycle state = sb ? sandbox_state(sb) : LIFE_GONE;
    bool comes = state == LIFE_HIBERNATED || state == LIFE_CREATING;
    CLEANUP(admission_done) admission a = {0};
    const caller *as = NULL;

    *ret_runs = state == LIFE_RUNNING;
    if (!comes && (state != LIFE_PAUSED || !envd_wakes(sb)))
        return NULL;
    TRY(envd_admit(d, way, sb, rq, &a));
    TRY(act_for_owner(d, rq, sb, &a, &as));
    TRY(comes ? engine_wait_awake(sb) : e2b_wake(d, as, sb));
    *ret_runs = true;
    return NULL;
}

err *envd_dispatch(e2b *d, const e2b_way *way, request *rq, response *rs)
{
    CLEANUP(sandbox_unrefp) sandbox *sb = NULL;
    bool runs = false;

    TRY(envd_find(d, way, rq, &sb));
    TRY(envd_awake(d, way, sb, rq, &runs));
    if (!runs) {
        envd_not_found(rs, str_or(request_header(rq, "E2b-Sandbox-Id"), way->id));
        return NULL;
    }
    if (!way->port)
        return err_new(ERR_INVALID_REQUEST, "E2b-Sandbox-Port: not 1 to 65535");
    return envd_serve(&(envd_call){.door = d, .sb = sb, .port = way->port}, way, rq, rs);
}

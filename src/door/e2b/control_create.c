/* Creating sandboxes: POST /sandboxes and /v2/sandboxes. */
#include <string.h>

#include "base/log.h"
#include "door/e2b/control.h"
#include "door/shared/stream.h"
#include "door/shared/wait.h"

#define CREATE_HELD (128 << 10) /* bytes charged for a create in addition to its body */

/* ---- the request ---- */

typedef struct asked {
    sandbox_spec spec;
    e2b_note note;
    bool recipe; /* the template was made on this node */
} asked;

static void asked_done(asked *a)
{
    sandbox_spec_done(&a->spec);
    e2b_note_done(&a->note);
}

static err *take_template(const e2b *d, const json_t *body, asked *a)
{
    const char *name = json_str(body, "templateID");

    if (!name || !*name)
        return err_remedy(err_new(ERR_INVALID_REQUEST, "templateID: missing"),
                          "Name a template: base, code-interpreter-v1, or an image.");
    a->note.template = xstrdup(name);
    const char *own = e2b_own_image(d, name);
    a->spec.image = xstrdup(own ? own : name);
    a->spec.setuid = own && d->o.sudo; /* E2B's own images have a working sudo */
    return NULL;
}

static err *take_env(const json_t *env, char ***ret_env)
{
    const char *name;
    json_t *value;

    if (env && !json_is_null(env) && !json_is_object(env))
        return err_new(ERR_INVALID_REQUEST, "envVars: must be an object");
    json_object_foreach((json_t *)env, name, value)
    {
        if (!json_is_string(value))
            return err_new(ERR_INVALID_REQUEST, "envVars.%.64s: must be a string", name);
        strv_push(ret_env, str_printf("%s=%s", name, json_string_value(value)));
    }
    return NULL;
}

/* Stores metadata as labels if all of it can be, so that the native API shows and finds it;
 * otherwise the door's note keeps it. */
static err *take_metadata(json_t *metadata, asked *a)
{
    const char *name;
    json_t *value;

    if (!metadata || json_is_null(metadata))
        return NULL;
    if (!json_is_object(metadata))
        return err_new(ERR_INVALID_REQUEST, "metadata: must be an object");
    json_object_foreach(metadata, name, value) if (!json_is_string(value)) return err_new(
        ERR_INVALID_REQUEST, "metadata.%.64s: must be a string", name);
    a->spec.labels = metadata_labels(metadata);
    if (!a->spec.labels && json_object_size(metadata))
        a->note.metadata = json_incref(metadata);
    return NULL;
}

/* Refuses fields that would change what the sandbox is if they were silently ignored. */
static err *refuse_rest(const json_t *body)
{
    static const char *const FIELDS[] = {"volumeMounts", "mcp", "iam", "secrets"};

    for (size_t i = 0; i < ARRAY_LEN(FIELDS); i++) {
        const json_t *v = json_object_get(body, FIELDS[i]);
        if (v && !json_is_null(v) && (json_object_size(v) || json_array_size(v)))
            return e2b_missing(MISSING_FIELD, "%s is not supported", FIELDS[i]);
    }
    const json_t *memory = json_object_get(body, "autoPauseMemory");
    if (json_is_false(memory))
        return e2b_missing(MISSING_FIELD, "autoPauseMemory: a pause always keeps the memory");
    return NULL;
}

static bool is_everything(const json_t *hosts)
{
    return json_array_size(hosts) == 1 &&
           str_eq(json_string_value(json_array_get(hosts, 0)), "0.0.0.0/0");
}

/* Sets *ret_closed if the rules deny everything. Refuses lists of destinations: the node can only
 * allow all or nothing. */
static err *closed_by_rules(const json_t *network, bool *ret_closed)
{
    const json_t *allow = json_object_get(network, "allowOut");
    const json_t *deny = json_object_get(network, "denyOut");

    *ret_closed = is_everything(deny) && !json_array_size(allow);
    if (json_array_size(allow) || (json_array_size(deny) && !*ret_closed) ||
        json_object_size(json_object_get(network, "rules")) ||
        json_object_size(json_object_get(network, "egressProxy")))
        return e2b_missing(MISSING_NETWORK, "network: only all (allow_internet_access) or nothing "
                                            "(denyOut: [\"0.0.0.0/0\"]) can be had");
    return NULL;
}

/* Sets the network. In the first generation of the API, SDKs 1.11 to 2.50 send `true` with every
 * create by themselves, so it means the same as no value in the second: "if possible". In the
 * second generation a `true` is the caller's own wish. */
static err *take_network(const e2b *d, const caller *c, const json_t *body, bool v2, asked *a)
{
    const json_t *said = json_object_get(body, "allow_internet_access");
    bool closed = false;

    TRY(closed_by_rules(json_object_get(body, "network"), &closed));
    a->spec.has_network = json_is_false(said) || closed; /* otherwise a template may decide */
    if (a->spec.has_network)
        return NULL;
    err *e = engine_check_network(d->o.engine, c);
    if (!e) {
        a->spec.network = NETWORK_OPEN;
        return NULL;
    }
    if (v2 && json_is_true(said) && !d->o.internet_warns)
        return err_wrap(e, "allow_internet_access");
    if (json_is_true(said))
        log_info("e2b", "a sandbox without the internet that was asked for: %s", e->message);
    err_free(e);
    return NULL;
}

static err *control_create_take(const e2b *d, const caller *c, json_t *body, bool v2, asked *a)
{
    TRY(take_template(d, body, a));
    TRY(take_env(json_object_get(body, "envVars"), &a->spec.env));
    TRY(take_metadata(json_object_get(body, "metadata"), a));
    TRY(refuse_rest(body));
    TRY(control_timeout(body, d->o.default_ttl_ms, &a->spec.ttl_ms));
    TRY(take_network(d, c, body, v2, a));
    a->spec.ttl_pauses = json_flag(body, "autoPause");
    a->note.auto_resume = json_flag(json_object_get(body, "autoResume"), "enabled");
    a->note.secure = v2 || json_flag(body, "secure");
    a->note.ttl_ms = a->spec.ttl_ms;
    a->spec.door = e2b_note_write(&a->note);
    return NULL;
}

/* Uses the caller's own template or snapshot of this name, if bothy has one. It takes precedence
 * over E2B's built-in templates and over images. */
static err *use_recipe(const e2b *d, const caller *c, asked *a)
{
    CLEANUP(sandbox_spec_done) sandbox_spec found = {0};
    err *e = e2b_source(d, c, a->note.template, &found);

    if (e && e->code != ERR_NOT_FOUND)
        return e;
    if (e) {
        a->spec.has_network = true;
        e2b_own_start(d, a->note.template, &a->spec.start);
        err_free(e);
        return NULL;
    }
    free(a->spec.image);
    a->spec.image = NULL;
    a->recipe = true;
    a->spec.template = TAKE_PTR(found.template);
    a->spec.setuid = !a->spec.template && d->o.sudo; /* otherwise the template decides */
    sandbox_spec_fill(&a->spec, &found);
    return NULL;
}

/* Returns true if the name is not a template made here, not one of E2B's own, and not a whole image
 * reference. */
static bool is_guess(const e2b *d, const asked *a)
{
    return !a->recipe && !strchr(a->note.template, '/') && !e2b_own_image(d, a->note.template);
}

/* ---- the answer ---- */

typedef struct creating {
    const e2b *door;
    sandbox *sb;
} creating;

typedef struct waiting {
    const e2b *door;
    wait_ticket *ticket;
    char *template; /* the name the caller used */
    bool guessed;   /* no template has that name: tried as an image's, see template_error() */
} waiting;

/* Rewords a failed create. A word that no template has may be an image's name: if the registry has
 * no such image, or demands a login for it, the template is "not found". A registry's refusal of a
 * template's image or of a whole reference becomes ERR_FORBIDDEN, because clients would take a 401
 * for a wrong key of their own. Other failures keep their code: clients repeat a 502, as they
 * should while the registry cannot be reached. Takes the failure. */
static err *template_error(err *failure, const char *template, bool guessed)
{
    bool refused = failure->code == ERR_UNAUTHENTICATED;
    bool unknown =
        guessed && (refused || (failure->code == ERR_NOT_FOUND && str_eq(failure->kind, "image")));

    if (!refused && !unknown)
        return err_wrap(failure, "template '%s'", template);
    err *told = err_because(
        unknown ? err_new(ERR_NOT_FOUND, "template '%s' was not found", template)
                : err_new(ERR_FORBIDDEN, "template '%s'", template),
        "%s%s%s", failure->message, failure->cause ? ": " : "", str_or(failure->cause, ""));
    told = unknown ? err_remedy(err_kind(told, "template"),
                                "Make it with 'bothy template create', pull an image of that name "
                                "on the node, or name an image by its whole reference.")
                   : err_remedy(told, "%s", err_remedy_of(failure));
    err_free(failure);
    return told;
}

static void on_created(void *arg, err *failure, sandbox *sb, bool replay)
{
    waiting *w = arg;

    if (failure)
        failure = template_error(failure, w->template, w->guessed);
    wait_finish(w->ticket, failure, 201, sb ? view_made(w->door, sb) : NULL, replay);
    free(w->template);
    free(w);
    sandbox_unref(sb);
}

static void create_over(void *arg, bool early)
{
    creating *c = arg;

    if (early && c->sb)
        engine_create_leave(c->door->o.engine, c->sb);
    sandbox_unref(c->sb);
    free(c);
}

static err *idempotency_of(const request *rq, const buf *text, idempotency *ret)
{
    const char *key = request_header(rq, "Idempotency-Key");

    if (key && (!ascii_visible(key) || strlen(key) > 255))
        return err_new(ERR_INVALID_REQUEST,
                       "Idempotency-Key: must be 1 to 255 visible ASCII characters");
    *ret = (idempotency){.key = key, .body = text->p, .nbody = text->len};
    return NULL;
}

static err *control_create_create(request *rq, response *rs, bool v2)
{
    CLEANUP(body_wipe) buf text = {0};
    CLEANUP(json_decrefp) json_t *body = NULL;
    CLEANUP(asked_done) asked a = {0};
    request_hold *hold = NULL;
    idempotency idem;
    e2b *d = e2b_of(rq);

    TRY(control_body(rq, &text, &body));
    TRY(idempotency_of(rq, &text, &idem));
    TRY(control_create_take(d, e2b_caller(rq), body, v2, &a));
    TRY(use_recipe(d, e2b_caller(rq), &a));
    TRY(request_hold_new(rq, text.len + CREATE_HELD, &hold));
    creating *made = xcalloc(1, sizeof *made);
    waiting *w = xcalloc(1, sizeof *w);
    made->door = d;
    *w = (waiting){d, wait_start(rq, rs, false), xstrdup(a.note.template), is_guess(d, &a)};
    wait_hold(w->ticket, hold);
    wait_over(w->ticket, create_over, made);
    made->sb =
        engine_create(d->o.engine, e2b_caller(rq), &a.spec, PULL_MISSING, &idem, on_created, w);
    return NULL;
}

err *control_create(request *rq, response *rs)
{
    return control_create_create(rq, rs, false);
}

err *control_create_v2(request *rq, response *rs)
{
    return control_create_create(rq, rs, true);
}

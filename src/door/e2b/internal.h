/* Shared declarations of the E2B door. */
#pragma once

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/json.h"
#include "base/str.h"
#include "door/e2b/e2b.h"
#include "door/e2b/route.h"

typedef struct e2b_users e2b_users;
typedef struct e2b_watchers e2b_watchers;

struct e2b {
    e2b_options o;
    char domain[64]; /* domain given to SDKs for port host names if ports.domain is not set */
    uint8_t secret[E2B_SECRET_LEN];
    e2b_users *users;
    e2b_watchers *watchers;
};

static inline e2b *e2b_of(request *rq)
{
    return request_door(rq);
}
static inline engine *e2b_engine(request *rq)
{
    return e2b_of(rq)->o.engine;
}
static inline const caller *e2b_caller(request *rq)
{
    return request_user(rq);
}

/* Sets the operation of the request for metrics and logs: a name of E2B_OPERATIONS. */
void e2b_set_operation(request *rq, const char *name);

/* ---- forms.c: how errors are rendered ---- */
extern const error_form E2B_FORM_HTTP;   /* {"code":404,"message":"…"} */
extern const error_form E2B_FORM_PORT;   /* the same, with E2B's message for a closed port */
extern const error_form E2B_FORM_UNARY;  /* Connect: HTTP status, {"code":"not_found",…} */
extern const error_form E2B_FORM_STREAM; /* Connect: 200, and an end-stream envelope */
/* Returns the Connect code of an error. */
const char *e2b_connect_code(const err *e);
/* Appends "message: cause. Remedy." */
void e2b_message(buf *out, const err *e);
/* Kinds of unsupported requests. e2b_missing() counts the request and returns an error that says
 * what to do instead. */
enum e2b_missing {
    MISSING_TEMPLATES,
    MISSING_VOLUMES,
    MISSING_SECRETS,
    MISSING_NETWORK,
    MISSING_PROCESS,
    MISSING_FILESYSTEM,
    MISSING_FILES,
    MISSING_FIELD,
    MISSING_ROUTE,
    MISSING_COUNT
};
err *e2b_missing(enum e2b_missing what, const char *fmt, ...)
    __attribute__((format(printf, 2, 3))) ERR_MUST;
void forms_init(void);

/* ---- token.c ---- */
enum e2b_purpose {
    E2B_FOR_ENVD,
    E2B_FOR_TRAFFIC, /* ports alone */
};
/* Returns a MAC for text that becomes invalid when a key of the owner is removed. Each purpose
 * begins its text with a prefix of its own. */
void e2b_mac(const e2b *d, const char *text, uint64_t epoch, char ret_hex[2 * SHA256_LEN + 1]);
/* epoch: engine_key_epoch() of the sandbox's owner. */
void e2b_token(const e2b *d, const char *id, uint64_t epoch, enum e2b_purpose purpose,
               char ret_token[E2B_TOKEN_LEN + 1]);
bool e2b_token_is(const e2b *d, const char *id, uint64_t epoch, enum e2b_purpose purpose,
                  const char *token);
/* A file URL's signature: "v1_" and the base64 of SHA-256 of "path:operation:user:token[:expiry]"
 * without "=". */
typedef struct e2b_signed {
    const char *path, *operation /* read, write */, *user /* "": none */;
    const char *expiry; /* as in the query, or NULL */
    const char *signature;
} e2b_signed;
/* Returns true if it has the form of a signature: "v1_" and 43 characters. */
bool e2b_signature_formed(const char *signature);
bool e2b_signature_is(const e2b_signed *s, const char *token);
/* Returns true if the expiry has passed or is not a number. */
bool e2b_signature_expired(const e2b_signed *s, uint64_t now_s);

/* ---- note.c: data that the door stores with a sandbox (sandbox_spec.door) ---- */
typedef struct e2b_note {
    bool ours;        /* created through this door */
    bool secure;      /* the data plane requires the token */
    bool auto_resume; /* a request resumes it */
    uint64_t ttl_ms;  /* time to live given at the create */
    char *template;   /* the name the caller used */
    json_t *metadata; /* metadata that cannot be labels, or NULL: the labels hold it */
} e2b_note;
void e2b_note_read(const sandbox *sb, e2b_note *ret_note);
void e2b_note_of_view(const sandbox_view *v, e2b_note *ret_note);
char *e2b_note_write(const e2b_note *n);
void e2b_note_done(e2b_note *n);

/* ---- control.c ---- */
err *control_dispatch(e2b *d, request *rq, response *rs) ERR_MUST;
/* ---- control_life.c ---- */
/* Resumes a paused sandbox and restarts its TTL with the value of the create, but at least 5
 * minutes. A later end is kept. */
err *e2b_wake(const e2b *d, const caller *c, sandbox *sb) ERR_MUST;

/* ---- templates.c: resolving template names ---- */
/* Resolves a built template (with or without a tag), a template of the node, or a snapshot. Sets
 * either template or snapshot of ret_spec, and whatever else a create from it implies.
 * ERR_NOT_FOUND. */
err *e2b_source(const e2b *d, const caller *c, const char *name, sandbox_spec *ret_spec) ERR_MUST;
/* Returns the image of a template that E2B itself has; NULL if the name is none of them. */
const char *e2b_own_image(const e2b *d, const char *name);
/* Sets the start command of such a template: for the code interpreter the server that run_code()
 * talks to, otherwise none. */
void e2b_own_start(const e2b *d, const char *name, start_spec *start);

/* ---- control_look.c: a sandbox's resource usage ---- */
typedef struct usage_look {
    uint64_t at_ns, memory, memory_max, disk, disk_max; /* a maximum of 0: no limit is set */
    uint32_t cores;
    double cpu_pct; /* percent of one core, mean since the create */
} usage_look;
bool look_usage(engine *e, sandbox *sb, usage_look *ret); /* false: the backend does not measure */

/* ---- envd.c: one request to a sandbox's data plane ---- */
typedef struct envd_call {
    e2b *door;
    sandbox *sb;
    const caller *as; /* the sandbox's owner, with the role user */
    const char *user; /* user that commands run as inside; NULL: the sandbox's own */
    uint16_t port;
} envd_call;
void envd_set_form(const e2b_way *way, const request *rq, response *rs);
err *envd_dispatch(e2b *d, const e2b_way *way, request *rq, response *rs) ERR_MUST;
/* Decodes "Basic <base64 of user:>", by which SDKs name the user of a call; *ret_user is NULL if
 * the name is empty. ERR_UNAUTHENTICATED. */
err *envd_basic_user(const char *header, char **ret_user) ERR_MUST;
/* Sends the exact answer that SDKs take for "the sandbox is not running". */
void envd_not_found(response *rs, const char *id);

/* ---- user.c: the name "user" in images that do not have it ---- */
e2b_users *e2b_users_new(void);
void e2b_users_free(e2b_users *u);
/* Sets c->user to NULL if it is "user" and the image has no such user. May run the kit inside to
 * find out; the result is remembered for the sandbox. */
err *e2b_user(envd_call *c, request *rq) ERR_MUST;
/* Maps an unknown user to `unauthenticated`, as E2B's clients expect. Takes the error. */
err *e2b_user_error(err *e) ERR_MUST;

/* ---- watch.c: watchers that clients poll ---- */
e2b_watchers *e2b_watchers_new(uint64_t idle_ms);
/* Removes watchers that were not polled for idle_ms. */
void e2b_watchers_look(void *watchers);
void e2b_watchers_free(e2b_watchers *t);

/* ---- the services of envd; the response's form is already set ---- */
err *process_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;    /* process*.c */
err *filesystem_rpc(envd_call *c, request *rq, response *rs) ERR_MUST; /* filesystem*.c */
err *files_http(envd_call *c, request *rq, response *rs) ERR_MUST;     /* files*.c */

/* What the files of the E2B door share. */
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
    char domain[64]; /* what SDKs make host names of where ports.domain is not set */
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

/* What serves it, for metrics and logs: a name of E2B_OPERATIONS. */
void e2b_set_operation(request *rq, const char *name);

/* ---- forms.c: how errors look ---- */
extern const error_form E2B_FORM_HTTP;   /* {"code":404,"message":"…"} */
extern const error_form E2B_FORM_PORT;   /* the same, with the words for a port that is closed */
extern const error_form E2B_FORM_UNARY;  /* Connect: HTTP status, {"code":"not_found",…} */
extern const error_form E2B_FORM_STREAM; /* Connect: 200, and an end-stream envelope */
/* The Connect code of an error. */
const char *e2b_connect_code(const err *e);
/* "message: cause. Remedy." */
void e2b_message(buf *out, const err *e);
/* Not there: counted, and told with what to do instead. what: of E2B_UNSUPPORTED. */
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
/* Whatever is given out so that it ends with the owner's keys. text has a prefix of its own for each
 * purpose. */
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
/* It looks like one: "v1_" and 43 characters. */
bool e2b_signature_formed(const char *signature);
bool e2b_signature_is(const e2b_signed *s, const char *token);
/* The time is over; also when it is no number. */
bool e2b_signature_expired(const e2b_signed *s, uint64_t now_s);

/* ---- note.c: what the door keeps with a sandbox (sandbox_spec.door) ---- */
typedef struct e2b_note {
    bool ours;        /* it was made through this door */
    bool secure;      /* its data plane asks for the token */
    bool auto_resume; /* a request wakes it */
    uint64_t ttl_ms;  /* as it was created with */
    char *template;   /* as the caller called it */
    json_t *metadata; /* what labels cannot hold, or NULL: the labels are it */
} e2b_note;
void e2b_note_read(const sandbox *sb, e2b_note *ret_note);
void e2b_note_of_view(const sandbox_view *v, e2b_note *ret_note);
char *e2b_note_write(const e2b_note *n);
void e2b_note_done(e2b_note *n);

/* ---- control.c ---- */
err *control_dispatch(e2b *d, request *rq, response *rs) ERR_MUST;
/* ---- control_life.c: a paused one goes on, with time again ---- */
err *e2b_wake(const e2b *d, const caller *c, sandbox *sb) ERR_MUST;

/* ---- templates.c: what a template's name means ---- */
/* One that was built (by tag or not), a template of the node, or a snapshot: one of template and
 * snapshot, with what else a create of it says. ERR_NOT_FOUND. */
err *e2b_source(const e2b *d, const caller *c, const char *name, sandbox_spec *ret_spec) ERR_MUST;
/* The image of a template that E2B itself has; NULL: it is none. */
const char *e2b_own_image(const e2b *d, const char *name);

/* ---- control_look.c: what a sandbox uses ---- */
typedef struct usage_look {
    uint64_t at_ns, memory, memory_max, disk, disk_max; /* a maximum of 0: none is set */
    uint32_t cores;
    double cpu_pct; /* of one core, the mean of its life */
} usage_look;
bool look_usage(engine *e, sandbox *sb, usage_look *ret); /* false: the backend does not count */

/* ---- envd.c: one request to a sandbox's data plane ---- */
typedef struct envd_call {
    e2b *door;
    sandbox *sb;
    const caller *as; /* its owner, as a user */
    const char *user; /* who runs it inside; NULL: the sandbox's own */
    uint16_t port;
} envd_call;
void envd_set_form(const e2b_way *way, const request *rq, response *rs);
err *envd_dispatch(e2b *d, const e2b_way *way, request *rq, response *rs) ERR_MUST;
/* Of "Basic <base64 of user:>", as SDKs name the user of a call; NULL: none. ERR_UNAUTHENTICATED.
 */
err *envd_basic_user(const char *header, char **ret_user) ERR_MUST;
/* The exact answer that SDKs take for "it is not running". */
void envd_not_found(response *rs, const char *id);

/* ---- user.c: "user" where the image has none ---- */
e2b_users *e2b_users_new(void);
void e2b_users_free(e2b_users *u);
/* Sets c->user to NULL where it is "user" and the image does not know it. May ask inside, once for
 * a sandbox. */
err *e2b_user(envd_call *c, request *rq) ERR_MUST;
/* A user that does not exist is `unauthenticated` to E2B's clients. Takes the error. */
err *e2b_user_error(err *e) ERR_MUST;

/* ---- watch.c: watchers that are asked now and then ---- */
e2b_watchers *e2b_watchers_new(uint64_t idle_ms);
/* Takes away those that nobody asks any more. */
void e2b_watchers_look(void *watchers);
void e2b_watchers_free(e2b_watchers *t);

/* ---- the services of envd; the response's form is set already ---- */
err *process_rpc(envd_call *c, request *rq, response *rs) ERR_MUST;    /* process*.c */
err *filesystem_rpc(envd_call *c, request *rq, response *rs) ERR_MUST; /* filesystem*.c */
err *files_http(envd_call *c, request *rq, response *rs) ERR_MUST;     /* files*.c */

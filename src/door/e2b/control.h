/* What the files of the control plane share. */
#pragma once

#include "door/e2b/internal.h"

#define CONTROL_BODY_MAX (4u << 20)
#define ENVD_VERSION     "0.6.4" /* what SDKs may ask of our envd */
#define CLIENT_ID        "bothy"

/* ---- control.c ---- */
/* The body as an object; an empty one is {}. Wipes it. ret_text, if not NULL, is its bytes. */
err *control_body(request *rq, buf *ret_text, json_t **ret_body) ERR_MUST;
/* The caller's sandbox of the route's first parameter, running or paused; ERR_NOT_FOUND. */
err *control_find(request *rq, sandbox **ret_sandbox) ERR_MUST;
err *control_find_id(request *rq, const char *named, sandbox **ret_sandbox) ERR_MUST;
/* Member "timeout", seconds; absent: otherwise. ERR_INVALID_REQUEST. */
err *control_timeout(const json_t *body, uint64_t otherwise_ms, uint64_t *ret_ms) ERR_MUST;

/* ---- control_view.c: new references ---- */
json_t *view_made(const e2b *d, sandbox *sb); /* Sandbox: what create and connect answer */
bool view_is_paused(const sandbox_view *v);   /* or hibernated: a connect brings it back */
json_t *view_listed(const sandbox_view *v, const e2b_note *note);
/* Tokens are for callers that may use it. */
json_t *view_detail(const e2b *d, const caller *c, sandbox *sb);
json_t *view_when(uint64_t real_ns); /* RFC 3339 */
/* Metadata as the caller gave it. */
json_t *view_metadata(const sandbox_view *v, const e2b_note *note);

/* ---- metadata.c ---- */
/* Labels, if every one of them can be; else NULL. */
char **metadata_labels(const json_t *metadata);
/* A list's filter, of which the query was decoded once already: pairs of name and value. ERR_* */
err *metadata_filter(const char *text, json_t **ret_pairs) ERR_MUST;
bool metadata_matches(const json_t *metadata, const json_t *pairs);

/* ---- control_create.c, control_life.c, control_list.c, control_look.c: routes ---- */
err *control_create(request *rq, response *rs) ERR_MUST;
err *control_create_v2(request *rq, response *rs) ERR_MUST;
err *control_connect(request *rq, response *rs) ERR_MUST;
err *control_resume(request *rq, response *rs) ERR_MUST;
err *control_set_timeout(request *rq, response *rs) ERR_MUST;
err *control_refresh(request *rq, response *rs) ERR_MUST;
err *control_pause(request *rq, response *rs) ERR_MUST;
err *control_kill(request *rq, response *rs) ERR_MUST;
err *control_info(request *rq, response *rs) ERR_MUST;
err *control_list(request *rq, response *rs) ERR_MUST;
err *control_list_v2(request *rq, response *rs) ERR_MUST;
err *control_metrics(request *rq, response *rs) ERR_MUST;
err *control_metrics_many(request *rq, response *rs) ERR_MUST;
err *control_logs(request *rq, response *rs) ERR_MUST;
err *control_logs_v2(request *rq, response *rs) ERR_MUST;
err *control_network(request *rq, response *rs) ERR_MUST;

/* Shared declarations of the control plane's files. */
#pragma once

#include "door/e2b/internal.h"

#define CONTROL_BODY_MAX (4u << 20)
#define ENVD_VERSION     "0.6.4" /* the version of envd that SDKs derive their features from */
#define CLIENT_ID        "bothy"

/* ---- control.c ---- */
/* Parses the body as an object, {} if it is empty or null. If ret_text is not NULL it gets the
 * bytes; otherwise they are wiped. */
err *control_body(request *rq, buf *ret_text, json_t **ret_body) ERR_MUST;
/* Finds the caller's sandbox named by the route's first parameter, running or paused.
 * ERR_NOT_FOUND. */
err *control_find(request *rq, sandbox **ret_sandbox) ERR_MUST;
err *control_find_id(request *rq, const char *named, sandbox **ret_sandbox) ERR_MUST;
/* Reads the member "timeout", in seconds; otherwise_ms if it is absent. ERR_INVALID_REQUEST. */
err *control_timeout(const json_t *body, uint64_t otherwise_ms, uint64_t *ret_ms) ERR_MUST;

/* ---- control_view.c: each returns a new reference ---- */
json_t *view_made(const e2b *d, sandbox *sb); /* the object Sandbox, answer of create and connect */
bool view_is_paused(const sandbox_view *v);   /* paused or hibernated: a connect resumes it */
json_t *view_listed(const sandbox_view *v, const e2b_note *note);
/* Includes tokens only if the caller may use the sandbox. */
json_t *view_detail(const e2b *d, const caller *c, sandbox *sb);
json_t *view_when(uint64_t real_ns); /* RFC 3339 */
/* Returns the metadata as the caller gave it. */
json_t *view_metadata(const sandbox_view *v, const e2b_note *note);

/* ---- metadata.c ---- */
/* Returns the metadata as labels, or NULL if one entry cannot be a label. */
char **metadata_labels(const json_t *metadata);
/* Parses a list's metadata filter into pairs of name and value. The query was decoded once already;
 * each part is decoded again. ERR_* */
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

/* Templates through E2B's door: builds, tags, aliases; and snapshots, which are templates there. */
#pragma once

#include "door/e2b/control.h"
#include "engine/build.h"

/* ---- templates_wire.c ---- */
typedef struct template_asked { /* POST /v3/templates */
    char *name;
    char **tags; /* NULL: none are named */
    limits limits;
} template_asked;
void template_asked_done(template_asked *a);
err *template_asked_parse(const json_t *body, template_asked *ret_asked) ERR_MUST;
/* fromTemplate is in base.template, as it was written. What was read is ret_recipe's on an error,
 * too. */
err *build_recipe_parse(const json_t *body, build_recipe *ret_recipe) ERR_MUST;
/* Appends; at most max strings of at most each bytes. */
err *wire_strings(const json_t *list, const char *what, size_t max, size_t each,
                  char ***ret_list) ERR_MUST;

/* ---- templates.c, snapshots.c: routes ---- */
err *templates_new(request *rq, response *rs) ERR_MUST;
err *templates_start(request *rq, response *rs) ERR_MUST;
err *templates_status(request *rq, response *rs) ERR_MUST;
err *templates_logs(request *rq, response *rs) ERR_MUST;
err *templates_link(request *rq, response *rs) ERR_MUST;
err *templates_upload(request *rq, response *rs) ERR_MUST; /* without a key: by its signature */
err *templates_alias(request *rq, response *rs) ERR_MUST;
err *templates_tag(request *rq, response *rs) ERR_MUST;
err *templates_untag(request *rq, response *rs) ERR_MUST;
err *templates_tags(request *rq, response *rs) ERR_MUST;
err *templates_list(request *rq, response *rs) ERR_MUST;
err *templates_delete(request *rq, response *rs) ERR_MUST;
err *snapshots_take(request *rq, response *rs) ERR_MUST;
err *fork_sandboxes(request *rq, response *rs) ERR_MUST; /* fork.c */
err *snapshots_list(request *rq, response *rs) ERR_MUST;
/* By its id, with ":default" or without, and templates that name it. ERR_NOT_FOUND. */
err *snapshots_remove(request *rq, const char *text) ERR_MUST;

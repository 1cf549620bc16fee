/* Templates of the E2B door: builds, tags, aliases, and snapshots, which E2B treats as
 * templates. */
#pragma once

#include "door/e2b/control.h"
#include "engine/build.h"

/* ---- templates_wire.c ---- */
typedef struct template_asked { /* POST /v3/templates */
    char *name;
    char **tags; /* NULL: no tags given */
    limits limits;
} template_asked;
void template_asked_done(template_asked *a);
err *template_asked_parse(const json_t *body, template_asked *ret_asked) ERR_MUST;
/* Parses a build's recipe. fromTemplate goes unresolved into base.template. On an error ret_recipe
 * owns whatever was read so far. */
err *build_recipe_parse(const json_t *body, build_recipe *ret_recipe) ERR_MUST;
/* Appends a list of strings: at most max of them, at most `each` bytes long. */
err *wire_strings(const json_t *list, const char *what, size_t max, size_t each,
                  char ***ret_list) ERR_MUST;

/* ---- templates.c, snapshots.c: routes ---- */
err *templates_new(request *rq, response *rs) ERR_MUST;
err *templates_start(request *rq, response *rs) ERR_MUST;
err *templates_status(request *rq, response *rs) ERR_MUST;
err *templates_logs(request *rq, response *rs) ERR_MUST;
err *templates_link(request *rq, response *rs) ERR_MUST;
err *templates_upload(request *rq, response *rs) ERR_MUST; /* needs no key: the URL is signed */
err *templates_alias(request *rq, response *rs) ERR_MUST;
err *templates_tag(request *rq, response *rs) ERR_MUST;
err *templates_untag(request *rq, response *rs) ERR_MUST;
err *templates_tags(request *rq, response *rs) ERR_MUST;
err *templates_list(request *rq, response *rs) ERR_MUST;
err *templates_delete(request *rq, response *rs) ERR_MUST;
err *snapshots_take(request *rq, response *rs) ERR_MUST;
err *fork_sandboxes(request *rq, response *rs) ERR_MUST; /* fork.c */
err *snapshots_list(request *rq, response *rs) ERR_MUST;
/* Removes a snapshot, named by its id with or without ":default", and the templates made of it.
 * ERR_NOT_FOUND. */
err *snapshots_remove(request *rq, const char *text) ERR_MUST;

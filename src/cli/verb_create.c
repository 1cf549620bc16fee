/* bothy create: makes a sandbox that stays. */
#include <stdio.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "cli/out.h"
#include "cli/spec.h"
#include "cli/verbs.h"

#define USAGE "[OPTIONS] IMAGE"

typedef struct create_args {
    common_args common;
    spec_args spec;
} create_args;

static const opt OPTS[] = {
    TEMPLATE_OPT(create_args, spec),
    SPEC_OPTS(create_args, spec),
    COMMON_OPTS(create_args),
};

static err *create_run(cli *c, void *args, const opt_words *words, int *status)
{
    const create_args *a = args;
    CLEANUP(json_decrefp) json_t *sandbox = NULL;
    json_t *body = NULL;
    int n;

    (void)status;
    TRY(spec_image_words(&a->spec, words, "bothy create " USAGE, &n));
    if (words->n > n)
        return err_remedy(usage_error("'bothy create' does not take '%s'", words->v[n]),
                          "usage: bothy create %s", USAGE);
    TRY(spec_to_json(&a->spec, n ? words->v[0] : NULL, &body));
    TRY(cli_post(c, body, &sandbox, "/v1/sandboxes"));
    if (c->common.json)
        out_json(stdout, sandbox);
    else
        out_line(stdout, json_str(sandbox, "id"));
    return NULL;
}

const verb VERB_CREATE = {
    .name = "create",
    .usage = USAGE,
    .summary = "Make a sandbox and print its id",
    .text = "It lives until 'bothy rm' or its time (--ttl) ends it.",
    .opts = OPTS,
    .args_size = sizeof(create_args),
    .words_max = 1,
    .run = create_run,
};

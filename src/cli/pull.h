/* Pulling an image with its progress: a bar on a terminal, lines of JSON with --json. */
#pragma once

#include "cli/cli.h"

typedef struct pull_wish {
    const char *source;
    const char *as;     /* or NULL */
    const char *policy; /* missing, always, never; NULL: the daemon's */
    bool quiet;
} pull_wish;
err *cli_pull(cli *c, const pull_wish *w, json_t **ret_image) ERR_MUST;

/* For a create with this body: what it would have to fetch is fetched first, so that one sees it
 * come on a terminal, and a signal during it has no sandbox to wait for. */
err *cli_pull_before(cli *c, json_t *create_body) ERR_MUST;

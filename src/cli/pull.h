/* Pulls an image and shows the progress: a bar on a terminal, lines of JSON with --json. */
#pragma once

#include "cli/cli.h"

typedef struct pull_wish {
    const char *source;
    const char *as;     /* or NULL */
    const char *policy; /* missing, always, never; NULL: the daemon's */
    bool quiet;
} pull_wish;
err *cli_pull(cli *c, const pull_wish *w, json_t **ret_image) ERR_MUST;

/* Pulls the image that a create with this body would have to fetch. So its progress is shown, and a
 * signal meanwhile has no sandbox to remove. */
err *cli_pull_before(cli *c, json_t *create_body) ERR_MUST;

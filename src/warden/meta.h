/* Reading what bothy-unpack reported about a layer (src/unpack/report.h has the format). The writer
 * of a report has parsed a stranger's archive: it is checked like one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define META_MAX (4u << 20)

typedef struct meta {
    uint8_t diff_id[32];
    uint64_t entries, bytes, whiteouts;
    bool opaque_root;
    char **implicit;      /* normalised paths, or NULL */
    char **whiteout_dirs; /* "" is the root */
} meta;

/* ERR_INTERNAL, EPROTO when it is torn, too long, or not of the form. text is changed. */
err *meta_parse(char *text, size_t n, meta *ret_meta) ERR_MUST;
void meta_done(meta *m);

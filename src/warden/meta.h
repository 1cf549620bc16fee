/* Reads the report of bothy-unpack about a layer (src/unpack/report.h has the format). The process
 * that wrote it has parsed a stranger's archive, so the report is checked as if it were one. */
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

/* Parses a report, and changes text. Returns ERR_INTERNAL with EPROTO if it is torn, too long or
 * malformed. */
err *meta_parse(char *text, size_t n, meta *ret_meta) ERR_MUST;
void meta_done(meta *m);

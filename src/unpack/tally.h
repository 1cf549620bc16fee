/* What happened to a layer, gathered for the report (report.h). */
#pragma once

#include "base/buf.h"
#include "unpack/unpack.h"

typedef struct tally {
    uint64_t entries, files, dirs, links, symlinks, fifos, whiteouts, opaques;
    uint64_t devices, xattrs, acls, duplicates, aufs;
    uint64_t bytes, out;
    bool opaque_root;
    buf paths; /* "implicit=..." and "whiteout_dir=..." lines */
    char *last_whiteout_dir;
} tally;

/* Refuse when the report would grow beyond its ceiling. */
err *tally_implicit(tally *t, const char *path) ERR_MUST;
err *tally_whiteout_dir(tally *t, const char *path, size_t n) ERR_MUST;
void tally_write(const tally *t, const unsigned char diff_id[32], buf *out);
void tally_done(tally *t);

/* Appends n bytes with everything outside 0x21..0x7e and '%' as %XX. */
void escape_path(buf *out, const char *path, size_t n);

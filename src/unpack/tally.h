/* Counts and paths that are gathered while a layer is unpacked, for the report (report.h). */
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

/* Add a path to the report; refuse the layer if the report would exceed its ceiling. */
err *tally_implicit(tally *t, const char *path) ERR_MUST;
err *tally_whiteout_dir(tally *t, const char *path, size_t n) ERR_MUST;
void tally_write(const tally *t, const unsigned char diff_id[32], buf *out);
void tally_done(tally *t);

/* Appends n bytes of a path; '%' and every byte outside 0x21..0x7e become %XX. */
void escape_path(buf *out, const char *path, size_t n);

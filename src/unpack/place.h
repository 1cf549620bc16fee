/* Finds the place of an entry: its parent directory, and room for its name. Writer process only. */
#pragma once

#include "unpack/writer.h"

/* Opens a path with openat2 below the layer's root. Returns the descriptor or -errno. */
int place_open(const writer *w, const char *path, int flags);
/* Opens the parent of a normalised path and makes it if missing. The writer owns *ret_dir, which is
 * valid until the next call. *ret_leaf points into path. */
err *place_parent(writer *w, const char *path, int *ret_dir, const char **ret_leaf) ERR_MUST;
void place_forget_parent(writer *w);

enum place_found {
    PLACE_FREE,
    PLACE_DIR,     /* a directory is there and was kept */
    PLACE_WHITEOUT /* a whiteout was there and was removed */
};
/* Makes room for a name by removing what has it. With want_dir an existing directory is kept. */
err *place_clear(writer *w, int dir, const char *name, bool want_dir,
                 enum place_found *ret_found) ERR_MUST;

/* Records what place_finish() has to apply to a directory. Takes ownership of d.path. */
err *place_later(writer *w, dir_later d) ERR_MUST;
/* Applies the recorded owners, modes and times, and passes the opaque directories to the outer
 * process. */
err *place_finish(writer *w) ERR_MUST;

/* Names of tar entries: pure functions over strings. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define NAME_PATH_MAX 4095
#define NAME_LEAF_MAX 255

/* Normalises a path in place: no leading "/" or "./", no empty or "." component, no trailing slash;
 * the root becomes "". Returns NULL, or the reason for a refusal: "..", too long, too deep. */
const char *name_normalise(char *path, unsigned max_depth, unsigned *ret_depth);

enum name_kind {
    NAME_PLAIN,
    NAME_WHITEOUT, /* leaf ".wh.x": ret_target is x */
    NAME_OPAQUE,   /* leaf ".wh..wh..opq" */
    NAME_AUFS,     /* ".wh..wh.*" anywhere: bookkeeping of another union file system, left out */
    NAME_BAD       /* a whiteout of nothing, or something below a whiteout */
};
/* Classifies a normalised path. *ret_target points into it. */
enum name_kind name_kind_of(const char *path, const char **ret_target);

/* Returns the last component; *ret_parent_len is the length of the part before its slash. */
const char *name_leaf(const char *path, size_t *ret_parent_len);

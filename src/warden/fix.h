/* The fix layer of an image: directories that must lie on top of its layers.
 *
 * 1. A layer that names only tmp/x makes tmp as 0755 root and so hides the /tmp of the layer below.
 *    The fix layer has tmp with the metadata of the nearest layer that really describes it.
 * 2. Whiteouts in a directory that only one layer has show up in listings, because overlayfs
 *    filters merged directories only. A directory of the same name in the fix layer makes it a
 *    merged one. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "warden/meta.h"

typedef struct fix_layer {
    int tree; /* the layer's root */
    meta meta;
} fix_layer;

/* Builds the fix layer in out, an empty directory. layer: top first. *ret_made is the number of
 * directories in it; 0: it is not needed. */
err *fix_build(const fix_layer *layer, size_t n, int out, size_t *ret_made) ERR_MUST;

/* The node's layers: unpacked once per diff id, stacked per image.
 *
 * Everything lies below one root-owned 0700 directory on the file system of the uppers:
 *
 *   layers/<hex diff id>/tree    the layer in overlayfs form, root of the layer = tree
 *   layers/<hex diff id>/meta    what bothy-unpack reported (src/unpack/report.h)
 *   images/<hex digest>          which layers to mount, top first
 *   fix/<hex digest>/tree        a small layer on top of the image's: directories that a layer
 *                                made without an entry of their own, with the metadata below them
 *   forgotten/<hex digest>       images that were pruned while a sandbox still had them
 *   tmp/                         what is being made; emptied by layers_open()
 *
 * A layer appears by rename, an image after one syncfs(); a layer no image names that was made
 * before the last boot is removed at the next layers_open().
 *
 * The warden: layers_open() at start; WP_UNPACK -> layers_unpack(); WP_IMAGE -> layers_image();
 * WP_PRUNE -> layers_prune(); a claim -> layers_stack_of(), and layers_stack_done() once the slot's
 * own state names the image (from then on its digest is among in_use of every prune).
 *
 * Any thread may call; unpacking blocks for as long as it takes, the rest is short. Every error has
 * errnum set to the value that the answer frame carries:
 *   EBADMSG    the layer was refused (ERR_IMAGE_UNSUPPORTED; the cause is the unpacker's reason)
 *   EILSEQ     the layer has another diff id (ERR_IMAGE_PULL_FAILED)
 *   ENOENT     no such image, or a layer of it is not here (ERR_NOT_FOUND)
 *   ETIMEDOUT  (ERR_TIMEOUT), ENOSPC (ERR_DISK_FULL), EINVAL (ERR_INVALID_REQUEST)
 *   anything else: the failing call's (ERR_INTERNAL) */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define LAYERS_MAX 256 /* of one image */

typedef struct layers layers;

typedef struct layers_options {
    int dirfd;           /* the directory above; not kept, a duplicate is */
    const char *unpack;  /* the program bothy-unpack; copied */
    uint64_t timeout_ms; /* of one layer; 0: 30 min */
    const int *join;     /* cgroup.procs files that each unpacker joins; not owned, stay open */
    size_t njoin;
} layers_options;

/* Opens the store: makes missing directories, empties tmp/, removes layers that may be torn. */
err *layers_open(const layers_options *o, layers **ret_layers) ERR_MUST;
void layers_free(layers *l);

typedef struct layers_unpacked {
    uint64_t bytes, entries; /* of file data; of the tar */
    bool was_there;
} layers_unpacked;
/* Unpacks a layer. format is a wp_format (plain, gzip, zstd). The blob is read from its current
 * position to its end and not closed. A second call for the same diff id waits for the first. */
err *layers_unpack(layers *l, const uint8_t diff_id[32], unsigned format, int blob_fd,
                   layers_unpacked *ret_what) ERR_MUST;

typedef struct layers_copying {
    int tree_fd;
    uint64_t until_ns;           /* as in copy_how */
    bool (*given_up)(void *arg); /* as in copy_how */
    /* Called once, when the tree is not needed any more, whatever the result: before the layer is
     * put in place, or its remains are removed. With an error the layer is not put in place. */
    err *(*copied)(void *arg);
    void *arg;
    const void *of; /* names the caller that will define its image: until layers_let_go(), for an
                     * hour at most, no prune takes the layer, even if it takes unclaimed ones */
} layers_copying;
#define LAYERS_KEEP_FREE 20u /* a copy leaves one part in so many of the file system free */
/* Adds a layer of the node's own, under an id that the caller made up: a copy of a directory in
 * overlayfs' form, which waits for its image like any layer. Returns ERR_CONFLICT (EEXIST) if the
 * id is taken. See copy.h for what is refused. */
err *layers_copy(layers *l, const uint8_t layer[32], const layers_copying *how,
                 layers_unpacked *ret_what) ERR_MUST;

/* Records that this caller will define no image any more: its layers count as unclaimed. */
void layers_let_go(layers *l, const void *of);

/* Reports which of the layers are here. These are kept for their image as if they had just been
 * unpacked. */
void layers_have(layers *l, const uint8_t (*diff_ids)[32], size_t n, uint8_t *ret_here);

/* Defines an image by its layers, bottom first, all of them unpacked. Idempotent. Cuts below a
 * layer that hides everything under it, drops repeated layers, builds the fix layer. */
err *layers_image(layers *l, const uint8_t image[32], const uint8_t (*diff_ids)[32],
                  size_t n) ERR_MUST;

typedef struct layers_stack {
    char **path; /* top first, NULL-terminated: "fix/<hex>/tree", "layers/<hex>/tree", ... */
    size_t n;    /* relative to layers_options.dirfd; may be 0 */
    uint8_t image[32];
    layers *owner;
} layers_stack;
/* Returns what to mount for an image. No prune touches it until layers_stack_done(), which accepts
 * a zeroed stack. */
err *layers_stack_of(layers *l, const uint8_t image[32], layers_stack *ret_stack) ERR_MUST;
void layers_stack_done(layers_stack *s);

typedef struct layers_pruned {
    uint64_t layers, bytes;
} layers_pruned;
/* Forgets images (unknown ones are skipped), then removes every layer that no image names, except
 * layers of images in use, layers of held stacks, and, unless `unclaimed` says otherwise, layers
 * that came in the last hour and still wait for their image. in_use: image digests of all claimed
 * slots. */
err *layers_prune(layers *l, const uint8_t (*forget)[32], size_t nforget,
                  const uint8_t (*in_use)[32], size_t nuse, bool unclaimed,
                  layers_pruned *ret_what) ERR_MUST;

/* Copies a tree on the same file system, for a snapshot: the files that a sandbox has written (the
 * upper directory of its overlay) become a layer. Ids on the disk are those inside, in both;
 * whiteouts and opaque directories keep their form.
 *
 * The tree is a tenant's work: no link in it is followed; entries, depth, bytes and time have
 * ceilings. If it changes during the copy, the copy is something in between, and nothing worse. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define COPY_DEPTH_MAX   128u /* as for layers that are unpacked; three descriptors each */
#define COPY_ENTRIES_MAX 1000000u
#define COPY_BYTES_MAX   (UINT64_C(16) << 30) /* bytes that cannot be shared and are copied */
#define COPY_FLUSH_NS    (UINT64_C(10) * 1000000000)
#define COPY_LINKS_MAX   (UINT64_C(64) << 20) /* bytes for remembering hard links */
#define COPY_TIME_NS     (UINT64_C(120) * 1000000000)

typedef struct copy_what {
    uint64_t entries, bytes /* of files */, copied /* of those, not shared with the original */;
    uint64_t whiteouts;
} copy_what;
/* Writes the data of a tree's files from memory to the disk, for at most ten seconds. Blocks are
 * shared only when they have a place on the disk, so a copy that follows is fast. */
void copy_flush(int tree);
typedef struct copy_how {
    uint64_t until_ns;           /* at most COPY_TIME_NS from now; 0: just that */
    uint64_t keep_free;          /* bytes of the file system that stay free; fewer: ENOSPC */
    bool (*given_up)(void *arg); /* asked at every step; NULL: never given up */
    void *arg;
} copy_how;
/* Copies from into to, an empty directory, which also gets from's own metadata. Errors have errnum:
 * E2BIG (a ceiling), ETIMEDOUT, ECANCELED (given up), ENOSPC, EOPNOTSUPP (a form that cannot be a
 * layer), or the failed call's. */
err *copy_tree(int from, int to, const copy_how *how, copy_what *ret_what) ERR_MUST;

/* A copy of a tree on the same file system, for a snapshot: what a sandbox has written (the upper
 * directory of its overlay) becomes a layer. Ids on the disk are those inside, in both; whiteouts
 * and opaque directories keep their form.
 *
 * The tree is a tenant's work: nothing in it is followed, entries, depth, bytes and time have
 * ceilings. Who writes to it meanwhile gets a copy of something in between, and nothing worse. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define COPY_DEPTH_MAX   128u /* as of layers that are unpacked; three descriptors each */
#define COPY_ENTRIES_MAX 1000000u
#define COPY_BYTES_MAX   (UINT64_C(16) << 30) /* that cannot be shared and are copied */
#define COPY_FLUSH_NS    (UINT64_C(10) * 1000000000)
#define COPY_LINKS_MAX   (UINT64_C(64) << 20) /* bytes that hard links are remembered with */
#define COPY_TIME_NS     (UINT64_C(120) * 1000000000)

typedef struct copy_what {
    uint64_t entries, bytes /* of files */, copied /* of those, not shared with the original */;
    uint64_t whiteouts;
} copy_what;
/* Has the disk get what lies in memory of a tree's files: blocks are shared only when they have a
 * place on it, and a copy that finds them there is soon done. As far as it comes in ten seconds. */
void copy_flush(int tree);
typedef struct copy_how {
    uint64_t until_ns;           /* COPY_TIME_NS from now at most; 0: that */
    uint64_t keep_free;          /* bytes of the file system; fewer: ENOSPC */
    bool (*given_up)(void *arg); /* asked at every step; NULL: never */
    void *arg;
} copy_how;
/* to is an empty directory, which gets from's own metadata, too. Errors have errnum: E2BIG (a
 * ceiling), ETIMEDOUT, ECANCELED (given up), ENOSPC, EOPNOTSUPP (a form that cannot be a layer), or
 * the call's. */
err *copy_tree(int from, int to, const copy_how *how, copy_what *ret_what) ERR_MUST;

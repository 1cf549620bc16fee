/* Turns a local file or directory into a tar (pax) stream while it is read. Only the current piece
 * is in memory. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct pack pack;
typedef struct pack_options {
    const char *path; /* file or directory to pack */
    const char *name; /* its name in the archive; "": its content at the top */
    bool follow;      /* if path itself is a symbolic link, follow it */
    bool xattrs;      /* include user.* attributes */
} pack_options;
typedef struct pack_count {
    uint64_t files, bytes; /* bytes: of the files' content */
    uint64_t left_out;     /* sockets */
} pack_count;

err *pack_new(const pack_options *o, pack **ret_pack) ERR_MUST;
void pack_free(pack *p);
static inline void pack_freep(pack **p)
{
    pack_free(*p);
}
/* Reads the next bytes of the archive; *ret_n is 0 at its end. */
err *pack_read(pack *p, void *to, size_t max, size_t *ret_n) ERR_MUST;
pack_count pack_counted(const pack *p);
/* Estimates what there is to pack, for a progress bar. */
pack_count pack_measure(const pack_options *o);

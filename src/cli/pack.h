/* A local file or directory as a tar (pax) stream, made as it is read: nothing waits in memory but
 * the piece under way. One thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct pack pack;
typedef struct pack_options {
    const char *path; /* of what is packed */
    const char *name; /* it is called so in the archive; "": what lies in it stands at the top */
    bool follow;      /* path itself, if it is a symbolic link */
    bool xattrs;      /* user.* */
} pack_options;
typedef struct pack_count {
    uint64_t files, bytes; /* bytes: of the files' content */
    uint64_t left_out;     /* sockets, and what was gone when its turn came */
} pack_count;

err *pack_new(const pack_options *o, pack **ret_pack) ERR_MUST;
void pack_free(pack *p);
static inline void pack_freep(pack **p)
{
    pack_free(*p);
}
/* The next bytes of the archive; 0 at its end. */
err *pack_read(pack *p, void *to, size_t max, size_t *ret_n) ERR_MUST;
pack_count pack_counted(const pack *p);
/* What there is to pack, as far as one can see beforehand: for a bar. */
pack_count pack_measure(const pack_options *o);

/* The header of seccomp.bpf: which profile it was compiled from, by length and a hash (FNV-1a). The
 * hash need not be cryptographic: both files are root's, and it only has to show that one was
 * changed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FILTER_MAGIC UINT64_C(0x6670627968746f62) /* "bothybpf" */

struct filter_head {
    uint64_t magic, length, hash;
};

static inline struct filter_head filter_head_of(const void *profile, size_t n)
{
    const unsigned char *p = profile;
    struct filter_head h = {FILTER_MAGIC, n, UINT64_C(0xcbf29ce484222325)};

    for (size_t i = 0; i < n; i++)
        h.hash = (h.hash ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

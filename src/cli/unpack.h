/* A tar stream from a sandbox, put into a directory of the user's. The stream is a stranger's.
 *
 * Nothing is read or written outside the directory, whatever the names and links in the stream say:
 * every step goes by openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), and the thread that takes them
 * is held by Landlock where there is one. Set-uid, set-gid and sticky
 * bits are dropped; devices, FIFOs and sockets are left out and counted. A file appears under its
 * name when it is complete, so that whoever stops in the middle leaves no half file.
 *
 * The stream is fed from the thread that receives it, the files are written by one of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct unpack unpack;
typedef struct unpack_options {
    int dir;          /* where; the caller's */
    const char *only; /* exactly one entry, no directory, gets this name; NULL: a tree */
    bool own_root;    /* the tree's root is new: it gets the mode and time of the stream's */
    bool owners;      /* uid and gid, which only root can keep, and user.* attributes */
} unpack_options;
typedef struct unpack_count {
    uint64_t files, bytes;
    uint64_t left_out; /* devices and the like */
} unpack_count;

/* Limits of what a stream may bring. */
#define UNPACK_DEPTH    1024
#define UNPACK_NAME_MAX 4095

err *unpack_new(const unpack_options *o, unpack **ret_unpack) ERR_MUST;
/* False: it has failed, unpack_end() says why. Waits while the disk is slower than the stream. */
bool unpack_feed(unpack *u, const void *p, size_t n);
/* The stream is over (complete) or broken off; waits until everything is written or removed. */
err *unpack_end(unpack *u, bool complete) ERR_MUST;
/* While it runs: about; after unpack_end(): exactly. */
unpack_count unpack_counted(const unpack *u);
void unpack_free(unpack *u);
static inline void unpack_freep(unpack **u)
{
    unpack_free(*u);
}

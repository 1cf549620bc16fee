/* Unpacks a tar stream from a sandbox into a local directory. The stream is untrusted.
 *
 * Nothing is read or written outside the directory, whatever names and links the stream has: every
 * step uses openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), and Landlock, if the kernel has it,
 * confines the thread that takes them. Set-uid, set-gid and sticky bits are dropped; devices, FIFOs
 * and sockets are left out and counted. A file appears under its name when it is complete, so an
 * interrupted copy leaves no half file.
 *
 * The thread that receives the stream feeds it; a second thread writes the files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct unpack unpack;
typedef struct unpack_options {
    int dir;          /* target directory; the caller owns it */
    const char *only; /* the name for exactly one entry, no directory; NULL: a tree */
    bool own_root;    /* the tree's root is new: set its mode and time, too */
    bool owners;      /* set user.* attributes and, if we are root, uid and gid */
} unpack_options;
typedef struct unpack_count {
    uint64_t files, bytes;
    uint64_t left_out; /* devices, FIFOs, sockets */
} unpack_count;

/* Limits for names in a stream. */
#define UNPACK_DEPTH    1024
#define UNPACK_NAME_MAX 4095

err *unpack_new(const unpack_options *o, unpack **ret_unpack) ERR_MUST;
/* Takes bytes of the stream. Blocks while the disk is slower than the stream. Returns false if it
 * has failed; unpack_end() says why. */
bool unpack_feed(unpack *u, const void *p, size_t n);
/* Ends the stream, complete or not. Waits until everything is written, or an unfinished file
 * removed. */
err *unpack_end(unpack *u, bool complete) ERR_MUST;
/* Returns the counts: approximate while it runs, exact after unpack_end(). */
unpack_count unpack_counted(const unpack *u);
void unpack_free(unpack *u);
static inline void unpack_freep(unpack **u)
{
    unpack_free(*u);
}

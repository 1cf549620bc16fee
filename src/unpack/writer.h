/* Writes tar entries into a directory, as a layer in overlayfs form.
 *
 * Everything is done relative to `root` with openat2(RESOLVE_IN_ROOT | NO_MAGICLINKS | NO_XDEV): a
 * symlinked parent is followed inside the layer, a leaf never. Directories get owner, mode and
 * time at the end, deepest first, so that no DAC capability is needed. */
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <sys/types.h>
#include <time.h>

#include "unpack/names.h"
#include "unpack/tally.h"
#include "unpack/unpack.h"

typedef struct dir_later { /* metadata that a directory gets at the end */
    char *path;
    unsigned depth;
    size_t seq; /* a later entry for the same directory wins */
    mode_t mode;
    uid_t uid;
    gid_t gid;
    struct timespec mtime;
    bool opaque; /* this record is only the opaque mark */
} dir_later;

typedef struct writer {
    int root; /* O_PATH; not owned */
    /* Receives the paths of directories to be marked opaque, NUL after each: trusted.* needs a
     * capability that this process lacks. -1: they are only counted. */
    int opaque_fd;
    bool refuse_devices; /* else they are skipped and counted */
    unpack_limits lim;
    tally tally;

    dir_later *later;
    size_t nlater, cap_later;
    uint64_t names;    /* bytes of later[] and its paths */
    int parent_fd;     /* the last parent, or negative */
    bool parent_stale; /* something was removed since: look it up again */
    char parent_path[NAME_PATH_MAX + 1];
} writer;

void writer_init(writer *w, int root, const unpack_limits *lim);
/* Writes all entries, then the directories' metadata. */
err *writer_run(writer *w, struct archive *tar) ERR_MUST;
void writer_done(writer *w);

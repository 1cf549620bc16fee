/* Converts between archives of callers and entry streams of the kit (wire/kit.h), both ways. This
 * module does no I/O of its own; libarchive reads and writes the formats.
 *
 * Out: records of a sandbox become tar (pax) or zip. They come from a tenant: sizes, holes and
 * order may be anything that kit_decode() and kit_order_check() accept. Work and output of one call
 * are bounded.
 *
 * In: a caller's archive becomes records: tar, plain or in gzip or zstd, or zip (stored or
 * deflated). The first bytes tell which. Its names are normalised to valid entry names, or it is
 * refused. Its heads are bounded, so that memory does not grow with what is sent.
 *
 * Names are bytes: the process needs a UTF-8 locale (LC_CTYPE), or libarchive changes them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/kit.h"

/* ---- out ---- */

enum archive_format {
    ARCHIVE_TAR,
    ARCHIVE_ZIP
};

/* Larger files are left out: skipping over their holes takes time. */
#define ARCHIVE_FILE_MAX (16ull << 40)
/* Limit of the memory for a zip's directory, which is kept until its end. ERR_TOO_LARGE beyond. */
#define ARCHIVE_ZIP_DIRECTORY_MAX (32u << 20)

typedef struct archive_out archive_out;
/* Makes an archive whose bytes are appended to `to`, which must outlive it. `name` replaces the
 * name of an entry "" that is no directory. */
err *archive_out_new(enum archive_format format, const char *name, buf *to,
                     archive_out **ret_out) ERR_MUST;
/* Takes a record; the last one is END. If *ret_again is set, enough was written for now: pass the
 * same record again. */
err *archive_out_put(archive_out *o, const kit_record *r, bool *ret_again) ERR_MUST;
/* Returns the number of entries missing from the archive: too large, of a kind the format lacks, or
 * reported by the kit. */
uint64_t archive_out_left_out(const archive_out *o);
uint64_t archive_out_unread(const archive_out *o); /* the kit's share of these */
/* A note after the end of an incomplete tar: a block that tar readers ignore, "Bothy-Unread: N" and
 * zeros. */
#define ARCHIVE_NOTE      "Bothy-Unread: "
#define ARCHIVE_NOTE_SIZE 512
void archive_out_free(archive_out *o);
static inline void archive_out_freep(archive_out **o)
{
    archive_out_free(*o);
}

/* ---- in ---- */

#define ARCHIVE_ENTRIES_MAX 2000000u
#define ARCHIVE_HEAD_MAX    (4u << 20) /* of one entry: names, attributes, the map of its holes */
/* Limit of further memory for reading: the window of a zstd stream. */
#define ARCHIVE_IN_MEMORY (160u << 20)

typedef struct archive_in {
    /* Returns the next piece of the caller's archive; *ret_n is 0 at its end. */
    err *(*read)(void *arg, void *p, size_t max, size_t *ret_n);
    /* Takes a record, valid until the next one; END is the last. An error ends the reading. */
    err *(*emit)(void *arg, const kit_record *r);
    /* Called once, after the first bytes, with the name of the compression, or NULL if there is
     * none. May be NULL. */
    err *(*packed)(void *arg, const char *by);
    void *arg;
    uint64_t left_out; /* number of attributes and entries that no sandbox can have */
} archive_in;
/* Reads to the end of the archive. ERR_INVALID_REQUEST: it is no archive, is damaged, or has
 * invalid names; or the error of a callback. Bytes after the archive are not read. */
err *archive_in_run(archive_in *in) ERR_MUST;

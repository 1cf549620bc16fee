/* Archives of callers and entry streams of the kit (wire/kit.h), one into the other. Nothing here
 * does I/O of its own; libarchive reads and writes the formats.
 *
 * Out: records of a sandbox become tar (pax) or zip. They are a stranger's: sizes, holes and order
 * may be anything that kit_decode() and kit_order_check() let pass. Work and output of one call are
 * bounded.
 *
 * In: what a caller has sent becomes records: tar as it is or in gzip or zstd, or zip (stored or
 * deflated). Found out by its first bytes. Its names are made what names of entries must be, or it
 * is refused; its heads are bounded, so that memory does not grow with what is sent.
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

/* Beyond it a file is left out: to go over its holes takes time. */
#define ARCHIVE_FILE_MAX (16ull << 40)
/* What a zip's directory may take of memory: it is kept until its end. ERR_TOO_LARGE. */
#define ARCHIVE_ZIP_DIRECTORY_MAX (32u << 20)

typedef struct archive_out archive_out;
/* Bytes are appended to `to`, which must outlive it. name: what an entry "" that is no directory is
 * called. */
err *archive_out_new(enum archive_format format, const char *name, buf *to,
                     archive_out **ret_out) ERR_MUST;
/* Takes a record, of which END is the last. *ret_again: not done with it yet, because enough was
 * written for now; give it once more. */
err *archive_out_put(archive_out *o, const kit_record *r, bool *ret_again) ERR_MUST;
/* Entries that are not in it: too large, of no kind the format knows, or told by the kit. */
uint64_t archive_out_left_out(const archive_out *o);
uint64_t archive_out_unread(const archive_out *o); /* those of them that the kit told */
/* Behind the end of a tar of which something is missing: a block that no reader of tars looks at,
 * "Bothy-Unread: N" and zeros. */
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
/* What reading may take of memory besides: the window of a zstd stream. */
#define ARCHIVE_IN_MEMORY (160u << 20)

typedef struct archive_in {
    /* The next piece of what was sent; *ret_n is 0 at its end. */
    err *(*read)(void *arg, void *p, size_t max, size_t *ret_n);
    /* A record, good until the next one; END is the last. An error ends the reading. */
    err *(*emit)(void *arg, const kit_record *r);
    /* Once, after the first bytes: it is compressed by this, NULL: it is not. May be NULL. */
    err *(*packed)(void *arg, const char *by);
    void *arg;
    uint64_t left_out; /* counted: attributes and entries that no sandbox could have */
} archive_in;
/* To the end of the archive. ERR_INVALID_REQUEST: it is none, is damaged, or has names that no
 * entry may have; or what the callbacks returned. What follows the archive is not read. */
err *archive_in_run(archive_in *in) ERR_MUST;

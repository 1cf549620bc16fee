#include "wire/gunzip.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/str.h"

#define PIECE (64u * 1024)
/* Limit of compressed bytes without output, such as empty members: a fixed number, and some for
 * each byte the caller asks for, enough for a sender that flushes after every byte. */
#define SILENT_MAX  (UINT64_C(1) << 20)
#define SILENT_EACH 16u
#define MEMBER_MIN  18 /* the smallest member */
#define TRAILER     8u /* of a member: checksum and length */

struct gunzip {
    gunzip_source *read;
    void *arg;
    struct archive *a;
    char *piece;
    bool opened, ended;
    uint64_t taken, last;        /* bytes taken, and the last eight of them */
    uint64_t silent, silent_max; /* bytes taken since the last output */
    err *failed;                 /* error of the source */
};

static err *next_piece(gunzip *g, size_t *ret_n)
{
    if (g->silent > g->silent_max)
        return err_new(ERR_INVALID_REQUEST,
                       "error decompressing request body: nothing comes of it");
    TRY(g->read(g->arg, g->piece, PIECE, ret_n));
    g->silent += *ret_n;
    g->taken += *ret_n;
    for (size_t i = *ret_n < TRAILER ? 0 : *ret_n - TRAILER; i < *ret_n; i++)
        g->last = g->last << 8 | (unsigned char)g->piece[i];
    return NULL;
}

static la_ssize_t on_read(struct archive *a, void *arg, const void **ret_bytes)
{
    gunzip *g = arg;
    size_t n = 0;

    if (!g->failed)
        g->failed = next_piece(g, &n);
    if (g->failed) {
        archive_set_error(a, EIO, "it was broken off");
        return -1;
    }
    *ret_bytes = g->piece;
    return (la_ssize_t)n;
}

static err *gunzip_damaged(gunzip *g, const char *why)
{
    if (g->failed)
        return TAKE_PTR(g->failed);
    return err_remedy(
        err_because(err_new(ERR_INVALID_REQUEST, "error decompressing request body"), "%s", why),
        "Send the body as gzip, or without Content-Encoding.");
}

/* Returns true if the body really decompresses to nothing. To libarchive's formats a body that is
 * not gzip, or breaks off before its first byte of output, looks empty too. A valid empty one was
 * read to its end, and its trailer is zero. */
static bool is_empty(const gunzip *g)
{
    la_int64_t used = archive_filter_bytes(g->a, -1);

    return used >= MEMBER_MIN && (uint64_t)used == g->taken && !g->last;
}

/* Opens the stream. Exactly one layer is removed, even if its content is compressed again. */
static err *open_it(gunzip *g)
{
    struct archive_entry *entry;

    archive_read_support_format_raw(g->a);
    archive_read_support_format_empty(g->a);
    int r = archive_read_append_filter(g->a, ARCHIVE_FILTER_GZIP);
    if (r == ARCHIVE_OK)
        r = archive_read_open2(g->a, g, NULL, on_read, NULL, NULL);
    if (r == ARCHIVE_OK && archive_errno(g->a))
        r = ARCHIVE_FATAL;
    if (r == ARCHIVE_OK)
        r = archive_read_next_header(g->a, &entry);
    if (r != ARCHIVE_OK && r != ARCHIVE_EOF)
        return gunzip_damaged(g, str_or(archive_error_string(g->a), "it is damaged"));
    if (r == ARCHIVE_EOF && !is_empty(g))
        return gunzip_damaged(g, "it is not gzip, or not all of it");
    g->ended = r == ARCHIVE_EOF;
    g->opened = true;
    return NULL;
}

err *gunzip_read(gunzip *g, void *p, size_t max, size_t *ret_n)
{
    g->silent_max = SILENT_MAX + SILENT_EACH * (uint64_t)max;
    if (!g->opened)
        TRY(open_it(g));
    la_ssize_t n = g->ended ? 0 : archive_read_data(g->a, p, max);
    if (n < 0 || (!n && g->failed)) /* between two members a failure looks like the end */
        return gunzip_damaged(g, str_or(archive_error_string(g->a), "it is damaged"));
    g->ended = !n;
    g->silent = 0;
    *ret_n = (size_t)n;
    return NULL;
}

gunzip *gunzip_new(gunzip_source *read, void *arg)
{
    gunzip *g = xcalloc(1, sizeof *g);

    *g = (gunzip){.read = read, .arg = arg, .a = archive_read_new(), .piece = xmalloc(PIECE)};
    return g;
}

void gunzip_free(gunzip *g)
{
    if (!g)
        return;
    archive_read_free(g->a);
    err_free(g->failed);
    free(g->piece);
    free(g);
}

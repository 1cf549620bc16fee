#include "wire/gunzip.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/str.h"

#define PIECE (64u * 1024)

struct gunzip {
    gunzip_source *read;
    void *arg;
    struct archive *a;
    char *piece;
    bool opened, ended;
    err *failed; /* of the source */
};

static la_ssize_t on_read(struct archive *a, void *arg, const void **ret_bytes)
{
    gunzip *g = arg;
    size_t n = 0;

    g->failed = g->read(g->arg, g->piece, PIECE, &n);
    if (g->failed) {
        archive_set_error(a, EIO, "it was broken off");
        return -1;
    }
    *ret_bytes = g->piece;
    return (la_ssize_t)n;
}

static err *damaged(gunzip *g, const char *why)
{
    if (g->failed)
        return TAKE_PTR(g->failed);
    return err_remedy(
        err_because(err_new(ERR_INVALID_REQUEST, "error decompressing request body"), "%s", why),
        "Send the body as gzip, or without Content-Encoding.");
}

/* libarchive takes what no filter knows as it is: that is looked at here. What is empty has no
 * entry. */
static err *open_it(gunzip *g)
{
    struct archive_entry *entry;

    archive_read_support_filter_gzip(g->a);
    archive_read_support_format_raw(g->a);
    archive_read_support_format_empty(g->a);
    int r = archive_read_open2(g->a, g, NULL, on_read, NULL, NULL);
    if (r == ARCHIVE_OK)
        r = archive_read_next_header(g->a, &entry);
    if (r != ARCHIVE_OK && r != ARCHIVE_WARN && r != ARCHIVE_EOF)
        return damaged(g, str_or(archive_error_string(g->a), "it is damaged"));
    if (archive_filter_code(g->a, 0) != ARCHIVE_FILTER_GZIP)
        return damaged(g, "it is not gzip");
    g->ended = r == ARCHIVE_EOF;
    g->opened = true;
    return NULL;
}

err *gunzip_read(gunzip *g, void *p, size_t max, size_t *ret_n)
{
    if (!g->opened)
        TRY(open_it(g));
    la_ssize_t n = g->ended ? 0 : archive_read_data(g->a, p, max);
    if (n < 0)
        return damaged(g, str_or(archive_error_string(g->a), "it is damaged"));
    g->ended = !n;
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

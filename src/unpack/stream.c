#include "unpack/stream.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#define BLOCK (256u << 10)

static void archive_freep(struct archive **a)
{
    if (*a)
        archive_read_free(*a);
}

static ssize_t read_some(int fd, void *p, size_t n)
{
    ssize_t k;

    do
        k = read(fd, p, n);
    while (k < 0 && errno == EINTR);
    return k;
}

err *stream_init(stream *s, uint64_t max)
{
    EVP_MD *sha = EVP_MD_fetch(NULL, "SHA256", NULL);

    *s = (stream){.fd = -1, .max = max, .block = xmalloc(BLOCK), .md = EVP_MD_CTX_new()};
    int ok = sha && s->md && EVP_DigestInit_ex2(s->md, sha, NULL);
    EVP_MD_free(sha);
    return ok ? NULL : err_new(ERR_INTERNAL, "cannot prepare SHA-256");
}

void stream_done(stream *s)
{
    EVP_MD_CTX_free(s->md);
    free(s->block);
    *s = (stream){.fd = -1};
}

/* Reads and hashes the next piece of the tar. libarchive's read callback; stream_drain() uses it,
 * too. */
static la_ssize_t next_piece(struct archive *a, void *arg, const void **ret_bytes)
{
    stream *s = arg;
    ssize_t n = read_some(s->fd, s->block, BLOCK);

    if (n < 0) {
        archive_set_error(a, errno, "cannot read the layer");
        return -1;
    }
    s->ended |= !n;
    s->total += (uint64_t)n;
    if (s->total > s->max) {
        archive_set_error(a, EFBIG, "more than %llu uncompressed bytes",
                          (unsigned long long)s->max);
        return -1;
    }
    if (n && !EVP_DigestUpdate(s->md, s->block, (size_t)n)) {
        archive_set_error(a, EIO, "cannot hash the layer");
        return -1;
    }
    *ret_bytes = s->block;
    return n;
}

err *stream_open_tar(stream *s, struct archive **ret_tar)
{
    CLEANUP(archive_freep) struct archive *a = archive_read_new();

    if (!a || archive_read_support_format_tar(a) != ARCHIVE_OK ||
        archive_read_append_filter(a, ARCHIVE_FILTER_NONE) != ARCHIVE_OK)
        return err_new(ERR_INTERNAL, "cannot prepare the tar reader");
    if (archive_read_open(a, s, NULL, next_piece, NULL) != ARCHIVE_OK)
        return refuse("%s", str_or(archive_error_string(a), "not a tar archive"));
    *ret_tar = TAKE_PTR(a);
    return NULL;
}

err *stream_drain(stream *s)
{
    CLEANUP(archive_freep) struct archive *a = archive_read_new(); /* carries the error's text */
    const void *p;
    la_ssize_t n;

    while ((n = next_piece(a, s, &p)) > 0)
        ;
    return n < 0 ? refuse("%s", archive_error_string(a)) : NULL;
}

void stream_diff_id(stream *s, unsigned char ret_digest[32])
{
    unsigned n = 32;

    if (!EVP_DigestFinal_ex(s->md, ret_digest, &n))
        memset(ret_digest, 0, 32);
}

/* ---- the decompressor ---- */

typedef struct source {
    int fd;
    uint64_t total;
    char block[BLOCK];
} source;

static la_ssize_t source_read(struct archive *a, void *arg, const void **ret_bytes)
{
    source *in = arg;
    ssize_t n = read_some(in->fd, in->block, BLOCK);

    if (n < 0) {
        archive_set_error(a, errno, "cannot read the blob");
        return -1;
    }
    in->total += (uint64_t)n;
    *ret_bytes = in->block;
    return n;
}

static const int FILTERS[] = {
    [FORMAT_PLAIN] = ARCHIVE_FILTER_NONE,
    [FORMAT_GZIP] = ARCHIVE_FILTER_GZIP,
    [FORMAT_ZSTD] = ARCHIVE_FILTER_ZSTD,
};

/* Opens the blob with one filter. The filter is appended, not "supported": libarchive does not
 * guess and does not accept gzip in gzip. The format "empty" is not enabled, as it would let a
 * broken gzip header pass as an empty layer. */
static err *open_raw(source *in, enum unpack_format format, struct archive **ret_raw)
{
    CLEANUP(archive_freep) struct archive *a = archive_read_new();
    struct archive_entry *entry;

    if (!a || archive_read_support_format_raw(a) != ARCHIVE_OK ||
        archive_read_append_filter(a, FILTERS[format]) != ARCHIVE_OK)
        return err_new(ERR_INTERNAL, "cannot prepare the decompressor");
    if (archive_read_open(a, in, NULL, source_read, NULL) != ARCHIVE_OK ||
        archive_read_next_header(a, &entry) != ARCHIVE_OK)
        return refuse("blob: %s", str_or(archive_error_string(a), "empty"));
    *ret_raw = TAKE_PTR(a);
    return NULL;
}

static err *check_ratio(uint64_t out, uint64_t in, const unpack_limits *lim)
{
    if (out > lim->bytes)
        return refuse("more than %lu uncompressed bytes", (unsigned long)lim->bytes);
    if (out > lim->ratio_floor && in && out / in > lim->ratio)
        return refuse("compression ratio over %lu", (unsigned long)lim->ratio);
    return NULL;
}

static err *copy_out(struct archive *raw, const source *in, int out, const unpack_limits *lim)
{
    const void *p;
    size_t n;
    la_int64_t at;
    uint64_t total = 0;
    int r;

    while ((r = archive_read_data_block(raw, &p, &n, &at)) == ARCHIVE_OK) {
        total += n;
        TRY(check_ratio(total, in->total, lim));
        int w = fs_write_all(out, p, n);
        if (w) /* the writer has ended and said why */
            return err_sys(ERR_INTERNAL, -w, "cannot hand on the layer");
    }
    if (r != ARCHIVE_EOF)
        return refuse("blob: %s", str_or(archive_error_string(raw), "cannot be decompressed"));
    return NULL;
}

err *stream_decompress(int in, int out, enum unpack_format format, const unpack_limits *lim)
{
    CLEANUP(freep) source *src = xcalloc(1, sizeof *src); /* outlives the reader */
    CLEANUP(archive_freep) struct archive *raw = NULL;

    src->fd = in;
    TRY(open_raw(src, format, &raw));
    return copy_out(raw, src, out, lim);
}

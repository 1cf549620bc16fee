/* Reads archives with two libarchive readers in a row: the first removes one compression, the
 * second knows tar or zip. So the bytes of a head can be counted after decompression. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "wire/archive.h"

#define PIECE (64u * 1024)
#define MAGIC 4

typedef struct reader {
    archive_in *in;
    struct archive *packed; /* NULL: it is not compressed */
    struct archive *a;
    char *piece;  /* PIECE bytes */
    size_t early; /* bytes in `piece` that were read to detect the format; delivered first */
    err *failed;  /* of a callback */
    bool zip;
    bool in_head;
    uint64_t head; /* bytes since the head began */
    uint32_t entries;
} reader;

static void archive_read_freep(struct archive **a)
{
    if (*a)
        archive_read_free(*a);
}

static err *archive_in_refuse(const char *why)
{
    return err_because(err_new(ERR_INVALID_REQUEST, "the archive cannot be unpacked"), "%s", why);
}

static void text_escape(buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || (unsigned char)s[i] >= 0x7f || s[i] == '\\')
            buf_printf(out, "\\x%02x", (unsigned char)s[i]);
        else
            buf_char(out, s[i]);
}

/* Returns an error about an entry. Its name is escaped: the text goes to logs and answers. */
static err *refuse_entry(const char *name, const char *why)
{
    CLEANUP(buf_done) buf text = {0};

    text_escape(&text, str_or(name, ""), strnlen(str_or(name, ""), 80));
    return err_because(err_new(ERR_INVALID_REQUEST, "the archive's entry '%s' cannot be unpacked",
                               buf_cstr(&text)),
                       "%s", why);
}

/* Returns the error of a callback if there is one, else that of the libarchive reader. */
static err *reader_error(reader *r, struct archive *a)
{
    if (r->failed)
        return TAKE_PTR(r->failed);
    return archive_in_refuse(str_or(archive_error_string(a), "it is damaged"));
}

/* ---- bytes ---- */

static la_ssize_t read_sent(struct archive *a, void *arg, const void **ret_bytes)
{
    reader *r = arg;
    size_t n = r->early;

    r->early = 0;
    if (!n)
        r->failed = r->in->read(r->in->arg, r->piece, PIECE, &n);
    if (r->failed) {
        archive_set_error(a, EIO, "it was broken off");
        return -1;
    }
    *ret_bytes = r->piece;
    return (la_ssize_t)n;
}

static la_ssize_t count_head(reader *r, struct archive *a, la_ssize_t n)
{
    if (r->in_head && n > 0)
        r->head += (uint64_t)n;
    if (r->head <= ARCHIVE_HEAD_MAX)
        return n;
    archive_set_error(a, EFBIG, "an entry's head has more than %u bytes", ARCHIVE_HEAD_MAX);
    return -1;
}

static la_ssize_t read_plain(struct archive *a, void *arg, const void **ret_bytes)
{
    return count_head(arg, a, read_sent(a, arg, ret_bytes));
}

static la_ssize_t read_unpacked(struct archive *a, void *arg, const void **ret_bytes)
{
    reader *r = arg;
    size_t n = 0;
    la_int64_t at;
    int k = archive_read_data_block(r->packed, ret_bytes, &n, &at);

    if (k == ARCHIVE_EOF)
        return 0;
    if (k != ARCHIVE_OK) {
        archive_set_error(a, EINVAL, "%s",
                          str_or(archive_error_string(r->packed), "the compression is damaged"));
        return -1;
    }
    return count_head(r, a, (la_ssize_t)n);
}

/* ---- what it is ---- */

static const struct {
    const char *magic;
    size_t n;
    const char *name;
    int filter;
    bool zip;
} KINDS[] = {
    {"\x1f\x8b", 2, "gzip", ARCHIVE_FILTER_GZIP, false},
    {"\x28\xb5\x2f\xfd", 4, "zstd", ARCHIVE_FILTER_ZSTD, false},
    {"PK\x03\x04", 4, NULL, ARCHIVE_FILTER_NONE, true},
    {"PK\x05\x06", 4, NULL, ARCHIVE_FILTER_NONE, true}, /* an empty zip */
    {"", 0, NULL, ARCHIVE_FILTER_NONE, false},
};

static err *read_magic(reader *r)
{
    size_t n = 1;

    while (r->early < MAGIC && n) {
        TRY(r->in->read(r->in->arg, r->piece + r->early, PIECE - r->early, &n));
        r->early += n;
    }
    return r->early ? NULL : archive_in_refuse("nothing was sent");
}

static size_t kind_of(const reader *r)
{
    size_t i = 0;

    while (r->early < KINDS[i].n || memcmp(r->piece, KINDS[i].magic, KINDS[i].n) != 0)
        i++;
    return i;
}

static err *open_packed(reader *r, int filter)
{
    struct archive_entry *e;

    r->packed = archive_read_new();
    if (!r->packed || archive_read_support_format_raw(r->packed) != ARCHIVE_OK ||
        archive_read_append_filter(r->packed, filter) != ARCHIVE_OK)
        return err_new(ERR_INTERNAL, "cannot prepare the decompressor");
    if (archive_read_open(r->packed, r, NULL, read_sent, NULL) != ARCHIVE_OK ||
        archive_read_next_header(r->packed, &e) != ARCHIVE_OK)
        return reader_error(r, r->packed);
    return NULL;
}

static err *open_reader(reader *r)
{
    size_t kind = kind_of(r);
    bool packed = KINDS[kind].filter != ARCHIVE_FILTER_NONE;

    if (r->in->packed)
        TRY(r->in->packed(r->in->arg, KINDS[kind].name));
    if (packed)
        TRY(open_packed(r, KINDS[kind].filter));
    r->a = archive_read_new();
    int ok = KINDS[kind].zip ? archive_read_support_format_zip_streamable(r->a)
                             : archive_read_support_format_tar(r->a);
    if (ok != ARCHIVE_OK || archive_read_append_filter(r->a, ARCHIVE_FILTER_NONE) != ARCHIVE_OK)
        return err_new(ERR_INTERNAL, "cannot prepare the archive's reader");
    r->zip = KINDS[kind].zip;
    r->in_head = true;
    if (archive_read_open(r->a, r, NULL, packed ? read_unpacked : read_plain, NULL) != ARCHIVE_OK)
        return reader_error(r, r->a);
    return NULL;
}

/* ---- entries ---- */

/* Makes a valid entry name: no leading '/', no "." or empty component. Returns NULL if the name has
 * ".." or is too long. */
static const char *archive_in_normalise(const char *name, char *ret, size_t *ret_n)
{
    size_t n = 0;

    while (*name) {
        size_t len = strcspn(name, "/");
        if (len == 2 && name[0] == '.' && name[1] == '.')
            return NULL;
        if (len && !(len == 1 && name[0] == '.')) {
            if (n + len + 1 > KIT_PATH_MAX)
                return NULL;
            if (n)
                ret[n++] = '/';
            memcpy(ret + n, name, len);
            n += len;
        }
        name += len + (name[len] == '/');
    }
    *ret_n = n;
    return ret;
}

static bool id_of(la_int64_t v, uint32_t *ret)
{
    *ret = (uint32_t)v;
    return v >= 0 && v < UINT32_MAX;
}

static err *fill_entry(struct archive_entry *e, kit_record *r)
{
    const char *name = archive_entry_pathname(e);
    la_int64_t size = archive_entry_size(e);
    long ns = archive_entry_mtime_nsec(e);

    if (size < 0)
        return refuse_entry(name, "its size is negative");
    r->entry.mode = (uint32_t)archive_entry_mode(e);
    r->entry.size = (uint64_t)size;
    r->entry.mtime = archive_entry_mtime(e);
    r->entry.mtime_ns = ns >= 0 && ns <= 999999999 ? (uint32_t)ns : 0;
    if (!id_of(archive_entry_uid(e), &r->entry.uid) || !id_of(archive_entry_gid(e), &r->entry.gid))
        return refuse_entry(name, "its owner is out of range");
    if (!(r->entry.mode & S_IFMT)) /* a zip entry without attributes */
        r->entry.mode |= S_IFREG;
    if (!archive_entry_size_is_set(e) && (r->entry.mode & S_IFMT) == S_IFREG)
        r->entry.flags |= KIT_E_UNSIZED;
    if (!archive_entry_mtime_is_set(e))
        r->entry.mtime = 0;
    return NULL;
}

static err *fill_link(struct archive_entry *e, kit_record *r, char *room)
{
    const char *hard = archive_entry_hardlink(e), *soft = archive_entry_symlink(e);

    if (hard) {
        r->bytes = archive_in_normalise(hard, room, &r->bytes_len);
        r->entry.flags |= KIT_E_HARDLINK;
        r->entry.size = 0;
        if (!r->bytes || !r->bytes_len)
            return refuse_entry(archive_entry_pathname(e), "it is a hard link to what is outside");
    } else if ((r->entry.mode & S_IFMT) == S_IFLNK) {
        r->bytes = str_or(soft, "");
        r->bytes_len = strlen(r->bytes);
        r->entry.size = 0;
        if (!r->bytes_len || r->bytes_len > KIT_PATH_MAX)
            return refuse_entry(archive_entry_pathname(e), "it is a link without a usable target");
    }
    return NULL;
}

static err *emit_xattrs(reader *r, struct archive_entry *e)
{
    const char *key;
    const void *value;
    size_t n, sent = 0;

    archive_entry_xattr_reset(e);
    while (archive_entry_xattr_next(e, &key, &value, &n) == ARCHIVE_OK) {
        size_t len = strlen(key);
        if (!str_starts(key, "user.") || len > 255 || n > KIT_XATTR_MAX - 256 ||
            sent == KIT_XATTRS_MAX) {
            r->in->left_out++;
            continue;
        }
        sent++;
        TRY(r->in->emit(
            r->in->arg,
            &(kit_record){
                .type = KIT_XATTR, .name = key, .name_len = len, .bytes = value, .bytes_len = n}));
    }
    return NULL;
}

static err *emit_piece(reader *r, const char *p, size_t n, uint64_t at)
{
    while (n) {
        size_t k = n < KIT_DATA_MAX ? n : KIT_DATA_MAX;
        TRY(r->in->emit(r->in->arg,
                        &(kit_record){.type = KIT_DATA, .offset = at, .bytes = p, .bytes_len = k}));
        p += k;
        at += k;
        n -= k;
    }
    return NULL;
}

/* Emits a file's content. The archive chooses order and bounds of its hole map, so both are
 * checked. */
static err *emit_content(reader *r, struct archive_entry *e, uint64_t size)
{
    const void *p;
    size_t n;
    la_int64_t at;
    uint64_t end = 0;
    int k;

    while ((k = archive_read_data_block(r->a, &p, &n, &at)) == ARCHIVE_OK) {
        if (at < 0 || (uint64_t)at < end || (uint64_t)at > size || n > size - (uint64_t)at)
            return refuse_entry(archive_entry_pathname(e), "it has bytes outside of the file");
        TRY(emit_piece(r, p, n, (uint64_t)at));
        end = (uint64_t)at + n;
    }
    return k == ARCHIVE_EOF ? NULL : reader_error(r, r->a);
}

/* Returns true for compressions with a small window. A zip names one for each entry; LZMA, PPMd and
 * the like use a window of up to 4 GiB of the sender's choice. Deflate, the usual one, needs 32
 * KiB. */
static bool is_cheap(const reader *r)
{
    const char *format = str_or(archive_format_name(r->a), "");

    return !r->zip || str_ends(format, "(uncompressed)") || str_ends(format, "(deflation)");
}

static err *take_entry(reader *r, struct archive_entry *e)
{
    char name[KIT_PATH_MAX + 1], target[KIT_PATH_MAX + 1];
    kit_record rec = {.type = KIT_ENTRY};
    const char *given = archive_entry_pathname(e);

    if (++r->entries > ARCHIVE_ENTRIES_MAX)
        return archive_in_refuse("it has too many entries");
    if (!is_cheap(r))
        return refuse_entry(given, "its compression is neither 'stored' nor 'deflate'");
    if (!given || !*given || !archive_in_normalise(given, name, &rec.name_len))
        return refuse_entry(given, "its name leads outside, or is too long");
    rec.name = name;
    TRY(fill_entry(e, &rec));
    TRY(fill_link(e, &rec, target));
    bool file = (rec.entry.mode & S_IFMT) == S_IFREG && !(rec.entry.flags & KIT_E_HARDLINK);
    if (!rec.name_len && (rec.entry.mode & S_IFMT) != S_IFDIR)
        return refuse_entry(given, "it would be the directory itself");
    TRY(r->in->emit(r->in->arg, &rec));
    if (!(rec.entry.flags & KIT_E_HARDLINK))
        TRY(emit_xattrs(r, e));
    if (file)
        return emit_content(r, e, rec.entry.flags & KIT_E_UNSIZED ? INT64_MAX : rec.entry.size);
    return archive_read_data_skip(r->a) < ARCHIVE_WARN ? reader_error(r, r->a) : NULL;
}

static err *take_entries(reader *r)
{
    struct archive_entry *e;
    int k;

    for (;;) {
        r->in_head = true;
        r->head = 0;
        k = archive_read_next_header(r->a, &e);
        r->in_head = false;
        if (k == ARCHIVE_EOF)
            return r->in->emit(r->in->arg, &(kit_record){.type = KIT_END});
        /* WARN: a name is not UTF-8; its bytes are kept. */
        if (k != ARCHIVE_OK && k != ARCHIVE_WARN)
            return reader_error(r, r->a);
        TRY(take_entry(r, e));
    }
}

static void reader_done(reader *r)
{
    archive_read_freep(&r->a);
    archive_read_freep(&r->packed);
    err_free(r->failed);
    free(r->piece);
}

err *archive_in_run(archive_in *in)
{
    CLEANUP(reader_done) reader r = {.in = in, .piece = xmalloc(PIECE)};

    TRY(read_magic(&r));
    TRY(open_reader(&r));
    return take_entries(&r);
}

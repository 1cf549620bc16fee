/* Writes records of the kit as tar or zip. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "wire/archive.h"

#define ENOUGH     (64u * 1024)  /* bytes of output per call */
#define HOLE_PIECE (256ul << 20) /* step within a hole that is not written */
#define HOLE_STEPS 4096u         /* such steps per call */
#define ZERO_STEPS 4u            /* steps of ENOUGH zeros per call: a zip shrinks them to nothing */
#define XATTR_SPEC "user."
#define ZIP_ENTRY  160u /* bytes per entry in a zip's directory, besides the name */

struct archive_out {
    struct archive *a;
    struct archive_entry *entry;
    enum archive_format format;
    buf *to;
    char *name;
    const char *zeros; /* HOLE_PIECE bytes of mapping, never backed by memory */
    bool dead;         /* further output is dropped */
    bool pending;      /* the entry's head waits for attributes and extents */
    bool open;         /* its content may be written */
    bool has_extents;
    struct kit_extent *extents; /* KIT_EXTENTS_MAX */
    uint32_t nextents, extent;  /* extent: the one that `at` lies in or before */
    uint64_t at, size;
    uint64_t directory; /* bytes of a zip's directory so far */
    uint64_t left_out, unread;
};

static la_ssize_t take_bytes(struct archive *a, void *arg, const void *p, size_t n)
{
    archive_out *o = arg;

    if (o->dead && o->format == ARCHIVE_ZIP)
        return (la_ssize_t)n; /* the zip writer does not clean up after an error, and adds little */
    if (o->dead) {
        archive_set_error(a, EPIPE, "nobody reads it any more");
        return -1;
    }
    buf_append(o->to, p, n);
    return (la_ssize_t)n;
}

static err *archive_out_broken(archive_out *o, const char *what)
{
    return err_because(err_new(ERR_INTERNAL, "cannot %s", what), "%s",
                       str_or(archive_error_string(o->a), "no reason was given"));
}

static err *open_archive(archive_out *o)
{
    int r = o->format == ARCHIVE_ZIP ? archive_write_set_format_zip(o->a)
                                     : archive_write_set_format_pax(o->a);

    if (r != ARCHIVE_OK || archive_write_set_bytes_per_block(o->a, 0) != ARCHIVE_OK ||
        archive_write_set_bytes_in_last_block(o->a, 1) != ARCHIVE_OK ||
        archive_write_open(o->a, o, NULL, take_bytes, NULL) != ARCHIVE_OK)
        return archive_out_broken(o, "begin an archive");
    return NULL;
}

err *archive_out_new(enum archive_format format, const char *name, buf *to, archive_out **ret_out)
{
    CLEANUP(archive_out_freep) archive_out *o = xcalloc(1, sizeof *o);

    o->format = format;
    o->to = to;
    o->name = xstrdup(name);
    o->a = archive_write_new();
    o->entry = archive_entry_new();
    void *zeros =
        mmap(NULL, HOLE_PIECE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    o->zeros = zeros == MAP_FAILED ? NULL : zeros;
    if (!o->a || !o->entry || !o->zeros)
        return err_new(ERR_INTERNAL, "no memory for an archive");
    TRY(open_archive(o));
    *ret_out = TAKE_PTR(o);
    return NULL;
}

/* Frees a possibly unfinished archive. libarchive would write all missing zeros of the entry and an
 * archive end: a failed archive must not look complete, and freeing must not take long. */
void archive_out_free(archive_out *o)
{
    if (!o)
        return;
    o->dead = true;
    if (o->a)
        archive_write_free(o->a);
    if (o->entry)
        archive_entry_free(o->entry);
    if (o->zeros)
        munmap((void *)(uintptr_t)o->zeros, HOLE_PIECE);
    free(o->extents);
    free(o->name);
    free(o);
}

uint64_t archive_out_unread(const archive_out *o)
{
    return o->unread;
}

uint64_t archive_out_left_out(const archive_out *o)
{
    return o->left_out + o->unread;
}

/* ---- content ---- */

/* Returns the distance from `at` to the next border between data and hole, or to `until`. */
static uint64_t archive_out_span(archive_out *o, uint64_t until, bool *ret_hole)
{
    *ret_hole = false;
    if (!o->has_extents || o->format == ARCHIVE_ZIP)
        return until - o->at;
    while (o->extent < o->nextents &&
           o->extents[o->extent].from + o->extents[o->extent].size <= o->at)
        o->extent++;
    const struct kit_extent *e = o->extent < o->nextents ? &o->extents[o->extent] : NULL;
    *ret_hole = !e || o->at < e->from;
    uint64_t border = !e ? until : *ret_hole ? e->from : e->from + e->size;
    return (border < until ? border : until) - o->at;
}

static err *put_bytes(archive_out *o, const void *p, size_t n)
{
    if (archive_write_data(o->a, p, n) < 0)
        return archive_out_broken(o, "write an archive");
    o->at += n;
    return NULL;
}

/* Writes zeros up to `until`. If the format knows holes nothing is written for one, but libarchive
 * has to be fed its length. */
static err *put_zeros(archive_out *o, uint64_t until, bool *ret_again)
{
    size_t begin = o->to->len;

    for (unsigned steps = 0; o->at < until;) {
        bool hole;
        uint64_t n = archive_out_span(o, until, &hole), most = hole ? HOLE_PIECE : ENOUGH;
        if (steps >= HOLE_STEPS || o->to->len - begin >= ENOUGH) {
            *ret_again = true;
            return NULL;
        }
        steps += hole ? 1 : HOLE_STEPS / ZERO_STEPS;
        TRY(put_bytes(o, o->zeros, n < most ? (size_t)n : (size_t)most));
    }
    return NULL;
}

/* ---- heads ---- */

static mode_t type_of(const kit_record *r)
{
    return r->entry.mode & S_IFMT;
}

static bool is_known(const archive_out *o, const kit_record *r)
{
    mode_t type = type_of(r);
    bool both = type == S_IFREG || type == S_IFDIR || type == S_IFLNK;
    bool tar = type == S_IFIFO || type == S_IFCHR || type == S_IFBLK;

    return both || (tar && o->format == ARCHIVE_TAR);
}

/* Returns true for entries that the format cannot hold. Zip has no hard links; the kit is asked for
 * copies instead. */
static bool is_left_out(const archive_out *o, const kit_record *r)
{
    bool link = r->entry.flags & KIT_E_HARDLINK;

    return !is_known(o, r) || (link && o->format == ARCHIVE_ZIP) ||
           (type_of(r) == S_IFREG && r->entry.size > ARCHIVE_FILE_MAX) ||
           (type_of(r) == S_IFLNK && !link && !r->bytes_len);
}

static char *name_of(const archive_out *o, const kit_record *r)
{
    bool dir = type_of(r) == S_IFDIR;

    if (!r->name_len)
        return xstrdup(dir ? "./" : o->name);
    CLEANUP(freep) char *own = xstrndup(r->name, r->name_len);
    return dir ? str_printf("%s/", own) : TAKE_PTR(own);
}

static void set_link(archive_out *o, const kit_record *r)
{
    if (!r->bytes_len)
        return;
    CLEANUP(freep) char *target = xstrndup(r->bytes, r->bytes_len);
    if (r->entry.flags & KIT_E_HARDLINK)
        archive_entry_set_hardlink(o->entry, target);
    else if (type_of(r) == S_IFLNK)
        archive_entry_set_symlink(o->entry, target);
}

/* Returns the time, limited to years that calendars can express: libarchive's zip writer
 * dereferences localtime()'s result without a check. */
static int64_t time_of(const kit_record *r)
{
    static const int64_t MAX = INT64_C(1) << 40;

    return r->entry.mtime > MAX ? MAX : r->entry.mtime < -MAX ? -MAX : r->entry.mtime;
}

static void begin_entry(archive_out *o, const kit_record *r)
{
    struct archive_entry *e = o->entry;
    bool has_content = type_of(r) == S_IFREG && !(r->entry.flags & KIT_E_HARDLINK);

    archive_entry_clear(e);
    if (is_left_out(o, r)) {
        o->left_out++;
        return;
    }
    CLEANUP(freep) char *name = name_of(o, r);
    archive_entry_set_pathname(e, name);
    archive_entry_set_mode(e, (mode_t)(r->entry.mode & 0177777));
    archive_entry_set_uid(e, r->entry.uid);
    archive_entry_set_gid(e, r->entry.gid);
    archive_entry_set_mtime(e, time_of(r), (long)r->entry.mtime_ns);
    archive_entry_set_rdevmajor(e, r->entry.rdev_major);
    archive_entry_set_rdevminor(e, r->entry.rdev_minor);
    set_link(o, r);
    o->size = has_content ? r->entry.size : 0;
    archive_entry_set_size(e, (la_int64_t)o->size);
    o->at = 0;
    o->has_extents = false;
    o->extent = o->nextents = 0;
    o->pending = true;
}

static void take_xattr(archive_out *o, const kit_record *r)
{
    CLEANUP(freep) char *key = xstrndup(r->name, r->name_len);

    if (o->pending && str_starts(key, XATTR_SPEC))
        archive_entry_xattr_add_entry(o->entry, key, r->bytes, r->bytes_len);
}

/* Keeps the extents that lie within the file. kit_order_check() has checked their order, not their
 * ends. */
static void take_extents(archive_out *o, const kit_record *r)
{
    if (!o->pending || o->has_extents)
        return;
    if (!o->extents)
        o->extents = xcalloc(KIT_EXTENTS_MAX, sizeof *o->extents);
    for (uint32_t i = 0; i < r->extents; i++) {
        struct kit_extent e = kit_extent_get(r, i);
        if (e.size && e.from < o->size && e.size <= o->size - e.from)
            o->extents[o->nextents++] = e;
    }
    o->has_extents = true;
}

static void set_sparse(archive_out *o)
{
    for (uint32_t i = 0; i < o->nextents; i++)
        archive_entry_sparse_add_entry(o->entry, (la_int64_t)o->extents[i].from,
                                       (la_int64_t)o->extents[i].size);
    if (!o->nextents && o->size) /* the whole file is a hole */
        archive_entry_sparse_add_entry(o->entry, (la_int64_t)o->size, 0);
}

/* Limits a zip's directory: the tenant chooses number and length of the names. */
static err *count_directory(archive_out *o)
{
    o->directory += ZIP_ENTRY + strlen(archive_entry_pathname(o->entry));
    if (o->format != ARCHIVE_ZIP || o->directory <= ARCHIVE_ZIP_DIRECTORY_MAX)
        return NULL;
    return err_remedy(err_new(ERR_TOO_LARGE, "too many files for a zip"),
                      "Ask for a tar, or for parts of the tree.");
}

static err *write_head(archive_out *o)
{
    if (!o->pending)
        return NULL;
    o->pending = false;
    TRY(count_directory(o));
    if (o->has_extents && o->format == ARCHIVE_TAR)
        set_sparse(o);
    int r = archive_write_header(o->a, o->entry);
    if (r == ARCHIVE_FAILED) { /* only this entry: a name or time that the format cannot hold */
        o->left_out++;
        return NULL;
    }
    if (r < ARCHIVE_WARN)
        return archive_out_broken(o, "write an archive");
    o->open = true;
    return NULL;
}

/* Finishes an entry: writes its head if that is pending, and zeros for content that did not
 * come. */
static err *finish_entry(archive_out *o, bool *ret_again)
{
    TRY(write_head(o));
    if (!o->open)
        return NULL;
    TRY(put_zeros(o, o->size, ret_again));
    if (*ret_again)
        return NULL;
    o->open = false;
    return archive_write_finish_entry(o->a) < ARCHIVE_WARN
               ? archive_out_broken(o, "write an archive")
               : NULL;
}

static err *take_data(archive_out *o, const kit_record *r, bool *ret_again)
{
    TRY(write_head(o));
    if (!o->open || r->offset > o->size || r->bytes_len > o->size - r->offset)
        return NULL; /* the entry is left out, or the data lie outside of the file */
    TRY(put_zeros(o, r->offset, ret_again));
    return *ret_again ? NULL : put_bytes(o, r->bytes, r->bytes_len);
}

static err *archive_out_finish(archive_out *o, bool *ret_again)
{
    TRY(finish_entry(o, ret_again));
    if (*ret_again || archive_write_close(o->a) == ARCHIVE_OK)
        return NULL;
    return archive_out_broken(o, "end an archive");
}

err *archive_out_put(archive_out *o, const kit_record *r, bool *ret_again)
{
    *ret_again = false;
    switch (r->type) {
    case KIT_ENTRY:
        TRY(finish_entry(o, ret_again));
        if (!*ret_again)
            begin_entry(o, r);
        return NULL;
    case KIT_XATTR:
        take_xattr(o, r);
        return NULL;
    case KIT_EXTENTS:
        take_extents(o, r);
        return NULL;
    case KIT_DATA:
        return take_data(o, r, ret_again);
    case KIT_ERROR:
        o->unread += !(r->error.flags & KIT_E_FATAL);
        return NULL;
    case KIT_END:
        return archive_out_finish(o, ret_again);
    default:
        return NULL;
    }
}

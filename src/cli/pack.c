#include "cli/pack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#define PIECE (256 * 1024) /* bytes made at a time */

struct pack {
    struct archive *disk, *tar;
    struct archive_entry *entry;
    struct archive_entry_linkresolver *links;
    char *root; /* path to walk, without a slash at its end */
    char *name;
    buf out; /* made, not read yet */
    size_t sent;
    uint64_t at;   /* how much of the entry's content is written */
    bool in_file;  /* the entry's content is being written */
    bool dead;     /* refuse further bytes */
    bool complete; /* the archive's end is in out */
    pack_count count;
};

static la_ssize_t take_bytes(struct archive *a, void *arg, const void *p, size_t n)
{
    pack *k = arg;

    if (k->dead) { /* otherwise libarchive writes zeros for the rest of an unfinished file */
        archive_set_error(a, EPIPE, "nobody reads it any more");
        return -1;
    }
    buf_append(&k->out, p, n);
    return (la_ssize_t)n;
}

static err *tar_error(struct archive *a, const char *what)
{
    err *e = err_new(ERR_INTERNAL, "cannot %s", what);

    return err_because(e, "%s", str_or(archive_error_string(a), "no reason was given"));
}

static char *without_slash(const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    return xstrndup(path, n);
}

static err *open_disk(pack *p, const pack_options *o)
{
    int flags = ARCHIVE_READDISK_NO_ACL | ARCHIVE_READDISK_NO_FFLAGS;

    p->disk = archive_read_disk_new();
    if (o->follow)
        archive_read_disk_set_symlink_hybrid(p->disk);
    else
        archive_read_disk_set_symlink_physical(p->disk);
    archive_read_disk_set_behavior(p->disk, flags | (o->xattrs ? 0 : ARCHIVE_READDISK_NO_XATTR));
    if (archive_read_disk_open(p->disk, p->root) != ARCHIVE_OK)
        return err_sys(ERR_NOT_FOUND, archive_errno(p->disk), "cannot read %s", p->root);
    return NULL;
}

static err *open_tar(pack *p)
{
    p->tar = archive_write_new();
    archive_write_set_format_pax(p->tar);
    archive_write_set_bytes_per_block(p->tar, 0);
    archive_write_set_bytes_in_last_block(p->tar, 1);
    if (archive_write_open(p->tar, p, NULL, take_bytes, NULL) != ARCHIVE_OK)
        return tar_error(p->tar, "begin an archive");
    return NULL;
}

err *pack_new(const pack_options *o, pack **ret_pack)
{
    CLEANUP(pack_freep) pack *p = xcalloc(1, sizeof *p);

    p->root = without_slash(o->path);
    p->name = xstrdup(o->name);
    p->entry = archive_entry_new();
    p->links = archive_entry_linkresolver_new();
    archive_entry_linkresolver_set_strategy(p->links, ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE);
    TRY(open_disk(p, o));
    TRY(open_tar(p));
    *ret_pack = TAKE_PTR(p);
    return NULL;
}

void pack_free(pack *p)
{
    if (!p)
        return;
    p->dead = true;
    if (p->tar)
        archive_write_free(p->tar);
    if (p->disk)
        archive_read_free(p->disk);
    archive_entry_linkresolver_free(p->links);
    archive_entry_free(p->entry);
    buf_done(&p->out);
    free(p->root);
    free(p->name);
    free(p);
}

pack_count pack_counted(const pack *p)
{
    return p->count;
}

/* Returns the name in the archive: if "dir" is called "new" there, "dir/x" becomes "new/x". */
static char *name_of(const pack *p, const char *walked)
{
    const char *rest = walked + strlen(p->root);

    while (*rest == '/')
        rest++;
    if (!*rest)
        return xstrdup(*p->name ? p->name : ".");
    return *p->name ? str_printf("%s/%s", p->name, rest) : xstrdup(rest);
}

/* Sets the name in the archive. Removes times other than the modification time: they are
 * private. */
static void pack_prepare(pack *p)
{
    struct archive_entry *e = p->entry;
    CLEANUP(freep) char *name = name_of(p, archive_entry_pathname(e));

    archive_entry_set_pathname(e, name);
    archive_entry_unset_atime(e);
    archive_entry_unset_ctime(e);
    archive_entry_unset_birthtime(e);
    struct archive_entry *first = e, *none = NULL;
    archive_entry_linkify(p->links, &first, &none);
}

static err *begin_entry(pack *p)
{
    struct archive_entry *e = p->entry;
    CLEANUP(freep) char *path = xstrdup(str_or(archive_entry_sourcepath(e), ""));

    if (archive_entry_filetype(e) == AE_IFSOCK) {
        p->count.left_out++;
        return NULL;
    }
    pack_prepare(p);
    if (archive_write_header(p->tar, e) < ARCHIVE_WARN)
        return err_wrap(tar_error(p->tar, "put a file into the archive"), "%s", path);
    p->count.files += archive_entry_filetype(e) != AE_IFDIR;
    p->in_file = archive_entry_size(e) > 0 && archive_entry_filetype(e) == AE_IFREG &&
                 !archive_entry_hardlink(e);
    p->at = 0;
    return NULL;
}

/* Begins the next entry. Fails if a file was removed since the walk found it, or may not be
 * read. */
static err *next_entry(pack *p)
{
    archive_entry_clear(p->entry);
    int r = archive_read_next_header2(p->disk, p->entry);

    if (r == ARCHIVE_EOF) {
        p->complete = true;
        return archive_write_close(p->tar) == ARCHIVE_OK ? NULL
                                                         : tar_error(p->tar, "end the archive");
    }
    if (r < ARCHIVE_WARN)
        return err_sys(ERR_INVALID_REQUEST, archive_errno(p->disk), "cannot read %s",
                       str_or(archive_entry_pathname(p->entry), p->root));
    if (archive_read_disk_can_descend(p->disk))
        archive_read_disk_descend(p->disk);
    return begin_entry(p);
}

static err *put_content(pack *p, const void *from, size_t n)
{
    la_ssize_t done = archive_write_data(p->tar, from, n);

    if (done < 0)
        return tar_error(p->tar, "put a file into the archive");
    p->at += n;
    p->count.bytes += n;
    return NULL;
}

/* Writes zeros: libarchive's writer wants every byte, and leaves out what the entry marks as a
 * hole. */
static err *put_zeros(pack *p, uint64_t upto)
{
    static const char ZEROS[64 * 1024];
    uint64_t n = upto - p->at;

    return put_content(p, ZEROS, n < sizeof ZEROS ? (size_t)n : sizeof ZEROS);
}

/* Writes the next piece of a file. As in tar, a file that shrinks while it is read is filled with
 * zeros, and one that grows is cut. */
static err *next_piece(pack *p)
{
    uint64_t size = (uint64_t)archive_entry_size(p->entry);
    const void *from;
    size_t n;
    la_int64_t at;
    int r = archive_read_data_block(p->disk, &from, &n, &at);

    if (r < ARCHIVE_WARN)
        return err_sys(ERR_INVALID_REQUEST, archive_errno(p->disk), "cannot read %s",
                       str_or(archive_entry_sourcepath(p->entry), p->root));
    uint64_t begin = r == ARCHIVE_EOF || at < 0 || (uint64_t)at > size ? size : (uint64_t)at;
    while (p->at < begin)
        TRY(put_zeros(p, begin));
    if (begin < size && n)
        TRY(put_content(p, from, n < size - begin ? n : (size_t)(size - begin)));
    if (r == ARCHIVE_EOF || p->at >= size)
        p->in_file = false;
    return NULL;
}

err *pack_read(pack *p, void *to, size_t max, size_t *ret_n)
{
    if (p->sent == p->out.len) {
        buf_clear(&p->out);
        p->sent = 0;
    }
    while (p->out.len - p->sent < max && p->out.len < PIECE && !p->complete)
        TRY(p->in_file ? next_piece(p) : next_entry(p));
    size_t n = p->out.len - p->sent;
    n = n < max ? n : max;
    memcpy(to, p->out.p + p->sent, n);
    p->sent += n;
    *ret_n = n;
    return NULL;
}

pack_count pack_measure(const pack_options *o)
{
    CLEANUP(freep) char *root = without_slash(o->path);
    char *const roots[] = {root, NULL};
    pack_count c = {0};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | (o->follow ? FTS_COMFOLLOW : 0), NULL);
    FTSENT *f;

    if (!walk)
        return c;
    while ((f = fts_read(walk)))
        if (f->fts_info == FTS_F || f->fts_info == FTS_SL) {
            c.files++;
            c.bytes += f->fts_info == FTS_F ? (uint64_t)f->fts_statp->st_size : 0;
        }
    fts_close(walk);
    return c;
}

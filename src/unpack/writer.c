#include "unpack/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "unpack/place.h"

/* An entry while it is written. */
typedef struct item {
    struct archive *tar;
    struct archive_entry *entry;
    char path[NAME_PATH_MAX + 1]; /* normalised */
    unsigned depth;
    mode_t type, perm;
    uid_t uid;
    gid_t gid;
    struct timespec mtime;
    int dir; /* its parent's; owned by the writer */
    const char *leaf;
} item;

void writer_init(writer *w, int root, const unpack_limits *lim)
{
    *w = (writer){.root = root, .opaque_fd = -1, .lim = *lim, .parent_fd = -1};
}

void writer_done(writer *w)
{
    place_forget_parent(w);
    for (size_t i = 0; i < w->nlater; i++)
        free(w->later[i].path);
    free(w->later);
    tally_done(&w->tally);
    *w = (writer){.root = -1, .opaque_fd = -1, .parent_fd = -1};
}

static err *writer_fault(const char *what)
{
    return err_sys(ERR_INTERNAL, errno, "cannot %s", what);
}

static err *check_id(la_int64_t v, const char *what, uint32_t *ret_id)
{
    if (v < 0 || v >= UINT32_MAX)
        return refuse("%s %lld", what, (long long)v);
    *ret_id = (uint32_t)v;
    return NULL;
}

/* libarchive gives -0.5 s as {0, -5e8} or {-1, -5e8}. */
static err *mtime_of(struct archive_entry *e, struct timespec *ret_time)
{
    struct timespec t = {archive_entry_mtime(e), archive_entry_mtime_nsec(e)};

    if (t.tv_nsec < 0)
        t.tv_nsec += 1000000000;
    if (t.tv_nsec < 0 || t.tv_nsec > 999999999)
        return refuse("modification time out of range");
    *ret_time = t;
    return NULL;
}

static err *read_name(const writer *w, const char *name, char *ret_path, unsigned *ret_depth)
{
    if (!name || !*name)
        return refuse("an entry without a usable name");
    size_t n = strnlen(name, NAME_PATH_MAX + 1);
    if (n > NAME_PATH_MAX)
        return refuse("name longer than %d bytes", NAME_PATH_MAX);
    memcpy(ret_path, name, n + 1);
    const char *why = name_normalise(ret_path, w->lim.depth, ret_depth);
    return why ? refuse("%s", why) : NULL;
}

static err *read_item(const writer *w, item *it)
{
    struct archive_entry *e = it->entry;

    TRY(read_name(w, archive_entry_pathname(e), it->path, &it->depth));
    it->type = archive_entry_filetype(e);
    it->perm = archive_entry_perm(e) & 07777;
    TRY(check_id(archive_entry_uid(e), "uid", &it->uid));
    TRY(check_id(archive_entry_gid(e), "gid", &it->gid));
    return mtime_of(e, &it->mtime);
}

/* user.* attributes are set before the owner changes (no DAC capability needed),
 * security.capability after it (a change of owner strips it). All others are left out:
 * trusted.overlay.* would let an image graft directories of the stack below it, the rest belongs to
 * the host. */
enum xattr_when {
    BEFORE_OWNER,
    AFTER_OWNER
};

static err *set_xattr(writer *w, int fd, const char *key, const void *value, size_t n,
                      enum xattr_when when)
{
    bool cap = strcmp(key, "security.capability") == 0;

    if (!cap && (!str_starts(key, "user.") || str_starts(key, "user.overlay."))) {
        w->tally.xattrs += when == BEFORE_OWNER;
        return NULL;
    }
    if (n > w->lim.xattr)
        return refuse("extended attribute over %lu bytes", (unsigned long)w->lim.xattr);
    if (cap != (when == AFTER_OWNER) || !fsetxattr(fd, key, value, n, 0))
        return NULL;
    if (cap && errno == EINVAL) { /* unknown to the kernel: left out */
        w->tally.xattrs++;
        return NULL;
    }
    return err_because(refuse("extended attribute cannot be kept"), "%s", strerrordesc_np(errno));
}

static err *set_xattrs(writer *w, int fd, struct archive_entry *e, enum xattr_when when)
{
    const char *key;
    const void *value;
    size_t n;

    archive_entry_xattr_reset(e);
    while (archive_entry_xattr_next(e, &key, &value, &n) == ARCHIVE_OK)
        TRY(set_xattr(w, fd, key, value, n, when));
    return NULL;
}

static err *set_dir_xattrs(writer *w, int dir, const char *name, struct archive_entry *e)
{
    if (!archive_entry_xattr_count(e))
        return NULL;
    CLEANUP(closep)
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? writer_fault("open a directory") : set_xattrs(w, fd, e, BEFORE_OWNER);
}

static err *note_opaque(writer *w, const char *path, size_t n)
{
    unsigned depth = n > 0;

    for (size_t i = 0; i < n; i++)
        depth += path[i] == '/';
    w->tally.opaques++;
    w->tally.opaque_root |= !n;
    return place_later(w, (dir_later){.path = xstrndup(path, n), .depth = depth, .opaque = true});
}

/* Writes a whiteout. It applies to lower layers only: if its own layer has an entry of that name, a
 * file stays as it is and a directory becomes opaque, whichever of the two comes first. */
static err *write_whiteout(writer *w, item *it, const char *target)
{
    size_t parent_len = it->leaf == it->path ? 0 : (size_t)(it->leaf - it->path - 1);
    struct stat st;

    if (fstatat(it->dir, target, &st, AT_SYMLINK_NOFOLLOW)) {
        if (errno != ENOENT)
            return writer_fault("look at an entry");
        if (mknodat(it->dir, target, S_IFCHR, 0))
            return writer_fault("make a whiteout");
        w->tally.whiteouts++;
        return tally_whiteout_dir(&w->tally, it->path, parent_len);
    }
    if (!S_ISDIR(st.st_mode))
        return NULL;
    CLEANUP(freep)
    char *full =
        parent_len ? str_printf("%.*s/%s", (int)parent_len, it->path, target) : xstrdup(target);
    return note_opaque(w, full, strlen(full));
}

static err *write_dir(writer *w, item *it)
{
    enum place_found found;

    TRY(place_clear(w, it->dir, it->leaf, true, &found));
    if (found != PLACE_DIR && mkdirat(it->dir, it->leaf, 0700))
        return writer_fault("make a directory");
    if (found == PLACE_WHITEOUT)
        TRY(note_opaque(w, it->path, strlen(it->path)));
    TRY(set_dir_xattrs(w, it->dir, it->leaf, it->entry));
    w->tally.dirs++;
    return place_later(w, (dir_later){.path = xstrdup(it->path),
                                      .depth = it->depth,
                                      .mode = it->perm,
                                      .uid = it->uid,
                                      .gid = it->gid,
                                      .mtime = it->mtime});
}

static err *write_root(writer *w, item *it)
{
    if (it->type != AE_IFDIR || archive_entry_hardlink(it->entry))
        return refuse("the root is not a directory");
    TRY(set_dir_xattrs(w, w->root, ".", it->entry));
    w->tally.dirs++;
    return place_later(w, (dir_later){.path = xstrdup(""),
                                      .mode = it->perm,
                                      .uid = it->uid,
                                      .gid = it->gid,
                                      .mtime = it->mtime});
}

/* Writes a file's data. Sparse maps come from the archive and libarchive passes them on, so their
 * order and bounds are checked here. */
static err *write_data(writer *w, item *it, int fd, uint64_t size)
{
    const void *p;
    size_t n;
    la_int64_t at;
    uint64_t end = 0;
    int r;

    while ((r = archive_read_data_block(it->tar, &p, &n, &at)) == ARCHIVE_OK) {
        if (at < 0 || (uint64_t)at < end || (uint64_t)at > size || n > size - (uint64_t)at)
            return refuse("data outside of the file");
        int e = fs_pwrite_all(fd, p, n, (uint64_t)at);
        if (e == -EFBIG)
            return refuse("file too large");
        if (e)
            return err_sys(e == -ENOSPC ? ERR_DISK_FULL : ERR_INTERNAL, -e, "cannot write a file");
        end = (uint64_t)at + n;
        w->tally.bytes += n;
    }
    if (r != ARCHIVE_EOF)
        return refuse("%s", str_or(archive_error_string(it->tar), "damaged archive"));
    if (end != size && ftruncate(fd, (off_t)size))
        return refuse("file of %lu bytes", (unsigned long)size);
    return NULL;
}

/* The order matters: a change of owner clears set-uid bits and capabilities. */
static err *write_file(writer *w, item *it)
{
    const struct timespec times[2] = {it->mtime, it->mtime};
    la_int64_t size = archive_entry_size(it->entry);
    enum place_found found;

    if (size < 0 || (uint64_t)size > w->lim.file)
        return refuse("file of %lld bytes", (long long)size);
    TRY(place_clear(w, it->dir, it->leaf, false, &found));
    CLEANUP(closep)
    int fd = openat(it->dir, it->leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return writer_fault("create a file");
    TRY(set_xattrs(w, fd, it->entry, BEFORE_OWNER));
    TRY(write_data(w, it, fd, (uint64_t)size));
    if ((it->uid || it->gid) && fchown(fd, it->uid, it->gid))
        return writer_fault("set a file's owner");
    if (fchmod(fd, it->perm))
        return writer_fault("set a file's mode");
    TRY(set_xattrs(w, fd, it->entry, AFTER_OWNER));
    if (futimens(fd, times))
        return writer_fault("set a file's time");
    w->tally.files++;
    return NULL;
}

static err *set_owner_time(const item *it)
{
    const struct timespec times[2] = {it->mtime, it->mtime};

    if ((it->uid || it->gid) && fchownat(it->dir, it->leaf, it->uid, it->gid, AT_SYMLINK_NOFOLLOW))
        return writer_fault("set an entry's owner");
    if (utimensat(it->dir, it->leaf, times, AT_SYMLINK_NOFOLLOW))
        return writer_fault("set an entry's time");
    return NULL;
}

static err *write_symlink(writer *w, item *it)
{
    const char *target = archive_entry_symlink(it->entry);
    enum place_found found;

    if (!target || !*target || strnlen(target, NAME_PATH_MAX + 1) > NAME_PATH_MAX)
        return refuse("symbolic link without a usable target");
    TRY(place_clear(w, it->dir, it->leaf, false, &found));
    if (symlinkat(target, it->dir, it->leaf))
        return writer_fault("make a symbolic link");
    w->tally.symlinks++;
    return set_owner_time(it);
}

static err *write_fifo(writer *w, item *it)
{
    enum place_found found;

    TRY(place_clear(w, it->dir, it->leaf, false, &found));
    if (mknodat(it->dir, it->leaf, S_IFIFO | 0600, 0))
        return writer_fault("make a fifo");
    w->tally.fifos++;
    TRY(set_owner_time(it));
    /* It was just made here, so it is no symbolic link. Last: a change of owner would clear
     * bits. */
    return fchmodat(it->dir, it->leaf, it->perm, 0) ? writer_fault("set a fifo's mode") : NULL;
}

/* Counts a device node but never makes it: /dev is not the image's, and a 0:0 device would be a
 * forged whiteout. */
static err *skip_device(writer *w, item *it)
{
    (void)it;
    w->tally.devices++;
    return w->refuse_devices ? refuse("device node") : NULL;
}

static const struct {
    mode_t type;
    err *(*write)(writer *w, item *it);
} TYPES[] = {
    {AE_IFREG, write_file}, {AE_IFDIR, write_dir},   {AE_IFLNK, write_symlink},
    {AE_IFIFO, write_fifo}, {AE_IFCHR, skip_device}, {AE_IFBLK, skip_device},
};

static err *write_typed(writer *w, item *it)
{
    for (size_t i = 0; i < ARRAY_LEN(TYPES); i++)
        if (TYPES[i].type == it->type)
            return TYPES[i].write(w, it);
    return refuse("entry of type %o", it->type);
}

static err *check_link_target(int dir, const char *leaf)
{
    struct stat st;

    if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW))
        return err_because(refuse("hard link to what is not in the layer"), "%s",
                           strerrordesc_np(errno));
    if (S_ISDIR(st.st_mode))
        return refuse("hard link to a directory");
    if (S_ISCHR(st.st_mode))
        return refuse("hard link to a whiteout");
    return NULL;
}

static err *write_hard_link(writer *w, item *it, const char *to)
{
    char target[NAME_PATH_MAX + 1];
    unsigned depth = 0;
    size_t parent_len;
    enum place_found found;

    TRY(read_name(w, to, target, &depth));
    if (!depth || strcmp(target, it->path) == 0)
        return refuse("hard link to the root or to itself");
    const char *leaf = name_leaf(target, &parent_len);
    if (str_starts(leaf, ".wh."))
        return refuse("hard link to a whiteout");
    CLEANUP(freep) char *parent = xstrndup(target, parent_len);
    CLEANUP(closep) int from = place_open(w, parent, O_PATH | O_DIRECTORY);
    if (from < 0)
        return err_because(refuse("hard link to what is not in the layer"), "%s",
                           strerrordesc_np(-from));
    TRY(check_link_target(from, leaf));
    TRY(place_clear(w, it->dir, it->leaf, false, &found));
    if (linkat(from, leaf, it->dir, it->leaf, 0))
        return errno == ENOENT || errno == EMLINK ? refuse("hard link cannot be made")
                                                  : writer_fault("make a hard link");
    w->tally.links++;
    return NULL;
}

static err *write_item(writer *w, item *it)
{
    const char *hard = archive_entry_hardlink(it->entry);
    const char *target = NULL;

    if (!it->depth)
        return write_root(w, it);
    enum name_kind kind = name_kind_of(it->path, &target);
    if (kind == NAME_BAD)
        return refuse("a whiteout of nothing, or something below a whiteout");
    if (kind == NAME_AUFS) {
        w->tally.aufs++;
        return NULL;
    }
    TRY(place_parent(w, it->path, &it->dir, &it->leaf));
    if (kind == NAME_OPAQUE)
        return note_opaque(w, it->path,
                           it->leaf == it->path ? 0 : (size_t)(it->leaf - it->path - 1));
    if (kind == NAME_WHITEOUT)
        return write_whiteout(w, it, target);
    return hard ? write_hard_link(w, it, hard) : write_typed(w, it);
}

/* Adds an entry's name to an error, escaped: the archive chose it, and it goes to logs and
 * terminals. */
static err *at_entry(err *e, const char *name)
{
    CLEANUP(buf_done) buf text = {0};

    if (!e)
        return NULL;
    escape_path(&text, str_or(name, ""), strnlen(str_or(name, ""), 80));
    return err_wrap(e, "at %s", buf_cstr(&text));
}

static err *write_entry(writer *w, struct archive *tar, struct archive_entry *entry)
{
    item it = {.tar = tar, .entry = entry, .dir = -1};
    int acls = archive_entry_acl_types(entry);

    if (++w->tally.entries > w->lim.entries)
        return refuse("more than %lu entries", (unsigned long)w->lim.entries);
    w->tally.acls += (acls & (ARCHIVE_ENTRY_ACL_TYPE_NFS4 | ARCHIVE_ENTRY_ACL_TYPE_POSIX1E)) != 0;
    TRY(at_entry(read_item(w, &it), archive_entry_pathname(entry)));
    return at_entry(write_item(w, &it), it.path);
}

err *writer_run(writer *w, struct archive *tar)
{
    struct archive_entry *entry;
    int r;

    /* ARCHIVE_WARN: a name that is not UTF-8. Its raw bytes survive; if not, the entry is
     * refused. */
    while ((r = archive_read_next_header(tar, &entry)) == ARCHIVE_OK || r == ARCHIVE_WARN)
        TRY(write_entry(w, tar, entry));
    if (r != ARCHIVE_EOF)
        return refuse("%s", str_or(archive_error_string(tar), "damaged archive"));
    return place_finish(w);
}

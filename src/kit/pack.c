/* pack: sends a tree as an entry stream, from which an archive is made elsewhere. It stays on the
 * mount where it begins: other mounts below (/proc, /sys, tmpfs) become empty directories. */
#include "kit/kit.h"

#define LINK_SLOTS (1u << 16)
#define LINK_TEXT  (16ul << 20)
#define XATTR_LIST (64u * 1024)

enum {
    K_S_IFSOCK = 0140000,
};

static bool with_xattrs, with_links, follow_first;
static u64 mount_id;

/* ---- hard links: the names that files with several of them came under first ---- */

struct link {
    u64 dev, ino;
    const char *name;
    size_t len;
};
static struct link *links;
static char *texts; /* bytes of the names */
static size_t texts_used;
static u32 links_used;

static bool links_make(void)
{
    if (!links)
        links = map_anon_lazy(LINK_SLOTS * sizeof *links);
    if (!texts)
        texts = map_anon_lazy(LINK_TEXT);
    return links && texts;
}

/* Returns the slot of a file, or the free slot where it belongs. */
static struct link *link_slot(u64 dev, u64 ino)
{
    u64 h = (ino * 0x9e3779b97f4a7c15ull) ^ dev;

    for (;; h++) {
        struct link *l = &links[h % LINK_SLOTS];
        if (!l->name || (l->dev == dev && l->ino == ino))
            return l;
    }
}

/* Returns the first name of a file with several; NULL if it was not sent before. When the table is
 * full, a file with two names is sent as two files. */
static const struct link *link_known(const struct statx *st, const char *name, size_t n)
{
    u64 dev = (u64)st->stx_dev_major << 32 | st->stx_dev_minor;

    if (!with_links || st->stx_nlink < 2 || !n || !links_make())
        return NULL;
    struct link *l = link_slot(dev, st->stx_ino);
    if (l->name)
        return l;
    if (links_used >= LINK_SLOTS / 2 || LINK_TEXT - texts_used < n)
        return NULL;
    memcpy(texts + texts_used, name, n);
    *l = (struct link){.dev = dev, .ino = st->stx_ino, .name = texts + texts_used, .len = n};
    texts_used += n;
    links_used++;
    return NULL;
}

/* ---- what belongs to an entry ---- */

static void send_xattr(int fd, const char *key, size_t n)
{
    static char value[KIT_XATTR_MAX];
    long len = SYS(fgetxattr, fd, key, value, sizeof value);

    if (len < 0 || n > 255)
        return; /* gone, or too large for the stream: the file matters more */
    out_record(&(kit_record){
        .type = KIT_XATTR, .name = key, .name_len = n, .bytes = value, .bytes_len = (size_t)len});
}

/* Sends only user.* attributes: all others belong to the node or to the kernel. */
static void send_xattrs(int fd)
{
    static char list[XATTR_LIST];
    long n = with_xattrs ? SYS(flistxattr, fd, list, sizeof list) : 0;
    u32 sent = 0;

    for (long at = 0; at < n && sent < KIT_XATTRS_MAX;) {
        size_t len = text_len(list + at);
        if (text_starts(list + at, "user.")) {
            send_xattr(fd, list + at, len);
            sent++;
        }
        at += (long)len + 1;
    }
}

/* Finds the ranges that hold data, at most KIT_EXTENTS_MAX: the last one extends to the end. */
static u32 find_extents(int fd, u64 size, struct kit_extent *v)
{
    u32 n = 0;
    u64 at = 0;

    while (at < size) {
        long from = SYS(lseek, fd, at, K_SEEK_DATA);
        if (from == -ENXIO)
            break;
        if (from < 0 || (u64)from < at)
            from = (long)at;
        if ((u64)from >= size)
            break;
        long to = n + 1 < KIT_EXTENTS_MAX ? SYS(lseek, fd, from, K_SEEK_HOLE) : (long)size;
        if (to <= from || (u64)to > size)
            to = (long)size;
        v[n++] = (struct kit_extent){.from = (u64)from, .size = (u64)to - (u64)from};
        at = (u64)to;
    }
    return n;
}

/* Sends one extent. The reader pads a file that became shorter with zeros: its length was sent
 * already. */
static long send_extent(int fd, const struct kit_extent *e)
{
    for (u64 at = e->from, end = e->from + e->size; at < end;) {
        size_t want = end - at < KIT_DATA_MAX ? (size_t)(end - at) : KIT_DATA_MAX;
        long n = SYS(pread64, fd, out_data_room(), want, at);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n;
        out_data(at, (size_t)n);
        at += (u64)n;
    }
    return 0;
}

static void send_content(int fd, const struct statx *st, const char *name, size_t n)
{
    static struct kit_extent extents[KIT_EXTENTS_MAX];
    u32 count = 1;

    extents[0] = (struct kit_extent){.from = 0, .size = st->stx_size};
    if (st->stx_blocks * 512 < st->stx_size) {
        count = find_extents(fd, st->stx_size, extents);
        out_extents(extents, count);
    }
    for (u32 i = 0; i < count; i++) {
        long r = send_extent(fd, &extents[i]);
        if (r < 0) /* its entry was sent already, so the stream ends here */
            out_fail_at(r, name, n);
    }
}

static void pack_file(int dir, const char *base, const char *name, size_t n)
{
    struct statx st;
    int how = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (!n && follow_first ? 0 : O_NOFOLLOW);
    long fd = SYS(openat, dir, base, how, 0);
    long r = fd < 0 ? fd : SYS(statx, fd, "", K_AT_EMPTY_PATH, STATX_BASIC_STATS, &st);

    if (r >= 0 && !is_file(&st)) /* replaced since the directory was read */
        r = -ESTALE;
    if (r < 0 && !n) /* the request named it */
        out_fail(r);
    if (r < 0) {
        if (r != -ENOENT)
            out_error(r, name, n);
    } else {
        const struct link *first = link_known(&st, name, n);
        out_entry(name, n, &st, first ? first->name : "", first ? first->len : 0,
                  first ? KIT_E_HARDLINK : 0);
        if (!first) {
            send_xattrs((int)fd);
            send_content((int)fd, &st, name, n);
        }
    }
    if (fd >= 0)
        SYS(close, fd);
}

/* ---- the tree ---- */

static bool on_same_mount(int dir, const char *base)
{
    struct statx st;

    if (SYS(statx, dir, base, K_AT_SYMLINK_NOFOLLOW, STATX_MNT_ID, &st) < 0)
        return false;
    return !(st.stx_mask & STATX_MNT_ID) || st.stx_mnt_id == mount_id;
}

static void pack_directory(int dir, const char *base, const struct statx *st, const char *name,
                           size_t n)
{
    long fd = with_xattrs ? SYS(openat, dir, base, DIR_FLAGS | O_NOFOLLOW, 0) : -1;

    out_entry(name, n, st, "", 0, 0);
    if (fd >= 0) {
        send_xattrs((int)fd);
        SYS(close, fd);
    }
}

static void pack_one(int dir, const char *base, const struct statx *st, const char *name, size_t n)
{
    u32 type = st->stx_mode & K_S_IFMT;

    if (type == K_S_IFREG)
        pack_file(dir, base, name, n);
    else if (type == K_S_IFDIR)
        pack_directory(dir, base, st, name, n);
    else if (type == K_S_IFSOCK)
        out_error(-ENXIO, name, n); /* a socket is useless without the process that made it */
    else
        entry_of(dir, base, st, name, n);
}

static bool pack_visit(walk *w, int dir, const char *base, const struct statx *st)
{
    pack_one(dir, base, st, w->name, w->len);
    w->shallow = is_dir(st) && !on_same_mount(dir, base);
    return true;
}

static void pack_tree(const kit_request *rq)
{
    static walk w;
    struct statx st;
    long dir = SYS(openat, K_AT_FDCWD, rq->path, DIR_FLAGS, 0);
    long r =
        dir < 0 ? dir : SYS(statx, dir, "", K_AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st);

    if (r < 0)
        out_fail(r);
    mount_id = st.stx_mnt_id;
    out_entry("", 0, &st, "", 0, 0);
    send_xattrs((int)dir);
    w.depth = WALK_DEPTH_MAX;
    w.visit = pack_visit;
    w.rq = rq;
    walk_below(&w, (int)dir);
}

void verb_pack(const kit_request *rq)
{
    char base[256];
    struct statx st;
    int dir = -1;
    long r =
        path_stat(K_AT_FDCWD, rq->path, rq->flags & KIT_F_FOLLOW ? 0 : K_AT_SYMLINK_NOFOLLOW, &st);

    with_xattrs = rq->flags & KIT_F_XATTRS;
    with_links = !(rq->flags & KIT_F_COPIES);
    follow_first = rq->flags & KIT_F_FOLLOW;
    if (r >= 0 && !is_dir(&st))
        r = path_parent(rq->path, false, &dir, base);
    if (r < 0)
        out_fail(r);
    if (is_dir(&st))
        pack_tree(rq);
    else
        pack_one(dir, base, &st, "", 0);
}

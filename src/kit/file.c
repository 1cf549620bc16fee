/* read and write: one regular file. No other type is opened for its content: a FIFO would block
 * until another process opens it, and a device has no end. */
#include "kit/kit.h"

#define LINKS_MAX 16

/* ---- read ---- */

static long open_regular(const char *path, struct statx *ret_st)
{
    long fd = SYS(openat, K_AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);

    if (fd == -ENXIO)
        return -EINVAL; /* a socket */
    if (fd < 0)
        return fd;
    long r = SYS(statx, fd, "", K_AT_EMPTY_PATH, STATX_BASIC_STATS, ret_st);
    if (r >= 0 && !is_file(ret_st))
        r = is_dir(ret_st) ? -EISDIR : -EINVAL;
    if (r < 0) {
        SYS(close, fd);
        return r;
    }
    return fd;
}

/* Reads into the room of a DATA record, as far as the file goes. */
static long read_full(int fd, char *to, size_t max, u64 at)
{
    size_t got = 0;

    while (got < max) {
        long n = SYS(pread64, fd, to + got, max - got, at + got);
        if (n == -EINTR)
            continue;
        if (n < 0)
            return n;
        if (!n)
            break;
        got += (size_t)n;
    }
    return (long)got;
}

/* Returns the offset of the next data at or after `at`, or the end if only a hole follows. */
static u64 skip_hole(int fd, u64 at, u64 end)
{
    long r = SYS(lseek, fd, at, K_SEEK_DATA);

    if (r == -ENXIO)
        return end;
    return r < 0 || (u64)r < at ? at : (u64)r < end ? (u64)r : end;
}

static void kit_file_send(int fd, u64 at, u64 end)
{
    u64 hole = at; /* where to search for a hole next */

    while (at < end) {
        if (at >= hole) {
            at = skip_hole(fd, at, end);
            long next = SYS(lseek, fd, at, K_SEEK_HOLE);
            hole = next > 0 && (u64)next > at ? (u64)next : end;
            continue;
        }
        u64 stop = hole < end ? hole : end;
        size_t want = stop - at < KIT_DATA_MAX ? (size_t)(stop - at) : KIT_DATA_MAX;
        long n = read_full(fd, out_data_room(), want, at);
        if (n < 0)
            out_fail(n);
        if (!n)
            out_fail(-ESTALE); /* the file became shorter meanwhile */
        out_data(at, (size_t)n);
        at += (u64)n;
    }
}

/* Sends a file whose size is 0. It may be a file of /proc or /sys, whose length is known only after
 * reading it. Always sends the whole; a range is ignored. */
static void send_unsized(int fd, const struct statx *st)
{
    u64 at = 0;
    char first;
    long n = read_full(fd, &first, 1, 0);

    out_entry("", 0, st, "", 0, n > 0 ? KIT_E_UNSIZED : 0);
    if (n < 0)
        out_fail(n);
    while (n > 0) {
        n = read_full(fd, out_data_room(), KIT_DATA_MAX, at);
        if (n < 0)
            out_fail(n);
        if (!n)
            break;
        out_data(at, (size_t)n);
        at += (u64)n;
        out_flush();
    }
}

void verb_read(const kit_request *rq)
{
    struct statx st;
    long fd = open_regular(rq->path, &st);

    if (fd < 0)
        out_fail(fd);
    if (!st.stx_size) {
        send_unsized((int)fd, &st);
        return;
    }
    u64 size = st.stx_size, at = rq->offset;
    if (rq->flags & KIT_F_SUFFIX)
        at = rq->length < size ? size - rq->length : 0;
    out_entry("", 0, &st, "", 0, 0);
    if (at >= size)
        return;
    u64 end = rq->length < size - at ? at + rq->length : size;
    if (end - at > KIT_DATA_MAX)
        out_flush(); /* do not delay the head of the answer until the first bytes */
    kit_file_send((int)fd, at, end);
}

/* ---- write ---- */

/* Finds the directory and name to write to. Follows a final symbolic link, even if its target does
 * not exist yet: dir and base are then the target's. */
static long file_resolve(const kit_request *rq, int *dir, char base[256])
{
    char target[KIT_PATH_MAX + 1];
    long r = path_parent(rq->path, rq->flags & KIT_F_PARENTS, dir, base);

    for (int i = 0; r >= 0; i++) {
        long n = SYS(readlinkat, *dir, base, target, sizeof target - 1);
        if (n < 0)
            return 0; /* not a link */
        if (i == LINKS_MAX)
            return -ELOOP;
        target[n] = 0;
        r = SYS(fchdir, *dir); /* relative targets are resolved from here */
        fd_close(dir);
        if (r >= 0)
            r = path_parent(target, rq->flags & KIT_F_PARENTS, dir, base);
    }
    return r == -EBUSY ? -EISDIR : r;
}

long temp_name(char ret_name[TEMP_LEN])
{
    static const char HEX[] = "0123456789abcdef";
    static const char PREFIX[] = KIT_TEMP;
    static u64 next; /* random at first, then counted up: an archive has many files */
    unsigned char r[sizeof next];
    long n = next ? 0 : SYS(getrandom, &next, sizeof next, 0);

    next++;
    memcpy(r, &next, sizeof r);
    memcpy(ret_name, PREFIX, sizeof PREFIX);
    for (int i = 0; i < 8; i++) {
        ret_name[sizeof PREFIX - 1 + 2 * i] = HEX[r[i] >> 4];
        ret_name[sizeof PREFIX + 2 * i] = HEX[r[i] & 15];
    }
    ret_name[sizeof PREFIX - 1 + 16] = 0;
    return n < 0 ? n : 0;
}

long temp_open(int dir, u32 mode, bool fresh, char ret_name[TEMP_LEN])
{
    long r;

    do {
        r = temp_name(ret_name);
        for (size_t i = fresh ? text_len(ret_name) + 1 : 0; i >= sizeof KIT_TEMP; i--)
            ret_name[i] = ret_name[i - 1];
        if (fresh)
            ret_name[sizeof KIT_TEMP - 1] = KIT_TEMP_FRESH;
        if (r >= 0)
            r = SYS(openat, dir, ret_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    mode);
    } while (r == -EEXIST);
    return r;
}

void temp_drop(int dir, const char *name, int fd)
{
    SYS(ftruncate, fd, 0);
    SYS(unlinkat, dir, name, 0);
}

long write_full(int fd, const char *p, size_t n, u64 at)
{
    while (n) {
        long k = SYS(pwrite64, fd, p, n, at);
        if (k == -EINTR)
            continue;
        if (k <= 0)
            return k ? k : -EIO;
        p += k;
        n -= (size_t)k;
        at += (u64)k;
    }
    return 0;
}

/* Sets a user.* attribute; others are refused. A file system without attributes drops them: the
 * content matters more. */
static long set_xattr(int fd, const kit_record *r)
{
    char key[256];

    memcpy(key, r->name, r->name_len);
    key[r->name_len] = 0;
    if (!text_starts(key, "user."))
        return -EPERM;
    long e = SYS(fsetxattr, fd, key, r->bytes, r->bytes_len, 0);
    return e == -EOPNOTSUPP ? 0 : e;
}

/* Receives from stdin into fd, until END; with many, also until the next ENTRY. *ret_last is the
 * record that ended it. */
static long file_receive(int fd, bool many, kit_record *ret_last)
{
    kit_record *r = ret_last;
    u64 size = 0;

    for (;;) {
        long e = in_record(r);
        if (e < 0)
            return e;
        if (r->type == KIT_END || (many && r->type == KIT_ENTRY))
            break;
        if (r->type == KIT_XATTR)
            e = set_xattr(fd, r);
        if (r->type == KIT_DATA) {
            e = write_full(fd, r->bytes, r->bytes_len, r->offset);
            size = r->offset + r->bytes_len;
            tally.bytes += r->bytes_len;
        }
        if (e < 0)
            return e;
    }
    return SYS(ftruncate, fd, size);
}

/* Keeps the replaced file's owner, as far as this user may, and its mode unless the request names
 * one. */
static long file_dress(int fd, const kit_request *rq, const struct statx *old)
{
    u32 mode = rq->mode;

    if (old && (SYS(geteuid) == 0) && SYS(fchown, fd, old->stx_uid, old->stx_gid) < 0)
        (void)!SYS(fchown, fd, NO_CHANGE, old->stx_gid);
    if (mode == KIT_MODE_NONE && old)
        mode = old->stx_mode & 01777; /* set-id bits are dropped with the old content */
    return mode == KIT_MODE_NONE ? 0 : SYS(fchmod, fd, mode);
}

static long file_replace(int dir, const char *base, const char *temp, int fd, const kit_request *rq,
                         kit_record *ret_last)
{
    struct statx old;
    bool there = path_stat(dir, base, K_AT_SYMLINK_NOFOLLOW, &old) >= 0;
    long r = file_receive(fd, rq->flags & KIT_F_MANY, ret_last);

    if (r >= 0)
        r = file_dress(fd, rq, there ? &old : NULL);
    if (r >= 0)
        r = SYS(renameat2, dir, temp, dir, base, rq->flags & KIT_F_NEW ? 1 : 0);
    return r;
}

static long write_in(int dir, const char *base, const kit_request *rq, kit_record *ret_last)
{
    char temp[TEMP_LEN];
    struct statx st;
    bool there = path_stat(dir, base, K_AT_SYMLINK_NOFOLLOW, &st) >= 0;

    if (there && (rq->flags & KIT_F_NEW || !is_file(&st)))
        return rq->flags & KIT_F_NEW ? -EEXIST : is_dir(&st) ? -EISDIR : -EINVAL;
    int fd = (int)temp_open(dir, 0666, !there, temp);
    if (fd < 0)
        return fd;
    long r = file_replace(dir, base, temp, fd, rq, ret_last);
    if (r < 0)
        temp_drop(dir, temp, fd);
    else
        r = SYS(statx, fd, "", K_AT_EMPTY_PATH, STATX_BASIC_STATS, &st);
    fd_close(&fd);
    if (r < 0)
        return r;
    out_entry("", 0, &st, "", 0, 0);
    detail_of(dir, base, &st);
    return 0;
}

static long write_one(const kit_request *rq, kit_record *ret_last)
{
    char base[256];
    int dir = -1;
    long r = file_resolve(rq, &dir, base);

    if (r >= 0)
        r = write_in(dir, base, rq, ret_last);
    fd_close(&dir);
    return r;
}

/* Writes several files; each entry's target is the path to write to. */
static long write_many(const kit_request *rq)
{
    static char given[KIT_PATH_MAX + 1], path[KIT_PATH_MAX + 1];
    kit_request one = *rq;
    kit_record r;
    long e = in_record(&r);

    one.path = path;
    while (e >= 0 && r.type == KIT_ENTRY) {
        memcpy(given, r.bytes, r.bytes_len);
        given[r.bytes_len] = 0;
        e = who_path(given, path);
        if (e >= 0) {
            who_tell_at(path);
            e = write_one(&one, &r);
        }
    }
    return e >= 0 && r.type != KIT_END ? -EPROTO : e;
}

void verb_write(const kit_request *rq)
{
    kit_record r;
    long e = rq->flags & KIT_F_MANY ? write_many(rq) : write_one(rq, &r);

    if (e < 0)
        out_fail(e);
}

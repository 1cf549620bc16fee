/* Files that callers sent for COPY: in uploads/ of the state directory, named by owner and hash.
 * Only builds read them. A file that was not used for a day is removed.
 *
 * Room is taken before it is written to: of the owner's limit, of the node's, and of the disk,
 * which the store also needs. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "engine/build_internal.h"

#define UPLOADS   "uploads"
#define OWNER_HEX 32
#define NAME_LEN  (OWNER_HEX + 1 + UPLOAD_HASH_LEN)
#define KEPT_S    (24 * 3600)
#define PIECE     (64u * 1024)
#define LOOK      (1u << 20) /* bytes between two checks of the disk's free space */

/* Bytes that an owner has stored and is sending. Exists while the owner sends: files on the disk
 * are counted once, then bytes are added as they come. */
struct upload_account {
    char owner[OWNER_HEX + 1];
    uint64_t bytes;
    unsigned sending;
    struct upload_account *next;
};

bool build_hash_valid(const char *hash)
{
    return strlen(hash) == UPLOAD_HASH_LEN && strspn(hash, "0123456789abcdef") == UPLOAD_HASH_LEN;
}

static void name_of(const char *owner, const char *hash, char ret_name[NAME_LEN + 1])
{
    uint8_t digest[SHA256_LEN];
    char hex[2 * SHA256_LEN + 1];

    sha256(owner, strlen(owner), digest);
    hex_encode(digest, sizeof digest, hex);
    snprintf(ret_name, NAME_LEN + 1, "%.*s-%s", OWNER_HEX, hex, hash);
}

static err *open_dir(engine *e, int *ret_dir)
{
    if (e->o.state_dir < 0)
        return err_new(ERR_UNSUPPORTED, "this node keeps no files");
    return fs_dir(e->o.state_dir, UPLOADS, 0700, ret_dir);
}

err *upload_open(engine *e, const char *owner, const char *hash, int *ret_fd)
{
    CLEANUP(closep) int dir = -1;
    char name[NAME_LEN + 1];

    TRY(open_dir(e, &dir));
    name_of(owner, hash, name);
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_remedy(err_new(ERR_NOT_FOUND, "its files are not here any more"),
                          "Send them again.");
    futimens(fd, NULL); /* marks it as used */
    *ret_fd = fd;
    return NULL;
}

bool engine_upload_present(engine *e, const char *owner, const char *hash)
{
    CLEANUP(closep) int fd = -1;
    err *failure = hash && build_hash_valid(hash) ? upload_open(e, owner, hash, &fd)
                                                  : err_new(ERR_NOT_FOUND, "no hash");
    bool there = !failure;

    err_free(failure);
    return there;
}

/* Removes files of any owner that are too old. Returns the bytes that are left, of the owner (or
 * NULL) and in total. */
static void build_upload_sweep(int dir, const char *mine, uint64_t *ret_mine, uint64_t *ret_all)
{
    int again = dup(dir);
    DIR *d = again >= 0 ? fdopendir(again) : NULL;
    uint64_t now_s = now_real_ns() / NS_PER_S;
    struct stat st;

    *ret_mine = *ret_all = 0;
    if (!d) {
        if (again >= 0)
            close(again);
        return;
    }
    rewinddir(d);
    const struct dirent *one;
    while ((one = readdir(d))) { /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        if (one->d_name[0] == '.' || fstatat(dir, one->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if ((uint64_t)st.st_mtime + KEPT_S < now_s) {
            unlinkat(dir, one->d_name, 0);
            continue;
        }
        *ret_all += (uint64_t)st.st_size;
        if (mine && !strncmp(one->d_name, mine, OWNER_HEX))
            *ret_mine += (uint64_t)st.st_size;
    }
    closedir(d);
}

void upload_sweep(engine *e)
{
    CLEANUP(closep) int dir = -1;
    uint64_t mine, all;
    err *failure = e->o.state_dir < 0 ? NULL : open_dir(e, &dir);

    err_drop(failure, "build");
    if (dir >= 0)
        build_upload_sweep(dir, NULL, &mine, &all);
}

/* ---- room ---- */

static err *account_open(build_desk *d, int dir, const char *name, upload_account **ret_account)
{
    LOCK_SCOPE(&d->uploads);
    upload_account *a = d->accounts;
    uint64_t all;

    while (a && strncmp(a->owner, name, OWNER_HEX) != 0)
        a = a->next;
    if (a && a->sending >= UPLOADS_OWNER)
        return err_retry_after(err_new(ERR_QUOTA_EXCEEDED,
                                       "you are sending %u files, as many as one may at a time",
                                       a->sending),
                               1);
    if (!a) {
        a = xcalloc(1, sizeof *a);
        str_copy(a->owner, sizeof a->owner, name);
        build_upload_sweep(dir, name, &a->bytes, &all);
        if (!d->accounts) /* otherwise bytes that others are sending would be counted twice */
            d->upload_bytes = all;
        a->next = d->accounts;
        d->accounts = a;
    }
    a->sending++;
    *ret_account = a;
    return NULL;
}

/* Ends an upload. less: bytes that were given up, or that an earlier file of the same name had. */
static void account_close(build_desk *d, upload_account *a, uint64_t less)
{
    LOCK_SCOPE(&d->uploads);
    upload_account **at = &d->accounts;

    less = less < a->bytes ? less : a->bytes;
    a->bytes -= less;
    d->upload_bytes -= less < d->upload_bytes ? less : d->upload_bytes;
    if (--a->sending)
        return;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    free(a);
}

static err *take_room(build_desk *d, upload_account *a, size_t n)
{
    LOCK_SCOPE(&d->uploads);

    if (a->bytes + n > d->upload_owner_max)
        return err_remedy(err_new(ERR_QUOTA_EXCEEDED, "the files that you have sent for builds "
                                                      "take as much room as one may have"),
                          "Leave out what the build does not need (.dockerignore), or wait a day.");
    if (d->upload_bytes + n > d->upload_node_max)
        return err_remedy(err_new(ERR_DISK_FULL, "the files that were sent for builds take as much "
                                                 "room as the node has for them"),
                          "They go when nobody has used them for a day.");
    a->bytes += n;
    d->upload_bytes += n;
    return NULL;
}

static err *check_disk(const build_desk *d, int fd)
{
    struct statvfs v;

    if (fstatvfs(fd, &v) < 0 || (uint64_t)v.f_bavail * v.f_frsize >= d->upload_floor)
        return NULL;
    return err_remedy(err_new(ERR_DISK_FULL, "the node's disk has no room for files of builds"),
                      "Free some: what is left is kept for the store and for output.");
}

/* ---- one upload ---- */

/* Writes an upload to fd. ret_all: bytes for which room was taken, also after a failure. */
static err *build_upload_receive(build_desk *d, upload_account *a, int fd, upload_read *read,
                                 void *arg, uint64_t *ret_all)
{
    CLEANUP(freep) char *piece = xmalloc(PIECE);
    size_t n = 1, since = LOOK;

    while (n) {
        TRY(read(arg, piece, PIECE, &n));
        if (*ret_all + n > UPLOAD_MAX)
            return err_new(ERR_TOO_LARGE, "an upload may have %llu bytes",
                           (unsigned long long)UPLOAD_MAX);
        if ((since += n) >= LOOK) {
            TRY(check_disk(d, fd));
            since = 0;
        }
        TRY(take_room(d, a, n));
        *ret_all += n;
        int e = fs_write_all(fd, piece, n);
        if (e)
            return fs_error(-e, "cannot keep the upload");
    }
    return NULL;
}

static err *build_upload_keep(build_desk *d, upload_account *a, int dir, const char *name,
                              upload_read *read, void *arg, uint64_t *ret_less)
{
    CLEANUP(closep) int fd = -1;
    char temp[NAME_LEN + 32], random[17];
    struct stat old;

    id_random(random, sizeof random - 1);
    snprintf(temp, sizeof temp, "%s.%s", name, random);
    fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fs_error(errno, "cannot keep the upload");
    err *failure = build_upload_receive(d, a, fd, read, arg, ret_less);
    bool there = fstatat(dir, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
    if (!failure && renameat(dir, temp, dir, name) < 0)
        failure = fs_error(errno, "cannot keep the upload");
    if (failure)
        unlinkat(dir, temp, 0);
    else
        *ret_less = there ? (uint64_t)old.st_size : 0;
    return failure;
}

err *engine_upload(engine *e, const char *owner, const char *hash, upload_read *read, void *arg)
{
    CLEANUP(closep) int dir = -1;
    char name[NAME_LEN + 1];
    upload_account *a = NULL;
    uint64_t less = 0;

    if (!build_hash_valid(hash))
        return err_new(ERR_INVALID_REQUEST, "a hash is %u hexadecimal digits", UPLOAD_HASH_LEN);
    TRY(open_dir(e, &dir));
    name_of(owner, hash, name);
    TRY(account_open(e->builds, dir, name, &a));
    assert(a);
    err *failure = build_upload_keep(e->builds, a, dir, name, read, arg, &less);
    account_close(e->builds, a, less);
    return failure;
}

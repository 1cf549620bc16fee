/* Files that were sent for COPY: below uploads/ of the state directory, named by whose and by hash.
 * They are read by builds alone. What nobody has used for a day goes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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
    futimens(fd, NULL); /* it is in use */
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

/* What the owner has; those that are too old go, of whomever. */
static uint64_t sweep(int dir, const char *mine)
{
    int again = dup(dir);
    DIR *d = again >= 0 ? fdopendir(again) : NULL;
    uint64_t bytes = 0, now_s = now_real_ns() / NS_PER_S;
    struct stat st;

    if (!d) {
        if (again >= 0)
            close(again);
        return 0;
    }
    rewinddir(d);
    const struct dirent *one;
    while ((one = readdir(d))) { /* NOLINT(concurrency-mt-unsafe): the stream is ours */
        if (one->d_name[0] == '.' || fstatat(dir, one->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if ((uint64_t)st.st_mtime + KEPT_S < now_s)
            unlinkat(dir, one->d_name, 0);
        else if (mine && !strncmp(one->d_name, mine, OWNER_HEX))
            bytes += (uint64_t)st.st_size;
    }
    closedir(d);
    return bytes;
}

void upload_sweep(engine *e)
{
    CLEANUP(closep) int dir = -1;
    err *failure = e->o.state_dir < 0 ? NULL : open_dir(e, &dir);

    err_drop(failure, "build");
    if (dir >= 0)
        sweep(dir, NULL);
}

static err *receive(int fd, uint64_t room, upload_read *read, void *arg)
{
    CLEANUP(freep) char *piece = xmalloc(PIECE);
    uint64_t all = 0;
    size_t n = 1;

    while (n) {
        TRY(read(arg, piece, PIECE, &n));
        all += n;
        if (all > UPLOAD_MAX)
            return err_new(ERR_TOO_LARGE, "an upload may have %llu bytes",
                           (unsigned long long)UPLOAD_MAX);
        if (all > room)
            return err_remedy(err_new(ERR_QUOTA_EXCEEDED, "the files that you have sent for builds "
                                                          "take as much room as one may have"),
                              "Leave out what the build does not need (.dockerignore), or wait a "
                              "day.");
        int e = fs_write_all(fd, piece, n);
        if (e)
            return fs_error(-e, "cannot keep the upload");
    }
    return NULL;
}

/* Two at a time may together have somewhat more than one may have, which the next one finds. */
err *engine_upload(engine *e, const char *owner, const char *hash, upload_read *read, void *arg)
{
    CLEANUP(closep) int dir = -1;
    CLEANUP(closep) int fd = -1;
    char name[NAME_LEN + 1], temp[NAME_LEN + 32], random[17];
    uint64_t used;

    if (!build_hash_valid(hash))
        return err_new(ERR_INVALID_REQUEST, "a hash is %u hexadecimal digits", UPLOAD_HASH_LEN);
    TRY(open_dir(e, &dir));
    name_of(owner, hash, name);
    {
        LOCK_SCOPE(&e->builds->uploads);
        used = sweep(dir, name);
    }
    id_random(random, sizeof random - 1);
    snprintf(temp, sizeof temp, "%s.%s", name, random);
    fd = openat(dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return fs_error(errno, "cannot keep the upload");
    err *failure = receive(fd, used < UPLOAD_OWNER_MAX ? UPLOAD_OWNER_MAX - used : 0, read, arg);
    if (!failure && renameat(dir, temp, dir, name) < 0)
        failure = fs_error(errno, "cannot keep the upload");
    if (failure)
        unlinkat(dir, temp, 0);
    return failure;
}

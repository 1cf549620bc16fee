/* Keeps an upload on the node's disk until its target is known. Each owner's share is limited, and
 * a part of the disk stays free. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/thread.h"
#include "door/swerex/internal.h"

#define LOOK (UINT64_C(1) << 20) /* bytes between two checks of the disk's free space */

err *rex_stage_open(swerex *d, const char *owner, rex_stage *ret_stage)
{
    int fd = openat(d->o.staging, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        return fs_error(errno, "an upload cannot be kept");
    *ret_stage = (rex_stage){.door = d, .owner = xstrdup(owner), .fd = fd};
    return NULL;
}

/* ---- room ---- */

static err *too_much(uint64_t max)
{
    return err_retry_after(
        err_remedy(
            err_new(ERR_QUOTA_EXCEEDED, "your uploads under way have more than %lu MiB", max >> 20),
            "Wait until others of yours have ended."),
        1);
}

static err *take_room(rex_stage *s, size_t n)
{
    swerex *d = s->door;
    LOCK_SCOPE(&d->lock);
    uint64_t *have = map_get_str(&d->staged, s->owner);

    if ((have ? *have : 0) + n > d->o.staged)
        return too_much(d->o.staged);
    if (!have) {
        have = xcalloc(1, sizeof *have);
        map_put_str(&d->staged, s->owner, have);
    }
    *have += n;
    s->n += n;
    return NULL;
}

static void give_room(rex_stage *s)
{
    swerex *d = s->door;
    LOCK_SCOPE(&d->lock);
    uint64_t *have = map_get_str(&d->staged, s->owner);

    if (!have)
        return;
    *have -= s->n;
    if (!*have)
        free(map_take_str(&d->staged, s->owner));
}

static err *check_disk(const rex_stage *s, size_t n)
{
    struct statvfs v;

    if (s->n / LOOK == (s->n + n) / LOOK || fstatvfs(s->fd, &v) ||
        (uint64_t)v.f_bavail * v.f_frsize >= REX_STAGE_FLOOR)
        return NULL;
    return err_remedy(err_new(ERR_DISK_FULL, "the node's disk has no room for the upload"),
                      "Free some: what is left is kept for the store and for output.");
}

/* ---- bytes ---- */

err *rex_stage_write(rex_stage *s, const void *p, size_t n)
{
    if (s->n + n > REX_STAGE_MAX)
        return err_new(ERR_TOO_LARGE, "an upload has at most %lu GiB", REX_STAGE_MAX >> 30);
    TRY(check_disk(s, n));
    TRY(take_room(s, n));
    for (const char *from = p; n;) {
        ssize_t k = write(s->fd, from, n);
        if (k < 0 && errno != EINTR)
            return fs_error(errno, "the upload cannot be kept");
        from += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return NULL;
}

void rex_stage_done(rex_stage *s)
{
    if (s->fd < 0)
        return;
    close(s->fd);
    give_room(s);
    free(s->owner);
    s->fd = -1;
}

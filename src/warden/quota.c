#include "warden/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "warden/warden.h"

#define PROJECT_FIRST  0x10000000u
#define PROJECTS       (4 * SLOTS_MAX) /* slots, and what is in the trash */
#define PROJECT_PROBED (PROJECT_FIRST + PROJECTS)
#define BYTES_A_FILE   8192u
#define FILES_MIN      4096u
#define FILES_OWN      16u /* the upper's directories and the overlay's own */
#define BLOCK          512u

#define PROBE_LIMIT (1u << 20)

/* Calls quotactl by descriptor: no path to a block device is needed, which a container would not
 * have. */
static int quota_call(const warden *w, unsigned command, uint32_t project, struct fs_disk_quota *q)
{
    return syscall(SYS_quotactl_fd, w->uppers_fd, QCMD(command, PRJQUOTA), project, q) ? -errno : 0;
}

static int set_limit(const warden *w, uint32_t project, uint64_t bytes, uint64_t files)
{
    struct fs_disk_quota q = {.d_version = FS_DQUOT_VERSION,
                              .d_flags = FS_PROJ_QUOTA,
                              .d_id = project,
                              .d_fieldmask = FS_DQ_BHARD | FS_DQ_BSOFT | FS_DQ_IHARD | FS_DQ_ISOFT,
                              .d_blk_hardlimit = bytes / BLOCK,
                              .d_ino_hardlimit = files};

    return quota_call(w, Q_XSETQLIM, project, &q);
}

/* ---- the limit of a slot ---- */

static uint64_t files_for(uint64_t bytes)
{
    uint64_t files = bytes / BYTES_A_FILE;

    return bytes ? (files < FILES_MIN ? FILES_MIN : files) + FILES_OWN : 0;
}

/* Sets the limit and reads it back: it is a wall. */
err *quota_limit(const warden *w, uint32_t project, uint64_t bytes)
{
    struct fs_disk_quota q = {0};

    if (!w->quota || (!project && !bytes))
        return NULL;
    if (!project)
        return err_new(ERR_WALL_FAILED, "the slot's disk space cannot be limited: no project");
    int r = set_limit(w, project, bytes, files_for(bytes));
    if (r)
        return err_sys(ERR_WALL_FAILED, -r, "cannot limit disk space");
    if (!bytes)
        return NULL;
    r = quota_call(w, Q_XGETQUOTA, project, &q);
    if (r || q.d_blk_hardlimit != bytes / BLOCK || q.d_ino_hardlimit != files_for(bytes))
        return err_sys(ERR_WALL_FAILED, -r, "the disk limit is not what was written");
    return NULL;
}

void quota_used(const warden *w, uint32_t project, uint64_t *ret_bytes, uint64_t *ret_inodes)
{
    struct fs_disk_quota q = {0};

    if (!w->quota || !project || quota_call(w, Q_XGETQUOTA, project, &q))
        return;
    *ret_bytes = (uint64_t)q.d_bcount * BLOCK;
    *ret_inodes = q.d_icount;
}

void quota_forget(const warden *w, uint32_t project)
{
    if (w->quota && project)
        (void)set_limit(w, project, 0, 0); /* nothing is left to be limited */
}

/* ---- projects ---- */

err *quota_mark(int dirfd, uint32_t project)
{
    struct fsxattr a;

    if (!project)
        return NULL;
    if (ioctl(dirfd, FS_IOC_FSGETXATTR, &a))
        return err_sys(ERR_WALL_FAILED, errno, "cannot read the project of an upper");
    a.fsx_projid = project;
    a.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    if (ioctl(dirfd, FS_IOC_FSSETXATTR, &a))
        return err_sys(ERR_WALL_FAILED, errno, "cannot set the project of an upper");
    return NULL;
}

uint32_t quota_project(const warden *w, uint32_t n)
{
    struct fsxattr a;
    char name[16];

    snprintf(name, sizeof name, "%u", n);
    CLEANUP(closep) int fd = openat(w->uppers_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &a))
        return 0;
    return a.fsx_projid >= PROJECT_FIRST && a.fsx_projid < PROJECT_PROBED ? a.fsx_projid : 0;
}

static bool is_free(const warden *w, uint32_t project)
{
    struct fs_disk_quota q = {0};
    int r = quota_call(w, Q_XGETQUOTA, project, &q);

    return r == -ENOENT || (!r && !q.d_bcount && !q.d_icount);
}

/* Returns the next project to try, in turn: two refills never try the same one. */
static uint32_t next_project(warden *w)
{
    LOCK_SCOPE(&w->lock);

    return PROJECT_FIRST + w->next_project++ % PROJECTS;
}

err *quota_take(warden *w, uint32_t *ret_project)
{
    *ret_project = 0;
    if (!w->quota)
        return NULL;
    for (uint32_t i = 0; i < PROJECTS; i++) {
        uint32_t project = next_project(w);
        if (!is_free(w, project))
            continue;
        quota_forget(w, project);
        *ret_project = project;
        return NULL;
    }
    return err_new(ERR_INTERNAL, "every project of the file system has files");
}

/* ---- the probe ---- */

/* Returns true if a file cannot grow past the limit of its project. */
static bool quota_holds(const warden *w, int dir)
{
    err *e = quota_mark(dir, PROJECT_PROBED);

    if (e) {
        err_free(e);
        return false;
    }
    if (set_limit(w, PROJECT_PROBED, PROBE_LIMIT, files_for(PROBE_LIMIT)))
        return false;
    CLEANUP(closep) int fd = openat(dir, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd >= 0 && fallocate(fd, 0, 0, 2 * PROBE_LIMIT) && (errno == ENOSPC || errno == EDQUOT);
}

err *quota_probe(warden *w)
{
    CLEANUP(closep) int dir = -1;

    TRY(fs_remove(w->uppers_fd, QUOTA_PROBE));
    TRY(fs_dir(w->uppers_fd, QUOTA_PROBE, 0700, &dir));
    w->quota = quota_holds(w, dir);
    if (!w->quota)
        log_info("start", "the state's file system has no project quotas: no disk limits");
    TRY(fs_remove(w->uppers_fd, QUOTA_PROBE));
    quota_forget(w, PROJECT_PROBED);
    return NULL;
}

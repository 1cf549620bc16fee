#include "warden/root.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fault.h"
#include "base/fs.h"
#include "warden/bundle.h"
#include "warden/walls.h"

static err *root_failed(const char *step)
{
    return err_sys(ERR_CREATE_FAILED, errno, "%s", step);
}

static err *write_file(int dirfd, const char *name, const char *text, int len)
{
    CLEANUP(closep) int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int r = fd < 0 ? -errno : fs_write_all(fd, text, (size_t)len);

    return r ? err_sys(r == -ENOSPC ? ERR_DISK_FULL : ERR_INTERNAL, -r, "cannot write /%s", name)
             : NULL;
}

err *root_write_names(int uppers_fd, const char *upper, const char *hostname)
{
    char name[48], text[256];
    int len = snprintf(text, sizeof text, "%s\n", hostname);

    snprintf(name, sizeof name, "%s/u/etc/hostname", upper);
    TRY(write_file(uppers_fd, name, text, len));
    len = snprintf(text, sizeof text,
                   "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
                   "127.0.1.1\t%s\n",
                   hostname);
    snprintf(name, sizeof name, "%s/u/etc/hosts", upper);
    return write_file(uppers_fd, name, text, len);
}

err *root_write_resolvers(int uppers_fd, const char *upper, const char *text)
{
    char name[48];

    snprintf(name, sizeof name, "%s/u/etc/resolv.conf", upper);
    return write_file(uppers_fd, name, text, (int)strlen(text));
}

/* ---- the swap ---- */

/* Changes the root: the new one goes on top of the old one and takes over what the runtime mounted,
 * then the old one is dropped. pivot_root also moves root and cwd of pid 1. */
static err *change_root(int m)
{
    static const char *const KEPT[] = {"proc", "sys", "dev"};
    CLEANUP(closep) int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (old < 0 || move_mount(m, "", old, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
        return root_failed("attaching the root");
    FAULT_KILL("root.attached");
    for (size_t i = 0; i < ARRAY_LEN(KEPT); i++)
        if (move_mount(old, KEPT[i], m, KEPT[i], 0))
            return root_failed("moving /proc, /sys and /dev");
    if (fchdir(m) || syscall(SYS_pivot_root, ".", "."))
        return root_failed("changing the root");
    FAULT_KILL("root.pivoted");
    if (FAULT("wall.claim.procsys"))
        (void)umount2("proc/sys", MNT_DETACH);
    if ((!FAULT("wall.claim.root") && umount2(".", MNT_DETACH)) || chdir("/"))
        return root_failed("dropping the idle root");
    return NULL;
}

/* ---- tmpfs ---- */

/* Opens a mount point. Makes a directory for each missing component, as the slot's root. */
static int open_point(int root, const char *path)
{
    char at[WP_PATH_MAX];
    size_t len = strlen(path);
    int fd = fs_open_in_root(root, path, O_PATH | O_DIRECTORY);

    for (size_t i = 1; fd == -ENOENT && i <= len; i++) {
        if (path[i] != '/' && path[i])
            continue;
        memcpy(at, path, i);
        at[i] = 0;
        CLEANUP(closep) int have = fs_open_in_root(root, at, O_PATH | O_DIRECTORY);
        if (have >= 0)
            continue;
        char *slash = strrchr(at, '/');
        *slash = 0;
        CLEANUP(closep) int parent = fs_open_in_root(root, *at ? at : "/", O_PATH | O_DIRECTORY);
        if (parent < 0)
            return parent;
        if (mkdirat(parent, slash + 1, 0755))
            return -errno;
    }
    return fd == -ENOENT ? fs_open_in_root(root, path, O_PATH | O_DIRECTORY) : fd;
}

static err *make_tmpfs(const root_spec *spec, const struct wp_tmpfs *t, int *ret_mount)
{
    CLEANUP(closep) int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
    unsigned attr = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID;
    char size[32], mode[16], id[16];

    snprintf(size, sizeof size, "%" PRIu64, t->size);
    snprintf(mode, sizeof mode, "%o", t->mode ? t->mode : 01777);
    snprintf(id, sizeof id, "%u", spec->uid_base);
    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) ||
        fsconfig(fs, FSCONFIG_SET_STRING, "mode", mode, 0) ||
        fsconfig(fs, FSCONFIG_SET_STRING, "uid", id, 0) ||
        fsconfig(fs, FSCONFIG_SET_STRING, "gid", id, 0) ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        return root_failed("making a tmpfs");
    int m =
        fsmount(fs, FSMOUNT_CLOEXEC, t->flags & WP_TMPFS_EXEC ? attr : attr | MOUNT_ATTR_NOEXEC);
    if (m < 0)
        return root_failed("mounting a tmpfs");
    *ret_mount = m;
    return NULL;
}

static dev_t device_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) ? 0 : st.st_dev;
}

/* Mounts a tmpfs, only onto the root's own file system or a tmpfs of this claim: an image whose /x
 * is a link into /proc or /dev does not get it covered. seen[0] is the root's device. */
static err *mount_tmpfs(const root_spec *spec, int root, const struct wp_tmpfs *t, dev_t *seen,
                        uint32_t nseen)
{
    CLEANUP(closep) int m = -1;
    bool ours = false;

    stage_act_as(spec->uid_base);
    CLEANUP(closep) int point = open_point(root, t->path);
    stage_act_as(0);
    if (point < 0)
        return err_sys(ERR_INVALID_REQUEST, -point, "no tmpfs can be mounted at %s", t->path);
    for (uint32_t i = 0; i < nseen; i++)
        ours |= device_of(point) == seen[i];
    if (!ours)
        return err_sys(ERR_INVALID_REQUEST, EXDEV, "no tmpfs can be mounted at %s", t->path);
    TRY(make_tmpfs(spec, t, &m));
    if (move_mount(m, "", point, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
        return err_sys(ERR_INVALID_REQUEST, errno, "no tmpfs can be mounted at %s", t->path);
    seen[nseen] = device_of(m);
    return NULL;
}

static err *mount_all_tmpfs(const root_spec *spec, int root)
{
    dev_t seen[WP_TMPFS_MAX + 1] = {device_of(root)};

    for (uint32_t i = 0; i < spec->ntmpfs; i++)
        TRY(mount_tmpfs(spec, root, &spec->tmpfs[i], seen, i + 1));
    return NULL;
}

/* ---- the rest ---- */

static err *resize_shm(uint32_t mib)
{
    char size[32];

    if (mib == BUNDLE_SHM_MIB)
        return NULL;
    snprintf(size, sizeof size, "size=%um", mib);
    if (mount("shm", "/dev/shm", NULL, MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOEXEC, size))
        return root_failed("resizing /dev/shm");
    return NULL;
}

static err *root_dress(const root_spec *spec)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

    if (spec->mount >= 0)
        TRY(change_root(spec->mount));
    CLEANUP(closep) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return root_failed("opening the root");
    TRY(mount_all_tmpfs(spec, root));
    TRY(resize_shm(spec->shm_mib));
    if (sethostname(spec->hostname, strlen(spec->hostname)))
        return root_failed("setting the host name");
    if (spec->read_only && mount_setattr(root, "", AT_EMPTY_PATH, &attr, sizeof attr))
        return root_failed("making the root read-only");
    return NULL;
}

err *root_swap(const stage *st, const root_spec *spec)
{
    int into = FAULT("wall.claim.utsns") ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUTS;

    if (setns(spec->pidfd, into))
        return root_failed("entering the slot");
    err *e = walls_entered(spec->proc);
    if (!e)
        e = root_dress(spec);
    stage_home(st);
    return e;
}

/* Looks up names that the first command will look up, so that the kernel has them cached. Missing
 * files do not matter. */
static void look_up_names(int root)
{
    static const char *const NAMES[] = {"/etc/passwd", "/etc/group", "/root",   "/usr/local/sbin",
                                        "/usr/bin/sh", "/usr/sbin",  "/bin/sh", "/sbin"};

    for (size_t i = 0; i < ARRAY_LEN(NAMES); i++) {
        int fd = fs_open_in_root(root, NAMES[i], O_PATH);
        if (fd >= 0)
            close(fd);
    }
}

err *root_change(const stage *st, int pidfd, int mount)
{
    if (setns(pidfd, CLONE_NEWNS))
        return root_failed("entering the slot");
    err *e = change_root(mount);
    if (!e)
        look_up_names(mount);
    stage_home(st);
    return e;
}

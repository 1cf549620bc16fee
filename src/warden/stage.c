#include "warden/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"
#include "warden/layers.h"

#define LOWER_MAX    (LAYERS_MAX + 2) /* the image's, its fix layer, skel */
#define RETURN_TRIES 100
#define RETURN_US    20000

static err *stage_failed(const char *step)
{
    return err_sys(ERR_CREATE_FAILED, errno, "%s", step);
}

static err *make_tmpfs(int *ret_mount)
{
    CLEANUP(closep) int fs = fsopen("tmpfs", FSOPEN_CLOEXEC);

    if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "mode", "755", 0) ||
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
        return stage_failed("making the staging tmpfs");
    int m = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    if (m < 0)
        return stage_failed("mounting the staging tmpfs");
    *ret_mount = m;
    return NULL;
}

/* Makes the mount points. store: the state directory. s: where a build happens. t: what a build
 * starts from, one mount point per layer, so that dropping one mount drops a whole build. */
static err *make_points(int m)
{
    static const char *const POINTS[] = {"store", "s", "t", "t/m", "t/u"};
    char name[32];

    for (size_t i = 0; i < ARRAY_LEN(POINTS); i++)
        if (mkdirat(m, POINTS[i], 0755))
            return stage_failed("making the staging directories");
    for (unsigned i = 0; i < LOWER_MAX; i++) {
        snprintf(name, sizeof name, "t/%u", i);
        if (mkdirat(m, name, 0755))
            return stage_failed("making the staging directories");
    }
    return NULL;
}

static err *become_root(int m)
{
    CLEANUP(closep) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (root < 0 || move_mount(m, "", root, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
        return stage_failed("attaching the staging tmpfs");
    return NULL;
}

err *stage_enter(const char *store, stage *ret_stage)
{
    CLEANUP(closep) int ns = open("/proc/self/task", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CLEANUP(closep) int m = -1;
    char name[64];

    if (ns < 0 || unshare(CLONE_FS | CLONE_NEWNS) ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return stage_failed("making a staging mount namespace");
    CLEANUP(closep) int st = open_tree(AT_FDCWD, store, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (st < 0)
        return stage_failed("cloning the mount of the state directory");
    TRY(make_tmpfs(&m));
    TRY(become_root(m));
    TRY(make_points(m));
    if (move_mount(st, "", m, "store", MOVE_MOUNT_F_EMPTY_PATH))
        return stage_failed("attaching the state directory");
    if (fchdir(m) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
        return stage_failed("changing to the staging root");
    /* Keeps the capabilities while the file system ids are those of a slot's root. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP))
        return stage_failed("setting the secure bits");
    ret_stage->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof name, "%d/ns/mnt", gettid());
    ret_stage->home_mnt = openat(ns, name, O_RDONLY | O_CLOEXEC);
    snprintf(name, sizeof name, "%d/ns/uts", gettid());
    ret_stage->home_uts = openat(ns, name, O_RDONLY | O_CLOEXEC);
    if (ret_stage->root < 0 || ret_stage->home_mnt < 0 || ret_stage->home_uts < 0)
        return stage_failed("opening the way back");
    return NULL;
}

int stage_return(int ns, int kind)
{
    for (int i = 1;; i++) {
        if (!setns(ns, kind))
            return 0;
        if (errno != ENOMEM || i == RETURN_TRIES)
            return -1;
        usleep(RETURN_US); /* memory comes back; without this thread the whole warden must end */
    }
}

void stage_home(const stage *st)
{
    if (stage_return(st->home_mnt, CLONE_NEWNS) || stage_return(st->home_uts, CLONE_NEWUTS)) {
        log_error("claim", "no way back to the staging namespace: errno %d", errno);
        abort();
    }
}

void stage_act_as(uint32_t uid)
{
    setfsgid(uid);
    setfsuid(uid);
}

/* Clones one directory of the store, maps its ids, attaches it at a point of the build. */
static err *attach_mapped(int build, const char *dir, const char *point, int userns)
{
    char path[512];
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};

    if (snprintf(path, sizeof path, "/store/%s", dir) >= (int)sizeof path)
        return err_new(ERR_INTERNAL, "a layer's name is too long");
    CLEANUP(closep)
    int c = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);
    if (c < 0)
        return err_wrap(stage_failed("cloning a layer"), "%s", dir);
    if (mount_setattr(c, "", AT_EMPTY_PATH, &attr, sizeof attr))
        return err_wrap(stage_failed("mapping the ids of a layer"), "%s", dir);
    if (move_mount(c, "", build, point, MOVE_MOUNT_F_EMPTY_PATH))
        return err_wrap(stage_failed("attaching a layer"), "%s", dir);
    return NULL;
}

static err *attach_layers(int build, const stage_spec *spec, buf *options)
{
    char point[24];

    if (spec->nlayers + 1 > LOWER_MAX)
        return err_sys(ERR_IMAGE_UNSUPPORTED, E2BIG, "the image has too many layers");
    buf_str(options, "upperdir=u/u,workdir=u/w,volatile,lowerdir=0");
    TRY(attach_mapped(build, "skel", "0", spec->userns));
    for (size_t i = 0; i < spec->nlayers; i++) {
        snprintf(point, sizeof point, "%zu", i + 1);
        TRY(attach_mapped(build, spec->layers[i], point, spec->userns));
        buf_printf(options, ":%s", point);
    }
    return attach_mapped(build, spec->upper, "u", spec->userns);
}

/* Mounts the overlay as the slot's file system ids: without these it mounts too, but read-only. */
static err *mount_overlay(const stage_spec *spec, const char *options, int *ret_mount)
{
    bool nosuid = spec->nosuid && !FAULT("wall.claim.nosuid");
    unsigned long flags = MS_NODEV | (nosuid ? MS_NOSUID : 0);

    stage_act_as(spec->uid_base);
    int r = mount("overlay", "m", "overlay", flags, options);
    int m = r ? -1 : open_tree(AT_FDCWD, "m", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    int e = errno;
    stage_act_as(0);
    errno = e;
    if (r)
        return stage_failed("mounting the overlay");
    if (m < 0)
        return stage_failed("detaching the overlay");
    *ret_mount = m;
    return NULL;
}

static err *build_in(int build, const stage_spec *spec, int *ret_mount)
{
    CLEANUP(buf_done) buf options = {0};

    TRY(attach_layers(build, spec, &options));
    if (fchdir(build))
        return stage_failed("entering the build");
    return mount_overlay(spec, buf_cstr(&options), ret_mount);
}

err *stage_build(stage *st, const stage_spec *spec, int *ret_mount)
{
    CLEANUP(closep) int build = open_tree(st->root, "t", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (build < 0 || move_mount(build, "", st->root, "s", MOVE_MOUNT_F_EMPTY_PATH))
        return stage_failed("beginning a build");
    st->built = true;
    return build_in(build, spec, ret_mount);
}

/* Drops a build. The overlay holds its own clones of the layers. */
void stage_drop(stage *st)
{
    if (!st->built)
        return;
    if (fchdir(st->root) || umount2("s", MNT_DETACH)) {
        log_error("claim", "cannot drop a build: errno %d", errno);
        abort();
    }
    st->built = false;
}

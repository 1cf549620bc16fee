#include "unpack/box.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/landlock.h"
#include "unpack/filter.h"
#include "unpack/names.h"

static err *box_wall(const char *what)
{
    return err_sys(ERR_WALL_FAILED, errno, "cannot %s", what);
}

err *box_take_tree(int dir, int *ret_tree)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC |
                                          MOUNT_ATTR_NOATIME,
                              .attr_clr = MOUNT_ATTR__ATIME,
                              .propagation = MS_PRIVATE};
    CLEANUP(closep)
    int tree = open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

    if (tree < 0)
        return box_wall("take the layer's directory");
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr))
        return box_wall("restrict the layer's directory");
    *ret_tree = TAKE_FD(tree);
    return NULL;
}

/* Writes identity id maps: ids stay the same, but capabilities count only inside the namespace. */
static err *write_maps(pid_t pid)
{
    static const char MAP[] = "0 0 4294967295\n";
    static const char *const FILES[] = {"uid_map", "gid_map"};

    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/%s", pid, FILES[i]);
        CLEANUP(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, MAP, sizeof MAP - 1) != sizeof MAP - 1)
            return box_wall("map the ids of the user namespace");
    }
    return NULL;
}

/* Waits for the byte that the outer process sends once the id maps are written. Writer process
 * only. The outer process keeps the pipe open, so a hang-up means that it is dead, even if it died
 * before PR_SET_PDEATHSIG was set. */
static err *wait_for_maps(int go)
{
    struct pollfd p = {.fd = go, .events = POLLIN};
    char byte;

    if (read(go, &byte, 1) != 1)
        return err_new(ERR_WALL_FAILED, "the outer process has gone");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        return box_wall("follow the outer process into death");
    if (poll(&p, 1, 0) > 0 && p.revents & POLLHUP)
        return err_new(ERR_WALL_FAILED, "the outer process has gone");
    return NULL;
}

err *box_fork(pid_t *ret_pid)
{
    struct clone_args args = {.flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
                                       CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
                              .exit_signal = SIGCHLD};
    int go[2];

    if (pipe2(go, O_CLOEXEC))
        return box_wall("make a pipe");
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        return box_wall("make the namespaces");
    *ret_pid = (pid_t)pid;
    if (!pid) {
        close(go[1]);
        err *e = wait_for_maps(go[0]);
        close(go[0]);
        return e;
    }
    close(go[0]);
    err *e = write_maps((pid_t)pid);
    if (!e && write(go[1], "g", 1) != 1)
        e = box_wall("start the writer");
    if (e)
        close(go[1]); /* on success it stays open while this process lives */
    return e;
}

err *box_enter(int tree, int *ret_root)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return box_wall("make the mounts private");
    CLEANUP(closep) int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (old < 0 || move_mount(tree, "", old, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
        return box_wall("put the layer's directory over the root");
    if (fchdir(tree) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
        return box_wall("leave the old root");
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return box_wall("open the new root");
    *ret_root = root;
    return NULL;
}

/* ---- capabilities and limits ---- */

typedef struct role {
    int caps[5]; /* -1 ends */
    uint64_t memory, files;
    bool writes;
} role;

static const role ROLES[] = {
    [BOX_OUTER] = {.caps = {CAP_SYS_ADMIN, CAP_DAC_READ_SEARCH, -1},
                   .memory = 256u << 20,
                   .files = 16},
    [BOX_WRITER] = {.caps = {CAP_CHOWN, CAP_FOWNER, CAP_FSETID, CAP_SETFCAP, -1},
                    .memory = 1u << 30,
                    .files = 24,
                    .writes = true},
    [BOX_DECOMPRESSOR] = {.caps = {-1}, .memory = 512u << 20, .files = 8},
};

static err *keep_caps(const int *caps)
{
    const unsigned long locked = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                 SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                 SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

    if (prctl(PR_SET_SECUREBITS, locked))
        return box_wall("lock the secure bits");
    capng_clear(CAPNG_SELECT_ALL);
    for (; *caps >= 0; caps++)
        if (capng_update(CAPNG_ADD, CAPNG_EFFECTIVE | CAPNG_PERMITTED, (unsigned)*caps))
            return box_wall("choose capabilities");
    if (capng_apply(CAPNG_SELECT_ALL))
        return box_wall("drop capabilities");
    return NULL;
}

static err *set_limit(int which, uint64_t value)
{
    struct rlimit r = {value, value};

    return setrlimit((__rlimit_resource_t)which, &r) ? box_wall("set a resource limit") : NULL;
}

static err *set_limits(const role *r, const unpack_limits *lim)
{
    TRY(set_limit(RLIMIT_AS, r->memory));
    TRY(set_limit(RLIMIT_NOFILE, r->files));
    TRY(set_limit(RLIMIT_NPROC, 0));
    TRY(set_limit(RLIMIT_CORE, 0));
    TRY(set_limit(RLIMIT_FSIZE, r->writes ? lim->file : 0));
    if (signal(SIGXFSZ, SIG_IGN) == SIG_ERR || signal(SIGPIPE, SIG_IGN) == SIG_ERR)
        return box_wall("ignore a signal");
    return NULL;
}

err *box_close(enum box_role which, const unpack_limits *lim)
{
    const role *r = &ROLES[which];

    TRY(set_limits(r, lim));
    TRY(keep_caps(r->caps));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0))
        return box_wall("give up new privileges");
    return role_filter_load(which);
}

/* ---- the outer process ---- */

err *box_see_only(int dir)
{
    char path[32];

    snprintf(path, sizeof path, "/proc/self/fd/%d", dir);
    const landlock_rule layer = {.path = path, .rights = LANDLOCK_READ};
    /* No signal scope: the writer's death signal could not leave it when this process ends. */
    return landlock_restrict(&(landlock_domain){
        .rules = &layer, .n = 1, .refused = LANDLOCK_READ | LANDLOCK_WRITE | LANDLOCK_RUN});
}

static err *mark_one(int dir, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    CLEANUP(closep) int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return NULL; /* replaced by a later entry */
    if (fd < 0 || fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0))
        return err_sys(ERR_INTERNAL, errno, "cannot mark an opaque directory");
    return NULL;
}

err *box_mark_opaques(int from, int dir)
{
    static char text[2 * (NAME_PATH_MAX + 1)];
    size_t have = 0;
    ssize_t n;

    while ((n = read(from, text + have, sizeof text - have)) > 0 || (n < 0 && errno == EINTR)) {
        char *at = text, *end;
        have += n > 0 ? (size_t)n : 0;
        while ((end = memchr(at, 0, (size_t)(text + have - at)))) {
            TRY(mark_one(dir, at));
            at = end + 1;
        }
        have = (size_t)(text + have - at);
        memmove(text, at, have);
        if (have == sizeof text)
            return refuse("opaque directory with an endless name");
    }
    return n < 0 ? err_sys(ERR_INTERNAL, errno, "cannot read opaque directories") : NULL;
}

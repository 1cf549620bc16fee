/* Attempts with file systems, devices and namespaces. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "intruder.h"

/* <sys/mount.h> and <linux/mount.h> of one libc do not go together. */
int mount(const char *source, const char *target, const char *type, unsigned long flags,
          const void *data);
int umount2(const char *target, int flags);
#define MNT_DETACH 2

static const char *const TYPES[] = {"proc",    "sysfs",   "cgroup", "cgroup2",  "tmpfs",
                                    "overlay", "ext4",    "xfs",    "devpts",   "mqueue",
                                    "debugfs", "tracefs", "bpf",    "devtmpfs", "securityfs"};

static const char *place(void)
{
    static char made[64];
    snprintf(made, sizeof made, "/tmp/intruder-%d", getpid());
    mkdir(made, 0700);
    return made;
}

/* Only what differs from the refusal everybody expects is told. */
static long mount_types(void)
{
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        say_unless(TYPES[i], mount("none", place(), TYPES[i], 0, NULL), EPERM);
    errno = EPERM;
    return -1;
}

static long mount_bind(void)
{
    say_result("bind", mount("/proc", place(), NULL, MS_BIND | MS_REC, NULL));
    say_result("move", mount("/proc", place(), NULL, MS_MOVE, NULL));
    say_result("private", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    return 0;
}

static long mount_remount(void)
{
    say_result("/", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    say_result("/proc/sys", mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
    say_result("/sys", mount(NULL, "/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
    say_result("/proc", mount(NULL, "/proc", NULL, MS_REMOUNT, NULL));
    return 0;
}

static long mount_new_api(void)
{
    struct mount_attr rw = {.attr_clr = MOUNT_ATTR_RDONLY};
    int fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    say_result("fsopen", syscall(SYS_fsopen, "proc", 0));
    say_result("fspick", syscall(SYS_fspick, AT_FDCWD, "/sys", 0));
    say_result("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/proc", OPEN_TREE_CLONE));
    say_result("move_mount", syscall(SYS_move_mount, fd, "", AT_FDCWD, place(), 4));
    say_result("mount_setattr",
               syscall(SYS_mount_setattr, AT_FDCWD, "/proc/sys", 0, &rw, sizeof rw));
    return 0;
}

/* Every mount below the root that the table of mounts shows. */
static long mounts_off(int expected)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[1024], target[256];
    long n = 0;

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%*s %*s %*s %*s %255s", target) == 1 && strcmp(target, "/") != 0) {
            say_unless(target, umount2(target, MNT_DETACH), expected);
            n++;
        }
    if (f)
        fclose(f);
    errno = n > 8 ? expected : ENOENT;
    return -1;
}

static long mount_off(void)
{
    return mounts_off(EPERM);
}

static long pivot(void)
{
    return syscall(SYS_pivot_root, "/", place());
}

static int same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The classic: a root below us, a descriptor above it, and up as far as it goes. */
static long chroot_escape(void)
{
    struct stat before, after;
    int up = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (up < 0 || fstat(up, &before) || chroot(place()) || fchdir(up))
        return -1;
    for (int i = 0; i < 64; i++)
        if (chdir(".."))
            return -1;
    if (stat(".", &after) || chroot("."))
        return -1;
    say("%s", same(&before, &after) ? "own root" : "out");
    return 0;
}

/* ---- devices ---- */

static const struct {
    const char *name;
    mode_t type;
    unsigned major, minor;
} DEVICES[] = {
    {"mem", S_IFCHR, 1, 1},    {"port", S_IFCHR, 1, 4},       {"kmsg", S_IFCHR, 1, 11},
    {"tty0", S_IFCHR, 4, 0},   {"console", S_IFCHR, 5, 1},    {"fuse", S_IFCHR, 10, 229},
    {"kvm", S_IFCHR, 10, 232}, {"loopctl", S_IFCHR, 10, 237}, {"tun", S_IFCHR, 10, 200},
    {"sda", S_IFBLK, 8, 0},    {"vda", S_IFBLK, 254, 0},      {"vda253", S_IFBLK, 253, 0},
    {"loop0", S_IFBLK, 7, 0},  {"nvme", S_IFBLK, 259, 0},     {"dm0", S_IFBLK, 252, 0},
};

static long device_nodes(void)
{
    char path[128];

    for (size_t i = 0; i < sizeof DEVICES / sizeof *DEVICES; i++) {
        snprintf(path, sizeof path, "%s/%s", place(), DEVICES[i].name);
        long r = mknod(path, DEVICES[i].type | 0666, makedev(DEVICES[i].major, DEVICES[i].minor));
        say_unless(DEVICES[i].name, r, EPERM);
        if (r >= 0)
            say_result("open", try_open(path, O_RDWR));
    }
    errno = EPERM;
    return -1;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static long device_list(void)
{
    char *names[128];
    int n = 0;
    DIR *d = opendir("/dev");
    struct dirent *e;

    while (d && (e = readdir(d)) && n < 128)
        if (e->d_name[0] != '.')
            names[n++] = strdup(e->d_name);
    qsort(names, (size_t)n, sizeof *names, by_name);
    for (int i = 0; i < n; i++)
        say("%s%s", i ? " " : "", names[i]);
    return d ? closedir(d) : -1;
}

/* The nodes in /dev are the host's own, bound: a change would be one for everybody. */
static long device_owners(void)
{
    static const char *const NODES[] = {"/dev/null", "/dev/zero",    "/dev/full",
                                        "/dev/tty",  "/dev/urandom", "/dev/random"};

    for (size_t i = 0; i < sizeof NODES / sizeof *NODES; i++) {
        say_unless(NODES[i], chmod(NODES[i], 0), EPERM);
        say_unless(NODES[i], chown(NODES[i], geteuid(), getegid()), EPERM);
        say_unless(NODES[i], utimensat(AT_FDCWD, NODES[i], (struct timespec[2]){{1, 0}, {1, 0}}, 0),
                   EPERM);
    }
    errno = EPERM;
    return -1;
}

/* Stdio that nobody asked for is the host's /dev/null: fchmod through the descriptor. */
static long stdio_owner(void)
{
    return fchmod(0, 0);
}

/* ---- a user namespace of our own, whose root has every capability in it ---- */

static long nested_mounts(void)
{
    /* What a kernel does not have is refused as well. */
    if (nest(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET) < 0)
        return -1;
    pid_t pid = fork(); /* proc wants to be mounted from inside the new pid namespace */
    if (pid) {
        waitpid(pid, NULL, 0);
        _exit(0);
    }
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        long r = mount("none", place(), TYPES[i], 0, NULL);
        if (r >= 0 || (errno != EPERM && errno != ENODEV))
            say_result(TYPES[i], r);
    }
    return 0;
}

static long nested_masks(void)
{
    struct mount_attr rw = {.attr_clr = MOUNT_ATTR_RDONLY};

    if (nest(CLONE_NEWNS) < 0)
        return -1;
    say_result("remount", mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
    say_result("setattr", syscall(SYS_mount_setattr, AT_FDCWD, "/proc/sys", 0, &rw, sizeof rw));
    say_result("sys", mount(NULL, "/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
    say_result("bind of one part", mount("/proc", place(), NULL, MS_BIND, NULL));
    return 0;
}

static long nested_off(void)
{
    return nest(CLONE_NEWNS) < 0 ? -1 : mounts_off(EINVAL);
}

/* What can be mounted must show nothing but our own group and let nothing be changed. */
static long nested_cgroup(void)
{
    static const char *const FILES[] = {"pids.max",
                                        "memory.max",
                                        "cpu.max",
                                        "cgroup.procs",
                                        "cgroup.kill",
                                        "memory.limit_in_bytes",
                                        "tasks",
                                        "release_agent",
                                        "devices.allow",
                                        "cpu.cfs_quota_us",
                                        "cgroup.subtree_control"};
    static const char *const OPTIONS[] = {NULL,      "pids",        "memory",
                                          "devices", "cpu,cpuacct", "freezer"};
    char path[256];

    if (nest(CLONE_NEWNS | CLONE_NEWCGROUP) < 0)
        return -1;
    for (size_t o = 0; o < sizeof OPTIONS / sizeof *OPTIONS; o++) {
        if (mount("none", place(), OPTIONS[o] ? "cgroup" : "cgroup2", 0, OPTIONS[o]))
            continue;
        for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
            snprintf(path, sizeof path, "%s/%s", place(), FILES[i]);
            if (try_write(path, "1") >= 0)
                say_result(FILES[i], 0);
        }
        snprintf(path, sizeof path, "%s/below", place());
        if (!mkdir(path, 0755))
            say_result("mkdir", 0);
    }
    errno = EPERM;
    return -1;
}

static long nested_devices(void)
{
    return nest(CLONE_NEWNS) < 0 ? -1 : device_nodes();
}

static long nested_pid1(void)
{
    if (nest(CLONE_NEWNS) < 0)
        return -1;
    if (try_open("/proc/1/mem", O_RDWR) >= 0 || try_open("/proc/1/environ", O_RDONLY) >= 0 ||
        try_open("/proc/1/root/", O_RDONLY) >= 0)
        say_result("pid 1", 0);
    return -1;
}

/* Each is made by a child that keeps it until we are gone. */
static long count_namespaces(int flags)
{
    int ready[2], n = 0;
    char c;

    if (pipe(ready))
        return -1;
    for (; n < 200; n++) {
        pid_t pid = fork();
        if (!pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            c = unshare(flags) ? 'n' : 'y';
            if (write(ready[1], &c, 1) == 1 && c == 'y')
                pause();
            _exit(0);
        }
        if (pid < 0 || read(ready[0], &c, 1) != 1 || c != 'y')
            break;
    }
    return n;
}

static long nested_count(void)
{
    static const struct {
        const char *name;
        int flag;
    } KINDS[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},  {"net", CLONE_NEWNET},
                 {"ipc", CLONE_NEWIPC},   {"uts", CLONE_NEWUTS}, {"cgroup", CLONE_NEWCGROUP}};

    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        int status = 0;
        pid_t pid = fork(); /* its namespaces go with it */
        if (!pid)
            _exit(nest(0) < 0 ? 255 : (int)count_namespaces(KINDS[i].flag));
        waitpid(pid, &status, 0);
        say("%s%s=%d", i ? " " : "", KINDS[i].name, WEXITSTATUS(status));
    }
    return 0;
}

static long nested_depth(void)
{
    long n = 0;
    while (n < 100 && !unshare(CLONE_NEWUSER))
        n++;
    say("%s", n < 64 ? "ended" : "endless");
    return 0;
}

static long nested_hostname(void)
{
    if (nest(CLONE_NEWUTS) < 0)
        return -1;
    return sethostname("owned", 5);
}

static long nested_sysctls(void)
{
    if (nest(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC) < 0)
        return -1;
    say_unless("hostname", try_write("/proc/sys/kernel/hostname", "owned"), EROFS);
    say_unless("forward", try_write("/proc/sys/net/ipv4/ip_forward", "1"), EROFS);
    say_unless("shmmax", try_write("/proc/sys/kernel/shmmax", "1"), EROFS);
    say_unless("namespaces", try_write("/proc/sys/user/max_user_namespaces", "9999"), EROFS);
    errno = EROFS;
    return -1;
}

const attempt MOUNT_ATTEMPTS[] = {
    {"mount-types", mount_types},       {"mount-bind", mount_bind},
    {"mount-remount", mount_remount},   {"mount-new-api", mount_new_api},
    {"mount-off", mount_off},           {"pivot", pivot},
    {"chroot-escape", chroot_escape},   {"device-nodes", device_nodes},
    {"device-list", device_list},       {"device-owners", device_owners},
    {"stdio-owner", stdio_owner},       {"nested-mounts", nested_mounts},
    {"nested-masks", nested_masks},     {"nested-off", nested_off},
    {"nested-cgroup", nested_cgroup},   {"nested-devices", nested_devices},
    {"nested-pid1", nested_pid1},       {"nested-count", nested_count},
    {"nested-depth", nested_depth},     {"nested-hostname", nested_hostname},
    {"nested-sysctls", nested_sysctls}, {NULL, NULL},
};

/* Tries kernel features. Every probe runs in a process of its own, and its namespaces end with
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/confine.h"
#include "base/fs.h"
#include "base/landlock.h"
#include "base/spawn.h"
#include "base/str.h"
#include "cli/doctor.h"

/* <sys/mount.h> and <linux/mount.h> conflict in Debian 12. */
int mount(const char *, const char *, const char *, unsigned long, const void *);
int umount2(const char *, int);
#define MNT_DETACH 2
#define ID_BASE    0x10000000U
/* Ends the probe if a call fails, and names the call. */
#define STEP(what, call)                      \
    do {                                      \
        if ((call) < 0)                       \
            return probe_failed(what, errno); \
    } while (0)

static int probe_failed(const char *what, int errnum)
{
    fprintf(stderr, "%s: %s (%s)\n", what, strerrordesc_np(errnum), strerrorname_np(errnum));
    return 1;
}

static int doctor_probe_sys(long nr, long a, long b, long c, long d, long e)
{
    return (int)syscall(nr, a, b, c, d, e);
}

static int try_user_namespaces(void)
{
    STEP("unshare", unshare(CLONE_NEWUSER));
    return 0;
}

static int try_namespaces(void)
{
    int all =
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP;

    STEP("unshare", unshare(all | (geteuid() ? CLONE_NEWUSER : 0)));
    return 0;
}

static int try_pidfd(void)
{
    int pidfd;

    STEP("pidfd_open", pidfd = doctor_probe_sys(SYS_pidfd_open, getpid(), 0, 0, 0, 0));
    STEP("pidfd_send_signal", doctor_probe_sys(SYS_pidfd_send_signal, pidfd, 0, 0, 0, 0));
    return 0;
}

static int try_openat2(void)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd;

    STEP("openat2",
         fd = doctor_probe_sys(SYS_openat2, AT_FDCWD, (long)".", (long)&how, sizeof how, 0));
    return close(fd);
}

static int try_close_range(void)
{
    STEP("close_range",
         doctor_probe_sys(SYS_close_range, 100, 200, 4 /* CLOSE_RANGE_CLOEXEC */, 0, 0));
    return 0;
}

static int try_memfd(void)
{
    int fd;

    STEP("memfd_create", fd = memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    STEP("fchmod", fchmod(fd, 0555));
    STEP("sealing a memfd",
         fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
    /* An empty file cannot be executed: any error but ENOEXEC means that execveat itself is
     * missing. */
    execveat(fd, "", (char *[]){NULL}, (char *[]){NULL}, AT_EMPTY_PATH);
    return errno == ENOEXEC ? 0 : probe_failed("execveat", errno);
}

static int try_seccomp(void)
{
    unsigned action = SECCOMP_RET_ERRNO;

    STEP("seccomp",
         doctor_probe_sys(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, (long)&action, 0, 0));
    return 0;
}

/* Confines this process so that no file can be opened, and tries to open one. */
static int try_landlock(void)
{
    if (!landlock_abi())
        return probe_failed("landlock_create_ruleset", ENOSYS);
    CLEANUP(err_freep)
    err *e = landlock_restrict(&(landlock_domain){.refused = LANDLOCK_READ, .bind = true});
    if (e)
        return probe_failed("landlock_restrict_self", e->errnum);
    CLEANUP(closep) int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    return fd < 0 && errno == EACCES ? 0 : probe_failed("a file was opened", 0);
}

static int try_landlock_scopes(void)
{
    return landlock_abi() >= 6 ? 0 : probe_failed("Landlock's scopes", ENOSYS);
}

static int try_mdwe(void)
{
    if (!confine_no_new_code(true) && !CONFINE_SANITIZED)
        return probe_failed("prctl", errno);
    const void *p =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED || CONFINE_SANITIZED ? 0 : probe_failed("memory became code", 0);
}

/* ---- overlay over id-mapped mounts, as in a claim ---- */

/* Holds a user namespace until stdin ends. */
static int hold_user_namespace(void)
{
    char byte = 0;

    STEP("unshare", unshare(CLONE_NEWUSER));
    STEP("write", write(STDOUT_FILENO, "u", 1));
    return read(STDIN_FILENO, &byte, 1) < 0;
}

static int write_map(pid_t pid, const char *name)
{
    CLEANUP(freep) char *path = str_printf("/proc/%d/%s", (int)pid, name);
    CLEANUP(freep) char *map = str_printf("0 %u 65536\n", ID_BASE);
    CLEANUP(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 ? -1 : (int)write(fd, map, strlen(map));
}

/* Returns a descriptor of a user namespace with a range of ids. *ret_hold keeps its process
 * alive. */
static int make_user_namespace(int *ret_hold)
{
    int up[2], down[2];
    pid_t pid;
    char byte;

    if (pipe2(up, O_CLOEXEC) || pipe2(down, O_CLOEXEC))
        return -1;
    char *argv[] = {"/proc/self/exe", "doctor", "--probe", "hold", NULL};
    const int fds[] = {down[0], up[1], 2};
    CLEANUP(err_freep)
    err *e = spawn_start(&(spawn_spec){.argv = argv, .fds = fds, .nfds = 3}, &pid);
    close(up[1]);
    close(down[0]);
    *ret_hold = down[1];
    CLEANUP(closep) int ready = up[0];
    if (e || read(ready, &byte, 1) != 1 || write_map(pid, "uid_map") < 0 ||
        write_map(pid, "gid_map") < 0)
        return -1;
    CLEANUP(freep) char *path = str_printf("/proc/%d/ns/user", (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int clone_idmapped(const char *from, const char *to, int userns)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    int tree;

    STEP("open_tree", tree = doctor_probe_sys(SYS_open_tree, AT_FDCWD, (long)from,
                                              OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, 0, 0));
    STEP("mount_setattr", doctor_probe_sys(SYS_mount_setattr, tree, (long)"", AT_EMPTY_PATH,
                                           (long)&attr, sizeof attr));
    STEP("move_mount", doctor_probe_sys(SYS_move_mount, tree, (long)"", AT_FDCWD, (long)to,
                                        MOVE_MOUNT_F_EMPTY_PATH));
    return close(tree);
}

/* Mounts with the sandbox's ids and writes a file: with wrong ids the mount succeeds but is
 * read-only. */
static int mount_and_write(void)
{
    struct stat st;

    STEP("prctl", prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP));
    setfsgid(ID_BASE);
    setfsuid(ID_BASE);
    STEP("mount", mount("overlay", "m", "overlay", MS_NODEV,
                        "upperdir=s/u,workdir=s/w,volatile,lowerdir=0"));
    CLEANUP(closep) int fd = open("m/written", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    int errnum = errno;
    setfsuid(0);
    setfsgid(0);
    if (fd < 0)
        return probe_failed("writing in the overlay", errnum);
    STEP("fstat", fstat(fd, &st));
    return st.st_uid == ID_BASE ? 0 : probe_failed("the owner in the overlay", ERANGE);
}

static int build_overlay(int userns)
{
    static const char *const DIRS[] = {"lower", "upper", "upper/u", "upper/w", "0", "s", "m"};

    for (size_t i = 0; i < ARRAY_LEN(DIRS); i++)
        STEP("mkdir", mkdir(DIRS[i], 0755));
    int rc = clone_idmapped("lower", "0", userns);
    if (!rc)
        rc = clone_idmapped("upper", "s", userns);
    return rc ? rc : mount_and_write();
}

static int try_overlay_idmap(void)
{
    const char *parent = access("/var/lib/bothy", W_OK) ? "/var/tmp" : "/var/lib/bothy";
    CLEANUP(freep) char *dir = str_printf("%s/bothy-doctor-XXXXXX", parent);
    CLEANUP(closep) int hold = -1;

    if (geteuid())
        return DOCTOR_NEEDS_ROOT;
    STEP("unshare", unshare(CLONE_NEWNS));
    STEP("mount", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    CLEANUP(closep) int userns = make_user_namespace(&hold);
    if (userns < 0)
        return probe_failed("a user namespace with ids", errno);
    if (!mkdtemp(dir) || chmod(dir, 0755) || chdir(dir))
        return probe_failed("mkdtemp", errno);
    int rc = build_overlay(userns);
    umount2("m", MNT_DETACH);
    umount2("s", MNT_DETACH);
    umount2("0", MNT_DETACH);
    if (chdir("/") == 0)
        err_drop(fs_remove(AT_FDCWD, dir), "doctor");
    return rc;
}

/* ---- the table ---- */

static const struct {
    const char *name;
    int (*run)(void);
} PROBES[] = {
    {"user_namespaces", try_user_namespaces},
    {"namespaces", try_namespaces},
    {"pidfd", try_pidfd},
    {"openat2", try_openat2},
    {"close_range", try_close_range},
    {"memfd", try_memfd},
    {"seccomp", try_seccomp},
    {"landlock", try_landlock},
    {"landlock_scopes", try_landlock_scopes},
    {"mdwe", try_mdwe},
    {"overlay_idmap", try_overlay_idmap},
    {"hold", hold_user_namespace},
};

int doctor_probe(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(PROBES); i++)
        if (str_eq(PROBES[i].name, name))
            return PROBES[i].run();
    fprintf(stderr, "there is no probe %s\n", name);
    return 1;
}

void doctor_try_probe(doctor *d, const doctor_check *k)
{
    char *argv[] = {"/proc/self/exe", "doctor", "--probe", (char *)k->subject, NULL};
    CLEANUP(err_freep)
    err *e = doctor_pretends(k->name) ? err_sys(ERR_INTERNAL, ENOSYS, "pretended")
                                      : spawn_run(argv, 10000, NULL);

    if (!e)
        doctor_say(d, k->name, DOCTOR_OK, NULL, "works");
    else if (strstr(e->message, "status 77"))
        doctor_say(d, k->name, DOCTOR_WARN, "Run 'bothy doctor' as root to try it.",
                   "not tried without root (%s)", k->why);
    else
        doctor_say(d, k->name, k->level, k->remedy, "%s (%s)", str_or(e->cause, e->message),
                   k->why);
}

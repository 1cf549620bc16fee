/* Pid 1 tries its own walls: all of them before the first HELLO, some again at the claim.
 *
 * A wall is tried, not only read: the forbidden operation is carried out, in a form that would get
 * another answer without the wall and would do no harm. Walls that cannot be tried from inside,
 * because nothing here tells one namespace from another, are compared by the warden from outside.
 *
 * At boot there is no tenant and no image. At the claim the image's root is mounted: paths are
 * looked up there, but files are opened only below descriptors of our own. */
#include <asm/statfs.h>
#include <linux/capability.h>
#include <linux/seccomp.h>

#include "init/init.h"

enum {
    K_AF_INET = 2,
    K_AF_INET6 = 10,
    K_SOCK_DGRAM = 2,
    K_SIOCGIFFLAGS = 0x8913,
    K_SIOCSIFFLAGS = 0x8914,
    K_IFF_UP = 1,
    K_S_IFCHR = 0020000,
    K_S_IFBLK = 0060000,
    K_S_IFSOCK = 0140000,
    K_AT_SYMLINK_NOFOLLOW = 0x100,
    K_ST_RDONLY = 1,
    K_ST_NOSUID = 2,
    K_ST_NODEV = 4,
    K_OVERLAYFS = 0x794c7630,
    K_ID_RANGE_MIN = 65536, /* lower ids belong to the host's users and daemons */
};

static char text[32768]; /* content of one /proc file at a time */

/* ---- helpers ---- */

/* Reads a whole file of /proc into text. Returns false if it is missing or does not fit. */
static bool read_proc(const char *name)
{
    size_t n = 0;
    long r = -1, fd = SYS(openat, g.procdir, name, O_RDONLY | O_CLOEXEC, 0);

    if (fd < 0)
        return false;
    while (n < sizeof text - 1 && (r = SYS(read, fd, text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)r;
    SYS(close, fd);
    text[n] = 0;
    return !r;
}

/* Returns the line at *at, NUL-terminated; NULL at the end. */
static char *next_line(char **at)
{
    char *line = *at, *p = line;

    if (!*p)
        return NULL;
    while (*p && *p != '\n')
        p++;
    if (*p)
        *p++ = 0;
    *at = p;
    return line;
}

/* Skips blanks; returns the next word, NUL-terminated, or "" at the end of the line. */
static char *next_word(char **at)
{
    char *p = *at;

    while (*p == ' ' || *p == '\t')
        p++;
    char *word = p;
    while (*p && *p != ' ' && *p != '\t')
        p++;
    if (*p)
        *p++ = 0;
    *at = p;
    return word;
}

static bool is_device(const struct statx *st, u32 major, int minor)
{
    return (st->stx_mode & K_S_IFMT) == K_S_IFCHR && st->stx_rdev_major == major &&
           (minor < 0 || st->stx_rdev_minor == (u32)minor);
}

static bool walls_look(int dir, const char *name, int flags, struct statx *ret)
{
    return SYS(statx, dir, name, flags, STATX_BASIC_STATS, ret) >= 0;
}

/* ---- ids, calls, capabilities ---- */

/* Returns true if the map is a single line "0 <first> <count>" and first is above the ids of the
 * host's own users. */
static bool map_is_own(const char *name)
{
    char *at = text, *rest;
    u64 inside, outside;

    if (!read_proc(name) || !(rest = next_line(&at)) || *at)
        return false;
    char *first = next_word(&rest), *second = next_word(&rest);
    return text_number(first, first + text_len(first), &inside) &&
           text_number(second, second + text_len(second), &outside) && !inside &&
           outside >= K_ID_RANGE_MIN;
}

/* Although root, init must not be able to change files of the host's root: tries to set the mode of
 * a device to the value it has. (/dev/zero, because a runtime may have changed the owner of
 * /dev/null.) */
static bool userns_holds(void)
{
    static const char name[] = "/dev/zero";
    struct statx st = {0};

    return map_is_own("self/uid_map") && map_is_own("self/gid_map") &&
           walls_look(K_AT_FDCWD, name, 0, &st) && is_device(&st, 1, 5) &&
           SYS(fchmodat, K_AT_FDCWD, name, st.stx_mode & 07777) == -EPERM;
}

/* No kernel answers EPERM by itself to these arguments. The last two calls are refused by the
 * warden's own filter as well, which init inherits; the first two only by the slot's. */
static bool filter_holds(void)
{
    return SYS(prctl, PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER &&
           SYS(quotactl, 0xff, 0, 0, 0) == -EPERM;
}

static bool seccomp_holds(void)
{
    return filter_holds() && SYS(kcmp, -1, -1, 0, 0, 0) == -EPERM &&
           SYS(perf_event_open, 0, 0, -1, -1, ~0ul) == -EPERM &&
           SYS(clock_settime, K_CLOCK_REALTIME, 0) == -EPERM;
}

#define CAP_ROW(name, number) | (1ul << (number))
static const u64 allowed = 0 WALL_CAPS(CAP_ROW);
#undef CAP_ROW

static bool sets_hold(void)
{
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2] = {{0}};

    if (SYS(capget, &h, d) < 0)
        return false;
    u64 effective = d[0].effective | (u64)d[1].effective << 32;
    u64 permitted = d[0].permitted | (u64)d[1].permitted << 32;
    return effective == allowed && permitted == allowed && !d[0].inheritable && !d[1].inheritable;
}

struct k_ifreq {
    char name[16];
    short flags;
    char rest[22];
};

/* Returns true if lo cannot be changed: sets its flags to the values they have. That alone takes
 * CAP_NET_ADMIN, which root would have if its user namespace owned the network namespace. */
static bool lo_is_not_ours(void)
{
    struct k_ifreq lo = {.name = "lo"};
    long fd = SYS(socket, K_AF_INET, K_SOCK_DGRAM | K_SOCK_CLOEXEC, 0);

    if (fd < 0)
        return false;
    bool read = SYS(ioctl, fd, K_SIOCGIFFLAGS, &lo) >= 0;
    long r = SYS(ioctl, fd, K_SIOCSIFFLAGS, &lo);
    SYS(close, fd);
    return read && r == -EPERM;
}

static bool capabilities_hold(void)
{
    for (u32 c = 0; c < 64; c++) {
        long r = SYS(prctl, PR_CAPBSET_READ, c, 0, 0, 0);
        if (r < 0) /* the kernel knows no more capabilities */
            break;
        if (r != (long)(allowed >> c & 1) ||
            SYS(prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, c, 0, 0) > 0)
            return false;
    }
    return sets_hold() && lo_is_not_ours();
}

/* ---- children ---- */

static int wait_for(long pid)
{
    int status = -1;

    while (SYS(wait4, pid, &status, K_WALL, 0) == -EINTR)
        ;
    return status;
}

/* Uses the very function that is called before every command. */
static bool nnp_holds(void)
{
    long pid = SYS(clone, SIGCHLD, 0, 0, 0, 0);

    if (!pid) {
        bool ok = child_no_new_privs() >= 0 && SYS(prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 &&
                  SYS(prctl, PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == -EINVAL;
        for (;;)
            SYS(exit_group, ok ? 0 : 1);
    }
    return pid > 0 && !wait_for(pid);
}

#ifdef HOSTED
#    define CLONE_DEAD SIGCHLD /* on shared memory the child would return over libc's frame */
#else
#    define CLONE_DEAD (SIGCHLD | K_CLONE_VM | K_CLONE_VFORK)
#endif

/* Starts a child that exits at once, in our own memory, which costs a fifth of a copy. It counts
 * against the pids limit until it is reaped. */
static long clone_dead(void)
{
    long pid = SYS(clone, CLONE_DEAD, 0, 0, 0, 0);

    if (!pid)
        for (;;)
            SYS(exit_group, 0);
    return pid;
}

/* Returns true if forking runs into the pids limit, which the warden made small for this moment. */
static bool cgroup_holds(void)
{
    long child[WALL_PIDS_TRIED];
    u32 n = 0;
    long r = 0;

    while (n < WALL_PIDS_TRIED && (r = clone_dead()) > 0)
        child[n++] = r;
    for (u32 i = 0; i < n; i++)
        wait_for(child[i]);
    return n < WALL_PIDS_TRIED && r == -EAGAIN;
}

/* ---- files of the host ---- */

/* Sets a file's mode to the value it has: the mount must refuse before ownership is checked. */
static bool mount_refuses(const char *name)
{
    struct statx st;

    return !walls_look(g.procdir, name, 0, &st) ||
           SYS(fchmodat, g.procdir, name, st.stx_mode & 07777) == -EROFS;
}

static bool procsys_holds(void)
{
#define PATH_ROW(name) &&mount_refuses(name)
    return SYS(openat, g.procdir, "sys/kernel/core_pattern", O_WRONLY | O_CLOEXEC, 0) <
           0 WALL_READ_ONLY(PATH_ROW);
#undef PATH_ROW
}

static bool sys_holds(void)
{
    return SYS(mkdirat, K_AT_FDCWD, "/sys/bothy", 0700) == -EROFS;
}

/* Returns true if the file is covered by the null device, or is missing. */
static bool file_is_masked(const char *name)
{
    struct statx st;

    return !walls_look(g.procdir, name, 0, &st) || is_device(&st, 1, 3);
}

typedef bool entry_fn(int dir, const char *name);

/* Returns true if right() accepts each entry, or if there is no such directory. */
static bool each_entry(int at, const char *path, entry_fn *right)
{
    char b[4096] __attribute__((aligned(8)));
    long n = 0, dir = SYS(openat, at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    bool ok = true;

    if (dir < 0)
        return dir == -ENOENT;
    while (ok && (n = SYS(getdents64, dir, b, sizeof b)) > 0)
        for (long i = 0; i < n;) {
            const struct k_dirent *d = (const struct k_dirent *)(b + i);
            ok &= text_equal(d->name, ".") || text_equal(d->name, "..") || right((int)dir, d->name);
            i += d->len;
        }
    SYS(close, dir);
    return ok && !n;
}

static bool nothing_is_right(int dir, const char *name)
{
    (void)dir, (void)name;
    return false;
}

static bool dir_is_masked(const char *path)
{
    return each_entry(K_AT_FDCWD, path, nothing_is_right);
}

static bool masked_holds(void)
{
#define FILE_ROW(name) &&file_is_masked(name)
#define DIR_ROW(path)  &&dir_is_masked(path)
    return true WALL_MASKED_FILES(FILE_ROW) WALL_MASKED_DIRS(DIR_ROW);
#undef DIR_ROW
#undef FILE_ROW
}

/* ---- devices and descriptors ---- */

static bool device_is_right(int dir, const char *name)
{
    struct statx st;

    if (!walls_look(dir, name, K_AT_SYMLINK_NOFOLLOW, &st) || (st.stx_mode & K_S_IFMT) == K_S_IFBLK)
        return false;
#define DEVICE_ROW(major, minor) || is_device(&st, major, minor)
    return (st.stx_mode & K_S_IFMT) != K_S_IFCHR WALL_DEVICES(DEVICE_ROW);
#undef DEVICE_ROW
}

/* Returns true if only harmless devices exist, and no other can be made, or at least not opened.
 * 1:1 is the machine's memory. */
static bool devices_hold(void)
{
    static const char name[] = "/dev/bothy";
    long r = SYS(mknodat, K_AT_FDCWD, name, K_S_IFCHR | 0600, 1 << 8 | 1);

    if (r >= 0) {
        r = SYS(openat, K_AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
        if (r >= 0)
            SYS(close, r);
        SYS(unlinkat, K_AT_FDCWD, name, 0);
    }
    return r == -EPERM && each_entry(K_AT_FDCWD, "/dev", device_is_right);
}

static bool descriptor_is_ours(int dir, const char *name)
{
    u64 fd;

    return text_number(name, name + text_len(name), &fd) &&
           (fd <= 2 || fd == (u64)dir || fd == (u64)g.sigfd || fd == (u64)g.ptsdir ||
            fd == (u64)g.procdir || fd == (u64)g.conn);
}

static bool descriptors_hold(void)
{
    struct statx st;

    return walls_look(FD_LISTENER, "", K_AT_EMPTY_PATH, &st) &&
           (st.stx_mode & K_S_IFMT) == K_S_IFSOCK &&
           walls_look(FD_NULL, "", K_AT_EMPTY_PATH, &st) && is_device(&st, 1, 3) &&
           walls_look(2, "", K_AT_EMPTY_PATH, &st) && is_device(&st, 1, 3) &&
           each_entry(g.procdir, "self/fd", descriptor_is_ours);
}

/* ---- namespaces ---- */

static bool interface_is_down(long fd, const char *name)
{
    struct k_ifreq q = {0};

    for (u32 i = 0; i < sizeof q.name - 1 && name[i] && name[i] != ':'; i++)
        q.name[i] = name[i];
    return text_equal(q.name, "lo") ||
           (SYS(ioctl, fd, K_SIOCGIFFLAGS, &q) >= 0 && !(q.flags & K_IFF_UP));
}

/* Returns true if no interface but lo is up. A host with tunnel modules has their devices in every
 * namespace; they are down. */
static bool only_lo_is_up(long fd)
{
    char *at = text, *line;
    bool ok = read_proc("self/net/dev");

    for (u32 i = 0; ok && (line = next_line(&at)); i++)
        ok = i < 2 || interface_is_down(fd, next_word(&line)); /* two lines of headings */
    return ok;
}

struct k_sockaddr_in6 {
    unsigned short family, port;
    u32 flow;
    unsigned char address[16];
    u32 scope;
};
struct k_sockaddr_in {
    unsigned short family, port;
    unsigned char address[4], zero[8];
};

/* Connects to documentation addresses: any host with a route to the outside has one to them. */
static bool network_holds(void)
{
    struct k_sockaddr_in v4 = {K_AF_INET, 0x0900, {198, 51, 100, 1}, {0}};
    struct k_sockaddr_in6 v6 = {K_AF_INET6, 0x0900, 0, {0x20, 0x01, 0x0d, 0xb8, [15] = 1}, 0};
    long a = SYS(socket, K_AF_INET, K_SOCK_DGRAM | K_SOCK_CLOEXEC, 0);
    long b = SYS(socket, K_AF_INET6, K_SOCK_DGRAM | K_SOCK_CLOEXEC, 0);
    bool ok = a >= 0 && only_lo_is_up(a) && SYS(connect, a, &v4, sizeof v4) == -ENETUNREACH;

    if (b >= 0) {
        long r = SYS(connect, b, &v6, sizeof v6);
        ok &= r == -ENETUNREACH || r == -EADDRNOTAVAIL; /* the latter: IPv6 is off */
        SYS(close, b);
    }
    if (a >= 0)
        SYS(close, a);
    return ok;
}

/* Returns true if no other process can be signalled and there is no parent. */
static bool pidns_holds(void)
{
    return SYS(getpid) == 1 && SYS(getppid) == 0 && SYS(kill, -1, 0) == -ESRCH;
}

static bool is_below(const char *path, const char *top)
{
    return text_starts(path, top) && (!path[text_len(top)] || path[text_len(top)] == '/');
}

/* Parses "id parent dev root POINT ...": only the root and mounts below /proc, /sys and /dev. */
static bool mountns_holds(void)
{
    char *at = text, *line;
    bool ok = read_proc("self/mountinfo");
    u32 roots = 0;

    while (ok && (line = next_line(&at))) {
        for (u32 i = 0; i < 4; i++)
            next_word(&line);
        const char *point = next_word(&line);
        roots += text_equal(point, "/");
        ok = text_equal(point, "/") || is_below(point, "/proc") || is_below(point, "/sys") ||
             is_below(point, "/dev");
    }
    return ok && roots == 1;
}

static bool is_only_headings(const char *name)
{
    char *at = text;

    return !read_proc(name) || (next_line(&at) && !*at);
}

static bool ipcns_holds(void)
{
    return is_only_headings("sysvipc/shm") && is_only_headings("sysvipc/sem") &&
           is_only_headings("sysvipc/msg");
}

static bool utsns_holds(void)
{
    struct new_utsname names = {0};

    return SYS(uname, &names) >= 0 && text_equal(names.nodename, WALL_HOSTNAME);
}

/* Parses "id:controllers:path": our own group is the top of every hierarchy. */
static bool cgroupns_holds(void)
{
    char *at = text, *line;
    bool ok = read_proc("self/cgroup");

    while (ok && (line = next_line(&at))) {
        size_t n = text_len(line);
        ok = n >= 2 && line[n - 2] == ':' && line[n - 1] == '/';
    }
    return ok;
}

/* ---- the root ---- */

/* Returns true if "/.." is "/": a root mounted over another could be left this way. */
static bool root_is_the_top(void)
{
    struct statx root, above;

    return walls_look(K_AT_FDCWD, "/", 0, &root) && walls_look(K_AT_FDCWD, "/..", 0, &above) &&
           root.stx_ino == above.stx_ino && root.stx_dev_major == above.stx_dev_major &&
           root.stx_dev_minor == above.stx_dev_minor;
}

static bool root_holds(void)
{
    return root_is_the_top() && SYS(mkdirat, K_AT_FDCWD, "/bothy", 0700) == -EROFS;
}

/* Returns true if the root is the image's: an overlay with nodev, and nosuid unless granted. */
static bool claimed_root_holds(u32 grants)
{
    u32 flags = K_ST_NODEV | (grants & SP_GRANT_SETUID ? 0 : K_ST_NOSUID);
    struct statfs st = {0};

    return root_is_the_top() && SYS(statfs, "/", &st) >= 0 && (u32)st.f_type == K_OVERLAYFS &&
           ((u32)st.f_flags & flags) == flags;
}

/* Returns true if /proc is the mount opened at boot, at its new place: its earlier results then
 * still hold. */
static bool proc_is_ours(void)
{
    struct statx now, ours;

    return walls_look(K_AT_FDCWD, "/proc", K_AT_SYMLINK_NOFOLLOW, &now) &&
           walls_look(g.procdir, "", K_AT_EMPTY_PATH, &ours) && now.stx_ino == ours.stx_ino &&
           now.stx_dev_major == ours.stx_dev_major && now.stx_dev_minor == ours.stx_dev_minor;
}

static bool claimed_sys_holds(void)
{
    struct statfs st = {0};

    return SYS(statfs, "/sys", &st) >= 0 && (u32)st.f_flags & K_ST_RDONLY;
}

/* ---- all of them ---- */

static bool (*const TRIED[WALL_COUNT])(void) = {
    [WALL_USERNS] = userns_holds,
    [WALL_SECCOMP] = seccomp_holds,
    [WALL_CAPABILITIES] = capabilities_hold,
    [WALL_NNP] = nnp_holds,
    [WALL_PROCSYS] = procsys_holds,
    [WALL_SYS] = sys_holds,
    [WALL_MASKED] = masked_holds,
    [WALL_NETWORK] = network_holds,
    [WALL_PIDNS] = pidns_holds,
    [WALL_MOUNTNS] = mountns_holds,
    [WALL_IPCNS] = ipcns_holds,
    [WALL_UTSNS] = utsns_holds,
    [WALL_CGROUPNS] = cgroupns_holds,
    [WALL_DEVICES] = devices_hold,
    [WALL_DESCRIPTORS] = descriptors_hold,
    [WALL_ROOT] = root_holds,
    [WALL_CGROUP] = cgroup_holds,
};

void walls_try(void)
{
    for (u32 i = 0; i < WALL_COUNT; i++) {
        if (!TRIED[i])
            continue;
        g.walls.tried |= 1u << i;
        if (TRIED[i]())
            g.walls.held |= 1u << i;
    }
}

u64 walls_try_again(u32 grants)
{
    /* Walls that did not hold at boot are known: such a slot is never claimed, except in tests. */
    u32 tried = WALLS_CLAIM_INSIDE & g.walls.held, held = 0;

    if (filter_holds())
        held |= WALL_BIT(SECCOMP);
    if (sets_hold())
        held |= WALL_BIT(CAPABILITIES);
    if (proc_is_ours() && mount_refuses("sys"))
        held |= WALL_BIT(PROCSYS);
    if (claimed_sys_holds())
        held |= WALL_BIT(SYS);
    if (claimed_root_holds(grants))
        held |= WALL_BIT(ROOT);
    return SP_WALLS(tried, tried & held);
}

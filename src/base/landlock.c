#include "base/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/cleanup.h"

/* The kernel's interface up to ABI 7; Debian 12's headers end at 2. */
struct ruleset_attr {
    uint64_t fs, net, scoped;
};
struct path_attr {
    uint64_t rights;
    int32_t fd;
} __attribute__((packed));
struct port_attr {
    uint64_t rights, port;
};
#define RULE_PATH   1
#define RULE_PORT   2
#define ASK_VERSION 1U

#define FS_EXECUTE   (UINT64_C(1) << 0)
#define FS_FILE      (UINT64_C(1) << 1) /* write */
#define FS_READ      (UINT64_C(1) << 2)
#define FS_LIST      (UINT64_C(1) << 3)
#define FS_CHANGE    (UINT64_C(0x1ff) << 4) /* remove two kinds of entries, make seven; ABI 1 */
#define FS_REFER     (UINT64_C(1) << 13)    /* rename and link into another directory; ABI 2 */
#define FS_TRUNCATE  (UINT64_C(1) << 14)    /* ABI 3 */
#define FS_IOCTL_DEV (UINT64_C(1) << 15)    /* ABI 5 */
#define NET_BIND_TCP UINT64_C(1)            /* ABI 4 */
#define SCOPE_ALL    UINT64_C(3)            /* abstract sockets, signals; ABI 6 */

#define OF_FILES (FS_EXECUTE | FS_FILE | FS_READ | FS_TRUNCATE | FS_IOCTL_DEV)

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);

    return abi > 0 ? (int)abi : 0;
}

static uint64_t landlock_known(int abi)
{
    uint64_t all = FS_EXECUTE | FS_FILE | FS_READ | FS_LIST | FS_CHANGE;

    return all | (abi >= 2 ? FS_REFER : 0) | (abi >= 3 ? FS_TRUNCATE : 0) |
           (abi >= 5 ? FS_IOCTL_DEV : 0);
}

/* Translates LANDLOCK_* rights into the kernel's bits for this ABI. A domain without REFER forbids
 * all renames and links between directories, and bothy makes some. So before ABI 2, which added
 * REFER, the right to write is not restricted at all. */
static uint64_t landlock_bits(unsigned rights, int abi)
{
    uint64_t b = 0;

    if (rights & LANDLOCK_READ)
        b |= FS_READ | FS_LIST;
    if (rights & LANDLOCK_RUN)
        b |= FS_EXECUTE;
    if (rights & LANDLOCK_WRITE && abi >= 2)
        b |= FS_FILE | FS_CHANGE | FS_REFER | FS_TRUNCATE;
    return b & landlock_known(abi);
}

static err *add_path(int set, const landlock_rule *r, uint64_t rights)
{
    CLEANUP(closep) int fd = open(r->path, O_PATH | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && r->optional)
        return NULL;
    if (fd < 0 || fstat(fd, &st))
        return err_sys(ERR_WALL_FAILED, errno, "cannot open %s to confine to it", r->path);
    struct path_attr a = {.rights = S_ISDIR(st.st_mode) ? rights : rights & OF_FILES, .fd = fd};
    if (a.rights && syscall(SYS_landlock_add_rule, set, RULE_PATH, &a, 0))
        return err_sys(ERR_WALL_FAILED, errno, "cannot confine to %s", r->path);
    return NULL;
}

static err *add_rules(int set, const landlock_domain *d, const struct ruleset_attr *handled,
                      int abi)
{
    for (size_t i = 0; i < d->n; i++)
        TRY(add_path(set, &d->rules[i], landlock_bits(d->rules[i].rights, abi) & handled->fs));
    struct port_attr p = {.rights = NET_BIND_TCP, .port = d->bind_port};
    if (handled->net && d->bind_port && syscall(SYS_landlock_add_rule, set, RULE_PORT, &p, 0))
        return err_sys(ERR_WALL_FAILED, errno, "cannot confine to port %u", d->bind_port);
    return NULL;
}

err *landlock_restrict(const landlock_domain *d)
{
    int abi = landlock_abi();

    if (!abi)
        return NULL;
    struct ruleset_attr a = {.fs = landlock_bits(d->refused, abi),
                             .net = abi >= 4 && !d->bind ? NET_BIND_TCP : 0,
                             .scoped = abi >= 6 && d->scoped ? SCOPE_ALL : 0};
    if (d->refused & LANDLOCK_WRITE && abi >= 5)
        a.fs |= FS_IOCTL_DEV; /* device ioctls are refused, whatever the rules say */
    size_t size = abi >= 6 ? sizeof a : abi >= 4 ? 2 * sizeof a.fs : sizeof a.fs;
    CLEANUP(closep) int set = (int)syscall(SYS_landlock_create_ruleset, &a, size, 0);
    if (set < 0)
        return err_sys(ERR_WALL_FAILED, errno, "cannot make a Landlock domain");
    TRY(add_rules(set, d, &a, abi));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, set, 0))
        return err_sys(ERR_WALL_FAILED, errno, "cannot enter a Landlock domain");
    return NULL;
}

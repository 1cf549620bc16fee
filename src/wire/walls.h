/* The isolation checks (walls) of a sandbox. One table for init, which tries them from inside; the
 * warden, which checks from outside and counts; and bothyd, which keeps the receipt.
 *
 *     WALL(ID, name, at the refill, after the claim, what holds)
 *
 * The middle two say who tries it: INSIDE is init, before it says HELLO and again when it is
 * claimed; OUTSIDE is the warden. A check that both try holds if both say so. Names are in metrics,
 * messages and receipts. The warden tries EGRESS when a claim grants a network. Bits are on the
 * wire (spine.h) and in records on disk: add a row at the end and never move one. A node without
 * project quotas does not have DISK, and its receipts say so. Needs no libc: init includes it. */
#pragma once

#include <stdint.h>

#define WALL_NOBODY  0u
#define WALL_INSIDE  1u
#define WALL_OUTSIDE 2u
#define WALL_BOTH    3u

#define WALLS(WALL)                                                                              \
    WALL(USERNS, "userns", WALL_BOTH, WALL_NOBODY, "its ids are nobody's on the host")           \
    WALL(SECCOMP, "seccomp", WALL_INSIDE, WALL_INSIDE,                                           \
         "the kernel refuses calls of the deny list")                                            \
    WALL(CAPABILITIES, "capabilities", WALL_INSIDE, WALL_INSIDE,                                 \
         "it has the allowed capabilities and no other")                                         \
    WALL(NNP, "nnp", WALL_INSIDE, WALL_NOBODY, "commands cannot gain privileges")                \
    WALL(PROCSYS, "procsys", WALL_INSIDE, WALL_INSIDE, "/proc/sys and its like are read-only")   \
    WALL(SYS, "sys", WALL_INSIDE, WALL_INSIDE, "/sys is read-only")                              \
    WALL(MASKED, "masked", WALL_INSIDE, WALL_NOBODY, "files that tell of the host are covered")  \
    WALL(NETWORK, "network", WALL_BOTH, WALL_NOBODY, "it has no interface and no route but lo")  \
    WALL(PIDNS, "pidns", WALL_BOTH, WALL_NOBODY, "it sees no process but its own")               \
    WALL(MOUNTNS, "mountns", WALL_BOTH, WALL_OUTSIDE, "its mounts are its own")                  \
    WALL(IPCNS, "ipcns", WALL_BOTH, WALL_NOBODY, "it shares no System V object")                 \
    WALL(UTSNS, "utsns", WALL_BOTH, WALL_OUTSIDE, "its host name is its own")                    \
    WALL(CGROUPNS, "cgroupns", WALL_BOTH, WALL_NOBODY, "it sees no cgroup but its own")          \
    WALL(DEVICES, "devices", WALL_INSIDE, WALL_NOBODY, "it has no device but the harmless ones") \
    WALL(DESCRIPTORS, "descriptors", WALL_INSIDE, WALL_NOBODY,                                   \
         "no descriptor of the host is open")                                                    \
    WALL(ROOT, "root", WALL_INSIDE, WALL_INSIDE,                                                 \
         "its root is what it must be, and nothing lies under or over it")                       \
    WALL(CGROUP, "cgroup", WALL_BOTH, WALL_OUTSIDE, "memory, cpu and pids are limited")          \
    WALL(POOLS, "pools", WALL_OUTSIDE, WALL_NOBODY, "it has a share of the kernel's pools")      \
    WALL(EGRESS, "egress", WALL_NOBODY, WALL_NOBODY,                                             \
         "of its network only public addresses and the node's resolvers can be reached")         \
    WALL(DISK, "disk", WALL_OUTSIDE, WALL_OUTSIDE, "the disk space it takes is limited")

enum wall {
#define WALL_ROW(id, name, refill, claim, what) WALL_##id,
    WALLS(WALL_ROW)
#undef WALL_ROW
    WALL_COUNT
};
#define WALL_BIT(id) (1u << WALL_##id)
#define WALLS_ALL    ((1u << WALL_COUNT) - 1)
_Static_assert(WALL_COUNT <= 24, "HELLO has room for 24");

/* Sets of checks, by who tries them and when. */
#define WALL_ROW(id, name, refill, claim, what) | ((refill)&WALL_INSIDE ? WALL_BIT(id) : 0)
enum {
    WALLS_REFILL_INSIDE = 0u WALLS(WALL_ROW)
};
#undef WALL_ROW
#define WALL_ROW(id, name, refill, claim, what) | ((refill)&WALL_OUTSIDE ? WALL_BIT(id) : 0)
enum {
    WALLS_REFILL_OUTSIDE = 0u WALLS(WALL_ROW)
};
#undef WALL_ROW
#define WALL_ROW(id, name, refill, claim, what) | ((claim)&WALL_INSIDE ? WALL_BIT(id) : 0)
enum {
    WALLS_CLAIM_INSIDE = 0u WALLS(WALL_ROW)
};
#undef WALL_ROW
#define WALL_ROW(id, name, refill, claim, what) | ((claim)&WALL_OUTSIDE ? WALL_BIT(id) : 0)
enum {
    WALLS_CLAIM_OUTSIDE = 0u WALLS(WALL_ROW)
};
#undef WALL_ROW

struct wall_info {
    const char *name, *what;
};
static inline const struct wall_info *wall_info(unsigned wall)
{
    static const struct wall_info INFO[WALL_COUNT] = {
#define WALL_ROW(id, name, refill, claim, what) {name, what},
        WALLS(WALL_ROW)
#undef WALL_ROW
    };
    return &INFO[wall];
}

/* ---- contents of the checks: the bundle is written from these, and init tries them ---- */

/* While init tries CGROUP, the cgroup has room for this many processes, init among them; then the
 * warden writes the real limit. */
#define WALL_PIDS_TRIED 32u

#define WALL_HOSTNAME "slot" /* until the slot is claimed */

/* clang-format lays out rows without commas differently at each run. */
/* clang-format off */

/* Docker's default set; meson.build gives the same list to tools/gen-seccomp. */
#define WALL_CAPS(CAP)                                                                \
    CAP(CHOWN, 0) CAP(DAC_OVERRIDE, 1) CAP(FOWNER, 3) CAP(FSETID, 4) CAP(KILL, 5)     \
    CAP(SETGID, 6) CAP(SETUID, 7) CAP(SETPCAP, 8) CAP(NET_BIND_SERVICE, 10)           \
    CAP(NET_RAW, 13) CAP(SYS_CHROOT, 18) CAP(MKNOD, 27) CAP(AUDIT_WRITE, 29)          \
    CAP(SETFCAP, 31)

/* Paths below /proc. */
#define WALL_MASKED_FILES(PATH)                                                       \
    PATH("kcore") PATH("keys") PATH("latency_stats") PATH("timer_list")               \
    PATH("timer_stats") PATH("sched_debug")
#define WALL_READ_ONLY(PATH)                                                          \
    PATH("bus") PATH("fs") PATH("irq") PATH("sys") PATH("sysrq-trigger")
#define WALL_MASKED_DIRS(PATH)                                                        \
    PATH("/proc/acpi") PATH("/proc/asound") PATH("/proc/scsi") PATH("/sys/firmware")

/* Character devices as major and minor; minor -1: all of them. */
#define WALL_DEVICES(DEVICE)                                                          \
    DEVICE(1, 3) DEVICE(1, 5) DEVICE(1, 7) DEVICE(1, 8) DEVICE(1, 9) DEVICE(5, 0)     \
    DEVICE(5, 2) DEVICE(136, -1)

/* clang-format on */

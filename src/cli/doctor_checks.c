/* The table of checks, in the order in which they are reported. */
#include "cli/doctor.h"

#define KERNEL_REMEDY "Use a kernel of 6.1 or later (Debian 12's) with it enabled."
#define INSTALL       "Install it: apt install "

#define PROBE(subject_, why_, remedy_)                                                         \
    {                                                                                          \
        .name = "kernel." subject_, .run = doctor_try_probe, .subject = subject_, .why = why_, \
        .remedy = remedy_, .level = DOCTOR_FAIL                                                \
    }
/* A feature that limits what our own processes can do once they are compromised. Nodes work
 * without. */
#define HURDLE(subject_, why_, remedy_)                                                        \
    {                                                                                          \
        .name = "kernel." subject_, .run = doctor_try_probe, .subject = subject_, .why = why_, \
        .remedy = remedy_, .level = DOCTOR_WARN, .user = true                                  \
    }
#define CONTROLLER(subject_, why_)                                                     \
    {                                                                                  \
        .name = "cgroup." subject_, .run = doctor_try_controller, .subject = subject_, \
        .why = why_, .level = DOCTOR_FAIL,                                             \
        .remedy = "Boot with the controller enabled (cgroup_enable=" subject_          \
                  ") and mount cgroups writable for root."                             \
    }
/* A controller that sandboxes can do without. */
#define LESSER_CONTROLLER(subject_, why_, remedy_)                                     \
    {                                                                                  \
        .name = "cgroup." subject_, .run = doctor_try_controller, .subject = subject_, \
        .why = why_, .level = DOCTOR_WARN, .remedy = remedy_                           \
    }
#define TOOL(subject_, level_, why_, remedy_)                                               \
    {                                                                                       \
        .name = "tool." subject_, .run = doctor_try_tool, .subject = subject_, .why = why_, \
        .remedy = remedy_, .level = level_                                                  \
    }
/* A tool that a user's own daemon needs, too. */
#define USER_TOOL(subject_, level_, why_)                                                   \
    {                                                                                       \
        .name = "tool." subject_, .run = doctor_try_tool, .subject = subject_, .why = why_, \
        .remedy = "Put bothy's programs on PATH or into libexec/bothy.", .level = level_,   \
        .user = true                                                                        \
    }
/* A value that is too small is a warning, because the warden raises it when it starts. A missing
 * one fails if it is vital, and warns otherwise. */
#define SYSCTL(name_, base_, each_, per_, vital_, why_)                             \
    {.name = "sysctl." name_,                                                       \
     .run = doctor_try_sysctl,                                                      \
     .subject = name_,                                                              \
     .why = why_,                                                                   \
     .need = &(const sysctl_need){.base = (base_), .each = (each_), .per = (per_)}, \
     .level = (vital_) ? DOCTOR_FAIL : DOCTOR_WARN},

const doctor_check DOCTOR_CHECKS[] = {
    PROBE("user_namespaces", "every sandbox has ids of its own",
          "Allow them: sysctl -w user.max_user_namespaces=100000; enable CONFIG_USER_NS."),
    PROBE("namespaces", "mounts, pids, network, ipc and names of a sandbox are its own",
          KERNEL_REMEDY),
    PROBE("pidfd", "processes are held by descriptor, not by number", KERNEL_REMEDY),
    PROBE("openat2", "paths of a sandbox are opened without leaving it", KERNEL_REMEDY),
    PROBE("close_range", "no descriptor leaks into a command", KERNEL_REMEDY),
    PROBE("memfd", "helpers are run from sealed memory", KERNEL_REMEDY),
    PROBE("seccomp", "system calls of sandboxes are filtered",
          "Use a kernel with CONFIG_SECCOMP_FILTER."),
    HURDLE("landlock", "bothyd and skopeo reach no file but their own",
           "Use a kernel with CONFIG_SECURITY_LANDLOCK, and landlock among lsm= at boot."),
    HURDLE("landlock_scopes", "no signal leaves bothyd and skopeo",
           "Use a kernel of 6.12 or later."),
    HURDLE("mdwe", "no memory of bothyd, skopeo and the warden becomes code",
           "Use a kernel of 6.6 or later."),
    PROBE("overlay_idmap", "images are put under sandboxes without copying",
          KERNEL_REMEDY
          " The state directory's file system must allow id-mapped mounts (ext4, xfs, btrfs)."),
    CONTROLLER("cpu", "limits of CPU time"),
    CONTROLLER("memory", "limits of memory, and its use"),
    CONTROLLER("pids", "limits of processes"),
    LESSER_CONTROLLER("cpuset", "a sandbox sees as many processors as its limit",
                      "Mount or delegate it; without it nproc inside says what the host has."),
    {.name = "kernel.loop",
     .run = doctor_try_file,
     .subject = "/dev/loop-control",
     .why = "'tools/dev up' keeps its state on a loop device",
     .level = DOCTOR_WARN,
     .remedy = "modprobe loop; without it give the state a file system of its own."},
    {.name = "kernel.xfs",
     .run = doctor_try_filesystem,
     .subject = "xfs",
     .why = "reflinks and quotas of the recommended store",
     .level = DOCTOR_WARN,
     .remedy = "modprobe xfs; without it disk limits are 'unsupported'."},
    TOOL("crun", DOCTOR_FAIL, "makes slots", INSTALL "crun"),
    TOOL("skopeo", DOCTOR_FAIL, "fetches images", INSTALL "skopeo"),
    USER_TOOL("bothyd", DOCTOR_FAIL, "the daemon"),
    TOOL("bothy-warden", DOCTOR_FAIL, "the root process of the node",
         "Put bothy's programs on PATH or into libexec/bothy."),
    USER_TOOL("bothy-init", DOCTOR_FAIL, "pid 1 of every sandbox"),
    USER_TOOL("bothy-kit", DOCTOR_WARN, "does file verbs in sandboxes; without it their sh does"),
    TOOL("bothy-unpack", DOCTOR_FAIL, "unpacks layers",
         "Put bothy's programs on PATH or into libexec/bothy."),
    TOOL("nft", DOCTOR_WARN, "judges what sandboxes with a network send (bothy-warden --network)",
         INSTALL "nftables"),
    TOOL("mkfs.xfs", DOCTOR_WARN, "makes the recommended store", INSTALL "xfsprogs"),
    TOOL("setpriv", DOCTOR_WARN, "drops to the user bothy without systemd", INSTALL "util-linux"),
    SYSCTL_TABLE(SYSCTL){
        .name = "account.bothy",
        .run = doctor_try_user,
        .subject = "bothy",
        .why = "the daemon runs as this user",
        .level = DOCTOR_FAIL,
        .remedy = "useradd --system --user-group --home-dir /var/lib/bothy --no-create-home "
                  "--shell /usr/sbin/nologin bothy"},
    {.name = "account.bothy-users",
     .run = doctor_try_group,
     .subject = "bothy-users",
     .why = "its members may use the socket",
     .level = DOCTOR_WARN,
     .remedy = "groupadd --system bothy-users"},
    {.name = "engine",
     .run = doctor_try_engine,
     .why = "Docker or Podman, for a daemon of one user",
     .level = DOCTOR_FAIL,
     .user = true},
    {.name = "daemon",
     .run = doctor_try_daemon,
     .why = "takes requests",
     .user = true,
     .client = true,
     .level = DOCTOR_WARN,
     .remedy = "Start bothy-warden and bothyd, or name the socket with --socket or $BOTHY_SOCKET."},
    {.name = NULL},
};

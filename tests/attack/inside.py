"""From inside: what the intruder tries by system calls, in all four ways."""
import contextlib
import re
import socket

from common import AS_ROOT, WAYS, answers, armed, each_way, intrude, pid1_of
from harness import bytes_of, check, equal, status_of


def at_most(**most):
    """Counts "a=1 b=2", none above its bound and none missing."""
    def holds(text):
        got = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", text)}
        return set(got) == set(most) and all(1 <= got[k] <= most[k] for k in most)
    return holds


# attempt of intruder.c, what is tried and held, the result as root [and as a user who cannot become root]
DESCRIPTORS = [
    ("descriptors", "a command has no descriptor but its own stdio", "0=/dev/null 1=pipe 2=pipe"),
    ("pid1-fd", "descriptors of pid 1 cannot be read, opened or told apart", "EACCES"),
    ("pid1-getfd", "pidfd_getfd takes none of pid 1's descriptors", "EPERM"),
    ("setns-all", "setns with every namespace and descriptor that can be found joins none", "0 joined"),
]
PID1 = [
    ("pid1-read", "/proc/1: mem, maps, environ, exe, root, cwd, ns and 15 more cannot be opened", "EACCES"),
    ("pid1-task-read", "/proc/1/task/1/mem cannot be opened", "EACCES"),
    ("pid1-write", "/proc/1: mem, oom_score_adj, uid_map and 9 more cannot be written", "EACCES"),
    ("pid1-links", "/proc/1: exe, cwd, root and namespaces tell nothing", "EACCES"),
    ("pid1-walk", "no way leads through /proc/1/root or cwd",
     "chdir root:EACCES chdir cwd/..:EACCES chroot root:EACCES stat root/../..:EACCES"),
    ("pid1-attach", "ptrace: pid 1 cannot be attached to", "EPERM"),
    ("pid1-seize", "ptrace: pid 1 cannot be seized", "EPERM"),
    ("pid1-vm-read", "process_vm_readv of pid 1", "EPERM"),
    ("pid1-vm-write", "process_vm_writev of pid 1", "EPERM"),
    ("pid1-kcmp", "kcmp with pid 1", "EPERM"),
    ("pid1-prlimit", "prlimit: limits of pid 1 are neither set nor read", "nofile:EPERM cpu:EPERM nproc:EPERM get:EPERM"),
    ("pid1-memory", "process_madvise, process_mrelease, move_pages, migrate_pages on pid 1",
     "process_madvise:EPERM process_mrelease:(EINVAL|ENOSYS) move_pages:EPERM migrate_pages:EPERM"),
    ("pid1-priority", "pid 1 at the lowest priority still serves", "done"),
    ("pid1-signals", "KILL, STOP, SEGV and 9 more by kill, tgkill and pidfd do nothing to pid 1", "sent", "EPERM"),
    ("pid1-queue", "200,000 queued real-time signals do nothing to pid 1", "sent", "EPERM"),
    ("other-pids", "40,000 process numbers above our own belong to nobody", "0"),
    ("core-limit", "the limit of core dumps cannot be raised", "EPERM"),
]
MOUNTS = [
    ("mount-types", "mount: proc, sysfs, cgroup, overlay and 11 more", "EPERM"),
    ("mount-bind", "mount: bind, move and propagation", "bind:EPERM move:EPERM private:EPERM"),
    ("mount-remount", "/proc/sys, /sys, /proc and / remounted writable", "/:EPERM /proc/sys:EPERM /sys:EPERM /proc:EPERM"),
    ("mount-new-api", "fsopen, fspick, open_tree, move_mount, mount_setattr",
     "fsopen:EPERM fspick:EPERM open_tree:EPERM move_mount:EPERM mount_setattr:EPERM"),
    ("mount-off", "umount of every mount there is", "EPERM"),
    ("pivot", "pivot_root", "EPERM"),
    ("chroot-escape", "chroot with a descriptor above it and 64 times ..: no further than the own root", "own root", "EPERM"),
    ("device-nodes", "mknod of memory, disks, loop, fuse, kvm, tun and 9 more", "EPERM"),
    ("device-list", "/dev has no device of the host",
     "(core )?fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"),
    ("device-owners", "chmod, chown and times of /dev/null, zero, full, tty, random, urandom, which are the host's", "EPERM"),
    ("stdio-owner", "chmod of /dev/null through the stdin that nobody gave", "EPERM"),
]
# Where the operator gave none (the default), and where there are 64 of each kind.
REFUSED = [
    ("nested-mounts", "no user namespace of its own, with mounts", "ENOSPC"),
    ("nested-net", "nor with a network", "ENOSPC"),
    ("nested-hostname", "nor with a host name", "ENOSPC"),
]
NESTED = [
    ("nested-mounts", "root of an own user namespace mounts no proc, sysfs, disk, debug or device file system",
     "tmpfs:done overlay:EINVAL devpts:done"),
    ("nested-masks", "nor makes /proc/sys or /sys writable, nor binds /proc without what covers it",
     "remount:EPERM setattr:EPERM sys:EPERM bind of one part:EINVAL"),
    ("nested-off", "nor takes off a mount that covers another", "EINVAL"),
    ("nested-cgroup", "nor changes a limit, a member or the groups below by a cgroup mount of its own", "EPERM"),
    ("nested-devices", "nor makes a device node", "EPERM"),
    ("nested-pid1", "nor reads pid 1", "EACCES"),
    ("nested-hostname", "nor names the host", "EPERM"),
    ("nested-sysctls", "nor sets a sysctl of its own namespaces", "(\\w+:EACCES )*\\w+:EACCES|EROFS"),
    ("nested-count", "at most 64 namespaces of a kind", at_most(user=64, mnt=64, net=64, ipc=64, uts=64, cgroup=64)),
    ("nested-depth", "user namespaces within each other come to an end", "ended"),
    ("nested-net", "a network namespace of its own reaches nothing", "ENETUNREACH"),
]
KERNEL = [
    ("modules", "modules cannot be loaded or removed", "init_module:EPERM finit_module:EPERM delete_module:EPERM"),
    ("kexec", "kexec and reboot", "kexec_load:EPERM kexec_file_load:EPERM reboot:EPERM"),
    ("clocks", "the clock cannot be set", "clock_settime:EPERM settimeofday:EPERM adjtimex:EPERM"),
    ("names", "the host name cannot be set", "sethostname:EPERM setdomainname:EPERM"),
    ("keys", "keyrings: add_key, request_key, keyctl", "add_key:ENOSYS request_key:ENOSYS keyctl:(ENOSYS|EPERM)"),
    ("observers", "bpf, perf_event_open, fanotify, the kernel's log", "bpf:EPERM perf_event_open:EPERM fanotify_init:EPERM syslog:EPERM"),
    ("memory-calls", "userfaultfd, io_uring, vmsplice", "userfaultfd:EPERM io_uring_setup:ENOSYS vmsplice:EPERM"),
    ("storage", "quotactl, swapon, swapoff, acct", "quotactl:EPERM swapon:EPERM swapoff:EPERM acct:EPERM"),
    ("handles", "open_by_handle_at", "name:done open:EPERM"),
    ("ports", "iopl and ioperm", "iopl:EPERM ioperm:EPERM"),
    ("odd-calls", "personality, vhangup, lookup_dcookie, setns",
     "personality:ENOSYS vhangup:EPERM lookup_dcookie:(EPERM|ENOSYS) setns:(EPERM|EINVAL)"),
    ("sysctls", "of all sysctls none can be opened for writing", "0"),
    ("sys-files", "of all files below /sys none can be opened for writing", "0"),
    ("masked-files", "/proc/kcore, kmsg, keys, timer_list, kpage*, slabinfo and 8 more show nothing", "EACCES"),
    ("kernel-addresses", "/proc/kallsyms shows no address", "0"),
    ("triggers", "sysrq-trigger, core_pattern, modprobe, uevent_helper",
     "sysrq:(ENOENT|EACCES|EROFS) core_pattern:EACCES modprobe:(ENOENT|EACCES) uevent_helper:(ENOENT|EACCES)"),
    ("own-exe", "the file of the running program cannot be opened for writing", "ETXTBSY", "EACCES"),
]
NET = [
    ("loopback", "a server on the host's loopback is not on ours", "127.0.0.1:ECONNREFUSED 127.1.2.3:ECONNREFUSED ::1:(ECONNREFUSED|EADDRNOTAVAIL)"),
    ("addresses", "private, link-local and public addresses", "ENETUNREACH"),
    ("unix-sockets", "abstract names and paths of the host, and pid 1's socket", "abstract:ECONNREFUSED path:ENOENT pid 1:EACCES"),
    ("net-tables", "/proc/net shows no socket of anybody else", "unix=0 tcp=0 tcp6=0 udp=0"),
    ("interfaces", "netlink lists the own loopback alone", "1"),
    ("netlink-change", "netlink changes no interface", "EPERM"),
    ("netlink-audit", "the audit stream cannot be joined", "EPERM|EPROTONOSUPPORT|ENOSYS"),
    ("raw", "raw and packet sockets reach nothing", "icmp:ENETUNREACH packet:ENXIO", "icmp:EPERM packet:EPERM"),
    ("families", "sockets of 5 families out of 64, those that network namespaces separate", "1 2 10 16 17", "1 2 10 16"),
    ("vsock", "AF_VSOCK, which none separates", "ENOSYS"),
]
GROUPS = {"descriptors": DESCRIPTORS, "pid 1": PID1, "mounts and devices": MOUNTS, "nested namespaces": REFUSED, "kernel": KERNEL,
          "network": NET}


@contextlib.contextmanager
def servers():
    """What listens outside, told to the intruder by its environment."""
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        unix.bind("\0bothy-attack")
        unix.listen()
        yield {"PORT": str(tcp.getsockname()[1]), "NAME": "bothy-attack"}


def results(node, *names, **more):
    """{attempt: {way: result}}; the sandboxes must serve afterwards, and their pid 1 has no signal waiting."""
    found = {}

    def body(sandbox, user, way):
        for line in intrude(node, sandbox, *names, user=user, env=env, timeout_ms=120000).splitlines():
            name, _, result = line.partition(" ")
            found.setdefault(name, {})[way] = result.strip()
        answers(node, sandbox)
        status = status_of(pid1_of(node, sandbox))
        found.setdefault("pid 1", {})[way] = (status["State"][0] in "RS", int(status["SigPnd"], 16) | int(status["ShdPnd"], 16))
    with servers() as env:
        env.update(SOCKET=node.path, **more)
        each_way(node, body)
    return found


def holds(wanted, got):
    return wanted(got) if callable(wanted) else re.fullmatch(wanted, got) is not None


def judge(attack, group, table, found):
    for name, tried, *wanted in table:
        @attack.attempt(f"{group}: {tried}", tuple(WAYS))
        def _(name=name, wanted=wanted):
            for way in WAYS:
                want = wanted[0] if way in AS_ROOT else wanted[-1]
                got = found.get(name, {}).get(way, "nothing")
                check(holds(want, got), f"{way}: {got!r}, not {want!r}")


def nested(attack, node):
    """On a node whose sandboxes may make namespaces."""
    judge(attack, "namespaces where they are allowed", NESTED, results(node, *(row[0] for row in NESTED), NESTED="1"))


def cases(attack, node):
    found = results(node, "all")
    for group, table in GROUPS.items():
        judge(attack, group, table, found)

    @attack.attempt("pid 1: after all that it is not stopped and no signal waits for it", tuple(WAYS))
    def _():
        for way in WAYS:
            equal(found["pid 1"][way], (True, 0), f"state and signals of pid 1, {way}")

    @attack.attempt("kernel: TIOCSTI, TIOCLINUX and TIOCCONS at a terminal put nothing anywhere but the own terminal", tuple(WAYS))
    def _():
        for grants, user in WAYS.values():
            with armed(node, grants=list(grants)) as sandbox:
                got = bytes_of(node.exec(sandbox, ["/intruder", "terminal"], user=user, stdio="pty")["out"]).decode()
                check(re.search(r"TIOCLINUX:(ENOTTY|EPERM|EINVAL) TIOCCONS:(EPERM|EBUSY|ENOTTY)", got), got)
                answers(node, sandbox)

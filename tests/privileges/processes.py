"""A node in mid-pull: bothyd, the warden, skopeo, the processes of bothy-unpack, a slot's init, a command."""
import contextlib
import ctypes
import errno
import os
import pathlib
import pwd
import re
import signal
import socket
import struct
import subprocess
import tempfile
import threading

import inject
import tables
from harness import BUILD, TOP, Node, Skip, check, equal, eventually, find_process, read_bytes, status_of
from inject import Inside
from registry import Image, Registry, Slow, busybox_layer, compress, tar_layer

NAMESPACES = "user mnt pid net ipc uts cgroup".split()
REFUSED = (errno.EPERM, errno.ENOSYS, errno.EACCES)
AT_FDCWD = -100
HELPER = "warden: network helper"


# ---- what is there ----

def threads(pid):
    return {int(t): read_bytes(f"/proc/{pid}/task/{t}/comm").decode().strip() for t in os.listdir(f"/proc/{pid}/task")}


def children(pid, name):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in read_bytes(f"/proc/{pid}/task/{task}/children").split():
            if read_bytes(f"/proc/{int(child)}/comm").decode().strip() == name:
                found.append(int(child))
    return found


class Cast:
    """Every process of the table by its name there: name -> [(tid, pid)]."""

    def __init__(self, node, registry, slow):
        self.node = node
        self.members = {}
        bothyd, warden = node.pid("bothyd"), node.pid("warden")
        self.hold_pull(registry, slow)
        skopeo = eventually("skopeo fetches", lambda: children(bothyd, "skopeo"), 20)
        outer = eventually("a layer is unpacked", lambda: self.unpackers(warden), 20)
        for tid, name in threads(bothyd).items():
            self.add("bothyd: starter" if name == "starter" else "bothyd", tid, bothyd)
        for tid, name in threads(warden).items():
            self.add(self.warden_row(name), tid, warden)
        for pid in skopeo:
            for tid in threads(pid):
                self.add("skopeo", tid, pid)
        for role, pid in zip(("outer", "writer", "decompressor"), outer):
            self.add(f"bothy-unpack: {role}", pid, pid)
        self.sandbox = node.create()
        for row, user in (("command as root", "0"), ("command as a user", "1000")):
            number = str(int.from_bytes(os.urandom(4), "big"))
            node.start(self.sandbox, ["sleep", number], user=user)
            pid = eventually("it sleeps", lambda n=number: find_process(["sleep", n]))
            self.add(row, pid, pid)
        init = int(status_of(pid)["PPid"])
        self.add("bothy-init", init, init)

    def warden_row(self, name):
        kinds = {"bothy-warden": "warden: reader", "refill": "warden: refill, layers", "layers": "warden: refill, layers",
                 "copier": "warden: copier"}
        return kinds.get(name, "warden: other threads")

    def add(self, row, tid, pid):
        self.members.setdefault(row, []).append((tid, pid))

    def hold_pull(self, registry, slow):
        layer = tar_layer({"data": os.urandom(8 << 20)})
        image = Image([busybox_layer(), layer], blobs=[compress(busybox_layer(), "gzip"), compress(layer, "gzip", 1)])
        registry.push(image, "held:latest")
        slow.at = 3 << 20
        self.pull = threading.Thread(target=lambda: self.node.call("POST", "/v1/images", {"source": f"{slow.host}/held"}, timeout=120))
        self.pull.start()
        check(slow.reached.wait(30), "the pull did not come far enough")
        slow.held.clear()

    def unpackers(self, warden):
        """outer, writer, decompressor of one layer, all behind their filters."""
        for outer in children(warden, "bothy-unpack"):
            chain = [outer]
            while len(chain) < 3 and (below := children(chain[-1], "bothy-unpack")):
                chain.append(below[0])
            if len(chain) == 3 and all(int(status_of(p).get("Seccomp_filters", 0)) >= 2 for p in chain):
                return chain
        return None


# ---- what is read ----

def is_dumpable(pid, tid):
    """As the thread says itself; None if it may not ask. bothy-unpack would be ended by the question: of it, root without SYS_PTRACE
    may read what is root's unless it is not dumpable."""
    if read_bytes(f"/proc/{pid}/comm") != b"bothy-unpack\n":
        with Inside(tid) as it:
            r = it.call("prctl", 3)  # PR_GET_DUMPABLE
            return None if r < 0 else bool(r)
    code = ("import ctypes,os,struct\n"
            "have=int(open('/proc/self/status').read().split('CapEff:')[1].split()[0],16)&~(1<<19)\n"
            "low,high=have&0xffffffff,have>>32\n"
            "assert not ctypes.CDLL(None).capset(struct.pack('II',0x20080522,0),struct.pack('6I',low,low,0,high,high,0))\n"
            f"os.readlink('/proc/{pid}/exe')\n")
    r = subprocess.run(["/usr/bin/python3", "-c", code], capture_output=True, text=True, check=False)
    check(r.returncode == 0 or "PermissionError" in r.stderr, r.stderr)
    return r.returncode == 0


def kinds_of_descriptors(pid):
    kinds = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        kind = re.match(r"/(memfd):|/dev/(null)$|anon_inode:\[?(\w+)|(\w+):\[", target)
        kinds.add(next(filter(None, kind.groups())) if kind else "files")
    return kinds


def core_limit(pid):
    line = next(x for x in read_bytes(f"/proc/{pid}/limits").decode().splitlines() if x.startswith("Max core file size"))
    return line.split()[4:6]


def own_namespaces(pid, other):
    return {n for n in NAMESPACES if os.readlink(f"/proc/{pid}/ns/{n}") != os.readlink(f"/proc/{other}/ns/{n}")}


def cgroup_of(pid, below):
    """Where it is held in memory and number, on v1 and v2; "-" is outside of the node's."""
    lines = [x.split(":", 2) for x in read_bytes(f"/proc/{pid}/cgroup").decode().splitlines()]
    held = {path.split("/")[2] for _, controllers, path in lines
            if path.startswith(f"/{below}/") and controllers in ("", "memory", "pids")}
    return "its sandbox's" if held and all(h.isdigit() for h in held) else ",".join(held) or "-"


SETS = {"as the warden": lambda _: tables.documented_warden_caps(), "as a sandbox": lambda _: tables.documented_sandbox_caps()}


def user_of(uid, bothy):
    return {0: "root", bothy: "bothy"}.get(uid, "its sandbox's")


def look_at(row, members, node):
    """Differences between one row of the table and what /proc says of its threads."""
    bothy, bothyd = pwd.getpwnam("bothy").pw_uid, node.pid("bothyd")
    host = tables.cap_set(status_of("self")["CapBnd"])  # a machine may give root fewer
    for tid, pid in members:
        s = status_of(f"{pid}/task/{tid}")
        who = f"{row['process']} ({s['Name']})"
        for uid in s["Uid"].split():
            if user_of(int(uid), bothy) != row["user"]:
                yield f"{who}: uid {uid} is not {row['user']}"
        want = {"CapEff": row["capabilities"], "CapPrm": row["capabilities"], "CapBnd": row["bounding"], "CapInh": "-", "CapAmb": "-"}
        for field, cell in want.items():
            listed = SETS.get(cell, tables.caps)(cell)
            if tables.cap_set(s[field]) != listed & host:
                yield f"{who}: {field} is {sorted(tables.cap_set(s[field]))}, not {cell}"
        for field, column in (("NoNewPrivs", "no new privileges"), ("Seccomp_filters", "filters")):
            if {"yes": "1", "no": "0"}.get(row[column], row[column]) != s[field]:
                yield f"{who}: {field} is {s[field]}, not {row[column]}"
        if s["Seccomp"] != "2":
            yield f"{who}: Seccomp is {s['Seccomp']}"
        if core_limit(pid) != ["0", "0"]:
            yield f"{who}: core files of {core_limit(pid)}"
        if inject.can() and is_dumpable(pid, tid) not in (None, row["dumpable"] == "yes"):
            yield f"{who}: dumpable is not {row['dumpable']}"
        base = bothyd if row["user"] == "bothy" else "self"  # a scratch node has bothyd in a mount namespace
        own = own_namespaces(pid, base) - ({"net"} if row["process"] == HELPER else set())  # the test's
        if own != tables.words(row["own namespaces"]):
            yield f"{who}: own namespaces are {sorted(own)}"
        if cgroup_of(pid, node.cgroup) != row["cgroup"]:
            yield f"{who}: its cgroup is {cgroup_of(pid, node.cgroup)}"
        if not kinds_of_descriptors(pid) <= tables.words(row["descriptors"]):
            yield f"{who}: descriptors are {sorted(kinds_of_descriptors(pid))}"


# ---- what is tried ----

def try_open(it, path, flags):
    if it.filtered:  # of bothy-unpack's outer process: openat would end it
        how = it.data(struct.pack("QQQ", flags, 0o600 if flags & os.O_CREAT else 0, 0))
        return it.call("openat2", AT_FDCWD, it.text(path), how, 24)
    return it.call("openat", AT_FDCWD, it.text(path), flags, 0o600)


def try_write(it, world):
    return try_open(it, f"{world.outside}/made-{it.tid}", os.O_CREAT | os.O_RDWR)


def try_read(it, world):
    return try_open(it, f"{world.outside}/secret", os.O_RDONLY)


def try_bind(it, _):
    fd = it.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
    r = it.call("bind", fd, it.data(struct.pack("!HHI8x", socket.htons(socket.AF_INET), 0, 0x7F000001)), 16) if fd >= 0 else fd
    if fd >= 0:
        it.call("close", fd)
    return r


def try_vsock(it, _):
    fd = it.call("socket", socket.AF_VSOCK, socket.SOCK_STREAM, 0)
    if fd >= 0:
        it.call("close", fd)
    return -errno.EPERM if fd == -errno.EAFNOSUPPORT else fd


# What must be refused where the table says so, and only there. The arguments are such that the call does nothing where it is let through.
ATTEMPTS = {
    "write elsewhere": try_write,
    "read elsewhere": try_read,
    "bothyd's files": lambda it, _: try_open(it, "/mnt/bothyd/store.db", os.O_RDWR),  # not there for who does not see a scratch node's /mnt
    "listen": lambda it, _: it.call("listen", -1, 0),
    "new code": lambda it, _: it.call("mmap", 0, 4096, 7, 0x22, -1, 0),
    "bind a port": try_bind,
    "signal others": lambda it, w: it.call("kill", w.stranger, 0),
    "programs": lambda it, _: it.call("execve", 0, 0, 0),
    "ptrace": lambda it, _: it.call("ptrace", 16, 0x3FFFFFFF, 0, 0),
    "bpf": lambda it, _: it.call("bpf", 99, 0, 0),
    "io_uring": lambda it, _: it.call("io_uring_setup", 0, 0),
    "namespaces": lambda it, _: it.call("unshare", 0),
    "mounts": lambda it, _: it.call("mount", 0, 0, 0, 0, 0),
    "keys": lambda it, _: it.call("keyctl", 0x7FFF, 0, 0, 0, 0),
    "special files": lambda it, _: it.call("mknodat", -1, it.text("x"), 0o010600, 0),
    "handles": lambda it, _: it.call("open_by_handle_at", -1, 0, 0),
    "userfaultfd": lambda it, _: it.call("userfaultfd", -1),
    "perf": lambda it, _: it.call("perf_event_open", 0, 0, 0, 0, 0),
    "other processes' memory": lambda it, _: it.call("process_vm_readv", 0x3FFFFFFF, 0, 0, 0, 0, 1),
    "vsock": try_vsock,
}
UNPACK = ("write elsewhere", "read elsewhere")  # its filter ends the process at any other


def attempt(tid, name, world, filtered=False):
    """0 or more, or -errno, of one attempt by this thread."""
    with Inside(tid) as it:
        it.filtered = filtered
        return ATTEMPTS[name](it, world)


class World:
    """A directory that anybody may read and write, and somebody of bothyd's user outside all walls."""

    def __init__(self, node):
        ns = f"/proc/{node.pid('bothyd')}/root"
        self.outside = tempfile.mkdtemp(prefix="bothy-outside-")
        os.chmod(self.outside, 0o777)
        path = pathlib.Path(self.outside, "secret")
        path.write_text("x")
        path.chmod(0o666)
        check(os.path.exists(ns + self.outside), "bothyd does not see it")
        uid, gid = pwd.getpwnam("bothy").pw_uid, pwd.getpwnam("bothy").pw_gid
        self.other = subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "sleep", "600"])
        self.free = subprocess.Popen(["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "sleep", "600"])
        self.stranger = self.other.pid
        for p in (self.other, self.free):
            eventually("it sleeps", lambda p=p: read_bytes(f"/proc/{p.pid}/comm") == b"sleep\n")

    def done(self):
        for p in (self.other, self.free):
            p.kill()
            p.wait()
        subprocess.run(["rm", "-rf", self.outside], check=False)


def landlock():
    return ctypes.CDLL(None).syscall(444, 0, 0, 1)


def refusals(members, world, names, filtered=False):
    """What was refused to every one of these threads; what only to some is an error."""
    found = {}
    for tid, _ in members:
        found[tid] = {n for n in names if -attempt(tid, n, world, filtered) in REFUSED}
    check(len({frozenset(f) for f in found.values()}) == 1, f"threads of one row differ: {found}")
    return next(iter(found.values()))


def cases(suite):
    if b"__asan_init" in (BUILD / "src/daemon/bothyd").read_bytes() or b"__tsan_init" in (BUILD / "src/daemon/bothyd").read_bytes():
        suite.case("processes of a running node")(skipped)
        return
    if suite.wants_any(on_a_node):
        on_a_node(suite)
    older(suite)


def on_a_node(suite):
    with tempfile.TemporaryDirectory(prefix="bothy-privileges-") as scratch, Registry(pathlib.Path(scratch, "r")) as registry, \
            contextlib.ExitStack() as stack:
        slow = Slow(registry)
        with Node(pool="2:2", config=f"registries:\n  {slow.host}: {{insecure: true}}") as node:
            world = World(node)
            try:
                cast = Cast(node, registry, slow)
                networked = stack.enter_context(network_node())
                helper = eventually("the network helper runs", lambda: children(networked.pid("warden"), "bothy-network"))[0]
                cast.add(HELPER, helper, helper)
                rows_of(suite, node, cast)
                walls_of(suite, cast, world)
            finally:
                slow.held.set()
                world.done()
            cast.pull.join()
            after(suite, node)


@contextlib.contextmanager
def network_node():
    """A node with --network, its warden in a network namespace of its own."""
    name = f"bothy-privileges-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with Node(pool="1:1", images="", netns=f"/run/netns/{name}", warden="--network 10.215.0.0/18") as node:
            yield node
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


def older(suite):
    @suite.case("process: without Landlock and MDWE the node works, and says so")
    def _():
        with Node(pool="1:1", wrap=["/usr/bin/python3", str(pathlib.Path(__file__).with_name("older.py"))]) as node:
            equal(node.shell(node.create(), "echo well"), "well\n", "out")
            for words in ("no Landlock", "PR_SET_MDWE"):
                check(node.log().count(words) == 1, f"bothyd's log has '{words}' {node.log().count(words)} times")
            check("PR_SET_MDWE" in node.log("warden"), "the warden's log does not tell of PR_SET_MDWE")


def skipped():
    raise Skip("built with a sanitizer, which is confined less (SECURITY.md says so)")


def rows_of(suite, node, cast):
    rows = {row["process"]: row for row in tables.table("process")}

    @suite.case("process: the table has every process of a node, and no other")
    def _():
        equal(sorted(rows), sorted(cast.members), "processes")

    @suite.case("process: skopeo has the limits that SECURITY.md tells")
    def _():
        files, size = re.search(r"skopeo gets (\d+) descriptors, files of (\d+) MiB", (TOP / "SECURITY.md").read_text()).groups()
        limits = read_bytes(f"/proc/{cast.members['skopeo'][0][1]}/limits").decode()
        for what, value in (("Max open files", int(files)), ("Max file size", int(size) << 20)):
            equal(re.search(rf"{what}\s+(\d+)\s+(\d+)", limits).groups(), (str(value),) * 2, what)

    for name, members in cast.members.items():
        @suite.case(f"process: {name} has what SECURITY.md says, in each of {len(members)} threads")
        def _(name=name, members=members):
            differences = list(look_at(rows[name], members, node))
            check(not differences, "; ".join(differences[:6]))


def walls_of(suite, cast, world):
    walls = {row["from"]: tables.words(row["refused"]) for row in tables.table("from")}

    @suite.case("refuse: without walls each attempt is let through, so that a refusal means one")
    def _():
        if not inject.can():
            raise Skip("system calls are injected on x86-64 only")
        got = {n: attempt(world.free.pid, n, world) for n in ATTEMPTS}
        refused = {n for n, r in got.items() if -r in REFUSED}
        equal(refused, set(), f"refused without a wall ({got})")

    for name in walls:
        members = cast.members[name]

        @suite.case(f"refuse: {name} is refused what SECURITY.md says, and nothing else of what is tried")
        def _(name=name, members=members):
            if not inject.can():
                raise Skip("system calls are injected on x86-64 only")
            if not landlock():
                raise Skip("this kernel has no Landlock")
            filtered = name.startswith("bothy-unpack")
            # One thread of skopeo stands for all: Go's move from thread to thread, and all have one filter.
            some = members[:1] if name == "skopeo" else members
            equal(sorted(refusals(some, world, UNPACK if filtered else ATTEMPTS, filtered)), sorted(walls[name]), "refused")

    @suite.case("refuse: the others of bothy-unpack are ended by a call that is not on their lists")
    def _():
        if not inject.can():
            raise Skip("system calls are injected on x86-64 only")
        equal(set(cast.members) - set(walls), {"bothy-unpack: writer", "bothy-unpack: decompressor"}, "rows without refusals")
        with Inside(cast.members["bothy-unpack: writer"][0][0]) as writer:  # stands still while the other dies
            with Inside(cast.members["bothy-unpack: decompressor"][0][0]) as decompressor:
                check_ended(decompressor)
            check_ended(writer)


def check_ended(it):
    try:
        r = it.call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
    except ProcessLookupError as e:
        equal(str(e).rsplit(" ", 1)[1], str(int(signal.SIGSYS)), "signal")
    else:
        raise AssertionError(f"it lives: {r}")


def after(suite, node):
    @suite.case("process: after all that the node still takes work")
    def _():
        with node.sandbox() as sb:
            equal(node.shell(sb, "echo well"), "well\n", "out")

"""What a node has on its machine, and what is left of it afterwards.

Other nodes and tests may run at the same time, so nothing is compared with "before": everything is
found by the node's own directory, cgroup and namespaces, which are noted while it is up."""
import os
import pathlib
import subprocess
import time

from harness import Watch, pids, read_bytes

NAMESPACES = ("mnt", "net", "pid", "user", "ipc", "uts", "cgroup")


def namespaces_of(pid):
    found = set()
    for kind in NAMESPACES:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            pass
    return found


class Spaces(set):
    """Namespaces, when they were noted, and the cgroup of their node: the kernel gives a number that is free again to somebody else."""
    until, cgroup = float("inf"), ""


def began(pid):
    """Seconds after the machine's start."""
    fields = read_bytes(f"/proc/{pid}/stat").rsplit(b")", 1)[-1].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK") if len(fields) > 19 else float("inf")


def elsewhere(pid, cgroup):
    """Whether it is in a cgroup that is neither the node's nor ours: a container of another test's engine."""
    own = read_bytes("/proc/self/cgroup").splitlines()
    return any(line not in own and f"/{cgroup}".encode() not in line for line in read_bytes(f"/proc/{pid}/cgroup").splitlines())


def holds(pid, spaces):
    """The namespaces among these that a process is in which may have been there then."""
    held = namespaces_of(pid) & set(spaces)
    return held if held and began(pid) <= spaces.until and not elsewhere(pid, spaces.cgroup) else set()


def processes(node, spaces=frozenset()):
    """Of this node: in its cgroup, named by its directory, or in a namespace of its own."""
    theirs = Spaces(set(spaces) - namespaces_of(os.getpid()))
    theirs.until, theirs.cgroup = getattr(spaces, "until", float("inf")), node.cgroup
    mine = set()
    for pid in pids():
        if pid == os.getpid():
            continue
        in_cgroup = f"/{node.cgroup}".encode() in read_bytes(f"/proc/{pid}/cgroup")
        named = (node.dir + "/").encode() in read_bytes(f"/proc/{pid}/cmdline")
        if in_cgroup or named or holds(pid, theirs):
            mine.add(pid)
    return mine


def note(node):
    """The namespaces of a node that is up; to be given to left() later."""
    own = namespaces_of(os.getpid())
    spaces = set()
    for name in ("bothyd", "warden"):
        path = pathlib.Path(node.dir, "ctl", name + ".pid")
        if path.exists():
            spaces |= namespaces_of(int(path.read_text()))
    for pid in processes(node, spaces):
        spaces |= namespaces_of(pid)
    noted = Spaces(spaces - own)
    noted.until, noted.cgroup = float(read_bytes("/proc/uptime").split()[0]) + 0.1, node.cgroup
    return noted


def mounts(node):
    text = read_bytes("/proc/self/mountinfo").decode(errors="replace")
    return [line for line in text.splitlines() if node.dir + "/" in line]


def cgroups(node):
    return [path for root in ("/sys/fs/cgroup",) for path, _, _ in walk(root, 3)
            if os.path.basename(path) == node.cgroup]


def walk(root, depth):
    for path, names, files in os.walk(root):
        yield path, names, files
        if path.count("/") - root.count("/") >= depth:
            names.clear()


def loops(node):
    r = subprocess.run(["losetup", "-ln", "-O", "NAME,BACK-FILE"], stdout=subprocess.PIPE, text=True,
                       check=False)
    return [line for line in r.stdout.splitlines() if node.dir + "/" in line]


def namespaces_left(spaces):
    """Held by a process or bound to a file."""
    held = set()
    for pid in pids():
        held |= holds(pid, spaces)
    bound = read_bytes("/proc/self/mountinfo").decode(errors="replace")
    return held | {s for s in spaces if s in bound}


def describe(pid):
    line = read_bytes(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")
    return f"{pid} {line[:100]}"


def left(node, spaces, seconds=5):
    """Everything that should be gone and is not, for people; empty is good. Waits for pid 1 of the
    machine to reap what died."""
    limit = Watch(seconds)
    while (found := left_now(node, spaces)) and not limit.over():
        time.sleep(0.1)
    return found


def left_now(node, spaces):
    found = [f"process {describe(p)}" for p in processes(node, spaces)]
    found += [f"mount {m}" for m in mounts(node)]
    found += [f"cgroup {c}" for c in cgroups(node)]
    found += [f"loop device {line}" for line in loops(node)]
    found += [f"namespace {s}" for s in namespaces_left(spaces)]
    found += [f"file {p}" for p in (node.dir,) if os.path.exists(p)]
    return found

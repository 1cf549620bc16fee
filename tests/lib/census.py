"""Counts of a node and of the kernel: what there is of cgroups, mounts, namespaces, inodes, descriptors and memory.

Exact ones are the node's own (its cgroup path, its file system, its two processes). The kernel's are of the whole machine and
move with whoever else works on it."""
import os
import pathlib
import re


def _read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def meminfo():
    """kB"""
    return {k: int(v) for k, v in re.findall(r"^(\w+):\s+(\d+) kB", _read("/proc/meminfo"), re.M)}


def pss(pid):
    """kB"""
    found = re.search(r"^Pss:\s+(\d+)", _read(f"/proc/{pid}/smaps_rollup"), re.M)
    return int(found[1]) if found else 0


def status(pid, key):
    found = re.search(rf"^{key}:\s+(\d+)", _read(f"/proc/{pid}/status"), re.M)
    return int(found[1]) if found else 0


def fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def kept(node):
    """Of exact()'s counts what stays for the next time, and becomes more with how many come at once: readers of the store, and the
    network namespace of each thread of the warden that has made a socket."""
    def like(program, mark):
        found, where = 0, f"/proc/{node.pid(program)}/fd"
        for fd in os.listdir(where):
            try:
                found += mark in os.readlink(f"{where}/{fd}")
            except OSError:
                pass
        return found
    return {"descriptors of bothyd": like("bothyd", "/store.db"), "descriptors of the warden": like("warden", "net:[")}


def hierarchies():
    """Mount points of cgroup file systems."""
    return [line.split()[4] for line in _read("/proc/self/mountinfo").splitlines() if re.search(r" - cgroup2? ", line)]


def cgroups(node):
    """Directories below the node's own path, in all hierarchies."""
    return sum(len(dirs) for h in hierarchies() for _, dirs, _ in os.walk(f"{h}/{node.cgroup}"))


def dying_memory_cgroups():
    """Removed but still held by memory that was charged to them; of the whole machine."""
    total = re.search(r"^memory\s+\d+\s+(\d+)", _read("/proc/cgroups"), re.M)
    root = next((h for h in hierarchies() if h.endswith("/memory")), None)
    if not total or not root:
        return 0
    return int(total[1]) - 1 - sum(len(dirs) for _, dirs, _ in os.walk(root))


def slab(*names):
    """Objects in use, of the whole machine. What the processors keep for the next one counts as used until the cache is shrunk."""
    for n in names:
        try:
            pathlib.Path("/sys/kernel/slab", n, "shrink").write_text("1")
        except OSError:
            pass  # then the count is too high, on both sides
    return {n: int(m[1]) for n in names if (m := re.search(rf"^{n}\s+(\d+)", _read("/proc/slabinfo"), re.M))}


def init_pids(node):
    """pid 1 of each slot, by the cgroup it is in."""
    root = next(h for h in hierarchies() if h.endswith("/pids") or _read(h + "/cgroup.controllers"))
    found = []
    for directory in pathlib.Path(root, node.cgroup).glob("[0-9]*"):
        found += [int(p) for p in _read(directory / "cgroup.procs").split()[:1]]
    return found


def mounts(pid):
    """Lines of mountinfo in every mount namespace that a thread of the process is in."""
    seen = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            seen[os.readlink(task / "ns/mnt")] = len(_read(task / "mountinfo").splitlines())
        except OSError:
            pass
    return sum(seen.values())


def inodes(node):
    v = os.statvfs(f"{node.dir}/warden")
    return v.f_files - v.f_ffree


def namespaces(node):
    """Distinct ones that processes of the node's slots are in."""
    found = set()
    for pid in init_pids(node):
        for kind in ("net", "mnt", "pid", "ipc", "uts", "user", "cgroup"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                pass
    return len(found)


def slots(node):
    """(ready, all) as the warden's directory has them."""
    def is_ready(slot):
        try:
            return (slot / "state").exists() and not (slot / "claim").stat().st_size
        except OSError:  # it is being made, or went while it was looked at
            return False
    every = list(pathlib.Path(node.dir, "warden", "slots").iterdir())
    return sum(map(is_ready, every)), len(every)


def exact(node):
    """What has to be as it was once everything is deleted."""
    warden, bothyd = node.pid("warden"), node.pid("bothyd")
    return {"cgroups": cgroups(node), "mounts of the warden": mounts(warden), "namespaces": namespaces(node),
            "slots": slots(node)[1], "uppers": len(os.listdir(f"{node.dir}/warden/uppers")),
            "trash": len(os.listdir(f"{node.dir}/warden/trash")), "inodes": inodes(node),
            "descriptors of the warden": fds(warden), "descriptors of bothyd": fds(bothyd)}


def kernel(node):
    """Of the whole machine, or without an exact bound."""
    m = meminfo()
    return {"available_kb": m["MemAvailable"], "unreclaimable_kb": m["SUnreclaim"], "stacks_kb": m["KernelStack"],
            "percpu_kb": m["Percpu"], "tables_kb": m["PageTables"], "dying_memory_cgroups": dying_memory_cgroups(),
            "bothyd_pss_kb": pss(node.pid("bothyd")), "warden_pss_kb": pss(node.pid("warden")),
            **slab("net_namespace", "user_namespace", "pid_namespace", "mnt_cache")}

"""The walls, seen from outside while a layer is being read: capabilities, filters, namespaces,
limits, root and descriptors of each of the three processes."""
import os
import pathlib
import subprocess
import time

from evil import entry, tar
from watch import Watch

CAPS = {name: number for number, name in enumerate(
    "chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable "
    "net_bind_service net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio "
    "sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice sys_resource sys_time "
    "sys_tty_config mknod lease audit_write audit_control setfcap".split())}
ROLES = {
    "outer": {"caps": "sys_admin dac_read_search", "own": ""},
    "writer": {"caps": "chown fowner fsetid setfcap", "own": "user mnt pid net ipc uts cgroup"},
    "decompressor": {"caps": "", "own": "user mnt pid net ipc uts cgroup"},
}


def mask(names):
    return sum(1 << CAPS[name] for name in names.split())


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {k: v.strip() for k, _, v in (line.partition(":") for line in lines)}


def children_of(pid):
    found = []
    for other in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(status_of(other)["PPid"]) == pid:
                found.append(int(other))
        except (OSError, KeyError):
            pass
    return found


def family(pid):
    """outer, writer, decompressor, once all three have their filters."""
    limit = Watch(20)
    while not limit.over():
        chain = [pid]
        while len(chain) < 3 and (next_ones := children_of(chain[-1])):
            chain.append(next_ones[0])
        try:
            if len(chain) == 3 and all(status_of(p)["Seccomp"] == "2" for p in chain):
                return dict(zip(ROLES, chain))
        except (OSError, KeyError):
            pass
        time.sleep(0.02)
    return None


def faults(role, pid):
    status = status_of(pid)
    want = ROLES[role]
    for field in ("CapEff", "CapPrm"):
        if int(status[field], 16) != mask(want["caps"]):
            yield f"{role}: {field} is {status[field]}"
    for field in ("CapInh", "CapAmb", "CapBnd"):
        if int(status[field], 16):
            yield f"{role}: {field} is {status[field]}"
    if status["NoNewPrivs"] != "1":
        yield f"{role}: new privileges are possible"
    for name in "user mnt pid net ipc uts cgroup".split():
        apart = os.readlink(f"/proc/{pid}/ns/{name}") != os.readlink(f"/proc/self/ns/{name}")
        if apart != (name in want["own"].split()):
            yield f"{role}: namespace {name} is {'its own' if apart else 'the host’s'}"
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    for name in ("Max processes", "Max core file size"):
        line = next(x for x in limits.splitlines() if x.startswith(name))
        if line[len(name):].split()[:2] != ["0", "0"]:
            yield f"{role}: {line}"


def root_faults(pid, layer):
    """The layer is the whole of what the writer sees."""
    inside, outside = os.stat(f"/proc/{pid}/root/."), os.stat(layer)
    if (inside.st_dev, inside.st_ino) != (outside.st_dev, outside.st_ino):
        yield "the writer's root is not the layer's directory"
    mounts = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    if len(mounts) != 1:
        yield f"the writer sees {len(mounts)} mounts"
    elif not {"nosuid", "nodev", "noexec"} <= set(mounts[0].split()[5].split(",")):
        yield f"the writer's root is mounted {mounts[0].split()[5]}"


def is_alive_after(pid, seconds):
    """A zombie that waits for its reaper is dead."""
    limit = Watch(seconds)
    while not limit.over():
        try:
            if status_of(pid)["State"].startswith("Z"):
                return False
        except (OSError, KeyError):
            return False
        time.sleep(0.05)
    return True


def look(work, unpack):
    layer = work / "walls"
    layer.mkdir()
    directory = os.open(layer, os.O_RDONLY | os.O_DIRECTORY)
    raw = tar(entry("f", data=b"x" * 300000))
    child = subprocess.Popen(
        ["/bin/sh", "-c", f'exec "$@" 3<&{directory}', "sh", unpack, "--format", "plain",
         "--diff-id", "0" * 64], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, pass_fds=(directory,))
    os.close(directory)
    try:
        child.stdin.write(raw[:1024])
        child.stdin.flush()
        members = family(child.pid)
        if not members:
            return ["the three processes did not come up behind their filters"]
        found = [f for role, pid in members.items() for f in faults(role, pid)]
        found += root_faults(members["writer"], layer)
        child.kill()
        child.wait()
        return found + [f"{role} outlives the outer process" for role, pid in members.items()
                        if role != "outer" and is_alive_after(pid, 5)]
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def run(tally, work, unpack):
    if tally.wanted("walls"):
        tally.result("walls", "; ".join(look(work, unpack)) or None)

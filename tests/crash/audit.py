"""What a node may have at a quiet moment, and what it has beyond that: orphans, by kind.

A quiet moment is one without a create, a delete or a pull under way; commands may run. What a program is just about to
take away is waited for."""
import contextlib
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import time

import census
from harness import SLOW, Watch, pids, read_bytes

KINDS = ("slots", "layers", "mounts", "cgroups", "processes", "files", "doubles", "networks")
HELPERS = ("skopeo", "crun", "runtime", "bothy-unpack")
WAIT = 15  # s


def names(path):
    with contextlib.suppress(FileNotFoundError):
        return {p for p in os.listdir(path)}
    return set()


def read(path):
    return read_bytes(path).decode(errors="replace")


class Audit:
    def __init__(self, node):
        self.node, self.spaces, self.mounts = node, {}, None
        self.note()

    @property
    def oci(self):
        return self.node.backend == "oci"

    def note(self):
        """After each start of a program: what is in the mount namespaces of a dead one is an orphan."""
        for program in ("bothyd", "warden") if self.oci else ("bothyd",):
            with contextlib.suppress(OSError, ValueError):
                pid = self.node.pid(program)
                self.spaces[os.readlink(f"/proc/{pid}/ns/mnt")] = (program, pid)

    # ---- what there should be ----
    def rows(self):
        """(sandboxes {id: (state, cause, spec)}, digests of images that the store knows), read as another process may."""
        db = sqlite3.connect(f"file:{self.node.dir}/bothyd/store.db?mode=ro", uri=True, timeout=5)
        try:
            rows = {i: (state, json.loads(cause or "null"), json.loads(spec))
                    for i, state, cause, spec in db.execute("SELECT id, state, cause, spec FROM sandboxes")}
            self.forks = [i for (i,) in db.execute("SELECT id FROM snapshots WHERE fork")]
            return rows, {bytes(d).hex() for (d,) in db.execute("SELECT digest FROM images")}
        finally:
            db.close()

    # ---- what there is ----
    def look(self, pruned=False):
        """{kind: [what]}; pruned: layers of pulls that broke have been pruned, too."""
        found = {kind: [] for kind in KINDS}
        rows, images = self.rows()
        found["files"] += [f"snapshot {i} of a fork" for i in self.forks]
        live = {i for i, (state, _, _) in rows.items() if state != "gone"}
        self.bothyd_files(found, rows)
        self.doubles(found, rows)
        if self.oci:
            self.slots(found, {rows[i][2].get("box", i) for i in live})  # a reset one has a box of another name
            self.layers(found, images, pruned)
            self.mount_points(found)
            self.processes(found)
            self.networks(found, rows, live)
        return found

    def doubles(self, found, rows):
        """Sandboxes that were made under one key (the clients put it into a label) and of which more than one became
        something: a create that failed gives its key back."""
        by_key = {}
        for i, (state, cause, spec) in rows.items():
            key = [label for label in spec.get("labels", []) if label.startswith("key=")]
            if key and not (state == "gone" and cause and cause["kind"] == "create_failed"):
                by_key.setdefault(key[0], []).append(i)
        found["doubles"] += [f"{key}: {ids}" for key, ids in by_key.items() if len(ids) > 1]

    def slots(self, found, live):
        top = pathlib.Path(self.node.dir, "warden")
        claimed = {}
        for slot in names(top / "slots"):
            claim = read(top / "slots" / slot / "claim").split("\n")
            if (top / "slots" / slot / "dead").exists() or not (top / "slots" / slot / "state").exists():
                found["slots"].append(f"{slot} is half made or half gone")
            elif claim[0] and claim[0] not in live:
                found["slots"].append(f"{slot} of {claim[0]}, whom nobody knows")
            elif claim[0] in claimed:
                found["doubles"].append(f"{slot} and {claimed[claim[0]]} of {claim[0]}")
            claimed[claim[0] or slot] = slot
        found["slots"] += [f"none for {i}" for i in live - set(claimed)]
        slots = names(top / "slots")
        found["slots"] += [f"upper {u}" for u in names(top / "uppers") - slots]
        found["slots"] += [f"trash {t}" for t in names(top / "trash")]
        for root in census.hierarchies():
            cgroups = {p.name for p in pathlib.Path(root, self.node.cgroup).glob("*/")}
            found["cgroups"] += [f"{root} {c}" for c in cgroups - slots - {"unpack"}]

    def networks(self, found, rows, live):
        """Interfaces and elements of the node's table, where the warden has a network namespace of its own."""
        if not self.node.netns:
            return
        enter = ["nsenter", f"--net={self.node.netns}"]
        links, table = (subprocess.run([*enter, *words], capture_output=True, text=True, check=True).stdout
                        for words in (["ip", "-o", "link"], ["nft", "list", "ruleset"]))
        wanted = sum(rows[i][2].get("network") == "open" for i in live)
        for what, have in (("interfaces", len(re.findall(r"^\d+: by\w{5}-\d+@", links, re.M))),
                           ("elements", len(re.findall(r'"by\w{5}-\d+" \. ', table)))):
            if have != wanted:
                found["networks"].append(f"{have} {what}, not {wanted}")

    def layers(self, found, images, pruned):
        top = pathlib.Path(self.node.dir, "warden")
        defined, forgotten = names(top / "images"), names(top / "forgotten")
        found["files"] += [f"tmp/{t}" for t in names(top / "tmp")]
        found["layers"] += [f"image {i} that no record names" for i in defined - images]
        found["layers"] += [f"fix layer {i}" for i in names(top / "fix") - defined - forgotten]
        if pruned:
            used = {line for d in ("images", "forgotten") for i in names(top / d) for line in read(top / d / i).split("\n")}
            found["layers"] += [f"layer {n}" for n in names(top / "layers") - used]
            found["layers"] += [f"forgotten image {i}" for i in forgotten]

    def mount_points(self, found):
        host = [m.split()[4] for m in read("/proc/self/mountinfo").splitlines() if f" {self.node.dir}/" in m]
        found["mounts"] += [m for m in host if m != f"{self.node.dir}/warden"]
        have = self.own_mounts()
        self.mounts = min(have, self.mounts or have)  # the first look may have met a root under way
        if have > self.mounts:
            found["mounts"].append(f"{have} in the warden's namespaces, not {self.mounts}")

    def own_mounts(self):
        """How many the warden's threads see of its own: its state, its place, roots under way. Those of other nodes come and go."""
        seen = {}
        for task in pathlib.Path(f"/proc/{self.node.pid('warden')}/task").iterdir():
            lines = read(task / "mountinfo").splitlines()
            with contextlib.suppress(OSError):
                seen[os.readlink(task / "ns/mnt")] = sum(self.node.dir in m or " - tmpfs bothy " in m for m in lines)
        return sum(seen.values())

    def processes(self, found):
        """Of the pulls and refills of programs that are gone. Namespaces are numbered anew: only what these two start counts."""
        now = {self.node.pid("bothyd"), self.node.pid("warden")}
        for pid in pids():
            space = None
            with contextlib.suppress(OSError):
                space = self.spaces.get(os.readlink(f"/proc/{pid}/ns/mnt"))
            comm, cgroup = read(f"/proc/{pid}/comm").strip(), read(f"/proc/{pid}/cgroup")
            if "/bothy-dev-" in cgroup and self.node.cgroup not in cgroup:
                continue  # another node's
            if space and comm in HELPERS or pid not in now and f"{self.node.dir}/".encode() in read_bytes(f"/proc/{pid}/cmdline"):
                found["processes"].append(f"{pid} {comm}" + (f" of {space[0]} {space[1]}" if space else ""))
            elif f"/{self.node.cgroup}/unpack" in cgroup:
                found["processes"].append(f"{pid} {comm} unpacks")

    def bothyd_files(self, found, rows):
        top = pathlib.Path(self.node.dir, "bothyd")
        found["files"] += [f"staging/{n}" for n in names(top / "staging")]
        found["files"] += [f"registries/{n}" for n in names(top / "registries") if n.startswith(".")]
        found["files"] += [f"spool/{n}" for n in names(top / "spool") - set(rows)]

    def settle(self, pruned=False, wait=WAIT):
        """What is still there when nothing changes any more; {} is good."""
        limit = Watch(wait * SLOW)
        while True:
            try:
                found = {kind: what for kind, what in self.look(pruned).items() if what}
            except (OSError, ValueError, sqlite3.Error) as e:  # it changed under our eyes
                found = {"files": [repr(e)]}
            if not found or limit.over():
                return found
            time.sleep(0.05)

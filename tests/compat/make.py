#!/usr/bin/env python3
"""Makes a fixture: a state directory as an earlier commit leaves it, and what its API said about it.

    tests/compat/make.py COMMIT NAME        writes tests/compat/fixtures/NAME.tar.xz

The commit is cloned and built below $BOTHY_CACHE/compat (once), a node of it is used as people use one, and bothyd is killed. In
the archive: bothyd/ (store, journals, spools), slots/ (the files the warden keeps of a slot), expected.json. A fixture of a
released format is never made again."""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib")]

from harness import TOP, Api, ApiError, alive, eventually  # noqa: E402


def built(commit):
    """The tree of that commit, with its build directory."""
    cache = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev"), "compat")
    tree = cache / commit
    if not (tree / "build" / "bin" / "bothyd").exists():
        shutil.rmtree(tree, ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "clone", "-q", TOP, tree], check=True)
        subprocess.run(["git", "-C", tree, "checkout", "-q", commit], check=True)
        clean = {k: v for k, v in os.environ.items() if k not in ("BOTHY_TOP", "BOTHY_BUILD")}
        subprocess.run([tree / "tools" / "dev", "build"], check=True, env=clean)
    return tree


class Node(Api):
    """A node of an earlier tree, by its own tools."""

    def __init__(self, tree):
        self.tree, self.dir = tree, tempfile.mkdtemp(prefix="bothy-compat-")
        self.env = {**os.environ, "BOTHY_TOP": str(tree), "BOTHY_BUILD": str(tree / "build"), "BOTHY_NODE_IMAGES": "busybox dash",
                    "BOTHY_NODE_POOL": "2:3"}
        super().__init__(path=f"{self.dir}/run/bothyd.sock")

    def __enter__(self):
        subprocess.run([self.tree / "tools" / "node", "up", self.dir], env=self.env, check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        subprocess.run([self.tree / "tools" / "node", "down", self.dir], env=self.env, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

    def kill(self):
        pid = int(pathlib.Path(self.dir, "ctl", "bothyd.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        eventually("bothyd dies", lambda: not alive(pid))


def use(node):
    """Every sort of record, each at least once."""
    kept = {"create_keys": {}, "running": [], "sessions": {}}
    spec = {"image": "busybox", "queue_wait": 20}
    for name, more in (("named", {"name": "one", "labels": {"team": "blue"}, "env": {"A": "1"}}), ("plain", {})):
        key = f"compat-{name}"
        kept["create_keys"][key] = {"body": {**spec, **more},
                                    "id": node.ok("POST", "/v1/sandboxes", {**spec, **more}, {"Idempotency-Key": key})["id"]}
    first, second = (kept["create_keys"][k]["id"] for k in ("compat-named", "compat-plain"))
    over = node.create("dash", ttl=1, queue_wait=20)
    gone = node.create(labels={"state": "gone"}, queue_wait=20)
    for sb in (first, second, gone):
        node.exec(sb, "echo out; echo err >&2; exit 3", {"Idempotency-Key": "one"})
        node.exec(sb, "echo both; echo streams >&2", stdio="merged")
        node.exec(sb, "tty; exit 4", stdio="pty")
        node.exec(sb, "kill -9 $$")
        fed = node.start(sb, ["cat"], stdin_open=True)
        node.ok("POST", node.at(sb, fed, "/stdin?offset=0&eof=true"), b"fed\n")
        node.wait(sb, fed)
        node.exec(sb, "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done")
        ended = node.start(sb, ["sleep", "1000"])
        node.ok("POST", node.at(sb, ended, "/signal"), {"signal": "KILL"})
        node.wait(sb, ended)
        with contextlib.suppress(ApiError):  # older ones have none
            s = node.ok("POST", f"/v1/sandboxes/{sb}/sessions", {})["id"]
            for text in ("cd /tmp; X=1; echo in", "echo $X; (exit 7)"):
                node.ok("POST", f"/v1/sandboxes/{sb}/sessions/{s}/commands", {"command": text})
            kept["sessions"][sb] = s
    node.delete(gone)
    with contextlib.suppress(ApiError):  # pauses came with store 3
        paused = node.create(name="two", labels={"state": "paused"}, queue_wait=20)
        node.exec(paused, "echo before the pause")
        node.ok("POST", f"/v1/sandboxes/{paused}/pause")
    with contextlib.suppress(ApiError):  # changes with store 4
        node.ok("PATCH", f"/v1/sandboxes/{second}", {"ttl": 7200, "labels": {"changed": "yes"}, "limits": {"memory": 128 << 20}})
    kept["running"] = [[sb, node.start(sb, "echo begun; sleep 1000")] for sb in (first, second)]
    for owner, role in (("alice", "user"), ("bob", "read")):
        made = node.ok("POST", "/v1/keys", {"owner": owner, "role": role, "note": f"of {owner}"})
        kept.setdefault("secrets", {})[owner] = made.get("key") or made.get("secret")
    with contextlib.suppress(ApiError):  # limits of keys, too
        node.ok("POST", "/v1/keys", {"owner": "carol", "role": "user", "max_sandboxes": 3, "creates_per_second": 1.5})
    with contextlib.suppress(ApiError):  # templates came with store 5
        node.ok("POST", "/v1/templates", {"name": "recipe", "image": "busybox", "env": {"A": "1"}, "limits": {"memory": 64 << 20}})
    eventually("its time is over", lambda: node.show(over)["state"] == "gone")
    time.sleep(0.5)  # what is written behind the answers
    return kept


def told(node):
    """What the API says about all of it."""
    all_of = {"sandboxes": {}, "keys": node.ok("GET", "/v1/keys")["keys"], "images": node.ok("GET", "/v1/images")["images"],
              "versions": node.ok("GET", "/v1/info")["versions"],
              "templates": (node.call("GET", "/v1/templates").json or {}).get("templates", [])}
    listed = [s for state in ("running", "gone", "paused")
              for s in (node.call("GET", f"/v1/sandboxes?state={state}").json or {}).get("sandboxes", [])]
    for sb in listed:
        processes = node.ok("GET", f"/v1/sandboxes/{sb['id']}/processes")["processes"]
        outputs = {p["exec"]: {s: base64.b64encode(node.output(sb["id"], p["exec"], s)).decode() for s in ("out", "err")}
                   for p in processes}
        commands = None
        with contextlib.suppress(ApiError):
            commands = {s["id"]: node.ok("GET", f"/v1/sandboxes/{sb['id']}/sessions/{s['id']}/commands")["commands"]
                        for s in node.ok("GET", f"/v1/sandboxes/{sb['id']}/sessions")["sessions"]}
        all_of["sandboxes"][sb["id"]] = {"show": node.show(sb["id"]), "processes": processes, "outputs": outputs, "commands": commands}
    return all_of


def pack(node, expected, path):
    with tempfile.TemporaryDirectory() as scratch:
        to = pathlib.Path(scratch)
        shutil.copytree(f"{node.dir}/bothyd", to / "bothyd", ignore=shutil.ignore_patterns("staging", "lock"))
        with contextlib.closing(sqlite3.connect(to / "bothyd" / "store.db")) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the WAL has its full length in zeros
            expected["store"] = db.execute("PRAGMA user_version").fetchone()[0]
            expected["events"] = db.execute("SELECT count(*) FROM events").fetchone()[0]
        for name in ("store.db-wal", "store.db-shm"):
            (to / "bothyd" / name).unlink(missing_ok=True)
        for slot in pathlib.Path(node.dir, "warden", "slots").iterdir():
            (to / "slots" / slot.name).mkdir(parents=True)
            for name in ("state", "claim", "ahead"):
                with contextlib.suppress(OSError):
                    shutil.copy(slot / name, to / "slots" / slot.name / name)
        (to / "expected.json").write_text(json.dumps(expected, indent=1))
        subprocess.run(["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-C", to, "-cJf", path, "."], check=True)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    commit, name = sys.argv[1:]
    with Node(built(commit)) as node:
        kept = use(node)
        expected = {"commit": commit, **kept, **told(node)}
        node.kill()
        pack(node, expected, HERE / "fixtures" / f"{name}.tar.xz")
    print(f"{name}: {(HERE / 'fixtures' / f'{name}.tar.xz').stat().st_size} bytes, store {expected['store']}")


if __name__ == "__main__":
    main()

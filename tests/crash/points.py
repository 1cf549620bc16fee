"""Every named kill point of the source (FAULT_KILL, base/fault.h): armed, driven, seen to be hit, survived.

TABLE says which program dies at a point and which driver leads there. A point that is missing in it, and one that its driver
does not meet, is a failure."""
import concurrent.futures
import contextlib
import io
import itertools
import os
import pathlib
import random
import re
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time

import load as kinds
import oldstore
import rounds
from again import reset_once, was_reset
from audit import Audit, names, read
from built import built
from changed import changed
from harness import SLOW, TOP, ApiError, Node, Watch, alive, check, equal, eventually
from in_session import closed_detached, in_session, new_shell, without_a_frame
from load import Load, ends, patient, same
from paused import paused
from pulls import BUSYBOX, noise
from registry import Image, Registry, tar_layer
from snapshotted import forked, snapshot_once, snapshotted

POINTS_MIN = 40
MEET = 8 * SLOW  # s: what a driver sets going in the background
RACES = 3  # times more that a driver may try: a slot that is just ready may be taken instead of the one it means
STREAM_MAX = 4 << 20
ONCE = ", and its client gives up"
WHOLE = ", its stdin came along"
IDLE = ", of one that is idle"
WORLDS = 2  # beside each other


def points_of_source():
    found = {}
    for path in sorted((TOP / "src").rglob("*.c")):
        if path.name.startswith(("docker", "link")) or "kubernetes" in path.parts:  # tests/docker and tests/k8s drive those
            continue
        for name in re.findall(r'FAULT_KILL\("([a-z_.]+)"\)', path.read_text()):
            check(name not in found, f"two points are called {name}")
            found[name] = path
    return found


# ---- drivers: clients who do not give up; each checks what it gets ----
def come_and_go(w):
    w.load.come_and_go()


def granted(w):
    """With set-uid programs a root that a slot has ahead does not serve: one is built anew."""
    def given():
        return w.ready() and all((slot / "ahead").exists() for slot in w.ready())
    w.load.come_and_go()
    eventually("ready slots have an image ahead", lambda: not w.is_aimed() or given(), 10)
    w.load.come_and_go(grants=["setuid"])


def with_start(w):
    """A sandbox with a start command: it is begun once, whoever died before or behind it."""
    key = secrets.token_hex(8)
    body = {"image": "busybox", "queue_wait": 20, "start": {"argv": ["sh", "-c", "echo begun; exec sleep 1000"]}}
    made = w.load.ask("POST", "/v1/sandboxes", body, {"Idempotency-Key": key})["id"]

    def begun():
        return w.load.ask("GET", f"/v1/sandboxes/{made}")["start"]["exec"]
    x = eventually("the start command is begun", begun, 30)
    eventually("it speaks", lambda: patient(lambda: w.node.output(made, begun() or x)) == b"begun\n", 30)
    found = w.load.ask("GET", f"/v1/sandboxes/{made}/processes")["processes"]
    ran = [p["exec"] for p in found if p["start"] and (p["end"] or {}).get("how") != "not_started"]
    equal(ran, [begun()], "start commands that ran")
    w.load.ask("DELETE", f"/v1/sandboxes/{made}")


def timed(w):
    """A sandbox whose time is over ends for that reason, wherever bothyd dies: its box, its row and its cause agree."""
    ended(w, "ttl", ttl=1)


def idled(w):
    """The same for one that is idle; a box whose row was not written yet lives, and is idle once more."""
    ended(w, "idle", idle=1, ttl=600)


def ended(w, cause, **spec):
    body = {"image": "busybox", "queue_wait": 20, **spec}
    made = w.load.ask("POST", "/v1/sandboxes", body, {"Idempotency-Key": secrets.token_hex(8)})["id"]
    eventually("it ends", lambda: w.load.ask("GET", f"/v1/sandboxes/{made}")["state"] == "gone" and not w.is_aimed(), 30)
    eventually("its end stays", lambda: w.load.ask("GET", f"/v1/sandboxes/{made}")["state"] == "gone", 30)
    ends(w.load.ask("GET", f"/v1/sandboxes/{made}")["cause"]["kind"], cause)


def networked(w):
    """A sandbox with a network: its pair, its elements and its walls are there or it is not."""
    w.load.come_and_go(network="open")


def command(kind):
    def drive(w):
        w.count += 1
        w.load.command(random.Random(w.count), w.load.sandboxes[0], kind, f"point.{w.count}")
    return drive


with_stdin = command(kinds.whole)


def flood(w):
    """More than a stream may hold: head and tail stay, what is between them is told."""
    sandbox, total = w.load.sandboxes[0], 6 << 20
    body = {"argv": ["sh", "-c", f"i=0; while [ $i -lt {total >> 12} ]; do printf '%4095d\\n' $i; i=$((i+1)); done"]}
    where = f"/v1/sandboxes/{sandbox}/processes"
    made = w.load.ask("POST", where, body, {"Idempotency-Key": secrets.token_hex(8)})["exec"]
    end = w.wait_end(sandbox, made)
    ends((end["how"], end["exit_code"], end["out_bytes"]), ("exited", 0, total))
    check(0 < end["out_dropped"] < total, f"dropped is {end['out_dropped']}")
    wanted = b"".join(b"%4095d\n" % i for i in range(total >> 12))
    head = patient(lambda: w.node.call("GET", f"{where}/{made}/output?max=16777216").body)
    tail = patient(lambda: w.node.output(sandbox, made, offset=total - (1 << 20)))
    same(head, wanted[:1 << 20], "head")
    same(tail, wanted[total - (1 << 20):], "tail")


def killed(w):
    """A command that is killed reads killed, whoever was away when it ended."""
    sandbox = w.load.sandboxes[0]
    made = w.load.ask("POST", f"/v1/sandboxes/{sandbox}/processes", {"argv": ["sleep", "1000"]},
                      {"Idempotency-Key": secrets.token_hex(8)})["exec"]
    where = f"/v1/sandboxes/{sandbox}/processes/{made}"
    with contextlib.suppress(ApiError):  # the second time it may have ended
        w.load.ask("POST", where + "/signal", {"signal": "KILL"})
    end = w.wait_end(sandbox, made)
    ends((end["how"], end["signal"]), ("killed", 9))


def implicit_layer(name):
    """A file whose directory the tar does not name: the image needs a fix layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        info = tarfile.TarInfo(f"etc/{name}")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"here"))
    return out.getvalue()


def pull(w):
    """A new image: fetched, run, removed, pruned; under another name, so that a name moves as well."""
    mark = secrets.token_hex(4)
    image = Image([BUSYBOX, tar_layer({f"data/{mark}": noise(200_000)}), implicit_layer(mark)])
    ref = w.registry.push(image, "points/one:1")
    w.patient("POST", "/v1/images", {"source": ref})
    w.pulled = ref
    made = w.load.ask("POST", "/v1/sandboxes", {"image": ref, "queue_wait": 20}, {"Idempotency-Key": mark})["id"]
    got = w.load.ask("POST", f"/v1/sandboxes/{made}/exec", {"argv": ["sh", "-c", f"cat /etc/{mark}; ls /data"]}, {"Idempotency-Key": "x"})
    same(kinds.bytes_of(got["out"]), f"here{mark}\n".encode(), "the image's files")
    w.load.ask("DELETE", f"/v1/sandboxes/{made}")


def pull_once(w):
    """By somebody who does not ask again: what came of it is nobody's, and a prune takes it."""
    image = Image([BUSYBOX, tar_layer({"data/once": noise(1000)}), implicit_layer("once")])
    ref = w.registry.push(image, f"points/{secrets.token_hex(4)}:1")
    with contextlib.suppress(*kinds.LOST):
        w.node.call("POST", "/v1/images", {"source": ref})
    eventually("the node is back", lambda: w.patient("GET", "/v1/info"))
    w.pulled = ref


def remove_and_prune(w):
    """What was pulled goes; what is in use stays."""
    if not w.pulled:
        pull(w)
    with contextlib.suppress(ApiError):  # gone already, when the answer was lost
        w.patient("DELETE", "/v1/images/" + w.pulled)
    w.pulled = None
    w.prune()


def log_in(w):
    host = w.locked.host
    w.patient("PUT", f"/v1/registries/{host}/login", {"username": "alice", "password": "correct horse"})
    logins = w.patient("GET", "/v1/registries")["logins"]
    equal([entry["username"] for entry in logins if entry["host"] == host], ["alice"], "logins")
    w.patient("DELETE", f"/v1/registries/{host}/login", ok=(404,))
    equal([e for e in w.patient("GET", "/v1/registries")["logins"] if e["host"] == host], [], "logins")


def make_key(w):
    """Not repeatable: the secret is told once. A record without an owner who knows the secret may be there."""
    owner = "owner-" + secrets.token_hex(4)
    made = w.patient("POST", "/v1/keys", {"owner": owner, "role": "user"})
    keys = [k for k in w.patient("GET", "/v1/keys")["keys"] if k["owner"] == owner]
    check(made["id"] in [k["id"] for k in keys] and len(keys) <= 2, f"keys of {owner}: {keys}")
    for k in keys:
        w.patient("DELETE", f"/v1/keys/{k['id']}", ok=(404,))


def start_again(program):
    """A point of the start: the program dies while it takes up what its predecessor left."""
    def drive(w):
        w.node.kill(program)
        w.node.restart(program, wait=False)
    drive.starts = True
    return drive


BOTHYD, WARDEN = "bothyd", "warden"


def migrate(w):
    """bothyd starts on a store of the first version."""
    w.node.kill(BOTHYD)
    oldstore.take_back(f"{w.node.dir}/bothyd/store.db", 1)
    w.node.restart(BOTHYD, wait=False)


migrate.starts = True


def put_back(w):
    """bothyd starts beside a restored store that is not in its place yet: the present one, as a copy."""
    copy = patient(lambda: whole(w.node.call("GET", "/v1/backup"))).body
    w.node.kill(BOTHYD)
    path = pathlib.Path(w.node.dir, "bothyd", "store.db.restored")
    path.write_bytes(copy)
    shutil.chown(path, "bothy", "bothy")
    w.node.restart(BOTHYD, wait=False)


put_back.starts = True


def back_up(w):
    """Who asks again gets a copy; nothing of the first is left."""
    a = patient(lambda: whole(w.node.call("GET", "/v1/backup")))
    check(a.body.startswith(b"SQLite format 3"), "no copy came")


def whole(answer):
    if answer.status != 200:
        raise ApiError(answer)
    return answer


TABLE = [
    # a slot is made
    *((WARDEN, "refill." + at, come_and_go) for at in (
        "directory", "upper", "listening", "crun_started", "crun_done", "met", "walls_tried", "taken_back", "capped", "claim_file", "state",
        "ready")),
    (WARDEN, "fs.not_renamed", come_and_go),
    # it gets an image before anybody asks
    *((WARDEN, "ahead." + at, come_and_go) for at in ("begun", "built", "changed", "recorded")),
    # it is claimed
    *((WARDEN, "claim." + at, come_and_go) for at in ("begun", "named", "swapped", "limited", "recorded", "settled", "answered")),
    *((WARDEN, at, granted) for at in ("claim.second_upper", "claim.built", "root.attached", "root.pivoted")),
    *((WARDEN, "network." + at, networked) for at in ("begun", "added", "dressed", "tried", "closed")),
    # it goes
    *((WARDEN, "destroy." + at, come_and_go) for at in (
        "marked", "killed", "cgroup_gone", "upper_gone", "slot_gone", "trash_empty")),
    (WARDEN, "recover.slot", start_again(WARDEN)),
    # images
    *((WARDEN, "unpack." + at, pull) for at in ("directory", "started", "unpacked", "described", "placed")),
    *((WARDEN, "image." + at, pull) for at in ("fixed", "durable", "defined")),
    *((WARDEN, "prune." + at, remove_and_prune) for at in ("forgotten", "image_gone", "layer_aside", "removed")),
    *((BOTHYD, "pull." + at, pull) for at in (
        "opened", "manifest", "config", "handing_over", "moved", "layers", "buried", "defined", "recorded")),
    *((BOTHYD, "pull." + at, pull_once) for at in ("layers", "buried", "defined", "recorded")),
    *((BOTHYD, at, remove_and_prune) for at in ("remove.buried", "remove.recorded", "prune.answered")),
    *((BOTHYD, at, log_in) for at in ("login.verified", "login.written", "fs.not_renamed")),
    *((BOTHYD, at, make_key) for at in ("key.made", "key.stored")),
    # a sandbox
    *((BOTHYD, "create." + at, come_and_go) for at in (
        "queued", "claim_sent", "claimed", "claim_record", "spool", "committed", "running", "told")),
    *((BOTHYD, "start." + at, with_start) for at in ("due", "begun")),
    *((BOTHYD, "store." + at, come_and_go) for at in ("uncommitted", "committed")),
    (BOTHYD, "store.migrating", migrate),
    (BOTHYD, "store.copied", back_up),
    (BOTHYD, "restore.aside", put_back),
    *((BOTHYD, "delete." + at, come_and_go) for at in ("committed", "destroyed", "finished")),
    *((BOTHYD, "end." + at, drive) for at in ("decided", "recorded", "destroyed") for drive in (timed, idled)),
    *((BOTHYD, at, changed) for at in ("update.intended", "update.applied", "update.committed")),
    *((WARDEN, at, paused) for at in ("pause.freezing", "resume.thawed")),
    *((BOTHYD, at, paused) for at in (
        "pause.recorded", "pause.frozen", "resume.noted", "resume.recorded", "resume.going_on")),
    *((WARDEN, "snapshot." + at, drive) for at in ("marked", "frozen", "copied", "taken") for drive in (snapshotted, snapshot_once)),
    *((BOTHYD, "derive." + at, drive) for at in ("noted", "made", "named", "recorded") for drive in (snapshotted, snapshot_once)),
    (BOTHYD, "snapshot.forgotten", snapshotted),
    *((BOTHYD, at, forked) for at in ("derive.recorded", "fork.asked", "fork.made")),
    *((BOTHYD, "reset." + at, drive) for at in ("claimed", "noted", "committed", "swapped", "started") for drive in (was_reset, reset_once)),
    *((BOTHYD, "build." + at, built) for at in ("kept", "named")),
    *((BOTHYD, at, start_again(BOTHYD)) for at in ("reconcile.begun", "reconcile.adopted", "exec.recovered")),
    # a command
    *((BOTHYD, "exec." + at, command(kinds.pipes)) for at in (
        "id_taken", "begun", "spawn_sent", "started", "moved", "exited", "drained", "ended", "acked")),
    (BOTHYD, "exec.relayed", command(kinds.pty)),
    *((BOTHYD, "exec." + at, flood) for at in ("marked", "punched")),
    *((BOTHYD, "stdin." + at, command(kinds.stdin)) for at in ("appended", "ended", "moved", "left")),
    *((BOTHYD, at, with_stdin) for at in ("exec.begun", "exec.spawn_sent", "stdin.appended")),
    *((BOTHYD, "signal." + at, killed) for at in ("recorded", "sent")),
    # a command in a session
    *((BOTHYD, "session." + at, in_session) for at in (
        "recorded", "command_recorded", "half_frame", "frame_appended", "command_over", "command_ended", "closed")),
    (BOTHYD, "session.detached_closed", closed_detached),
    (BOTHYD, "session.restarted", new_shell),
    (BOTHYD, "session.not_run", without_a_frame),
]


@contextlib.contextmanager
def network_namespace():
    name = f"bothy-points-{os.getpid()}-{secrets.token_hex(2)}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


class World:
    """A node, two registries, a little load."""

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bothy-points-")))
            self.registry = stack.enter_context(Registry(scratch / "plain"))
            self.locked = stack.enter_context(Registry(scratch / "locked", users={"alice": "correct horse"}))
            self.netns = stack.enter_context(network_namespace())
            self.node = stack.enter_context(Node(images="busybox", pool="3:3", faults=True, netns=self.netns,
                                                 warden="--network 10.215.0.0/18", config=f"""
exec:
  stream_max: {STREAM_MAX}
images:
  from: any
registries:
  {self.registry.host}: {{insecure: true}}
  {self.locked.host}: {{insecure: true}}
"""))
            self.audit = Audit(self.node)
            self.load = Load(self.node, 2, 3, creates=False)
            self.load.start()
            self.count, self.pulled = 0, None
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def ready(self):
        top = pathlib.Path(self.node.dir, "warden", "slots")
        return [top / n for n in names(top) if (top / n / "state").exists() and not read(top / n / "claim")]

    def is_aimed(self):
        """The point is still to be met."""
        return self.node.is_armed(*self.aim)

    def patient(self, method, path, body=None, ok=()):
        """Without an Idempotency-Key: for what may be done twice. ok: statuses that a second time may give."""
        def ask():
            try:
                return self.node.ok(method, path, body, timeout=60)
            except ApiError as e:
                if e.answer.status in ok:
                    return None
                raise
        return patient(ask)

    def wait_end(self, sandbox, made):
        def end():
            return self.load.ask("GET", f"/v1/sandboxes/{sandbox}/processes/{made}")["end"]
        return eventually(f"exec {made} ends", end, 60)

    def prune(self):
        """Until it has its way: a slot that has the image ahead, or is just going, holds it for a moment."""
        def pruned():
            self.patient("POST", "/v1/images/prune", {})
            return not self.audit.look(pruned=True)["layers"]
        eventually("a prune leaves no layer without an image", pruned, 20, 0.1)


def strike(w, program, point, drive, turn=1):
    """One kill at one point; raises what went wrong."""
    trouble = []

    def run():
        try:
            for _ in range(1 if hasattr(drive, "starts") else turn + RACES):
                if w.node.is_armed(program, point):
                    drive(w)
        except Exception as e:  # noqa: BLE001: told below
            trouble.append(e)
    pid, w.aim = w.node.pid(program), (program, point)
    w.node.arm(program, point, turn)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until = None
    while w.node.is_armed(program, point):
        if not thread.is_alive():
            until = until or Watch(MEET)
        if until and until.over():
            w.node.disarm(program)
            raise trouble[0] if trouble else AssertionError("its driver does not meet it")
        time.sleep(0.002)
    eventually(f"{program} dies", lambda: not alive(w.node.pid(program) if hasattr(drive, "starts") else pid), 5, 0.002)
    if hasattr(drive, "starts"):
        thread.join(30)
    w.node.restart(program)
    w.audit.note()
    thread.join(60)
    check(not thread.is_alive(), "its client hangs")
    if trouble:
        raise trouble[0]
    if hasattr(drive, "after"):
        drive.after(w)


def afterwards(w, drive):
    """Whole records, no orphan, and a new sandbox works."""
    w.load.come_and_go(two=False)
    images = drive in (pull, pull_once, remove_and_prune)
    if images:
        remove_and_prune(w)
    files = drive in (snapshotted, snapshot_once, forked, built)  # nobody asks for a prune of those
    left = w.audit.settle(pruned=images or files)
    equal(left, {}, "what is left")
    check(not w.load.failure, str(w.load.failure))


def table_is_whole():
    source, table = set(points_of_source()), {point for _, point, _ in TABLE}
    equal(sorted(source - table), [], "points without a driver")
    equal(sorted(table - source), [], "points that the source does not have")
    check(len(source) >= POINTS_MIN, f"{len(source)} points are fewer than {POINTS_MIN}")


def run(suite, times, results):
    """Each point so many times; the n-th of them at the n-th time it is reached."""
    if not suite.wants_any(*(f"points: {program} dies at {point}{mark(drive)}…" for program, point, drive in TABLE), run):
        return
    suite.case("points: every one of the source has a driver, and there are enough")(table_is_whole)
    with concurrent.futures.ThreadPoolExecutor(WORLDS) as pool:  # they wait more than they compute
        done = list(pool.map(lambda n: run_some(suite, TABLE[n::WORLDS], times, n + 1), range(WORLDS)))
    results["points"] = {"points": len(points_of_source()), "hit": sum(hits for hits, _ in done),
                         **{name: sum(counts[name] for _, counts in done) for name in done[0][1]}}


def mark(drive):
    """What tells its cases from others' at the same point."""
    return ONCE if drive in (pull_once, reset_once, snapshot_once) else WHOLE if drive is with_stdin else IDLE if drive is idled else ""


def run_some(suite, table, times, nth):
    """A part of the points in a world of its own: how many were hit, and what the commands beside them were."""
    hits = 0
    with World() as w:
        equal(w.audit.settle(), {}, "before the first kill")
        for (program, point, drive), turn in itertools.product(table, range(1, times + 1)):
            if turn > 1 and hasattr(drive, "starts"):
                continue  # a start meets it once
            @suite.case(f"points: {program} dies at {point}{mark(drive)}" + (f", the {turn}. time" if turn > 1 else ""))
            def _(program=program, point=point, drive=drive, turn=turn):
                nonlocal hits
                revive(w)
                strike(w, program, point, drive, turn)
                hits += 1
                afterwards(w, drive)
        finish(suite, w, nth)
    return hits, w.load.counts


def revive(w):
    """After a case that failed: both programs run, nothing is armed."""
    for program in (WARDEN, BOTHYD):
        w.node.disarm(program)
        if not alive(w.node.pid(program)):
            w.node.restart(program)
            w.audit.note()


def finish(suite, w, nth):
    @suite.case(f"points: the commands beside them ran once, and each has one end record, world {nth}")
    def _():
        revive(w)
        w.load.finish()
        check(not w.load.failure, str(w.load.failure))
        equal(rounds.ran(w.node, w.load), {"twice": 0, "never": 0, "unknown": 0}, "commands")
        equal(rounds.records(w.node, w.load), {"missing": 0, "duplicate": 0}, "end records")

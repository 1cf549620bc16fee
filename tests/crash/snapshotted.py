"""The driver of the points of snapshots: whoever dies, the sandbox goes on, and what is listed has all its files."""
import contextlib
import secrets

from harness import ApiError, equal, eventually
from load import LOST, bytes_of, patient, same

COUNT = "i=0; while :; do i=$((i+1)); echo $i; usleep 3000; done"


def snapshotted(w):
    """Kept, used, removed; one whose answer was lost is listed, or is not there at all."""
    def ask(where, body=None):
        return w.load.ask("POST", where, body, {"Idempotency-Key": secrets.token_hex(8)})

    mark = secrets.token_hex(8)
    sandbox = ask("/v1/sandboxes", {"image": "busybox", "queue_wait": 20})["id"]
    at = "/v1/sandboxes/" + sandbox
    ask(at + "/exec", {"argv": ["sh", "-c", f"mkdir -p /work/a; echo {mark} >/work/a/file; rm /bin/yes; head -c 1000000 /dev/zero >/work/zeros"]})
    made = ask(at + "/processes", {"argv": ["sh", "-c", COUNT]})["exec"]

    def length():
        return patient(lambda: len(w.node.output(sandbox, made)))
    w.patient("POST", at + "/snapshots")
    before = length()
    eventually("it goes on", lambda: length() > before)
    equal(w.patient("GET", at)["state"], "running", "state")
    found = w.patient("GET", at + "/snapshots")["snapshots"]
    for snapshot in found:
        child = ask("/v1/sandboxes", {"snapshot": snapshot["id"], "queue_wait": 20})["id"]
        got = ask(f"/v1/sandboxes/{child}/exec", {"argv": ["sh", "-c", "cat /work/a/file; ls /bin/yes /work/zeros"]})
        same(bytes_of(got["out"]), f"{mark}\n/work/zeros\n".encode(), f"files of snapshot {snapshot}")
        w.load.ask("DELETE", f"/v1/sandboxes/{child}")
        with contextlib.suppress(ApiError):  # gone already, when the answer was lost
            w.patient("DELETE", f"/v1/snapshots/{snapshot['id']}")
    equal(w.patient("GET", at + "/snapshots")["snapshots"], [], "snapshots after their removal")
    w.load.ask("DELETE", at)


def snapshot_once(w):
    """By somebody who gives up: what was made of it goes by itself, or is listed. Nobody takes another, whose end would clean up, too."""
    sandbox = w.load.ask("POST", "/v1/sandboxes", {"image": "busybox", "queue_wait": 20}, {"Idempotency-Key": secrets.token_hex(8)})["id"]
    at = "/v1/sandboxes/" + sandbox
    with contextlib.suppress(*LOST):
        w.node.call("POST", at + "/snapshots", timeout=60)
    eventually("the node is back", lambda: w.patient("GET", "/v1/info"))
    for snapshot in w.patient("GET", at + "/snapshots")["snapshots"]:
        w.patient("DELETE", f"/v1/snapshots/{snapshot['id']}", ok=(404,))
    w.load.ask("DELETE", at)


def forked(w):
    """One whose answer was lost has no children, nor anything else; asked for again it has all of them."""
    mark = secrets.token_hex(8)
    sandbox = w.load.ask("POST", "/v1/sandboxes", {"image": "busybox", "queue_wait": 20}, {"Idempotency-Key": secrets.token_hex(8)})["id"]
    at = "/v1/sandboxes/" + sandbox
    w.load.ask("POST", at + "/exec", {"argv": ["sh", "-c", f"echo {mark} >/file"]}, {"Idempotency-Key": secrets.token_hex(8)})
    body = {"count": 3, "labels": {"fork": mark}, "queue_wait": 20}

    def children():
        return [s["id"] for s in w.patient("GET", f"/v1/sandboxes?label=fork%3D{mark}")["sandboxes"]]
    made = None
    with contextlib.suppress(*LOST):
        made = w.node.ok("POST", at + "/fork", body, timeout=60)["sandboxes"]
    if not made:
        eventually("the node is back", lambda: w.patient("GET", "/v1/info"))
        eventually("no child is left", lambda: not children(), 30)
        made = w.node.ok("POST", at + "/fork", body, timeout=60)["sandboxes"]
    equal(sorted(children()), sorted(c["id"] for c in made), "children")
    for child in made:
        got = w.load.ask("POST", f"/v1/sandboxes/{child['id']}/exec", {"argv": ["cat", "/file"]}, {"Idempotency-Key": secrets.token_hex(8)})
        same(bytes_of(got["out"]), f"{mark}\n".encode(), f"files of child {child['id']}")
        w.load.ask("DELETE", f"/v1/sandboxes/{child['id']}")
    equal(w.patient("GET", at + "/snapshots")["snapshots"], [], "snapshots")
    w.load.ask("DELETE", at)

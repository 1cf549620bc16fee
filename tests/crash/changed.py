"""The driver of the points of a change: what the record says is what the node holds, whether the change was answered or not."""
import secrets

from harness import equal
from load import ends

MIB = 1 << 20


def changed(w):
    def ask(where, body=None):
        return w.load.ask("POST", where, body, {"Idempotency-Key": secrets.token_hex(8)})

    sandbox = ask("/v1/sandboxes", {"image": "busybox", "queue_wait": 20, "ttl": 600, "limits": {"memory": 128 * MIB}})["id"]
    at = "/v1/sandboxes/" + sandbox
    wanted = {"limits": {"memory": 64 * MIB, "pids": 40}, "labels": {"a": "1"}, "idle": 3000}
    now = w.patient("PATCH", at, wanted)
    for _ in range(2):
        equal((now["limits"]["memory"], now["limits"]["pids"], now["labels"], now["idle"]), (64 * MIB, 40, {"a": "1"}, 3000), "what it is")
        now = w.patient("GET", at)
    ends(w.load.ask("DELETE", at)["cause"]["kind"], "requested")

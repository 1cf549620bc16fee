"""The driver of the points of pause and resume: whoever dies, the sandbox ends up as its record says, and loses nothing."""
import secrets
import time

from harness import check, equal, eventually
from load import ends, patient, same

COUNT = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; usleep 3000; done; echo end"


def paused(w):
    """Counts, stands still, counts on: every number once."""
    def ask(where, body=None):
        return w.load.ask("POST", where, body, {"Idempotency-Key": secrets.token_hex(8)})

    sandbox = ask("/v1/sandboxes", {"image": "busybox", "queue_wait": 20, "ttl": 600})["id"]
    at = "/v1/sandboxes/" + sandbox
    made = ask(at + "/processes", {"argv": ["sh", "-c", COUNT], "timeout_ms": 60000})["exec"]

    def length():
        return patient(lambda: len(w.node.output(sandbox, made)))
    eventually("it counts", length)
    before = w.patient("POST", at + "/pause")
    equal(before["state"], "paused", "state")

    def settled():
        """What was in the pipe has come, also to a bothyd that has just started."""
        n = length()
        for _ in range(2):
            time.sleep(0.25)
            if length() != n:
                return None
        return n
    still = eventually("its output stands still", settled)
    time.sleep(0.3)
    equal(length(), still, "what it has counted while it is paused")
    equal(w.patient("GET", at)["state"], "paused", "state")
    after = w.patient("POST", at + "/resume")
    equal(after["state"], "running", "state")
    eventually("it counts on", lambda: length() > still)
    check(after["ttl_left"] > before["ttl_left"] - 5, "the time to live did not stand still")
    ask(at + "/exec", {"argv": ["touch", "/tmp/stop"]})
    end = w.wait_end(sandbox, made)
    ends((end["how"], end["exit_code"]), ("exited", 0))
    out = patient(lambda: w.node.output(sandbox, made))
    n = out.count(b"\n") - 1
    same(out, b"".join(b"%d\n" % i for i in range(1, n + 1)) + b"end\n", "what it counted")
    ends(w.load.ask("DELETE", at)["cause"]["kind"], "requested")

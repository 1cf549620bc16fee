"""The driver of the points of template builds: whoever dies, the build is ready, or lost and says so, and nothing else is left."""
import secrets

from harness import check, equal, eventually
from load import bytes_of, same


def built(w):
    """By the E2B door, as its SDKs do; then used, and removed."""
    owner, mark = f"builder-{secrets.token_hex(4)}", secrets.token_hex(8)
    key = w.patient("POST", "/v1/keys", {"owner": owner, "role": "user"})["key"]

    def ask(method, path, body=None, **more):
        return w.load.ask(method, path, body, {"X-API-Key": key, **more})

    made = ask("POST", "/v3/templates", {"name": "crashed"})
    at = f"templates/{made['templateID']}/builds/{made['buildID']}"
    ask("POST", "/v2/" + at, {"fromImage": "busybox", "steps": [{"type": "RUN", "args": [f"echo {mark} >mark"]}]})
    eventually("it is over", lambda: ask("GET", f"/{at}/status")["status"] in ("ready", "error"), 60)
    last = ask("GET", f"/{at}/status")
    templates = [t["id"] for t in w.patient("GET", "/v1/templates")["templates"] if t["owner"] == owner]
    if last["status"] == "error":
        check("lost by a restart" in last["reason"]["message"], last)
        equal(templates, [], "templates of a build that was lost")
    else:
        equal(templates, [made["templateID"]], "templates")
        child = ask("POST", "/v1/sandboxes", {"template": "crashed", "queue_wait": 20}, Authorization=f"Bearer {key}", **{"Idempotency-Key": mark})["id"]
        got = w.load.ask("POST", f"/v1/sandboxes/{child}/exec", {"argv": ["cat", "/home/user/mark"]}, {"Idempotency-Key": "x"})
        same(bytes_of(got["out"]), f"{mark}\n".encode(), "the file of the build")
        w.load.ask("DELETE", f"/v1/sandboxes/{child}")
        w.patient("DELETE", f"/v1/templates/{made['templateID']}")
    equal([s["id"] for s in w.patient("GET", "/v1/snapshots")["snapshots"] if s["owner"] == owner], [], "files")
    eventually("its sandbox is gone", lambda: not [s for s in w.patient("GET", "/v1/sandboxes")["sandboxes"] if "bothy.build" in s["labels"]], 20)

"""The verbs under torture: what leads to them, the request, what must hold whatever came of it, and the way back to nothing."""
import contextlib
import http.client
import os
import pathlib
import re
import time

import census
from harness import Answer, ApiError, Watch, bytes_of, check, equal, eventually

LOST = (OSError, http.client.HTTPException, ValueError)
# A failure of one of these on the caller's own connection may cost it that connection: nobody can be told anything then.
OWN = {"accept4", "recv", "send", "setsockopt", "getsockopt", "epoll_ctl(ADD)", "epoll_wait", "fcntl(F_DUPFD)", "poll", "recvmsg", "sendmsg"}
# What would send whoever asked rightly looking for a mistake of its own.
BLAME = {"invalid_request", "unauthenticated", "forbidden", "not_found", "method_not_allowed", "conflict", "too_large", "range",
         "idempotency_mismatch", "user_not_found", "cwd_not_found", "exec_failed", "image_unsupported"}
WAIT_S = 8


def cgroups(node):
    return census.cgroups(node)


def own_mounts(node):
    """What the warden's threads see of the node's."""
    seen = {}
    for task in pathlib.Path(f"/proc/{node.pid('warden')}/task").iterdir():
        with contextlib.suppress(OSError):
            lines = (task / "mountinfo").read_text().splitlines()
            seen[os.readlink(task / "ns/mnt")] = sum(node.dir in m or " - tmpfs bothy " in m for m in lines)
    return sum(seen.values())


class Verb:
    def __init__(self, node):
        self.node, self.answer, self.said, self.lost = node, None, "", False

    def prepare(self):
        pass

    def ask(self, method, path, body=None):
        """One request, once."""
        self.answer, self.lost, self.said = None, False, ""
        watch = Watch()
        try:
            self.answer = self.node.call(method, path, body, timeout=40)
        except LOST as e:
            self.lost, self.why = True, e
        self.took = watch.seconds() - watch.taken()

    def linger(self):
        time.sleep(0.15)

    def check_answer(self, hit):
        if self.lost:
            check(hit["call"] in OWN and hit["thread"].startswith(("http", "relay", "bothyd")), f"no answer: {self.why!r}")
            return
        a = self.answer
        check(isinstance(a, Answer), "no answer")
        if a.status < 400:
            return
        e = a.error
        self.said = e["code"]
        for member in ("code", "message", "remedy", "request_id"):
            check(isinstance(e.get(member), str) and e[member], f"{member} is missing in {e}")
        check(e["code"] not in BLAME or hit["call"] == "recv", f"the caller is blamed for {hit['call']}: {e}")
        check(e["code"] != "internal" or e["cause"], f"internal without a cause: {e}")
        check(a.status != 500 or re.search(r"[a-z]{3}", e["message"]), f"nobody can read {e}")

    def works(self, sandbox):
        """A command in it."""
        r = self.node.exec(sandbox, "echo works")
        equal((r["end"]["how"], bytes_of(r["out"])), ("exited", b"works\n"), "a command afterwards")

    def alive(self):
        return self.node.ok("GET", "/v1/sandboxes")["sandboxes"]

    def settled(self):
        """No sandbox is between two states."""
        eventually("no sandbox is half made", lambda: all(s["state"] == "running" for s in self.alive()), WAIT_S)

    def all_gone(self):
        self.settled()
        for s in self.alive():
            self.node.delete(s["id"])
        eventually("no sandbox is left", lambda: not self.alive(), WAIT_S)
        eventually("the warden has none", lambda: not self.node.ok("GET", "/v1/pools/slots").get("claimed", 0), WAIT_S)

    def give_up(self):
        with contextlib.suppress(Exception):
            self.all_gone()

    def close(self):
        self.give_up()


class Create(Verb):
    name = "create"

    body = {"image": "busybox"}

    def run(self):
        self.ask("POST", "/v1/sandboxes", self.body)

    def finish(self):
        self.settled()
        if self.answer and self.answer.status < 400:
            made = self.answer.json["id"]
            equal(self.node.show(made)["state"], "running", "state of what was answered")
            self.works(made)
        self.all_gone()
        with self.node.sandbox() as next_one:
            self.works(next_one)


class CreateAnew(Create):
    """A root that a slot has ahead does not serve: one is built for the claim."""
    name = "create anew"
    body = {"image": "busybox", "grants": ["setuid"]}


class Exec(Verb):
    name = "exec"
    sandbox = None

    def prepare(self):
        if not self.sandbox or self.node.show(self.sandbox)["state"] != "running":
            self.sandbox = self.node.create()
            self.works(self.sandbox)

    def run(self):
        self.ask("POST", f"/v1/sandboxes/{self.sandbox}/exec", {"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]})

    def check_answer(self, hit):
        self.spoilt = hit["call"] in ("from init: garbage", "from init: error")
        super().check_answer(hit)
        if not self.answer or self.answer.status >= 400:
            return
        r = self.answer.json
        if hit["call"] == "to init: garbage":  # refused, or run as far as it could be read
            return
        if r["end"]["how"] == "unknown":  # said, not guessed
            return
        equal((r["end"]["how"], r["end"]["exit_code"]), ("exited", 3), "how it ended")
        equal((bytes_of(r["out"]), bytes_of(r["err"])), (b"out\n", b"err\n"), "its output")

    def distrusted(self):
        """What init said could not be believed: it has ended, and the record says so."""
        now = self.node.show(self.sandbox)
        if now["state"] == "running":
            return False
        check(self.spoilt, f"it ended though nothing was wrong with what init said: {now['cause']}")
        equal((now["state"], now["cause"]["kind"], now["cause"].get("by")), ("gone", "killed", "bothyd"), "how it ended")
        check(now["cause"]["detail"], "nobody is told why")
        return True

    def finish(self):
        if self.distrusted():
            self.sandbox = None
            self.all_gone()
            return

        def ended():
            return all(p["end"] for p in self.node.ok("GET", f"/v1/sandboxes/{self.sandbox}/processes")["processes"])
        eventually("every command has ended", ended, WAIT_S)
        self.works(self.sandbox)
        now = self.node.show(self.sandbox)
        equal(now["state"], "running", "state of the sandbox")
        # Left to itself the books would hold its descriptors against it.
        self.all_gone()
        self.sandbox = None


class Destroy(Verb):
    name = "destroy"

    def prepare(self):
        self.sandbox = self.node.create()
        self.node.start(self.sandbox, ["sleep", "1000"])

    def run(self):
        self.ask("DELETE", f"/v1/sandboxes/{self.sandbox}")

    def finish(self):
        def ended():
            try:
                now = self.node.show(self.sandbox)
            except ApiError as e:
                return {"state": "forgotten"} if e.answer.status == 404 else None
            return now if now["state"] == "gone" else None
        if self.lost or self.answer.status >= 400:
            self.node.call("DELETE", f"/v1/sandboxes/{self.sandbox}")  # asked again, it goes
        now = eventually("it is gone", ended, WAIT_S)
        if now["state"] == "gone":
            equal(now["cause"]["kind"], "requested", "its cause")
        self.all_gone()
        with self.node.sandbox() as next_one:
            self.works(next_one)

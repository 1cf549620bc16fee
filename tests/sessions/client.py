"""Sessions over REST, by a client who does not give up: every request has an Idempotency-Key or only reads, and is sent again
until it is answered."""
import base64
import contextlib
import http.client
import json
import secrets
import time

from harness import ApiError, Watch, bytes_of
from play import Result

LOST = (OSError, http.client.HTTPException, json.JSONDecodeError, EOFError)
SHELL = {"bash": "bash", "dash": "/bin/dash", "ash": "/bin/busybox ash"}
LADDER = 30  # s a command may take beyond its limit, on a busy machine


def retryable(answer):
    try:
        return answer.error["retryable"]
    except (ValueError, KeyError):
        return True  # half an answer


def patient(ask, seconds=60):
    watch = Watch(seconds)
    while True:
        try:
            return ask()
        except ApiError as e:
            if not retryable(e.answer) or watch.over():
                raise
        except LOST:
            if watch.over():
                raise
        time.sleep(0.03)


def as_bytes(raw):
    """Bytes as the API takes them."""
    try:
        if b"\0" not in raw:
            return {"text": raw.decode()}
    except UnicodeDecodeError:
        pass
    return {"b64": base64.b64encode(raw).decode()}


def lacking(api, sandbox, mode):
    """Why there are no sessions of this mode; None if there are."""
    where = f"/v1/sandboxes/{sandbox}/sessions"
    a = api.call("POST", where, {"mode": mode})
    if a.status == 501:
        return a.error["message"]
    api.ok("DELETE", f"{where}/{a.json['id']}")
    return None


class Session:
    def __init__(self, api, sandbox, shell="bash", mode="auto", **more):
        self.api, self.base = api, f"/v1/sandboxes/{sandbox}/sessions"
        made = self.post(self.base, {"shell": SHELL[shell], "mode": mode, **more})
        self.id = made["id"]
        self.at = f"{self.base}/{self.id}"

    def post(self, where, body, seconds=60):
        key = secrets.token_hex(8)
        return patient(lambda: self.api.ok("POST", where, body, {"Idempotency-Key": key}, timeout=seconds), seconds)

    @staticmethod
    def request(text, limit, merge):
        body = {"command": as_bytes(text), "timeout_ms": int(limit * 1000)}
        return {**body, "merge": True} if merge else body

    def run(self, text, limit=20, merge=False):
        """Sent and waited for in one request."""
        began = time.monotonic()
        got = self.post(self.at + "/commands", self.request(text, limit, merge), limit + LADDER)
        return self.told(got, began)

    def start(self, text, limit=20, merge=False):
        """On its way; result() has its end."""
        began = time.monotonic()
        got = self.post(self.at + "/commands", {**self.request(text, limit, merge), "wait": False})
        return got["seq"], limit, began

    def result(self, ticket):
        seq, limit, began = ticket
        watch = Watch(limit + LADDER)
        while True:
            got = patient(lambda: self.api.ok("GET", f"{self.at}/commands/{seq}?wait_ms=5000"))
            if got["kind"] != "running":
                return self.told(got, began)
            if watch.over():
                raise AssertionError(f"command {seq} does not end")

    def queue(self, texts, limit=20):
        """All of them sent before any answer is read; in order, one at a time."""
        began, sent = time.monotonic(), []
        for text in texts:
            c = self.api.connection(limit + LADDER)
            body = json.dumps({**self.request(text, limit, False), "queue": True}).encode()
            c.request("POST", self.at + "/commands", body, {"Content-Type": "application/json"})
            sent.append(c)
            time.sleep(0.15)  # each has its own connection: so that they arrive in order
        for c in sent:
            with contextlib.closing(c):
                r = c.getresponse()
                got = json.loads(r.read())
                if r.status != 200:
                    raise AssertionError(f"{r.status} {got}")
                yield self.told(got, began)

    def told(self, got, began):
        seconds = time.monotonic() - began

        def stream(name):
            """All of it; read when it is looked at, because it may be long."""
            told = got[name]
            if not told["truncated"]:
                return bytes_of(told)
            return self.output(got["seq"], name, told["length"])
        return Result(got["exit_code"], got["kind"], lambda: stream("out"), lambda: stream("err"), got["cwd"], got["out_bytes"],
                      got["timed_out"], got["rung"] or "", seconds, got)

    def output(self, seq, stream, length):
        raw = b""
        while len(raw) < length:
            a = patient(lambda: self.raw(f"{self.at}/commands/{seq}/output?stream={stream}&offset={len(raw)}&max=16777216"))
            if not a.body:
                break
            raw += a.body
        return raw

    def raw(self, where):
        a = self.api.call("GET", where)
        if a.status != 200:
            raise ApiError(a)
        return a

    def interrupt(self):
        patient(lambda: self.api.ok("POST", self.at + "/interrupt", {}))

    def show(self):
        return patient(lambda: self.api.ok("GET", self.at))

    def close(self):
        patient(lambda: self.api.ok("DELETE", self.at))

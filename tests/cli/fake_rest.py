#!/usr/bin/python3
"""A small stand-in for bothyd on a unix socket: it runs the commands as its own children and answers
as api/openapi.yaml says, so that the command line can be tested without a node. It breaks on demand.

usage: fake_rest.py SOCKET

POST /fake/faults sets what goes wrong, replacing what was set before:
    cut:      [n, …]  the n-th output connection ends after so many bytes of the answer
    overlap:  n       a resumed stream begins n bytes before what was asked for
    hole:     true    once, a stream leaves some bytes out without telling
    gap:      [a, b]  bytes a to b of out are not kept
    endless:  true    an output stream never has its end
    lose:     "REGEX" once, "METHOD PATH" that matches is done but never answered
    error:    ["REGEX", {…}]  "METHOD PATH" that matches answers this error, with http as status
    unready:  true    /readyz says disk_full
GET /fake/log is the list of requests seen: [method, path, body or null]
"""
import base64
import json
import os
import re
import secrets
import signal
import socketserver
import subprocess
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

IMAGES = {
    "busybox": {"entrypoint": [], "cmd": ["sh"], "user": "", "cwd": ""},
    "greeter": {"entrypoint": ["echo", "hello"], "cmd": ["world"], "user": "", "cwd": ""},
    "empty": {"entrypoint": [], "cmd": [], "user": "", "cwd": ""},
    "docker.io/library/debian:latest": {"entrypoint": [], "cmd": ["bash"], "user": "", "cwd": ""},
}
LOCK = threading.Lock()
WORLD = {"sandboxes": {}, "faults": {}, "log": [], "keys": {}, "replay": {}, "pulled": []}


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000Z"


class Problem(Exception):
    def __init__(self, status, code, message, **more):
        super().__init__(message)
        self.status = status
        self.body = {"code": code, "message": message, "cause": None, "remedy": "Read the test.",
                     "retryable": False, **more}


class Command:
    """One child and its two streams, kept whole."""

    def __init__(self, number, sandbox, body):
        self.id = str(number)
        self.argv = body["argv"]
        self.streams = [b"", b""]
        self.stdin_length = 0
        self.stdin_open = body.get("stdin_open", False)
        self.end = None
        self.change = threading.Condition()
        self.timed_out = self.killed = False
        self.readers = 2
        env = {"PATH": os.environ["PATH"], **sandbox["env"], **sandbox["secrets"], **body.get("env", {})}
        try:
            self.child = subprocess.Popen(
                self.argv, env=env, cwd=body.get("cwd") or sandbox.get("cwd") or "/",
                stdin=subprocess.PIPE if self.stdin_open else subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        except FileNotFoundError:
            raise Problem(400, "exec_failed", f"cannot run {self.argv[0]}",
                          cause="No such file or directory (ENOENT)")
        except PermissionError:
            raise Problem(400, "exec_failed", f"cannot run {self.argv[0]}",
                          cause="Permission denied (EACCES)")
        for i, pipe in enumerate((self.child.stdout, self.child.stderr)):
            threading.Thread(target=self.read, args=(i, pipe), daemon=True).start()
        threading.Thread(target=self.wait, daemon=True).start()
        if body.get("timeout_ms"):
            threading.Timer(body["timeout_ms"] / 1000, self.time_out).start()

    def read(self, i, pipe):
        while piece := os.read(pipe.fileno(), 65536):
            with self.change:
                self.streams[i] += piece
                self.change.notify_all()
        with self.change:
            self.readers -= 1
            self.change.notify_all()

    def wait(self):
        status = self.child.wait()
        with self.change:
            self.change.wait_for(lambda: not self.readers, timeout=1)
            how = "exited" if status >= 0 else "signalled"
            how = "timed_out" if self.timed_out else "killed" if self.killed else how
            self.end = {"exec": self.id, "how": how, "exit_code": status if how == "exited" else None,
                        "signal": -status if status < 0 else None, "oom": False, "user": "0:0",
                        "cwd": "/", "started": now(), "ended": now(), "usage": None,
                        "out_bytes": len(self.streams[0]), "err_bytes": len(self.streams[1]),
                        "out_dropped": 0, "err_dropped": 0}
            self.change.notify_all()

    def time_out(self):
        if self.end is None:
            self.timed_out = True
            self.kill(signal.SIGKILL)

    def kill(self, signo):
        try:
            os.killpg(self.child.pid, signo)
        except ProcessLookupError:
            pass

    def describe(self):
        return {"exec": self.id, "command": " ".join(self.argv)[:120], "stdio": "pipes",
                "running": self.end is None, "started": True, "pid": 2,
                "stdin_open": self.stdin_open, "lingering": False,
                "out_bytes": len(self.streams[0]), "err_bytes": len(self.streams[1]), "end": self.end}


def describe(box):
    return {k: v for k, v in box.items() if k not in ("env", "secrets", "commands")}


def create(body, owner="uid:0"):
    image = body["image"]
    if image not in IMAGES:
        raise Problem(404, "not_found", f"there is no image {image}", kind="image")
    if body.get("name") and any(b["name"] == body["name"] and b["state"] != "gone"
                                for b in WORLD["sandboxes"].values()):
        raise Problem(409, "conflict", f"the name {body['name']} is taken", kind="name")
    box = {"id": "test" + secrets.token_hex(8), "name": body.get("name"), "state": "running",
           "cause": None, "image": {"name": image, "digest": "sha256:" + "ab" * 32, **IMAGES[image]},
           "owner": owner, "created": now(), "ends": None, "ended": None, "ttl_left": body.get("ttl"),
           "labels": body.get("labels", {}), "limits": body.get("limits", {}),
           "user": body.get("user"), "cwd": body.get("cwd"), "tmpfs": body.get("tmpfs", []),
           "env": body.get("env", {}), "secrets": body.get("secrets", {}), "commands": {}}
    WORLD["sandboxes"][box["id"]] = box
    return 201, describe(box)


def destroy(box):
    for command in box["commands"].values():
        if command.end is None:
            command.killed = True
            command.kill(signal.SIGKILL)
    if box["state"] != "gone":
        box.update(state="gone", cause={"kind": "requested", "by": "uid:0"}, ended=now())
    return 200, describe(box)


def sandbox(word, live=False):
    for box in WORLD["sandboxes"].values():
        if word in (box["id"], box["name"]):
            if live and box["state"] == "gone":
                raise Problem(410, "sandbox_gone", f"the sandbox {word} has ended", cause="requested")
            return box
    raise Problem(404, "not_found", f"there is no sandbox {word}", kind="sandbox")


def listing(query):
    states = query.get("state", ["creating", "running", "paused", "hibernated"])
    rows = [b for b in WORLD["sandboxes"].values() if b["state"] in states]
    for label in query.get("label", []):
        key, equals, value = label.partition("=")
        rows = [b for b in rows if key in b["labels"] and (not equals or b["labels"][key] == value)]
    # Pages of two, whatever is asked for: clients must follow the cursor.
    at = int(query.get("cursor", ["0"])[0])
    following = str(at + 2) if at + 2 < len(rows) else None
    return 200, {"sandboxes": [describe(b) for b in rows[at:at + 2]], "next": following}


def change(box, body):
    box["limits"] = {**box["limits"], **body.get("limits", {})}
    return 200, describe(box)


def start(box, body):
    command = Command(len(box["commands"]) + 1, box, body)
    box["commands"][command.id] = command
    return 201, command.describe()


def command_of(box, number):
    if number not in box["commands"]:
        raise Problem(404, "not_found", f"there is no command {number}", kind="exec")
    return box["commands"][number]


def write_stdin(command, query, body):
    if not command.stdin_open:
        raise Problem(409, "conflict", "stdin is not open", kind="stdin")
    if "offset" in query and int(query["offset"][0]) != command.stdin_length:
        raise Problem(409, "conflict", f"stdin has {command.stdin_length} bytes", kind="offset")
    try:
        command.child.stdin.write(body)
        command.child.stdin.flush()
        command.stdin_length += len(body)
        if query.get("eof") == ["true"]:
            command.stdin_open = False
            command.child.stdin.close()
    except (BrokenPipeError, ValueError):
        raise Problem(409, "conflict", "the command has closed its stdin", kind="stdin")
    return 200, {"length": command.stdin_length}


def send_signal(command, body):
    command.kill(getattr(signal, "SIG" + body["signal"]))
    return 204, None


def delete_command(command):
    command.killed = True
    command.kill(signal.SIGKILL)
    return 200, command.describe()


def image(name):
    return {"name": name, "digest": "sha256:" + "ab" * 32, "size": 2_300_000, "created": now(),
            "layers": ["sha256:" + "cd" * 32], "os": "linux", "architecture": "amd64"}


def make_key(body):
    key = {"id": secrets.token_hex(4), "owner": body["owner"], "role": body.get("role", "user"),
           "note": body.get("note"), "created": now(), "expires": None, "expires_in": body.get("expires_in")}
    WORLD["keys"][key["id"]] = key
    return 201, {**key, "key": "e2b_" + secrets.token_hex(20)}


def one_image(name):
    if name not in IMAGES:
        raise Problem(404, "not_found", f"there is no image {name}", kind="image")
    return 200, image(name)


def drop(table, name, kind):
    if name not in table:
        raise Problem(404, "not_found", f"there is no {kind} {name}", kind=kind)
    del table[name]
    return 204, None


def info():
    return {"version": "0.0.0-fake", "cell": "test", "backend": "fake",
            "caps": {"freeze": "absent", "exec": "native"}, "versions": {"api": 1}, "pool": None, "listen": {"tcp": "0.0.0.0:7070", "domain": None, "e2b": True},
            "counts": {"sandboxes": len(WORLD["sandboxes"])}}


def ready():
    bad = WORLD["faults"].get("unready")
    check = {"name": "disk", "ok": not bad, "message": "disk_full" if bad else "there is room",
             "remedy": "Free space on the node." if bad else ""}
    return 503 if bad else 200, {"ready": not bad, "checks": [check]}


BOX = r"/v1/sandboxes/([^/]+)"
CMD = BOX + r"/processes/([^/]+)"
ROUTES = [
    ("GET", r"/readyz", lambda q, b: ready()),
    ("GET", r"/v1/info", lambda q, b: (200, info())),
    ("POST", r"/v1/sandboxes", lambda q, b: create(b)),
    ("GET", r"/v1/sandboxes", lambda q, b: listing(q)),
    ("GET", BOX, lambda q, b, s: (200, describe(sandbox(s)))),
    ("PATCH", BOX, lambda q, b, s: change(sandbox(s, True), b)),
    ("DELETE", BOX, lambda q, b, s: destroy(sandbox(s))),
    ("GET", BOX + "/sessions", lambda q, b, s: (200, {"sessions": [
        {"id": "s-1", "name": "work", "state": "ready", "dialect": "bash", "commands": 0, "cwd": "/"}] if sandbox(s) else []})),
    ("POST", BOX + "/processes", lambda q, b, s: start(sandbox(s, True), b)),
    ("GET", BOX + "/processes", lambda q, b, s: (
        200, {"processes": [c.describe() for c in sandbox(s)["commands"].values()]})),
    ("GET", CMD, lambda q, b, s, x: (200, command_of(sandbox(s), x).describe())),
    ("DELETE", CMD, lambda q, b, s, x: delete_command(command_of(sandbox(s), x))),
    ("POST", CMD + "/stdin", lambda q, b, s, x: write_stdin(command_of(sandbox(s, True), x), q, b)),
    ("POST", CMD + "/signal", lambda q, b, s, x: send_signal(command_of(sandbox(s, True), x), b)),
    ("GET", r"/v1/templates", lambda q, b: (200, {"templates": [{"name": "web", "image": "busybox", "owner": "uid:0"}]})),
    ("GET", r"/v1/images", lambda q, b: (200, {"images": [image(n) for n in IMAGES]})),
    ("POST", r"/v1/images/prune", lambda q, b: (200, {"freed_bytes": 3 << 20})),
    ("GET", r"/v1/images/(.+)", lambda q, b, n: one_image(urllib.parse.unquote(n))),
    ("DELETE", r"/v1/images/(.+)", lambda q, b, n: drop(IMAGES, urllib.parse.unquote(n), "image")),
    ("GET", r"/v1/keys", lambda q, b: (200, {"keys": list(WORLD["keys"].values())})),
    ("POST", r"/v1/keys", lambda q, b: make_key(b)),
    ("DELETE", r"/v1/keys/([^/]+)", lambda q, b, k: drop(WORLD["keys"], k, "key")),
]


class Stream:
    """Events of a command from given offsets, with the faults that are set."""

    def __init__(self, handler, command, offsets, follow):
        self.handler, self.command, self.follow = handler, command, follow
        self.at = list(offsets)
        faults = WORLD["faults"]
        cuts = faults.get("cut", [])
        self.budget = cuts.pop(0) if cuts else None
        resumed = any(offsets)
        if resumed:
            self.at = [max(0, o - faults.get("overlap", 0)) for o in self.at]
        self.hole = faults.pop("hole", False)
        self.gap = faults.get("gap")
        self.endless = faults.get("endless", False)

    def raw(self, data):
        """False when the connection is to be cut."""
        if self.budget is not None and len(data) >= self.budget:
            self.handler.wfile.write(data[:self.budget])
            self.handler.wfile.flush()
            return False
        if self.budget is not None:
            self.budget -= len(data)
        self.handler.wfile.write(data)
        self.handler.wfile.flush()
        return True

    def event(self, name, data):
        line = f"event: {name}\nid: {self.at[0]}.{self.at[1]}\ndata: {json.dumps(data)}\n\n"
        return self.raw(line.encode())

    def piece(self, i, end):
        offset = self.at[i]
        if i == 0 and self.gap and self.gap[0] <= offset < self.gap[1]:
            self.at[0] = self.gap[1]
            return self.event("gap", {"stream": "out", "from": self.gap[0], "to": self.gap[1]})
        if i == 0 and self.gap and offset < self.gap[0]:
            end = min(end, self.gap[0])
        if self.hole and end - offset > 20:
            self.hole = False
            offset += 10
        data = self.command.streams[i][offset:min(end, offset + 4093)]
        self.at[i] = offset + len(data)
        try:
            body = {"offset": offset, "text": data.decode()}
            if "\0" in body["text"]:
                raise ValueError
        except ValueError:
            body = {"offset": offset, "b64": base64.b64encode(data).decode()}
        return self.event(("out", "err")[i], body)

    def run(self):
        c = self.command
        while True:
            with c.change:
                c.change.wait_for(lambda: c.end or self.follow == "no" or any(
                    len(c.streams[i]) > self.at[i] for i in (0, 1)), timeout=1)
                lengths = [len(s) for s in c.streams]
                end = c.end
            for i in (0, 1):
                while self.at[i] < lengths[i]:
                    if not self.piece(i, lengths[i]):
                        return
            if not self.raw(b"event: ping\ndata: {}\n\n"):
                return
            if end and not self.endless:
                self.event("end", end)
                return
            if self.follow == "no" or (end and self.endless):
                return


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def address_string(self):
        return "unix"

    def answer(self, status, body):
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream_head(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.flush()

    def output(self, path, query):
        m = re.fullmatch(CMD + "/output", path)
        command = command_of(sandbox(m[1]), m[2])
        last = self.headers.get("Last-Event-ID") or query.get("offset", ["0.0"])[0]
        offsets = [int(n) for n in (last + ".0").split(".")[:2]]
        self.stream_head()
        Stream(self, command, offsets, query.get("follow", ["no"])[0]).run()

    def pull(self, body):
        name = body.get("name") or body["source"]
        self.stream_head()
        for done in (0, 1):
            progress = {"stage": "fetch", "layers": 1, "layers_done": done}
            self.wfile.write(f"event: progress\ndata: {json.dumps(progress)}\n\n".encode())
        if "missing" in body["source"]:
            problem = {"error": {"code": "image_pull_failed", "message": "nothing there", "cause": "404",
                                 "remedy": "Check the name.", "retryable": True}}
            self.wfile.write(f"event: error\ndata: {json.dumps(problem)}\n\n".encode())
            return
        IMAGES[name] = IMAGES["busybox"]
        self.wfile.write(f"event: image\ndata: {json.dumps(image(name))}\n\n".encode())

    def find(self, method, path):
        for verb, pattern, call in ROUTES:
            m = re.fullmatch(pattern, path)
            if m and verb == method:
                return call, m.groups()
        raise Problem(404, "not_found", f"there is no {path}", kind="route")

    def handle_fault(self, method, path):
        pattern, problem = WORLD["faults"].get("error", [None, None])
        if pattern and re.search(pattern, f"{method} {path}") and problem.get("times", 1):
            if "times" in problem:
                problem["times"] -= 1
            body = {k: v for k, v in problem.items() if k not in ("http", "times")}
            raise Problem(problem["http"], body["code"], body["message"],
                          **{k: v for k, v in body.items() if k not in ("code", "message")})

    def control(self, path, body):
        if path == "/fake/faults":
            WORLD["faults"] = json.loads(body)
            return self.answer(204, None)
        if path == "/fake/log":
            return self.answer(200, WORLD["log"])
        return self.answer(404, None)

    def serve(self, method):
        path, _, text = self.path.partition("?")
        query = urllib.parse.parse_qs(text)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path.startswith("/fake/"):
            return self.control(path, body)
        parsed = body
        if "json" in (self.headers.get("Content-Type") or ""):
            parsed = json.loads(body)
        logged = parsed if isinstance(parsed, dict) else None
        WORLD["log"].append([method, self.path, logged])
        try:
            self.handle_fault(method, path)
            if path.endswith("/output"):
                return self.output(path, query)
            if method == "POST" and path == "/v1/images":
                return self.pull(parsed)
            self.call(method, path, query, parsed)
        except Problem as p:
            self.answer(p.status, {"error": p.body})
        except BrokenPipeError:
            pass

    def call(self, method, path, query, body):
        call, groups = self.find(method, path)
        key = self.headers.get("Idempotency-Key")
        with LOCK:
            replayed = WORLD["replay"].get((path, key)) if key else None
            status, answer = replayed or call(query, body, *groups)
            if key:
                WORLD["replay"][path, key] = status, answer
        lose = WORLD["faults"].get("lose")
        if lose and re.search(lose, f"{method} {self.path}"):
            del WORLD["faults"]["lose"]
            return
        self.answer(status, answer)

    def do_GET(self):
        self.serve("GET")

    def do_POST(self):
        self.serve("POST")

    def do_PATCH(self):
        self.serve("PATCH")

    def do_DELETE(self):
        self.serve("DELETE")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's & ignores it, and children inherit that
    with Server(sys.argv[1], Handler) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()

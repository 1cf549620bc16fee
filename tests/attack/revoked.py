"""Removed keys: what was begun with one ends with it, and what was made of it is worth nothing."""
import base64
import contextlib
import hashlib
import json
import socket
import threading
import time
import urllib.parse

from harness import SLOW, Api, check, equal, eventually, expect_error

BOUND_S = 1  # bothyd looks twice a second
TALK = "nc -l -p 9000 -e sh || nc -lp 9000 -e sh"
HELD = {"command": ["sleep", "300"], "timeout": 300}


def new_key(node, owner="eve", **more):
    made = node.ok("POST", "/v1/keys", {"owner": owner, "role": "user", **more})
    return made["id"], Api(tcp=f"127.0.0.1:{node.port}", key=made["key"])


class Stream:
    """A request whose answer does not end; it notes when its connection has ended."""

    def __init__(self, node, method, path, key="", headers=None, body=b"", began=b"HTTP/1.1 "):
        self.socket = socket.create_connection(("127.0.0.1", node.port))
        self.socket.settimeout(60 * SLOW)
        lines = {"Host": f"127.0.0.1:{node.port}", "Content-Length": len(body), **(headers or {})}
        if key:
            lines["X-API-Key"] = key
        if "Upgrade" in lines or lines["Content-Length"] is None:
            del lines["Content-Length"]
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\n".encode() + b"".join(f"{n}: {v}\r\n".encode() for n, v in lines.items()) + b"\r\n" + body)
        self.got, self.ended = b"", None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        if began:
            eventually(f"the answer of {path}", lambda: began in self.got or self.ended, 30)
            check(b" 200 " in self.got or b" 101 " in self.got, f"{path}: {self.got!r}")

    def read(self):
        with contextlib.suppress(OSError):
            while piece := self.socket.recv(65536):
                self.got += piece
        self.ended = time.monotonic()

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def websocket(path):
    return ("GET", path, {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                          "Sec-WebSocket-Key": base64.b64encode(b"0123456789abcdef").decode()})


def connect_frame(message):
    raw = json.dumps(message).encode()
    return b"\0" + len(raw).to_bytes(4, "big") + raw


def mcp_session(api):
    c, r = api.open("POST", "/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"Accept": "application/json, text/event-stream"})
    r.read()
    c.close()
    return r.headers["Mcp-Session-Id"]


def open_all(node, api, sandbox):
    """Whatever may live long, by name. Nothing of it would end by itself in the time of the case."""
    key, at = api.key, f"/v1/sandboxes/{sandbox}"
    running = api.start(sandbox, "while sleep 1; do echo tick; done", stdin_open=True)
    api.start(sandbox, TALK)
    silent = {"began": b""}
    session = mcp_session(api)
    streams = {
        "tunnel": Stream(node, "GET", f"{at}/forward/9000", key, {"Connection": "Upgrade", "Upgrade": "tcp"}),
        "output": Stream(node, "GET", f"{at}/processes/{running}/output?stream=out&follow=end", key),
        "output as events": Stream(node, "GET", f"{at}/processes/{running}/output?follow=end", key, {"Accept": "text/event-stream"}),
        "events": Stream(node, "GET", "/v1/events?after=now", key, {"Accept": "text/event-stream"}),
        "exec": Stream(node, "POST", f"{at}/exec", key, body=json.dumps({"argv": ["sleep", "300"]}).encode(), **silent),
        "upload": Stream(node, "PUT", f"{at}/files?path=/tmp/up", key, {"Content-Length": 1 << 30}, b"some", **silent),
        "MCP": Stream(node, "POST", "/mcp", key, {"Accept": "application/json, text/event-stream", "Mcp-Session-Id": session},
                      json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                                  "params": {"name": "run", "arguments": {"sandbox": sandbox, "command": "sleep 300"}}}).encode(), **silent),
        "SWE-ReX": Stream(node, "POST", f"/rex/{sandbox}/execute", key, body=json.dumps(HELD).encode(), **silent),
    }
    for name, (method, path, headers) in {"terminal": websocket(f"{at}/terminal"), "attach": websocket(f"{at}/processes/{running}/attach")}.items():
        streams[name] = Stream(node, method, path, key, headers)
    return streams


def cases(attack, node):
    @attack.attempt("removed key: its tunnels, terminals, streams, calls and uploads end within a second, another's of the same owner do not")
    def _():
        ident, api = new_key(node)
        _, other = new_key(node)
        sandbox = api.create()
        streams = open_all(node, api, sandbox)
        stays = Stream(node, "GET", "/v1/events?after=now", other.key, {"Accept": "text/event-stream"})
        try:
            time.sleep(1.2)  # asked about, and found valid
            equal([n for n, s in streams.items() if s.ended], [], f"ended with a key that is valid: { {n: s.got[:200] for n, s in streams.items() if s.ended} }")
            streams["tunnel"].socket.sendall(b"echo before\n")
            eventually("the tunnel", lambda: b"before" in streams["tunnel"].got, 10)
            removed = time.monotonic()
            node.ok("DELETE", f"/v1/keys/{ident}")
            with contextlib.suppress(AssertionError):
                eventually("the ends", lambda: all(s.ended for s in streams.values()), 4 * BOUND_S)
            equal([n for n, s in streams.items() if not s.ended], [], "still there")
            late = {n: round(s.ended - removed, 2) for n, s in streams.items() if s.ended - removed > BOUND_S * SLOW}
            equal(late, {}, "ended too late")
            check(not stays.ended, "a stream of the owner's other key ended, too")
            expect_error(api.call("GET", "/v1/sandboxes"), 401, "unauthenticated")
            equal(other.show(sandbox)["state"], "running", "the sandbox")
        finally:
            for s in (*streams.values(), stays):
                s.close()
            node.delete(sandbox)

    @attack.attempt("expired key: a tunnel ends with its time")
    def _():
        _, keeps = new_key(node)
        sandbox = keeps.create()
        keeps.start(sandbox, TALK)
        _, api = new_key(node, expires_in=4)
        tunnel = Stream(node, "GET", f"/v1/sandboxes/{sandbox}/forward/9000", api.key, {"Connection": "Upgrade", "Upgrade": "tcp"})
        eventually("its end", lambda: tunnel.ended, 30)
        tunnel.close()
        node.delete(sandbox)

    @attack.attempt("removed key: E2B tokens, signed URLs and upload addresses of its owner are worth nothing, and a stream by token ends")
    def _():
        ident, api = new_key(node)
        _, other = new_key(node)
        nobody = Api(tcp=f"127.0.0.1:{node.port}")
        made = e2b(api, "POST", "/sandboxes", {"templateID": "busybox", "secure": True, "timeout": 600})
        sandbox, token = made["sandboxID"].split("-")[0], made["envdAccessToken"]
        signature = base64.b64encode(hashlib.sha256(f"/etc/hostname:read:root:{token}".encode()).digest()).decode().rstrip("=")
        signed = "/files?" + urllib.parse.urlencode({"path": "/etc/hostname", "username": "root", "signature": f"v1_{signature}"})
        read, by = "/files?path=/etc/hostname&username=root", {"X-Access-Token": token}
        equal(nobody.call("GET", read, headers=by).status, 200, "by token")
        equal(nobody.call("GET", signed).status, 200, "by signature")
        follows = Stream(node, "POST", "/process.Process/Start", headers={**by, "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"},
                         body=connect_frame({"process": {"cmd": "sleep", "args": ["300"]}}))
        try:
            time.sleep(1.2)
            check(not follows.ended, f"the stream ended: {follows.got!r}")
            removed = time.monotonic()
            node.ok("DELETE", f"/v1/keys/{ident}")
            equal(nobody.call("GET", read, headers=by).status, 401, "by token, afterwards")
            equal(nobody.call("GET", signed).status, 401, "by signature, afterwards")
            eventually("the stream's end", lambda: follows.ended, 4 * BOUND_S)
            check(follows.ended - removed < BOUND_S * SLOW, f"ended after {follows.ended - removed:.2f} s")
            again = e2b(other, "POST", f"/sandboxes/{made['sandboxID']}/connect", {"timeout": 600})["envdAccessToken"]
            check(again != token, "the token is the same")
            equal(nobody.call("GET", read, headers={"X-Access-Token": again}).status, 200, "by the next token")
        finally:
            follows.close()
            node.delete(sandbox)


def e2b(api, method, path, body):
    answer = api.call(method, path, body, {"X-API-Key": api.key})
    check(answer.status < 300, f"{answer!r}")
    return answer.json

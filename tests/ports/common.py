"""What the files of the suite share: servers inside, callers of bare bytes, a WebSocket by hand."""
import base64
import contextlib
import hashlib
import json
import os
import pathlib
import socket
import struct
import time

import inside
from harness import Api, UnixConnection, Watch

SOURCE = pathlib.Path(inside.__file__).read_text()
SECRET = "e2b_c0ffee"  # what must never be seen inside


def b64(data):
    return base64.urlsafe_b64encode(data).decode()


class Inside:
    """A sandbox with the servers in it."""

    def __init__(self, node, base=8000, image="agent", sandbox=None):
        self.node, self.base = node, base
        self.id = sandbox or node.create(image)
        for _ in range(5):
            if self.start():
                return
            self.base += 1500  # on the backend `fake` ports are the machine's, and somebody has one of them
        raise AssertionError("the servers did not come up: " + repr(self.node.output(self.id, self.exec, "err")))

    def start(self):
        self.exec = self.node.start(self.id, ["python3", "-c", SOURCE, str(self.base)])
        limit = Watch(60)
        while b"ready" not in self.node.output(self.id, self.exec):
            if limit.over() or self.node.process(self.id, self.exec)["end"]:
                return False
            time.sleep(0.05)
        self.ipv6 = b"without" not in self.node.output(self.id, self.exec)
        return True

    def path(self, rest="", port=0):
        return f"/v1/sandboxes/{self.id}/ports/{self.base + port}{rest}"

    def call(self, rest, method="GET", body=None, headers=None, api=None, port=0, timeout=30):
        return (api or self.node).call(method, self.path(rest, port), body, headers, timeout)

    def record(self, rest="/record/", **more):
        a = self.call(rest, **more)
        assert a.status == 200, a
        return a.json

    def seen(self):
        return [base64.b64decode(s) for s in self.record("/seen")]


class Raw:
    """A connection of bare bytes to the daemon."""

    def __init__(self, api, timeout=30):
        self.c = api.connection(timeout)
        self.c.connect()
        self.sock, self.held = self.c.sock, b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.close()

    def say(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def more(self):
        got = self.sock.recv(65536)
        self.held += got
        return bool(got)

    def until(self, mark):
        while mark not in self.held:
            if not self.more():
                raise AssertionError(f"the end, before {mark!r}: {self.held[-300:]!r}")
        head, self.held = self.held.split(mark, 1)
        return head + mark

    def exactly(self, n):
        got, self.held = bytearray(self.held[:n]), self.held[n:]
        while len(got) < n:
            piece = self.sock.recv(min(n - len(got), 1 << 20))
            if not piece:
                raise AssertionError(f"the end after {len(got)} of {n} bytes")
            got += piece
        return bytes(got)

    def rest(self):
        got, self.held = bytearray(self.held), b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.sock.recv(1 << 20):
                got += piece
        return bytes(got)

    def answer(self):
        """Status, headers (lower case) and body of one answer."""
        head = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(head[0].split(" ")[1])
        headers = {}
        for line in head[1:]:
            if line:
                name, value = line.split(":", 1)
                headers.setdefault(name.lower(), []).append(value.strip())
        if status == 101 or status == 100:
            return status, headers, b""
        if "transfer-encoding" in headers:
            body = bytearray()
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                self.exactly(2)
            self.exactly(2)
            return status, headers, bytes(body)
        return status, headers, self.exactly(int(headers.get("content-length", ["0"])[0]))


class WebSocket:
    """A client over any connected socket, after its handshake."""

    def __init__(self, raw):
        self.raw = raw

    @classmethod
    def open(cls, raw, target, lines=""):
        key = base64.b64encode(os.urandom(16)).decode()
        raw.say(f"GET {target} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                f"Sec-WebSocket-Key: {key}\r\n{lines}\r\n")
        status, headers, body = raw.answer()
        assert status == 101, (status, headers, body)
        proof = base64.b64encode(hashlib.sha1(key.encode() + inside.GUID).digest()).decode()
        assert headers["sec-websocket-accept"] == [proof], headers
        assert headers["upgrade"] == ["websocket"] and headers["connection"] == ["Upgrade"], headers
        raw.headers = headers
        return cls(raw)

    def send(self, opcode, data):
        n, mask = len(data), os.urandom(4)
        size = bytes([128 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
        key = (mask * (n // 4 + 1))[:n]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(n, "big")
        self.raw.say(bytes([0x80 | opcode]) + size + mask + masked)

    def receive(self):
        return inside.read_frame(self.raw)


class TcpPeer(Raw):
    """The same over a plain address."""

    def __init__(self, port, timeout=30):
        self.c = self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.held = b""


def tunnel(api, sandbox, port, lines=""):
    raw = Raw(api)
    key = f"Authorization: Bearer {api.key}\r\n" if api.key else ""
    raw.say(f"GET /v1/sandboxes/{sandbox}/forward/{port} HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n{key}{lines}\r\n")
    return raw


__all__ = ["Api", "Inside", "Raw", "SECRET", "TcpPeer", "UnixConnection", "WebSocket", "b64", "inside", "json", "tunnel"]

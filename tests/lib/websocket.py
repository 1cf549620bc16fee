"""A WebSocket client of RFC 6455 that can also do everything wrong. Standard library only.

    ws = WebSocket.open(node, f"/v1/sandboxes/{sandbox}/processes/{exec}/attach")
    ws.send(b"\\0ls\\n")
    kind, payload = ws.message()"""
import base64
import hashlib
import os
import socket
import struct

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Refused(Exception):
    def __init__(self, status, head, body):
        super().__init__(f"{status} {body[:300]!r}")
        self.status, self.head, self.body = status, head, body


class Closed(Exception):
    """The other side said close, or is gone (code None)."""

    def __init__(self, code, reason=""):
        super().__init__(f"closed with {code} {reason}")
        self.code, self.reason = code, reason


def mask_bytes(mask, payload):
    if not payload:
        return b""
    wide = (mask * (len(payload) // 4 + 1))[:len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(wide, "big")).to_bytes(len(payload), "big")


def frame(opcode, payload=b"", fin=True, mask=b"\x11\x22\x33\x44", rsv=0, length=None):
    """length: what is announced, if it is not what comes. mask None: a frame a client must not send."""
    n = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0x80 if mask is not None else 0
    if n < 126:
        head += bytes([bit | n])
    elif n < 1 << 16:
        head += bytes([bit | 126]) + struct.pack(">H", n)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", n)
    return head + (mask + mask_bytes(mask, payload) if mask is not None else payload)


class WebSocket:
    def __init__(self, sock, rest=b""):
        self.sock, self.rest = sock, rest
        self.pongs = True  # pings are answered
        self.closed = None

    @classmethod
    def open(cls, api, path, headers=None, timeout=30, protocol=None, version="13", key=None):
        """A socket of the Api's own (unix or TCP); Refused if it does not become a WebSocket."""
        c = api.connection(timeout)
        c.connect()
        key = key or base64.b64encode(os.urandom(16)).decode()
        lines = {"Host": c.host, "Upgrade": "websocket", "Connection": "Upgrade",
                 "Sec-WebSocket-Version": version, "Sec-WebSocket-Key": key}
        if protocol:
            lines["Sec-WebSocket-Protocol"] = protocol
        if api.key:
            lines["Authorization"] = "Bearer " + api.key
        lines.update(headers or {})
        text = "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
        c.sock.sendall(f"GET {getattr(api, 'prefix', '')}{path} HTTP/1.1\r\n{text}\r\n".encode())
        head, rest = cls.read_head(c.sock)
        status = int(head.split(" ", 2)[1])
        if status != 101:
            raise Refused(status, head, cls.read_rest(c.sock, head, rest))
        wanted = base64.b64encode(hashlib.sha1(key.encode() + GUID).digest()).decode()
        if f"Sec-WebSocket-Accept: {wanted}\r\n" not in head:
            raise AssertionError(f"not our key's answer: {head}")
        made = cls(c.sock, rest)
        made.head = head
        return made

    @staticmethod
    def read_head(sock):
        got = b""
        while b"\r\n\r\n" not in got:
            piece = sock.recv(4096)
            if not piece:
                raise Closed(None, "before a whole head")
            got += piece
        head, rest = got.split(b"\r\n\r\n", 1)
        return head.decode() + "\r\n", rest

    @staticmethod
    def read_rest(sock, head, rest):
        n = next((int(x.split(":")[1]) for x in head.lower().split("\r\n") if x.startswith("content-length:")), 0)
        while len(rest) < n:
            piece = sock.recv(65536)
            if not piece:
                break
            rest += piece
        return rest

    def raw(self, data):
        self.sock.sendall(data)

    def send(self, payload, opcode=BINARY):
        self.raw(frame(opcode, payload, mask=os.urandom(4)))

    def close(self, code=1000):
        """Says close and waits for the answer."""
        self.raw(frame(CLOSE, struct.pack(">H", code)))
        try:
            while True:
                self.message()
        except (Closed, OSError):
            pass
        self.sock.close()

    def abandon(self):
        self.sock.close()

    def take(self, n):
        while len(self.rest) < n:
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Closed(None)
            self.rest += piece
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def frame(self):
        """One frame: (opcode, fin, payload)."""
        first, second = self.take(2)
        if second & 0x80:
            raise AssertionError("a server must not mask")
        n = second & 0x7f
        if n == 126:
            n = struct.unpack(">H", self.take(2))[0]
        elif n == 127:
            n = struct.unpack(">Q", self.take(8))[0]
        if first & 0x70:
            raise AssertionError("an extension nobody asked for")
        return first & 15, bool(first & 0x80), self.take(n)

    def message(self):
        """The next message: (opcode, payload). Pings are answered; a close raises Closed."""
        whole, kind = b"", None
        while True:
            opcode, fin, payload = self.frame()
            if opcode == CLOSE:
                code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else 1005
                self.closed = code
                try:
                    self.raw(frame(CLOSE, payload[:2]))
                except OSError:
                    pass
                raise Closed(code, payload[2:].decode())
            if opcode == PING and self.pongs:
                self.raw(frame(PONG, payload))
            if opcode >= 8:
                if opcode == PONG:
                    return opcode, payload
                continue
            kind = opcode if opcode else kind
            whole += payload
            if fin:
                return kind, whole

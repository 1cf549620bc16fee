"""The servers that the suite starts in a sandbox: python3 -c <this> BASE. Standard library only.

BASE      HTTP by hand: records every head it gets as bytes, and answers what the path says, also what no HTTP
          server would say; /ws is a WebSocket echo
BASE + 1  bytes: reads to the end of what the peer sends, then says how many and their sha256
BASE + 2  bytes: an echo, of any number of connections
BASE + 3  HTTP as BASE, on ::1 only
BASE + 4  python's own http.server over a directory of its own"""
import base64
import functools
import hashlib
import http.server
import json
import os
import socket
import struct
import sys
import tempfile
import threading
import time
import urllib.parse

SEEN = []  # heads, as they came
ENDED = []  # paths whose caller has gone
GATES = {}  # events by name
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def gate(name):
    return GATES.setdefault(name, threading.Event())


@functools.cache
def block():
    return b"".join(hashlib.sha256(b"%d" % i).digest() for i in range(2048))  # 64 KiB


def pattern(n, seed=7):
    """n bytes that no shift or loss leaves as they are, another for each seed."""
    whole, at = block(), seed * 257 % 65521
    return (whole[at:] + whole * (n // len(whole) + 1))[:n]


def pieces_of(n, seed=7):
    """The same, in pieces."""
    whole, at = block(), seed * 257 % 65521
    piece = whole[at:]
    while n:
        yield piece[:n]
        n -= min(n, len(piece))
        piece = whole


class Peer:
    def __init__(self, sock):
        self.sock, self.held = sock, b""

    def more(self):
        got = self.sock.recv(65536)
        self.held += got
        return bool(got)

    def until(self, mark):
        while mark not in self.held:
            if not self.more():
                return None
        head, self.held = self.held.split(mark, 1)
        return head + mark

    def exactly(self, n):
        while len(self.held) < n:
            if not self.more():
                raise EOFError
        got, self.held = self.held[:n], self.held[n:]
        return got

    def pieces(self, n):
        while n:
            if not self.held and not self.more():
                raise EOFError
            got, self.held = self.held[:n], self.held[n:]
            n -= len(got)
            yield got


def body_of(peer, headers):
    """The pieces of a request's body."""
    names = {k.lower(): v for k, v in headers}
    if names.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = int(peer.until(b"\r\n"), 16)
            yield from peer.pieces(size)
            peer.exactly(2)
            if not size:
                return
    yield from peer.pieces(int(names.get("content-length", 0)))


def head(status, *lines):
    return ("\r\n".join([f"HTTP/1.1 {status}", *lines]) + "\r\n\r\n").encode()


def answer(sock, body, kind="text/plain", *lines):
    sock.sendall(head("200 OK", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *lines) + body)


def as_json(sock, value):
    answer(sock, json.dumps(value).encode(), "application/json")


# ---- what the paths do: (peer, rest of the path, query, method, headers) ----
def do_record(peer, rest, query, method, headers):
    got = hashlib.sha256()
    n = 0
    for piece in body_of(peer, headers):
        got.update(piece)
        n += len(piece)
    as_json(peer.sock, {"method": method, "rest": rest, "query": query, "headers": headers, "length": n, "sha256": got.hexdigest()})


def do_seen(peer, rest, query, method, headers):
    as_json(peer.sock, [base64.b64encode(s).decode() for s in SEEN])


def do_echo(peer, rest, query, method, headers):
    """As it comes: the answer begins before the body has ended."""
    peer.sock.sendall(head("200 OK", "Transfer-Encoding: chunked"))
    for piece in body_of(peer, headers):
        peer.sock.sendall(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
    peer.sock.sendall(b"0\r\nX-Trailer: a\r\n\r\n")


def do_big(peer, rest, query, method, headers):
    form, n = rest.split("/")
    heads = {"length": head("200 OK", "Content-Length: " + n), "close": b"HTTP/1.0 200 OK\r\n\r\n",
             "chunked": head("200 OK", "Transfer-Encoding: chunked")}
    peer.sock.sendall(heads[form])
    for piece in pieces_of(int(n)):
        if form != "chunked":
            peer.sock.sendall(piece)
            continue
        for at in range(0, len(piece), 7777):
            part = piece[at:at + 7777]
            peer.sock.sendall(b"%X\r\n%s\r\n" % (len(part), part))
    if form == "chunked":
        peer.sock.sendall(b"0\r\n\r\n")


def do_events(peer, rest, query, method, headers):
    """One event, the other when the gate is opened."""
    peer.sock.sendall(head("200 OK", "Content-Type: text/event-stream") + b"data: first\n\n")
    gate(rest).wait(60)
    peer.sock.sendall(b"data: second\n\n")


def do_lines(peer, rest, query, method, headers):
    """A head at once, so many lines when the gate is opened, and no end."""
    name, n = rest.split("/")
    peer.sock.sendall(head("200 OK", "Content-Type: text/plain"))
    gate(name).wait(120)
    for i in range(int(n)):
        peer.sock.sendall(b"line %d from inside\n" % i)
    while peer.more():
        pass


def do_open(peer, rest, query, method, headers):
    gate(rest).set()
    answer(peer.sock, b"open")


def do_slow(peer, rest, query, method, headers):
    for c in head("200 OK", "Content-Length: 4") + b"slow":
        peer.sock.sendall(bytes([c]))
        time.sleep(0.005)


def do_raw(peer, rest, query, method, headers):
    """Exactly these bytes, then the end."""
    peer.sock.sendall(base64.urlsafe_b64decode(rest))


def do_flood(peer, rest, query, method, headers):
    """The same bytes for ever."""
    data = base64.urlsafe_b64decode(rest)
    while True:
        peer.sock.sendall(data)


def do_longhead(peer, rest, query, method, headers):
    peer.sock.sendall(b"HTTP/1.1 200 OK\r\nX-A: ")
    while True:
        peer.sock.sendall(b"b" * 1000)


def do_never(peer, rest, query, method, headers):
    while peer.more():
        peer.held = b""
    ENDED.append(rest)


def do_ended(peer, rest, query, method, headers):
    as_json(peer.sock, ENDED)


def do_die(peer, rest, query, method, headers):
    """The half of an answer, then a reset."""
    peer.sock.sendall(base64.urlsafe_b64decode(rest))
    time.sleep(0.1)
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def do_early(peer, rest, query, method, headers):
    peer.sock.sendall(head("413 Too Large", "Content-Length: 3") + b"no\n")
    time.sleep(0.2)


def do_location(peer, rest, query, method, headers):
    peer.sock.sendall(head("302 Found", "Location: " + urllib.parse.unquote(query), "Content-Length: 0"))


def do_headers(peer, rest, query, method, headers):
    lines = [line for line in base64.urlsafe_b64decode(rest).decode().split("\n") if line]
    answer(peer.sock, b"headers", "text/html", *lines)


def frame(opcode, data):
    n = len(data)
    size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n)
    return bytes([0x80 | opcode]) + size + data


def read_frame(peer):
    first, second = peer.exactly(2)
    n = second & 127
    n = struct.unpack(">H", peer.exactly(2))[0] if n == 126 else struct.unpack(">Q", peer.exactly(8))[0] if n == 127 else n
    mask = peer.exactly(4) if second & 128 else bytes(4)
    data = peer.exactly(n)
    key = (mask * (n // 4 + 1))[:n]
    return first & 15, (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(n, "big")


def do_ws(peer, rest, query, method, headers):
    key = next((v for k, v in headers if k.lower() == "sec-websocket-key"), "").encode()
    proof = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
    peer.sock.sendall(head("101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
                           f"Sec-WebSocket-Accept: {proof}", "Set-Cookie: a=b") + frame(1, b"hello"))
    while True:
        opcode, data = read_frame(peer)
        peer.sock.sendall(frame(opcode, data))
        if opcode == 8:
            return


def serve_http(sock):
    peer = Peer(sock)
    raw = peer.until(b"\r\n\r\n")
    if raw is None:
        return
    SEEN.append(raw)
    lines = raw.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    headers = [[p.strip() for p in line.split(":", 1)] for line in lines[1:] if line]
    path, _, query = target.partition("?")
    _, name, *rest = path.split("/", 2)
    globals().get("do_" + name, do_record)(peer, rest[0] if rest else "", query, method, headers)


def serve_sum(sock):
    got, n = hashlib.sha256(), 0
    while piece := sock.recv(65536):
        got.update(piece)
        n += len(piece)
    sock.sendall(b"%d %s\n" % (n, got.hexdigest().encode()))


def serve_echo(sock):
    while piece := sock.recv(65536):
        sock.sendall(piece)


def one(serve, sock):
    try:
        serve(sock)
    except (OSError, EOFError):
        pass
    finally:
        sock.close()


def listen(serve, port, address="127.0.0.1"):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, port))
    s.listen(1024)

    def loop():
        while True:
            threading.Thread(target=one, args=(serve, s.accept()[0]), daemon=True).start()
    threading.Thread(target=loop, daemon=True).start()


def files(port):
    where = tempfile.mkdtemp()
    with open(os.path.join(where, "data"), "wb") as f:
        f.write(pattern(300000))
    os.mkdir(os.path.join(where, "sub"))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=where)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    threading.stack_size(256 * 1024)
    base = int(sys.argv[1])
    listen(serve_http, base)
    listen(serve_sum, base + 1)
    listen(serve_echo, base + 2)
    files(base + 4)
    try:
        listen(serve_http, base + 3, "::1")
        print("ready", flush=True)
    except OSError:
        print("ready without IPv6", flush=True)
    threading.Event().wait()

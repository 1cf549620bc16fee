#!/usr/bin/python3
"""Sends raw requests to the demo server and compares which statuses come back, in which order, and
whether the connection is closed afterwards. Every request is also sent byte by byte.

usage: conformance.py DEMO_SERVER"""
import http.client
import pathlib
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))

import raw  # noqa: E402

H = b"Host: a\r\n"
TE = b"Transfer-Encoding: chunked\r\n"
POST = b"POST /upload HTTP/1.1\r\n" + H
NEXT = b"GET /hello HTTP/1.1\r\n" + H + b"\r\n"

# name: (bytes, statuses, closed)
CASES = {
    "plain": (NEXT, "200", False),
    "no Host in 1.1": (b"GET /hello HTTP/1.1\r\n\r\n", "400", True),
    "pipelined": (NEXT * 3, "200 200 200", False),
    "length and coding": (POST + b"Content-Length: 5\r\n" + TE + b"\r\n0\r\n\r\n" + NEXT, "400", True),
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 3\r\n\r\nhello", "400", True),
    "coding xchunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400", True),
    "chunked, identity": (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "400", True),
    "bare LF": (b"GET /hello HTTP/1.1\nHost: a\n\n", "400", True),
    "space before colon": (POST + b"Content-Length : 5\r\n\r\nhello", "400", True),
    "folded line": (b"GET /hello HTTP/1.1\r\n" + H + b"X-A: b\r\n c\r\n\r\n", "400", True),
    "NUL": (b"GET /hello HTTP/1.1\r\n" + H + b"X-A: b\0c\r\n\r\n", "400", True),
    "CR in a value": (b"GET /hello HTTP/1.1\r\n" + H + b"X-A: b\rX: y\r\n\r\n", "400", True),
    "CR for an empty value": (POST + b"X-Abc:\rx" + TE + b"\r\n1\r\nA\r\n0\r\n\r\n", "400", True),
    "CR X as end of head": (b"GET / HTTP/1.1\r\n" + H + b"\rX" + NEXT, "400", True),
    "length +5": (POST + b"Content-Length: +5\r\n\r\nhello", "400", True),
    "length -1": (POST + b"Content-Length: -1\r\n\r\n", "400", True),
    "length 2^70": (POST + b"Content-Length: 1180591620717411303424\r\n\r\n", "400", True),
    "chunk size overflow": (POST + TE + b"\r\nFFFFFFFFFFFFFFFFFF\r\nx", "400", True),
    "chunk size junk": (POST + TE + b"\r\n5 x\r\nhello\r\n0\r\n\r\n", "400", True),
    "chunk too long": (POST + TE + b"\r\n5\r\nhelloX\r\n0\r\n\r\n" + NEXT, "400", True),
    "trailers": (POST + TE + b"\r\n1\r\na\r\n0\r\nX: y\r\n\r\n", "400", True),
    "1 MB header": (b"GET /hello HTTP/1.1\r\n" + H + b"X-A: " + b"a" * (1 << 20) + b"\r\n\r\n", "413", True),
    "100k headers": (b"GET /hello HTTP/1.1\r\n" + H + b"a: b\r\n" * 100000 + b"\r\n", "413", True),
    "101 headers": (b"GET /hello HTTP/1.1\r\n" + H + b"a: b\r\n" * 100 + b"\r\n", "400", True),
    "64 KiB target": (b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\n" + H + b"\r\n", "413", True),
    "HTTP/0.9": (b"GET /hello\r\n", "400", True),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", True),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00", "400", True),
    "expect": (POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", "100", False),
    "odd method": (b"G@T /hello HTTP/1.1\r\n" + H + b"\r\n", "400", True),
    "absolute form": (b"GET http://a/hello HTTP/1.1\r\n" + H + b"\r\n", "200", False),
    "absolute form of another": (b"GET http://b/hello HTTP/1.1\r\n" + H + b"\r\n", "400", True),
    "CONNECT": (b"CONNECT a:80 HTTP/1.1\r\n" + H + b"\r\n", "400", True),
    "length, then the next": (POST + b"Content-Length: 5\r\n\r\nhello" + NEXT, "200 200", False),
    "chunked, then the next": (POST + TE + b"\r\n5\r\nhello\r\n0\r\n\r\n" + NEXT, "200 200", False),
    "unread body, then the next": (b"POST /x HTTP/1.1\r\n" + H + b"Content-Length: 5\r\n\r\nhello" + NEXT,
                                   "404 200", False),
    "stream, then the next": (b"GET /ticks?n=2 HTTP/1.1\r\n" + H + b"\r\n" + NEXT, "200 200", False),
    "HTTP/1.0": (b"GET /hello HTTP/1.0\r\n\r\n", "200", True),
    "close": (b"GET /hello HTTP/1.1\r\n" + H + b"Connection: close\r\n\r\n", "200", True),
}


def exchange(port, data, step, want, closes):
    s = socket.create_connection(("127.0.0.1", port))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw.exchange(s, data, step, wanted=len(want.split()), quiet=0.05, closes=closes)


def python_client(port):
    """A client that somebody else wrote."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    for _ in range(3):
        c.request("GET", "/hello")
        r = c.getresponse()
        assert (r.status, r.read()) == (200, b'{"hello":"world"}\n')
    c.request("POST", "/echo", body=iter([b"ab", b"cd"]), encode_chunked=True,
              headers={"Transfer-Encoding": "chunked"})
    assert c.getresponse().read() == b"abcd"
    c.request("GET", "/ticks?n=50&ms=0")
    assert c.getresponse().read().count(b"event: tick") == 50
    c.request("HEAD", "/hello")
    r = c.getresponse()
    assert (r.status, r.read()) == (200, b"")
    c.close()


def main():
    server = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = int(server.stdout.readline())
    failed = 0
    for name, (data, statuses, closed) in CASES.items():
        # An unread body that trickles in costs the connection, and may.
        whole = len(data) > 1000 or name.startswith("unread")
        for step in (len(data),) if whole else (len(data), 1):
            got = exchange(port, data, step, statuses, closed)
            if got != (statuses, closed):
                print(f"{name}, step {step}: got {got}, want {(statuses, closed)}")
                failed += 1
    python_client(port)
    server.stdin.close()
    if server.wait(timeout=10):
        print(f"the server ended with {server.returncode}")
        failed += 1
    print(f"{len(CASES)} cases, {failed} failed")
    return 1 if failed else 0


sys.exit(main())

"""Bytes: the tunnel, and `bothy forward` before it."""
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import signal
import subprocess
import threading

from cases_http import exchange
from common import Inside, TcpPeer, WebSocket, inside, tunnel
from harness import BOTHY, check, equal, eventually, expect_error

MIB = 1 << 20


class Forward:
    """`bothy forward`, running."""

    def __init__(self, node, sandbox, *ports, env=None):
        self.p = subprocess.Popen([BOTHY, "forward", "--json", sandbox, *ports], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "BOTHY_SOCKET": node.path, **(env or {})})
        self.at = {}
        for _ in ports:
            line = self.p.stdout.readline()
            if not line:
                raise AssertionError(self.p.stderr.read())
            said = json.loads(line)
            self.at[said["port"]] = said["local"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.kill()
        self.p.communicate()

    def end(self, signo=signal.SIGINT):
        self.p.send_signal(signo)
        _, errors = self.p.communicate(timeout=20)
        return self.p.returncode, errors


def summed(data):
    return b"%d %s\n" % (len(data), hashlib.sha256(data).hexdigest().encode())


def cases_tunnel(suite, node, there):
    @suite.case("tunnel: bytes both ways, each side ends by itself")
    def _():
        data = inside.pattern((64 if suite.args.long else 16) * MIB, 9)
        with tunnel(node, there.id, there.base + 1) as raw:
            status, headers, _ = raw.answer()
            equal((status, headers["upgrade"]), (101, ["tcp"]), "answer")
            raw.say(data)
            raw.sock.shutdown(1)
            equal(raw.rest(), summed(data), "what the server says after the end")
        with tunnel(node, there.id, there.base + 2) as raw:
            raw.answer()
            sender = threading.Thread(target=raw.say, args=(data,))
            sender.start()
            got = raw.exactly(len(data))
            sender.join()
            check(got == data, "the echo is another")
            raw.sock.shutdown(1)
            equal(raw.rest(), b"", "the end of the echo")

    @suite.case("tunnel: what was sent before the answer, and by a caller that closes at once, arrives")
    def _():
        with tunnel(node, there.id, there.base + 2) as raw:
            raw.say("early")
            equal(raw.answer()[0], 101, "status")
            equal(raw.exactly(5), b"early", "echo")
        mark = f"GET /record/closed-{os.getpid()} HTTP/1.1\r\n\r\n".encode()
        with tunnel(node, there.id, there.base) as raw:
            raw.answer()
            raw.say(mark)
        eventually("the request is inside", lambda: mark in there.seen())

    @suite.case("tunnel: nothing listens, not an upgrade, a sandbox that ends")
    def _():
        with tunnel(node, there.id, there.base + 900) as raw:
            status, _, body = raw.answer()
            equal((status, json.loads(body)["error"]["code"]), (502, "port_closed"), "answer")
        for headers in ({}, {"Connection": "Upgrade", "Upgrade": "websocket"}, {"Upgrade": "tcp"}):
            expect_error(node.call("GET", f"/v1/sandboxes/{there.id}/forward/{there.base}", headers=headers), 400, "invalid_request")
        mine = Inside(node, there.base + 30)
        with tunnel(node, mine.id, mine.base + 2) as raw:
            raw.answer()
            raw.say("x")
            equal(raw.exactly(1), b"x", "echo")
            node.delete(mine.id)
            equal(raw.rest(), b"", "the end")


def cases_cli(suite, node, there):
    @suite.case("forward: HTTP, WebSocket and bytes through local ports, many at once")
    def _():
        base = there.base
        with Forward(node, there.id, f"0:{base}", f"0:{base + 1}", f"0:{base + 2}", f"0:{base + 4}") as f:
            c = http.client.HTTPConnection("127.0.0.1", f.at[base + 4], timeout=30)
            c.request("GET", "/data")
            equal(c.getresponse().read(), inside.pattern(300000), "a file")
            with TcpPeer(f.at[base], 60) as raw:
                exchange(WebSocket.open(raw, "/ws", "Host: b\r\n"))

            def one(n):
                data = inside.pattern(200000 + n, n)
                with TcpPeer(f.at[base + 1], 60) as raw:
                    raw.say(data)
                    raw.sock.shutdown(1)
                    equal(raw.rest(), summed(data), f"connection {n}")
                with TcpPeer(f.at[base + 2], 60) as raw:
                    raw.say(data[:50000])
                    equal(raw.exactly(50000), data[:50000], f"echo {n}")
            with concurrent.futures.ThreadPoolExecutor(40) as pool:
                list(pool.map(one, range(80)))
            status, errors = f.end()
            equal((status, errors), (0, ""), "how it ended")

    @suite.case("forward: says what is wrong, and ends with the sandbox")
    def _():
        with Forward(node, there.id, f"0:{there.base + 900}", f"0:{there.base + 2}") as f:
            with TcpPeer(f.at[there.base + 900]) as raw:
                with contextlib.suppress(ConnectionResetError):
                    equal(raw.rest(), b"", "nothing")
            with TcpPeer(f.at[there.base + 2]) as raw:
                raw.say("still")
                equal(raw.exactly(5), b"still", "the other port")
            status, errors = f.end(signal.SIGTERM)
            equal(status, 0, "status")
            error = json.loads(errors)["error"]
            equal(error["code"], "port_closed", "what it said")
            check("Start a server" in error["remedy"], errors)
        sandbox = node.create("busybox")
        with Forward(node, sandbox, "0:80") as f:
            node.delete(sandbox)
            _, errors = f.p.communicate(timeout=30)
            equal(f.p.returncode, 125, "status")
            equal(json.loads(errors)["error"]["code"], "sandbox_gone", "what it said")

    @suite.case("forward: words that are no ports, and local ports that are taken")
    def _():
        for word in ("x", "0", "1:2:3", "65536", "80:", ":80", "-1:80", "80:0"):
            r = node.cli("forward", there.id, "--", word) if word.startswith("-") else node.cli("forward", there.id, word)
            check(r.returncode == 125 and word.encode() in r.stderr, (word, r))
        with Forward(node, there.id, f"0:{there.base}") as f:
            r = node.cli("forward", there.id, f"{f.at[there.base]}:{there.base}")
            check(r.returncode == 125 and b"0:%d" % there.base in r.stderr, r)
        equal(node.cli("forward", "a" * 20, "80").returncode, 125, "no such sandbox")

"""From outside: what a caller sends to the unix socket and to the TCP listener, byte by byte if need be."""
import contextlib
import json
import select
import socket
import time

from common import Neighbour, undisturbed
from harness import Api, alive, check, equal, expect_error
from owners import api_for
from raw import exchange

ALLOWED = (r"503 unavailable: \d+ requests wait for their bodies",)  # what its own flood of bodies was answered
HEAD_S = 10  # a head that is not complete by then costs the connection
H = b"Host: a\r\n"
TE = b"Transfer-Encoding: chunked\r\n"
BODY = b'{"image":""}'
NEXT = b"GET /healthz HTTP/1.1\r\n" + H + b"\r\n"
CREATE = b"POST /v1/sandboxes HTTP/1.1\r\n" + H
GET = b"GET /healthz HTTP/1.1\r\n" + H

# what is tried: (bytes, statuses of the answers in their order, whether the connection is closed then)
SMUGGLING = {
    "Content-Length and Transfer-Encoding": (CREATE + b"Content-Length: 5\r\n" + TE + b"\r\n0\r\n\r\n" + NEXT, "400", True),
    "Transfer-Encoding and Content-Length": (CREATE + TE + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + NEXT, "400", True),
    "Transfer-Encoding twice": (CREATE + TE + TE + b"\r\n0\r\n\r\n" + NEXT, "400", True),
    "Transfer-Encoding: xchunked": (CREATE + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400", True),
    "Transfer-Encoding: chunked, identity": (CREATE + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "400", True),
    "Transfer-Encoding: gzip, chunked": (CREATE + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "400", True),
    "Transfer-Encoding behind a tab and a vertical tab": (CREATE + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", "400", True),
    "Transfer_Encoding with an underscore is no length: the chunk is the next request": (
        CREATE + b"Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n", "400 400", True),
    "Content-Length twice, unequal": (CREATE + b"Content-Length: 5\r\nContent-Length: 3\r\n\r\nhello", "400", True),
    "Content-Length twice, equal": (CREATE + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "400", True),
    "Content-Length: 5, 5": (CREATE + b"Content-Length: 5, 5\r\n\r\nhello", "400", True),
    "Content-Length: +5": (CREATE + b"Content-Length: +5\r\n\r\nhello", "400", True),
    "Content-Length: -1": (CREATE + b"Content-Length: -1\r\n\r\n", "400", True),
    "Content-Length: 0x5": (CREATE + b"Content-Length: 0x5\r\n\r\nhello", "400", True),
    "Content-Length: 2^70": (CREATE + b"Content-Length: 1180591620717411303424\r\n\r\n", "400", True),
    "a space before the colon": (CREATE + b"Content-Length : 5\r\n\r\nhello", "400", True),
    "a bare LF after a line": (b"GET /healthz HTTP/1.1\nHost: a\n\n", "400", True),
    "a bare CR in a value": (GET + b"X-A: b\rX: y\r\n\r\n", "400", True),
    "a bare CR before a header": (CREATE + b"X-Abc:\rx" + TE + b"\r\n1\r\nA\r\n0\r\n\r\n", "400", True),
    "CR X as the end of the head": (b"GET /healthz HTTP/1.1\r\n" + H + b"\rX" + NEXT, "400", True),
    "a folded line": (GET + b"X-A: b\r\n c\r\n\r\n", "400", True),
    "a NUL in a value": (GET + b"X-A: b\0c\r\n\r\n", "400", True),
    "a NUL in the path": (b"GET /healthz\0x HTTP/1.1\r\n" + H + b"\r\n", "400", True),
}
CHUNKS = {
    "a chunk size beyond 64 bits": (CREATE + TE + b"\r\nFFFFFFFFFFFFFFFFFF\r\nx", "400", True),
    "a chunk size with junk": (CREATE + TE + b"\r\n5 x\r\nhello\r\n0\r\n\r\n", "400", True),
    "a negative chunk size": (CREATE + TE + b"\r\n-5\r\nhello\r\n0\r\n\r\n", "400", True),
    "a chunk size 0x5": (CREATE + TE + b"\r\n0x5\r\nhello\r\n0\r\n\r\n", "400", True),
    "a chunk longer than its size": (CREATE + TE + b"\r\n5\r\nhelloX\r\n0\r\n\r\n" + NEXT, "400", True),
    "a chunk size ended by LF alone": (CREATE + TE + b"\r\n5\nhello\r\n0\r\n\r\n" + NEXT, "400", True),
    "trailers": (CREATE + TE + b"\r\n1\r\na\r\n0\r\nAuthorization: Bearer x\r\n\r\n", "400", True),
    "a chunk extension of 100 kB": (CREATE + TE + b"\r\n5;" + b"a" * 100000 + b"\r\nhello\r\n0\r\n\r\n", "400|413", True),
}
HEADS = {
    "a head of 1 MB": (GET + b"X-A: " + b"a" * (1 << 20) + b"\r\n\r\n", "413", True),
    "10,000 headers": (GET + b"a: b\r\n" * 10000 + b"\r\n", "413|400", True),
    "101 headers": (GET + b"a: b\r\n" * 100 + b"\r\n", "400", True),
    "a target of 64 KiB": (b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\n" + H + b"\r\n", "413", True),
    "HTTP/0.9": (b"GET /healthz\r\n", "400", True),
    "HTTP/1.2 and HTTP/9.9": (b"GET /healthz HTTP/9.9\r\n" + H + b"\r\n", "400", True),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", True),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n", "400", True),
    "an unknown method": (b"G@T /healthz HTTP/1.1\r\n" + H + b"\r\n", "400", True),
    "CONNECT": (b"CONNECT a:80 HTTP/1.1\r\n" + H + b"\r\n", "400", True),
    "absolute form of another host": (b"GET http://b/healthz HTTP/1.1\r\n" + H + b"\r\n", "400", True),
    "no Host": (b"GET /healthz HTTP/1.1\r\n\r\n", "400", True),
    "two Hosts": (b"GET /healthz HTTP/1.1\r\n" + H + b"Host: b\r\n\r\n", "400", True),
    "Upgrade to h2c": (GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "200", False),
    "Upgrade to websocket, and frames behind it": (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                                  b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n\x81\x85\0\0\0\0hello", "200 400", True),
    "a hundred requests in one write": (NEXT * 100, " ".join(["200"] * 100), False),
    "pipelined behind a refused one": (b"GET /healthz HTTP/1.1\r\n\r\n" + NEXT, "400", True),
}
# Paths that must not be taken for another one; nobody answers 200 to them.
PATHS = ["/v1/../healthz", "/v1/%2e%2e/healthz", "/%2e%2e/%2e%2e/etc/passwd", "//healthz", "/healthz/", "/healthz%00", "/healthz%0d%0aX:y",
         "/v1/sandboxes/..%2f..%2fhealthz", "/v1/sandboxes/%2e%2e/exec", "/v1//sandboxes", "/v1/sandboxes/a%2fb/exec", "/V1/sandboxes",
         "/v1/sandboxes/%", "/v1/sandboxes/%zz", "/v1/sandboxes/" + "a" * 8000, "/v1/sandboxes/%ff%fe", "/v1/images/..", "/v1/images/%2e%2e%2f%2e%2e",
         "/v1/registries/..%2f..%2fetc/login", "/v1/keys/..%2f..%2fstore.db", "/healthz;a=b", "\\healthz"]


class Wire:
    """Raw bytes to one of the two doors."""

    def __init__(self, node):
        self.node = node
        key = node.ok("POST", "/v1/keys", {"owner": "wire", "role": "user"})["key"]
        self.key = f"Authorization: Bearer {key}\r\n".encode()

    def doors(self):
        yield "unix", self.unix
        yield "TCP", self.tcp

    def unix(self):
        s = socket.socket(socket.AF_UNIX)
        s.connect(self.node.path)
        return s

    def tcp(self):
        return socket.create_connection(("127.0.0.1", self.node.port))


def prepare(node):
    """Begins what needs time; the groups before this one may run meanwhile."""
    node.slow = slow_heads(Wire(node))


def cases(attack, node):
    wire = Wire(node)
    slow = node.slow
    tables(attack, wire)
    bodies(attack, node, wire)
    paths(attack, node, wire)
    crowds(attack, node, wire, slow)
    patterns(attack, node)


def tables(attack, wire):
    for group, table in (("smuggling", SMUGGLING), ("chunks", CHUNKS), ("heads", HEADS)):
        for name, (data, statuses, closed) in table.items():
            @attack.attempt(f"{group}: {name}", ("unix", "TCP"))
            def _(data=data, statuses=statuses, closed=closed):
                for door, connect in wire.doors():
                    # The body of somebody unknown is not looked at.
                    data = data.replace(H, H + wire.key) if door == "TCP" else data
                    for step in (0, 1) if len(data) < 400 else (0,):
                        got = exchange(connect(), data, step, closes=closed)
                        check(got[0] in statuses.split("|") and got[1] == closed, f"{door}, step {step}: {got}, not {(statuses, closed)}")


def bodies(attack, node, wire):
    def post(body, headers=None):
        return node.call("POST", "/v1/sandboxes", body, headers)

    @attack.attempt("body: 5 GB declared: refused before it is sent", ("unix",))
    def _():
        got = exchange(wire.unix(), CREATE + b"Content-Length: 5000000000\r\n\r\n{", closes=True)
        equal(got, ("413", True), "answer")

    @attack.attempt("body: chunks without end: refused at the ceiling", ("unix",))
    def _():
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        equal(exchange(wire.unix(), CREATE + TE + b"\r\n" + chunk * 80, closes=True), ("413", True), "answer")

    @attack.attempt("body: 100,000 brackets, 100,000 objects within each other", ("unix",))
    def _():
        expect_error(post(b"[" * 100000), 400, "invalid_request")
        expect_error(post(b'{"a":' * 100000), 400, "invalid_request")

    @attack.attempt("body: duplicate members, NUL, lone surrogates, invalid UTF-8, numbers beyond 64 bits, NaN, trailing junk", ("unix",))
    def _():
        for text in (b'{"image":"a","image":"b"}', b'{"image":"a\\u0000b"}', b'{"image":"\\ud800"}', b'{"image":"\xff"}',
                     b'{"image":"a","ttl":1e999}', b'{"image":"a","ttl":18446744073709551617}', b'{"image":"a","ttl":NaN}',
                     b'{"image":"a"}x', b'{"image":"a",}', b"", b"null", b"[]", b'"x"', b'{"image":"a","ttl":01}'):
            expect_error(post(text, {"Content-Type": "application/json"}), 400, "invalid_request")

    @attack.attempt("body: 100,000 members, a name of 1 MB, a string of 3 MB", ("unix",))
    def _():
        many = json.dumps({"image": "a", "env": {f"N{i}": "" for i in range(100000)}}).encode()
        for text in (many, b'{"' + b"a" * (1 << 20) + b'":1}', b'{"image":"' + b"a" * (3 << 20) + b'"}'):
            expect_error(post(text), 400, "invalid_request")

    @attack.attempt("body: as many bytes as it likes behind a request without one are the next request", ("unix", "TCP"))
    def _():
        for _, connect in wire.doors():
            equal(exchange(connect(), GET + b"Content-Length: 0\r\n\r\n" + NEXT), ("200 200", False), "answers")


def paths(attack, node, wire):
    @attack.attempt(f"paths: {len(PATHS)} ways to write another path: .., %2e, %00, //, encoded slashes, long ones", ("unix", "TCP"))
    def _():
        for path in PATHS:
            for door, connect in wire.doors():
                statuses, _ = exchange(connect(), f"GET {path} HTTP/1.1\r\n".encode("latin-1") + H + b"Connection: close\r\n\r\n")
                check(statuses in ("400", "401", "404", "405", "413"), f"{door}: {path[:60]!r} answered {statuses}")

    @attack.attempt("paths: ids and names with quotes, semicolons and wildcards are looked up as they are", ("unix",))
    def _():
        for name in ("'%20OR%201=1--", "%25", "_%25", "*", "a';DROP%20TABLE%20sandboxes;--", "%27%29%3B"):
            expect_error(node.call("GET", f"/v1/sandboxes/{name}"), 404, "not_found")
            equal(node.ok("GET", f"/v1/sandboxes?name={name}")["sandboxes"], [], f"list by {name}")

    @attack.attempt("query: labels, cursors and offsets made up", ("unix",))
    def _():
        for query in ("cursor=../../x", "cursor=" + "z" * 64, "limit=0", "limit=1001", "limit=-1", "limit=1e3", "state=nope", "limit=99999999999999999999"):
            a = node.call("GET", f"/v1/sandboxes?{query}")
            wanted = (404, "not_found") if query.startswith("cursor") else (400, "invalid_request")
            expect_error(a, *wanted)


def slow_heads(wire):
    """Connections that have sent part of a head; they are looked at when the group is done."""
    began = time.monotonic()
    made = []
    for _, connect in wire.doors():
        for start in (b"G", b"GET /healthz HT", GET + b"X-A: b"):
            s = connect()
            s.sendall(start)
            made.append(s)
    return began, made


def get_ms(api):
    began = time.monotonic()
    equal(api.call("GET", "/healthz").status, 200, "healthz")
    return (time.monotonic() - began) * 1000


def crowds(attack, node, wire, slow):
    key = node.ok("POST", "/v1/keys", {"owner": "crowd", "role": "user"})["key"]
    other = Api(tcp=f"127.0.0.1:{node.port}", key=node.ok("POST", "/v1/keys", {"owner": "bystander", "role": "user"})["key"])

    @attack.attempt("slow: 2,000 idle connections, half of them in mid-head: others are served at once", ("unix", "TCP"))
    def _():
        idle = []
        for i in range(1000):
            for _, connect in wire.doors():
                s = connect()
                if i % 2:
                    s.sendall(b"GET /heal")
                idle.append(s)
        took = sorted(get_ms(node) for _ in range(50))
        attack.figures["healthz_ms_with_2000_idle"] = round(took[25], 2)
        check(took[25] < 100, f"healthz took {took[25]:.0f} ms")
        for s in idle:
            s.close()

    @attack.attempt("slow: 600 bodies that never come, more than there are threads: others are served", ("TCP",))
    def _():
        head = CREATE + f"Authorization: Bearer {key}\r\n".encode() + b"Content-Length: 1000\r\n\r\n{"
        held = []
        for _ in range(600):
            s = wire.tcp()
            s.sendall(head)
            held.append(s)
        time.sleep(0.5)
        try:
            answers = [other.call("GET", "/v1/sandboxes").status for _ in range(20)]
            equal(answers, [200] * 20, "answers to somebody else")
            equal(node.call("GET", "/v1/sandboxes").status, 200, "on the unix socket")
        finally:
            for s in held:
                s.close()

    @attack.attempt("slow: readers that take no byte of a large answer: others are served", ("unix",))
    def _():
        with node.sandbox() as sandbox:
            x = node.start(sandbox, "dd if=/dev/zero bs=1M count=32 2>/dev/null")
            node.wait(sandbox, x)
            held = []
            for _ in range(100):
                s = wire.unix()
                s.sendall(f"GET {node.at(sandbox, x, '/output?max=16777216')} HTTP/1.1\r\n".encode() + H + b"\r\n")
                held.append(s)
            check(sorted(get_ms(node) for _ in range(20))[10] < 100, "healthz is slow")
            for s in held:
                s.close()

    @attack.attempt(f"slow: heads that are not complete in {HEAD_S} s cost their connection", ("unix", "TCP"))
    def _():
        began, made = slow
        time.sleep(max(0, began + HEAD_S + 2 - time.monotonic()))
        for s in made:
            s.settimeout(2)
            with contextlib.suppress(ConnectionResetError):
                got = s.recv(4096)
                while got and s.recv(4096):
                    pass
                check(not got or b" 408 " in got or b" 400 " in got, f"{got!r}")
            s.close()


def patterns(attack, node):
    """A caller of the SWE-ReX door waits on a terminal for a regular expression of its own."""
    def rex(api, sandbox, path, body):
        return Api(tcp=api.tcp).call("POST", path, {"session": "default", **body}, {"X-API-Key": f"{api.key}.{sandbox}"})

    def action(patterns, command, timeout):
        return {"action_type": "bash", "command": command, "is_interactive_command": True, "expect": patterns, "timeout": timeout}

    def waits(api, sandbox, *patterns, command="cat", timeout=2):
        return rex(api, sandbox, "/run_in_session", action(patterns, command, timeout))

    def started(api):
        sandbox = api.create(image="debian")
        equal(rex(api, sandbox, "/create_session", {"startup_timeout": 10}).status, 200, "a session")
        return sandbox

    @attack.attempt("patterns: nested 511 deep, counts in counts: refused, and the daemon lives")
    def _():
        api, pid = api_for(node, "rex"), node.pid("bothyd")
        sandbox = started(api)
        for pattern in ("(" * 511 + "a" + ")" * 511, "(" * 340 + "a" + ")*" * 340, "(" * 13 + "a" + "){2}" * 13):
            equal(waits(api, sandbox, pattern).status, 422, pattern[:20])
        equal((node.pid("bothyd"), alive(pid)), (pid, True), "bothyd")
        api.delete(sandbox)

    @attack.attempt("patterns: one with very many states, on output without end: it ends in its time, and holds up no neighbour's command and no create")
    def _():
        # The first was too much for glibc's regcomp(), the second needs a tenth of a second for each piece of the output.
        api, many = api_for(node, "rex"), ("(a|b)*a(a|b){60}c", "(a|b)*a(a|b){1024}c")
        letters = "while :; do head -c 8192 /dev/zero | tr '\\0' a; sleep 0.2; done"
        with node.sandbox() as neighbour:
            @contextlib.contextmanager
            def under():
                sandbox, c = started(api), Api(tcp=api.tcp).connection()
                try:
                    c.request("POST", "/run_in_session", json.dumps({"session": "default", **action(many, letters, 300)}),
                              {"X-API-Key": f"{api.key}.{sandbox}", "Content-Type": "application/json"})
                    check(not select.select([c.sock], [], [], 1)[0], "the search is over")
                    yield
                finally:
                    c.close()  # which ends the search
                    api.delete(sandbox)
            undisturbed(attack, "a pattern of very many states", Neighbour(node, neighbour), under)
            sandbox = started(api)
            got = waits(api, sandbox, *many, command=letters, timeout=3)
            check(b"CommandTimeoutError" in got.body, f"{got!r}")
            api.delete(sandbox)

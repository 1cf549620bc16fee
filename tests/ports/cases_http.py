"""Servers inside, reached by path and by host: what an honest caller and an honest server see."""
import base64
import concurrent.futures
import hashlib
import threading
import time

from common import Inside, Raw, WebSocket, b64, inside
from harness import Skip, check, equal, eventually, expect_error

DOMAIN = "ports.test"
MIB = 1 << 20


def sent_in_pieces(data, size=50001):
    for at in range(0, len(data), size):
        yield data[at:at + size]


def chunked(api, path, data, method="POST"):
    c = api.connection(60)
    headers = {"Authorization": "Bearer " + api.key} if api.key else {}
    c.request(method, path, body=sent_in_pieces(data), headers=headers, encode_chunked=True)
    r = c.getresponse()
    got = r.read()
    c.close()
    return r.status, got


def cases_path(suite, node, there):
    @suite.case("a real HTTP server inside: listings, files, HEAD, ranges of paths")
    def _():
        data = inside.pattern(300000)
        a = there.call("/", port=4)
        equal(a.status, 200, "status")
        check(b'href="data"' in a.body and b'href="sub/"' in a.body, a.body)
        equal(there.call("/data", port=4).body, data, "a file")
        a = there.call("/data", "HEAD", port=4)
        equal((a.status, a.headers["Content-Length"], a.body), (200, "300000", b""), "HEAD")
        equal(there.call("/none", port=4).status, 404, "status of what is not there")
        a = there.call("/sub", port=4)
        equal((a.status, a.headers["Location"]), (301, there.path("/sub/", 4)), "a redirect stays in the port")

    @suite.case("method, path, query, body and headers arrive as they were sent")
    def _():
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "REPORT"):
            body = b"abc" if method in ("POST", "PUT", "PATCH", "REPORT") else None
            got = there.record("/record/a%2Fb//c;d?x=%20y&z", method=method, body=body, headers={"X-Own": "1", "Accept": "a/b"})
            equal((got["method"], got["rest"], got["query"]), (method, "a%2Fb//c;d", "x=%20y&z"), "request line")
            equal(got["length"], 3 if body else 0, "length of the body")
            names = {k.lower(): v for k, v in got["headers"]}
            equal((names["x-own"], names["accept"], names["host"]), ("1", "a/b", f"localhost:{there.base}"), "headers")
            equal((names["x-forwarded-prefix"], names["x-forwarded-proto"]), (there.path(), "http"), "forwarded")
        a = there.call("", headers={"X": "1"})
        equal((a.status, a.headers["Location"]), (308, there.path("/")), "the slash is added")
        equal(there.call("?a=b").headers["Location"], there.path("/?a=b"), "with the query")

    @suite.case("answers of the path form cannot speak for the API's origin")
    def _():
        lines = ["Set-Cookie: a=b", "set-cookie: c=d; Path=/", "Clear-Site-Data: *", "Strict-Transport-Security: max-age=9", "Alt-Svc: x",
                 "Service-Worker-Allowed: /", "Refresh: 0;url=/v1/keys", "X-Own: kept", "Content-Security-Policy: default-src *",
                 "Connection: X-Listed", "X-Listed: gone", "Keep-Alive: timeout=5", "Proxy-Authenticate: Basic", "Bothy-Exec: 7",
                 "X-Content-Type-Options: whatever"]
        a = there.call("/headers/" + b64("\n".join(lines).encode()))
        equal(a.body, b"headers", "body")
        for name in ("Set-Cookie", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "Service-Worker-Allowed", "Refresh",
                     "X-Listed", "Keep-Alive", "Proxy-Authenticate", "Bothy-Exec"):
            equal(a.headers.get(name), None, name)
        equal(a.headers["X-Own"], "kept", "a header of its own")
        equal(sorted(a.headers.get_all("Content-Security-Policy")), ["default-src *", "sandbox"], "policies: both hold")
        equal(a.headers.get_all("X-Content-Type-Options"), ["nosniff"], "X-Content-Type-Options")

    @suite.case("a Location leads into the same port, or nowhere")
    def _():
        prefix = there.path()
        for given, wanted in (("/a?b", prefix + "/a?b"), ("next", prefix + "/location/next"), ("?p=2", prefix + "/location/?p=2"),
                              (f"http://localhost:{there.base}/a", prefix + "/a"), (f"//localhost:{there.base}/a", prefix + "/a"),
                              ("http://bothy/a", prefix + "/a"), (f"http://localhost:{there.base}", prefix + "/"),
                              (prefix + "/there", prefix + "/there")):
            a = there.call("/location/?" + given.replace("%", "%25"))
            equal((a.status, a.headers.get("Location"), a.headers.get("Bothy-Location")), (302, wanted, None), given)
        for given in ("http://elsewhere/a", "//elsewhere/a", "https://elsewhere", "javascript:alert(1)", "/../../keys", "../../../../keys",
                      "/%2e%2e/%2E%2e/keys", "/a/..", "/.%2e/x", "/\\..\\..", "\\\\elsewhere", "//", "http:/v1/keys", "http:\\\\elsewhere",
                      "http://bothy/../../v1/keys", "http://bothy\\@elsewhere/", prefix + "/../../.."):
            a = there.call("/location/?" + given.replace("%", "%25"))
            equal((a.status, a.headers.get("Location"), a.headers.get("Bothy-Location")), (302, None, given), given)

    @suite.case("big bodies, both ways, counted and chunked: every byte")
    def _():
        size = (256 if suite.args.long else 24) * MIB
        data = inside.pattern(size, 3)
        want = hashlib.sha256(data).hexdigest()
        got = there.record(method="POST", body=data, timeout=120)
        equal((got["length"], got["sha256"]), (size, want), "sent with a length")
        status, got = chunked(node, there.path("/record/"), data)
        equal((status, inside.json.loads(got)["sha256"]), (200, want), "sent in chunks")
        for form in ("length", "chunked", "close"):
            a = there.call(f"/big/{form}/{size}", timeout=120)
            equal(hashlib.sha256(a.body).hexdigest(), hashlib.sha256(inside.pattern(size)).hexdigest(), form)

    @suite.case("an echo of what is still being sent: neither side waits for the other")
    def _():
        size = (64 if suite.args.long else 8) * MIB
        data = inside.pattern(size, 5)
        status, got = chunked(node, there.path("/echo"), b"abc")
        equal((status, got), (200, b"abc"), "a small one")
        with Raw(node, 60) as raw:
            raw.say(f"POST {there.path('/echo')} HTTP/1.1\r\nHost: b\r\nContent-Length: {size}\r\n\r\n")
            sender = threading.Thread(target=raw.say, args=(data,))
            sender.start()
            status, _, got = raw.answer()
            sender.join()
        equal((status, hashlib.sha256(got).hexdigest()), (200, hashlib.sha256(data).hexdigest()), "echo")

    @suite.case("events come when they are sent, not when the stream ends")
    def _():
        c, r = node.open("GET", there.path("/events/one"))
        equal(r.readline(), b"data: first\n", "before the second was sent")
        there.call("/open/one")
        equal(r.read(), b"\ndata: second\n\n", "the rest")
        c.close()

    @suite.case("a connection serves one request after the other, also behind an error")
    def _():
        c = node.connection()
        for rest, status in (("/record/1", 200), ("/big/length/100000", 200), ("/raw/" + b64(b"garbage\r\n\r\n"), 502), ("/record/2", 200),
                             ("/big/chunked/70000", 200), ("/raw/" + b64(b"HTTP/1.1 204 No\r\n\r\n"), 204), ("/record/3", 200)):
            c.request("GET", there.path(rest))
            r = c.getresponse()
            body = r.read()
            equal(r.status, status, rest)
            check(r.headers.get("Connection") is None, f"{rest} was closed: {r.headers}")
            if rest.startswith("/big"):
                equal(body, inside.pattern(len(body)), rest)
        sock = c.sock
        check(sock is not None, "the connection was not kept")
        c.close()

    @suite.case("100-continue is said when there is somebody to send to")
    def _():
        with Raw(node) as raw:
            raw.say(f"POST {there.path('/record/')} HTTP/1.1\r\nHost: b\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            equal(raw.answer()[0], 100, "interim status")
            raw.say("hello")
            status, _, body = raw.answer()
            got = inside.json.loads(body)
            equal((status, got["length"]), (200, 5), "answer")
            check(not any(k.lower() == "expect" for k, _ in got["headers"]), "Expect was passed on")

    @suite.case("HTTP/1.0 callers get no chunks")
    def _():
        with Raw(node) as raw:
            raw.say(f"GET {there.path('/big/chunked/50000')} HTTP/1.0\r\n\r\n")
            head = raw.until(b"\r\n\r\n").lower()
            check(b"chunked" not in head and b"connection: close" in head, head)
            equal(raw.rest(), inside.pattern(50000), "body")

    @suite.case("a server on ::1 only is found")
    def _():
        if not there.ipv6:
            raise Skip("the machine has no IPv6 loopback")
        equal(there.call("/big/length/1000", port=3).body, inside.pattern(1000), "body")

    @suite.case("WebSocket by path: handshake, text, 3 MiB, close")
    def _():
        with Raw(node, 60) as raw:
            ws = WebSocket.open(raw, there.path("/ws"), "Host: b\r\n")
            check("set-cookie" not in raw.headers, "a cookie in the handshake")
            exchange(ws)

    @suite.case("WebSocket: what is sent before the answer is not lost")
    def _():
        with Raw(node) as raw:
            key = base64.b64encode(bytes(16)).decode()
            mask = bytes(4)
            raw.say(f"GET {there.path('/ws')} HTTP/1.1\r\nHost: b\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
                    f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode() + b"\x81\x85" + mask + b"early")
            equal(raw.answer()[0], 101, "status")
            ws = WebSocket(raw)
            equal((ws.receive(), ws.receive()), ((1, b"hello"), (1, b"early")), "frames")

    @suite.case("an upgrade that the server does not take is an ordinary answer")
    def _():
        with Raw(node) as raw:
            raw.say(f"GET {there.path('/record/')} HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            status, headers, body = raw.answer()
            equal(status, 200, "status")
            check("upgrade" not in headers, headers)
            names = {k.lower(): v for k, v in inside.json.loads(body)["headers"]}
            equal(names["upgrade"], "websocket", "asked inside")
            raw.say(f"GET {there.path('/record/2')} HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n")
            names = {k.lower(): v for k, v in inside.json.loads(raw.answer()[2])["headers"]}
            check("upgrade" not in names and "http2-settings" not in names, names)

    @suite.case("64 callers at once, each gets its own")
    def _():
        def one(n):
            body = inside.pattern(1000 + 997 * n, n)
            got = there.record(f"/record/{n}", method="POST", body=body, timeout=60)
            equal((got["rest"], got["length"], got["sha256"]), (str(n), len(body), hashlib.sha256(body).hexdigest()), f"request {n}")
            size = 1000 * n
            equal(there.call(f"/big/chunked/{size}", timeout=60).body, inside.pattern(size), f"answer {n}")
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            list(pool.map(one, range(192 if suite.args.long else 96)))


def exchange(ws):
    equal(ws.receive(), (1, b"hello"), "the server's first word")
    for n in (0, 5, 125, 126, 65535, 65536, 3 * MIB):
        data = inside.pattern(n, n)
        sender = threading.Thread(target=ws.send, args=(2, data))
        sender.start()
        opcode, got = ws.receive()
        sender.join()
        check(opcode == 2 and got == data, f"a message of {n} bytes came back as {len(got)} others")
    ws.send(8, b"\x03\xe8")
    equal(ws.receive(), (8, b"\x03\xe8"), "close")
    equal(ws.raw.rest(), b"", "the end behind it")


def cases_host(suite, node, there):
    def host(port=0, tail=""):
        return f"{there.base + port}-{there.id}.{DOMAIN}{tail}"

    def ask(path, name, method="GET", headers=None):
        return node.call(method, path, headers={"Host": name, **(headers or {})})

    @suite.case("host form: the server has the whole origin")
    def _():
        lines = ["Set-Cookie: a=b; Path=/", "Set-Cookie: c=d; Domain=ports.test", "Set-Cookie: e=f;domain=.ports.test", "Location: http://elsewhere/"]
        a = ask("/headers/" + b64("\n".join(lines).encode()), host())
        equal((a.status, a.body), (200, b"headers"), "answer")
        equal(a.headers.get_all("Set-Cookie"), ["a=b; Path=/"], "cookies: those for other sandboxes are dropped")
        equal((a.headers.get("Content-Security-Policy"), a.headers["Location"]), (None, "http://elsewhere/"), "headers")
        got = ask("/v1/sandboxes?x", host(), headers={"Cookie": "a=b", "X-Forwarded-Proto": "https"}).json
        names = {k.lower(): v for k, v in got["headers"]}
        equal((got["rest"], got["query"], names["cookie"], names["host"]), ("sandboxes", "x", "a=b", host()), "what it got")
        equal((names["x-forwarded-proto"], names.get("x-forwarded-prefix")), ("https", None), "forwarded")

    @suite.case("host form: names are normalised, and anything else below the domain is nobody")
    def _():
        for name in (host(), host(tail="."), host().upper(), host(tail=":7070"), host(tail=".:80")):
            equal(ask("/big/length/10", name).status, 200, name)
        for name in (f"0{host()}", f"{there.id}.{DOMAIN}", f"x.{DOMAIN}", f"-{there.id}.{DOMAIN}", f"99999-{there.id}.{DOMAIN}",
                     f"0-{there.id}.{DOMAIN}", f"80-{there.id}x.{DOMAIN}", f"80-{there.id[:-1]}.{DOMAIN}", f"a.{host()}", f"80-{there.id[:-1]}_.{DOMAIN}",
                     f".{DOMAIN}", f"{'a' * 300}.{DOMAIN}"):
            expect_error(ask("/healthz", name), 404, "not_found")
        for name in (DOMAIN, f"x{DOMAIN}", f"{host()}.org", "localhost"):
            equal(ask("/healthz", name).status, 200, f"{name} is the API")

    @suite.case("host form: WebSocket, nothing listening, no such sandbox")
    def _():
        with Raw(node, 60) as raw:
            exchange(WebSocket.open(raw, "/ws", f"Host: {host()}\r\n"))
        expect_error(ask("/", f"1-{there.id}.{DOMAIN}"), 502, "port_closed")
        expect_error(ask("/", f"80-{'a' * 20}.{DOMAIN}"), 404, "not_found")


def cases_life(suite, node, there):
    @suite.case("nothing listens: port_closed, with what to do; bad ports are refused")
    def _():
        e = expect_error(there.call("/", port=900), 502, "port_closed")
        check("listens" in e["message"] and "Start a server" in e["remedy"] and e["retryable"], e)
        for port in ("0", "65536", "080", "-1", "+1", "1e3", "%2080", "x", "99999999999999999999", "8000a"):
            expect_error(node.call("GET", f"/v1/sandboxes/{there.id}/ports/{port}/"), 400, "invalid_request")
            expect_error(node.call("GET", f"/v1/sandboxes/{there.id}/forward/{port}"), 400, "invalid_request")

    @suite.case("a server that never answers ends in a timeout, a slow one does not")
    def _():
        equal(there.call("/slow").body, b"slow", "byte by byte")
        began = time.monotonic()
        e = expect_error(there.call("/never/timeout"), 504, "timeout")
        check(4.5 < time.monotonic() - began < 25, f"{time.monotonic() - began:.1f} s")
        check("ports.answer_wait" in e["remedy"], e)

    @suite.case("a caller that leaves is noticed inside")
    def _():
        with Raw(node) as raw:
            raw.say(f"GET {there.path('/never/left')} HTTP/1.1\r\nHost: b\r\n\r\n")
            eventually("the request is inside", lambda: any(b"/never/left" in s for s in there.seen()))
        eventually("the server sees the end", lambda: "left" in there.record("/ended"))

    @suite.case("a sandbox that ends ends its streams, and answers 410 from then on")
    def _():
        mine = Inside(node, there.base + 10)
        c, r = node.open("GET", mine.path("/events/never"))
        equal(r.readline(), b"data: first\n", "the stream")
        node.delete(mine.id)
        try:
            rest = r.read()
        except (OSError, inside.http.client.HTTPException):
            rest = b"\n"
        equal(rest, b"\n", "the rest of the stream")
        c.close()
        e = expect_error(mine.call("/record/"), 410, "sandbox_gone")
        check(e["cause"], e)

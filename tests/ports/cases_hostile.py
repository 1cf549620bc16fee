"""Nobody is believed: credentials stay outside, answers from inside are taken apart with care, requests cannot be
smuggled in either direction, and what is somebody else's is not there."""
import http.client
import random

from common import SECRET, Inside, Raw, b64, inside, tunnel
from harness import check, equal, expect_error

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def spellings():
    """Header lines that carry a credential, in every spelling there is."""
    names = ["Authorization", "X-API-Key", "X-Access-Token", "E2b-Sandbox-Id", "E2B-Signature", "e2b-anything-at-all", "X-E2B-Token", "Cookie",
             "Proxy-Authorization", "Proxy-Connection", "Cookie2", "Bothy-Key"]
    for name in names:
        for form in (name, name.lower(), name.upper(), name.swapcase(), name.replace("-", "_"), name.lower().replace("-", "_", 1)):
            yield [f"{form}: {SECRET}"]
    yield [f"X-Api-Key: {SECRET}", f"x-api-key: {SECRET}", f"Authorization: Bearer {SECRET}", f"AUTHORIZATION: {SECRET}"]
    for name in ("X-Own", "x-own", "X_Own"):
        yield [f"Connection: {name}", f"X-Own: {SECRET}"]
        yield ["Connection: keep-alive", f"Connection: close, , {name} ,x", f"X-Own: {SECRET}"]
    yield [f"Keep-Alive: {SECRET}", f"TE: {SECRET}", f"Trailer: {SECRET}"]
    yield [f"Cookie: {SECRET}; a=b", f"cookie: c={SECRET}"]
    yield [f"Upgrade: {SECRET}"]


def cases_credentials(suite, node, there, api, key):
    @suite.case("a server that records its requests never sees a credential")
    def _():
        sent = 0
        for lines in spellings():
            with Raw(node) as raw:
                # No Authorization of the caller's own: on the unix socket the kernel says who it is. One that is there is ours to judge.
                raw.say(f"GET {there.path('/record/spelled')} HTTP/1.1\r\nHost: b\r\n" + "".join(line + "\r\n" for line in lines) + "\r\n")
                status, _, body = raw.answer()
                sent += status == 200
                check(status in (200, 401), (lines, status, body))
        check(sent > 50, f"only {sent} reached the server")
        for form in ("Authorization: Bearer ", "authorization:   ", "X-API-Key: ", "x-api-KEY:\t"):
            with Raw(api) as raw:
                raw.say(f"GET {there.path('/record/keyed')} HTTP/1.1\r\nHost: b\r\n{form}{key}\r\nX-Access-Token: {key}\r\nx_api_key: {key}\r\n\r\n")
                equal(raw.answer()[0], 200, f"status with {form!r}")
            with Raw(api) as raw:
                raw.say(f"GET /record/hosted HTTP/1.1\r\nHost: {there.base}-{there.id}.ports.test\r\n{form}{key}\r\nX-Access-Token: {key}\r\n"
                        f"e2b_x: {key}\r\n\r\n")
                equal(raw.answer()[0], 200, f"status with {form!r} in the host form")
        everything = b"".join(there.seen())
        check(b"/record/spelled" in everything or b"/record/keyed" in everything, "nothing was recorded")
        for secret in (SECRET, key):
            at = everything.find(secret.encode())
            check(at < 0, f"a credential was seen inside: {everything[max(0, at - 300):at + 60]!r}")

    @suite.case("folded lines and other tricks with a credential do not get in")
    def _():
        before = len(there.seen())
        for lines in (f"X-Own: a\r\n Authorization: {SECRET}", f"X-Own: a\rAuthorization: {SECRET}", f"X-Own: a\nCookie: {SECRET}",
                      f"Authorization : {SECRET}", f"X-Own:\x00{SECRET}", f"X-Own\x0b: {SECRET}", f" Authorization: {SECRET}", f": {SECRET}"):
            with Raw(node) as raw:
                raw.say(f"GET {there.path('/record/')} HTTP/1.1\r\nHost: b\r\n{lines}\r\n\r\n")
                equal(raw.answer()[0], 400, repr(lines))
        equal(len(there.seen()), before + 1, "requests inside (the question itself)")


ANSWERS_BAD = {
    "garbage": b"garbage\r\n\r\n",
    "nothing": b"",
    "HTTP/0.9": b"<html>hello</html>\r\n\r\n",
    "HTTP/2": b"HTTP/2 200\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "a binary": bytes(range(256)) + b"\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "an empty line first": b"\r\n" + OK,
    "no status": b"HTTP/1.1 \r\n\r\n",
    "a status of letters": b"HTTP/1.1 abc OK\r\n\r\n",
    "a status of four figures": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a status below 100": b"HTTP/1.1 099 No\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "the same length twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "a list of lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
    "a length with a sign": b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "a hexadecimal length": b"HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
    "a length beyond all numbers": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nok",
    "length and coding": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "coding and length": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "two codings": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
    "chunked behind a vertical tab": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "a folded line": b"HTTP/1.1 200 OK\r\nX-A: b\r\n Content-Length: 3\r\n\r\nok",
    "a folded coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a bare CR": b"HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: x=y\r\n\r\n",
    "a bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "a NUL": b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\n\r\n",
    "an escape in the reason": b"HTTP/1.1 200 \x1b[31mOK\r\n\r\n",
    "no header name": b"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
    "101 nobody asked for": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nraw",
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + OK,
    "101 lines of headers": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 101 + b"\r\n",
}
# What may be answered, but must not reach beyond its own end: (bytes, status, body).
ANSWERS_LONG = {
    "more than its length": (OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nnever", 200, b"ok"),
    "a second answer behind chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + OK, 200, b"ok"),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nSet-Cookie: a=b\r\n\r\n", 200, b"ok"),
    "204 with a body": (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nnever", 204, b""),
    "204 with chunks": (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 204, b""),
    "304 with a body": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nnever", 304, b""),
    "a few interim answers": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, 200, b"ok"),
    "a length that Connection names": (b"HTTP/1.1 200 OK\r\nConnection: Content-Length, close\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK", 200, b"ok"),
    "an unknown status": (b"HTTP/1.1 599 \r\nContent-Length: 2\r\n\r\nok", 599, b"ok"),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
}
# Half an answer: what was sent arrives, then the connection ends early.
ANSWERS_CUT = {
    "less than its length": (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", b"half"),
    "no last chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", b"half"),
    "half a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf", b"half"),
    "a chunk size of letters": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nxyz\r\n", b"half"),
    "a chunk longer than its size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalfmore\r\n0\r\n\r\n", b"half"),
    "an endless size line": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n4;" + b"x" * 1000 + b"\r\n", b"half"),
}


def next_is_sound(raw, there):
    """The connection serves another request, and its answer is that one's."""
    mark = f"/record/after-{random.random()}"
    raw.say(f"GET {there.path(mark)} HTTP/1.1\r\nHost: b\r\n\r\n")
    status, _, body = raw.answer()
    equal((status, "/record/" + inside.json.loads(body)["rest"]), (200, mark), "the next request's answer")


def cases_answers(suite, node, there):
    @suite.case(f"{len(ANSWERS_BAD)} answers that are none: port_closed, and the next request is served")
    def _():
        for name, data in ANSWERS_BAD.items():
            with Raw(node) as raw:
                raw.say(f"GET {there.path('/raw/' + b64(data))} HTTP/1.1\r\nHost: b\r\n\r\n")
                status, headers, body = raw.answer()
                equal((status, inside.json.loads(body)["error"]["code"] if status == 502 else body), (502, "port_closed"), name)
                check("set-cookie" not in headers, name)
                next_is_sound(raw, there)

    @suite.case("floods of heads are cut at their ceilings")
    def _():
        for data in (b"a", b"HTTP/1.1 200 OK\r\nX-A: b\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n"):
            expect_error(there.call("/flood/" + b64(data)), 502, "port_closed")
        expect_error(there.call("/longhead"), 502, "port_closed")

    @suite.case("bytes behind an answer's end are nobody's")
    def _():
        for name, (data, status, body) in ANSWERS_LONG.items():
            with Raw(node) as raw:
                raw.say(f"GET {there.path('/raw/' + b64(data))} HTTP/1.1\r\nHost: b\r\n\r\n")
                if status in (204, 304):
                    head = raw.until(b"\r\n\r\n")
                    check(head.startswith(b"HTTP/1.1 %d " % status), head)
                else:
                    equal(raw.answer()[::2], (status, body), name)
                next_is_sound(raw, there)
            with Raw(node) as raw:
                raw.say(f"HEAD {there.path('/raw/' + b64(data))} HTTP/1.1\r\nHost: b\r\n\r\n")
                check(raw.until(b"\r\n\r\n").startswith(b"HTTP/1.1 %d " % status), name)
                next_is_sound(raw, there)

    @suite.case("an answer that breaks off is not passed on as whole")
    def _():
        for form in ("raw", "die"):
            for name, (data, body) in ANSWERS_CUT.items():
                with Raw(node) as raw:
                    raw.say(f"GET {there.path(f'/{form}/' + b64(data))} HTTP/1.1\r\nHost: b\r\n\r\n")
                    raw.until(b"\r\n\r\n")
                    got = raw.rest()
                    # What came in one piece with the mistake may be missing; a mistake is never passed on as an end.
                    check(not got.endswith(b"0\r\n\r\n") and len(got) < 100, f"{name}: {got!r}")
                    check(body in got or b"\r\nhalf" in data[-1100:], f"{name}: {got!r}")
        try:
            there.call("/die/" + b64(ANSWERS_CUT["less than its length"][0]))
            check(False, "half an answer was taken for a whole one")
        except http.client.IncompleteRead:
            pass

    @suite.case("an answer before the body has been sent")
    def _():
        with Raw(node) as raw:
            raw.say(f"POST {there.path('/early')} HTTP/1.1\r\nHost: b\r\nContent-Length: 1000000\r\n\r\nabc")
            status, headers, body = raw.answer()
            equal((status, body, headers.get("connection")), (413, b"no\n", ["close"]), "answer")


def cases_requests(suite, node, there):
    @suite.case("two requests in one piece are two requests inside, and no more")
    def _():
        before = len(there.seen())
        smuggled = f"GET {there.path('/record/smuggled')} HTTP/1.1\r\nHost: b\r\n\r\n"
        with Raw(node) as raw:
            raw.say(f"POST {there.path('/record/1')} HTTP/1.1\r\nHost: b\r\nContent-Length: {len(smuggled)}\r\n\r\n{smuggled}"
                    f"POST {there.path('/record/2')} HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n"
                    f"{len(smuggled):x}\r\n{smuggled}\r\n0\r\n\r\nGET {there.path('/record/3')} HTTP/1.1\r\nHost: b\r\n\r\n")
            got = [inside.json.loads(raw.answer()[2]) for _ in range(3)]
        equal([(g["rest"], g["length"]) for g in got], [("1", len(smuggled)), ("2", len(smuggled)), ("3", 0)], "answers")
        equal(len(there.seen()), before + 4, "requests inside (with the question itself)")

    @suite.case("a Connection header cannot take the framing away")
    def _():
        for listed in ("Content-Length", "content-length, close", "Host", "Transfer-Encoding", "X-Forwarded-For, X-Request-Id"):
            with Raw(node) as raw:
                raw.say(f"POST {there.path('/record/')} HTTP/1.1\r\nHost: b\r\nConnection: {listed}\r\nContent-Length: 5\r\n\r\nhello")
                got = inside.json.loads(raw.answer()[2])
                names = [k.lower() for k, _ in got["headers"]]
                equal((got["length"], names.count("content-length"), names.count("host"), names.count("x-request-id")), (5, 1, 1, 1), listed)

    @suite.case("requests with two readings are refused before anybody inside sees them")
    def _():
        before = len(there.seen())
        for lines, body in (("Content-Length: 5\r\nContent-Length: 6", "hello!"), ("Content-Length: 5\r\nTransfer-Encoding: chunked", "0\r\n\r\n"),
                            ("Transfer-Encoding: xchunked", ""), ("Transfer-Encoding: chunked, chunked", "0\r\n\r\n"), ("Content-Length: 5 5", "hello"),
                            ("Transfer-Encoding:\tchunked\r\nContent-Length: 3", "abc"), ("Host: c", ""), ("Transfer_Encoding : chunked", "")):
            with Raw(node) as raw:
                raw.say(f"POST {there.path('/record/')} HTTP/1.1\r\nHost: b\r\n{lines}\r\n\r\n{body}")
                equal(raw.answer()[0], 400, lines)
        equal(len(there.seen()), before + 1, "requests inside (with the question itself)")

    @suite.case("a body that turns out bad is the caller's error, and cut inside")
    def _():
        with Raw(node) as raw:
            raw.say(f"POST {there.path('/record/')} HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
            status, headers, body = raw.answer()
            equal((status, headers.get("connection"), inside.json.loads(body)["error"]["code"]), (400, ["close"], "invalid_request"), "answer")

    @suite.case("targets: absolute forms, escapes and dots stay what they are")
    def _():
        with Raw(node) as raw:
            raw.say(f"GET http://b{there.path('/record/x')} HTTP/1.1\r\nHost: b\r\n\r\n")
            equal(inside.json.loads(raw.answer()[2])["rest"], "x", "absolute form")
        got = there.record("/record/../../%2e%2e/etc?a=../..")
        equal((got["rest"], got["query"]), ("../../%2e%2e/etc", "a=../.."), "dots are the server's business")
        expect_error(there.call("/record/%zz"), 400, "invalid_request")
        expect_error(there.call("/record/%00"), 400, "invalid_request")


def cases_owners(suite, node, there, key_for):
    @suite.case("another owner's ports are not there; who may only read reaches none")
    def _():
        ann, ben, reader = key_for("ann"), key_for("ben"), key_for("ann", "read")
        mine = Inside(ann, there.base + 20)
        equal(mine.call("/big/length/10").status, 200, "the owner's")
        host = {"Host": f"{mine.base}-{mine.id}.ports.test"}
        equal(ann.call("GET", "/big/length/10", headers=host).status, 200, "the owner's, by host")
        for api, status, code in ((ben, 404, "not_found"), (reader, 403, "forbidden"), (node.by_key(None), 401, "unauthenticated"),
                                  (node.by_key("e2b_" + "0" * 40), 401, "unauthenticated")):
            expect_error(mine.call("/record/", api=api), status, code)
            expect_error(api.call("GET", "/record/", headers=host), status, code)
            with tunnel(api, mine.id, mine.base) as raw:
                equal(raw.answer()[0], status, "a tunnel")
        with tunnel(ann, mine.id, mine.base) as raw:
            equal(raw.answer()[0], 101, "the owner's tunnel")
        equal(node.call("GET", mine.path("/big/length/10")).status, 200, "an administrator's")
        ann.delete(mine.id)

"""Clients who come back by offset: one for each way to read a stream. What a connection gave is written into a ledger at once; when
it breaks, the next one begins where the ledger is."""
import json
import socket
import time

from commands import Trouble
from harness import Answer, ApiError, Watch, bytes_of, read_events
from websocket import BINARY, Closed, Refused, WebSocket

GIVE_UP = 90  # s, for one stream
STREAM = {"out": 1, "err": 2}


class Broken(Exception):
    """The connection ended before the answer did."""


class Response:
    """One answer on a connection of its own, read so that a cut is never taken for an end."""

    def __init__(self, api, method, path, body=None, headers=None, timeout=30, buffer=0):
        host, port = api.tcp.rsplit(":", 1)
        raw = b"" if body is None else json.dumps(body).encode()
        lines = {"Host": "bothy", "Authorization": "Bearer " + api.key, "Content-Length": str(len(raw)), **(headers or {})}
        self.sock = socket.socket()
        if buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.sock.settimeout(timeout)
        try:
            self.sock.connect((host, int(port)))
            self.sock.sendall(f"{method} {path} HTTP/1.1\r\n".encode()
                              + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n" + raw)
        except OSError as e:
            self.sock.close()
            raise Broken(str(e)) from e
        self.file = self.sock.makefile("rb")
        try:
            self.head()
        except BaseException:
            self.close()
            raise

    def line(self):
        try:
            got = self.file.readline(65536)
        except OSError as e:
            raise Broken(str(e)) from e
        if not got.endswith(b"\n"):
            raise Broken("in a line")
        return got.rstrip(b"\r\n").decode()

    def exactly(self, n):
        got = b""
        while len(got) < n:
            try:
                piece = self.file.read1(n - len(got))
            except OSError as e:
                raise Broken(str(e)) from e
            if not piece:
                raise Broken(f"{n - len(got)} bytes short")
            got += piece
        return got

    def head(self):
        self.status = int(self.line().split()[1])
        self.headers = {}
        while line := self.line():
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()

    def pieces(self):
        """The body as it comes; raises Broken unless its end came, too."""
        if "content-length" in self.headers:
            yield self.exactly(int(self.headers["content-length"]))
            return
        while n := int(self.line() or "0", 16):
            while n:
                try:
                    piece = self.file.read1(min(n, 65536))
                except OSError as e:
                    raise Broken(str(e)) from e
                if not piece:
                    raise Broken("in a chunk")
                n -= len(piece)
                yield piece
            if self.line():
                raise Trouble("wrong_bytes", "a chunk is longer than it said")
        self.line()

    def lines(self):
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line + b"\n" for line in whole)

    def answer(self):
        return Answer(self.status, self.headers, b"".join(self.pieces()))

    def close(self):
        self.file.close()
        self.sock.close()


class Client:
    def __init__(self, api, draw):
        self.api, self.draw, self.resumed = api, draw, 0

    def again(self, work):
        """Repeats until it is answered: what is broken or may be asked again is no answer."""
        limit = Watch(GIVE_UP)
        while True:
            try:
                return work()
            except ApiError as e:
                try:
                    retryable = e.answer.error["retryable"]
                except ValueError:
                    retryable = True
                if not retryable or limit.over():
                    raise
            except (Broken, Closed, OSError) as e:
                if limit.over():
                    raise Trouble("unanswered", f"in {GIVE_UP} s: {e!r}") from e
            self.resumed += 1
            time.sleep(self.draw.uniform(0, 0.05))

    def open(self, *args, **kw):
        r = Response(self.api, *args, **kw)
        if r.status >= 300:
            try:
                raise ApiError(r.answer())
            finally:
                r.close()
        return r

    def ask(self, *args, **kw):
        def once():
            r = self.open(*args, **kw)
            try:
                return r.answer().json
            finally:
                r.close()
        return self.again(once)

    # ---- the ways ----
    def begin(self, box, command, ident):
        made = self.ask("POST", f"/v1/sandboxes/{box}/processes", {"argv": ["sh", "-c", command.script]}, {"Idempotency-Key": ident})
        return f"/v1/sandboxes/{box}/processes/{made['exec']}"

    def take_events(self, r, ledger, ended):
        try:
            for kind, ident, data in read_events(r.lines()):
                if kind in STREAM:
                    ledger.bytes(STREAM[kind], data["offset"], bytes_of(data))
                elif kind == "gap":
                    ledger.gap(STREAM[data["stream"]], data["from"], data["to"])
                elif kind == "end":
                    ended(data)
                if kind != "ping" and ident != ledger.offset:
                    raise Trouble("wrong_ends", f"an event's id is {ident}, not {ledger.offset}")
        finally:
            r.close()
        if ledger.end is None:
            raise Broken("without an end event")

    def follow(self, where, ledger, ended=None):
        """Events by Last-Event-ID."""
        def once():
            headers = {"Accept": "text/event-stream", **({"Last-Event-ID": ledger.offset} if ledger.offset != "0.0" else {})}
            try:
                self.take_events(self.open("GET", where + "/output?follow=end", headers=headers), ledger, ended or ledger.ended)
            except (Broken, OSError):
                if ledger.end is None:
                    raise
        self.again(once)

    def sse(self, box, command, ident, ledger):
        self.follow(self.begin(box, command, ident), ledger)

    def raw(self, box, command, ident, ledger):
        """Each stream by itself, to its last chunk; then the end record."""
        where = self.begin(box, command, ident)
        for name in ("out", "err") if self.draw.random() < 0.5 else ("err", "out"):
            self.again(lambda n=name: self.raw_once(where, n, ledger))
        end = self.ask("GET", where)["end"]
        if not end:
            raise Trouble("wrong_ends", "both streams ended without an end record")
        ledger.ended(end)

    def raw_once(self, where, name, ledger):
        stream = STREAM[name]
        r = self.open("GET", f"{where}/output?stream={name}&offset={ledger.at[stream]}&follow=end")
        try:
            begin = int(r.headers["bothy-offset"])
            if begin > ledger.at[stream]:
                ledger.gap(stream, ledger.at[stream], begin)
            for piece in r.pieces():
                ledger.bytes(stream, begin, piece)
                begin += len(piece)
        finally:
            r.close()

    def run(self, box, command, ident, ledger):
        """Run to the end as events: the same request again, or by the exec's number once that is known."""
        known = []

        def once():
            headers = {"Accept": "text/event-stream", "Idempotency-Key": ident,
                       **({"Last-Event-ID": ledger.offset} if ledger.offset != "0.0" else {})}
            where = f"/v1/sandboxes/{box}"
            if known and self.draw.random() < 0.5:
                r = self.open("GET", f"{where}/processes/{known[0]}/output?follow=end", headers=headers)
            else:
                r = self.open("POST", where + "/exec", {"argv": ["sh", "-c", command.script]}, headers)
            known[:] = [r.headers["bothy-exec"]]
            try:
                self.take_events(r, ledger, ledger.ended)
            except (Broken, OSError):
                if ledger.end is None:
                    raise
        self.again(once)

    def result(self, box, command, ident, ledger):
        """Run to the end, one answer, asked for until it comes; what is longer than it holds is read by offset."""
        r = self.ask("POST", f"/v1/sandboxes/{box}/exec", {"argv": ["sh", "-c", command.script]}, {"Idempotency-Key": ident})
        for name, stream in STREAM.items():
            ledger.bytes(stream, r[name]["offset"], bytes_of(r[name]))
            if r[name]["truncated"]:
                self.again(lambda n=name: self.raw_once(f"/v1/sandboxes/{box}/processes/{r['exec']}", n, ledger))
        ledger.ended(r["end"])

    def attach(self, box, command, ident, ledger):
        where = self.begin(box, command, ident)
        self.again(lambda: self.attach_once(where, ledger))

    def attach_once(self, where, ledger):
        try:
            ws = WebSocket.open(self.api, f"{where}/attach?offset={ledger.offset}")
        except Refused as e:
            raise ApiError(Answer(e.status, {}, e.body)) from e
        try:
            while True:
                kind, payload = ws.message()
                if kind != BINARY:
                    raise Trouble("wrong_bytes", f"a message of kind {kind}")
                if payload[0] in (1, 2):
                    ledger.bytes(payload[0], ledger.at[payload[0]], payload[1:])
                else:
                    self.control(json.loads(payload[1:]), ledger)
        except (Closed, OSError):
            if ledger.end is None:
                raise
        finally:
            ws.abandon()

    @staticmethod
    def control(said, ledger):
        if "attached" in said and said["attached"]["offset"] != ledger.offset:
            raise Trouble("losses", f"attached at {said['attached']['offset']}, asked for {ledger.offset}")
        if "gap" in said:
            ledger.gap(STREAM[said["gap"]["stream"]], said["gap"]["from"], said["gap"]["to"])
        if "end" in said:
            ledger.ended(said["end"])

    def session(self, where, command, ident, ledger):
        """A command of a session: its first answer by key, what follows by number and offset."""
        known = []

        def once():
            r = self.open("POST", where + "/commands", {"command": command.script},
                          {"Accept": "text/event-stream", "Idempotency-Key": ident})
            known[:] = [r.headers["bothy-seq"]]
            try:
                self.take_events(r, ledger, ledger.command_ended)
            except (Broken, OSError):
                pass  # from here on by number
        self.again(once)
        if ledger.end is None:
            self.resumed += 1
            self.follow(f"{where}/commands/{known[0]}", ledger, ledger.command_ended)


WAYS = ("sse", "raw", "run", "result", "attach", "session")

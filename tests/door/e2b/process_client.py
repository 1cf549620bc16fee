"""process.Process by hand: Connect with JSON over one plain socket a call, so that a test sees every byte and may stop anywhere.

    envd = Envd("127.0.0.1", port, {"X-API-Key": key, "E2b-Sandbox-Id": sandbox})
    with envd.start("echo hi") as s:
        for event in s.events(): …      # {"start":{"pid":1}}, {"data":…}, {"end":…}; then s.error is None or {"code","message"}
    envd.unary("SendSignal", {"process": {"pid": 7}, "signal": "SIGNAL_SIGKILL"})"""
import base64
import json
import socket
import struct
import time


class Cut(Exception):
    """The connection ended before the stream did."""


class Wrong(AssertionError):
    """Not what the protocol says."""


def envelope(message, flags=0):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


class Answer:
    """An HTTP/1.1 answer, read from a socket as it comes."""

    def __init__(self, sock):
        self.sock, self.buffer, self.taken = sock, b"", 0
        head = self.until(b"\r\n\r\n").decode()
        first, *lines = head.split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        self.chunked = self.headers.get("transfer-encoding") == "chunked"
        self.left = 0 if self.chunked else int(self.headers.get("content-length", "0"))
        self.ended = False

    def more(self):
        data = self.sock.recv(65536)
        if not data:
            raise Cut("the connection ended")
        self.buffer += data

    def until(self, mark):
        while mark not in self.buffer:
            self.more()
        data, self.buffer = self.buffer.split(mark, 1)
        return data

    def exactly(self, n):
        while len(self.buffer) < n:
            self.more()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def piece(self):
        """The next bytes of the body; b"" at its end."""
        if self.ended:
            return b""
        if not self.chunked:
            self.ended = True
            return self.exactly(self.left)
        n = int(self.until(b"\r\n"), 16)
        data = self.exactly(n)
        if self.exactly(2) != b"\r\n":
            raise Wrong("a chunk without its end")
        self.ended = n == 0
        return data

    def body(self):
        data = b""
        while not self.ended:
            data += self.piece()
        return data


class Stream:
    def __init__(self, sock):
        self.sock, self.answer, self.error, self.closed, self.pid = sock, None, None, False, None
        self.parts = {"stdout": bytearray(), "stderr": bytearray(), "pty": bytearray()}
        self.end = None
        self.buffer = b""

    stdout = property(lambda self: bytes(self.parts["stdout"]))
    stderr = property(lambda self: bytes(self.parts["stderr"]))
    pty = property(lambda self: bytes(self.parts["pty"]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def take(self, n):
        while len(self.buffer) < n:
            data = self.answer.piece()
            if not data:
                raise Wrong(f"the body ends without an end of the stream: {self.buffer!r}")
            self.buffer += data
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def messages(self):
        """Every message as JSON; afterwards error is set, or None: the stream's own end was read."""
        if self.answer is None:
            self.answer = Answer(self.sock)
        if self.answer.status != 200 or not self.answer.headers["content-type"].startswith("application/connect+json"):
            raise Wrong(f"{self.answer.status} {self.answer.headers} {self.answer.body()!r}")
        while not self.closed:
            flags, n = struct.unpack(">BI", self.take(5))
            message = json.loads(self.take(n))
            if flags == 2:
                self.error, self.closed = message.get("error"), True
                if self.answer.piece() or self.buffer:
                    raise Wrong("bytes behind the end of the stream")
            elif flags:
                raise Wrong(f"flags {flags}")
            else:
                yield message

    def events(self):
        for message in self.messages():
            event = message["event"]
            if (self.pid is None) != ("start" in event):
                raise Wrong(f"start is not the first, or not the only one: {event}")
            if self.end is not None:
                raise Wrong(f"an event behind the end: {event}")
            if "start" in event:
                self.pid = event["start"]["pid"]
            for name, data in event.get("data", {}).items():
                self.parts[name] += base64.b64decode(data)
            self.end = event.get("end", self.end)
            yield event

    def run(self):
        """To the end of the stream, which is an error or stands behind an `end`."""
        for _ in self.events():
            pass
        if self.error is None and self.end is None:
            raise Wrong("a stream that ends well without an end event")
        return self

    def until(self, what, seconds=20):
        """Reads on until what(self); the stream must not end before."""
        self.sock.settimeout(seconds)
        if what(self):
            return self
        for _ in self.events():
            if what(self):
                return self
        raise Wrong(f"the stream ended: {self.error or self.end}")


class Envd:
    def __init__(self, host, port, headers):
        self.host, self.port, self.headers = host, port, headers

    def connect(self, timeout=60):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def head(self, method, kind, extra, length):
        lines = {"Host": f"{self.host}:{self.port}", "E2b-Sandbox-Port": "49983", "Connect-Protocol-Version": "1",
                 "Content-Type": kind, **self.headers, **(extra or {})}
        lines |= {"Transfer-Encoding": "chunked"} if length is None else {"Content-Length": str(length)}
        return (f"POST /process.Process/{method} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
                + "\r\n").encode()

    def stream(self, method, message, headers=None, chunked=False, timeout=60):
        sock, body = self.connect(timeout), message if isinstance(message, bytes) else envelope(message)
        if chunked:  # as the newer Python SDKs do, here in the least convenient pieces
            sock.sendall(self.head(method, "application/connect+json", headers, None))
            sock.sendall(b"".join(b"1\r\n" + body[i:i + 1] + b"\r\n" for i in range(len(body))) + b"0\r\n\r\n")
        else:
            sock.sendall(self.head(method, "application/connect+json", headers, len(body)) + body)
        return Stream(sock)

    def start(self, command, headers=None, chunked=False, stdin=False, timeout=60, pty=None, tag=None, **process):
        argv = ["/bin/bash", "-l", "-c", command] if isinstance(command, str) else command
        message = {"process": {"cmd": argv[0], "args": argv[1:], **process}}
        message |= {} if stdin is None else {"stdin": stdin}
        message |= {"pty": {"size": pty}} if pty else {}
        message |= {"tag": tag} if tag else {}
        return self.stream("Start", message, headers, chunked, timeout)

    def run(self, command, **options):
        with self.start(command, **options) as s:
            return s.run()

    def attach(self, pid=None, tag=None, headers=None, timeout=60):
        return self.stream("Connect", {"process": {"pid": pid} if tag is None else {"tag": tag}}, headers, timeout=timeout)

    def unary(self, method, message, headers=None):
        """(status, JSON)"""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        with self.connect() as sock:
            sock.sendall(self.head(method, "application/json", headers, len(body)) + body)
            answer = Answer(sock)
            return answer.status, json.loads(answer.body())

    def input(self, pid, data, kind="stdin"):
        return self.unary("SendInput", {"process": {"pid": pid}, "input": {kind: base64.b64encode(data).decode()}})

    def stream_input(self, messages, pause=0):
        """A client stream, an envelope a chunk."""
        with self.connect() as sock:
            sock.sendall(self.head("StreamInput", "application/connect+json", None, None))
            for message in messages:
                data = message if isinstance(message, bytes) else envelope(message)
                sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))
                time.sleep(pause)
            sock.sendall(b"0\r\n\r\n")
            s = Stream(sock)
            return list(s.messages()), s.error

"""Somebody attached to a command: what came over …/attach or …/terminal, by stream."""
import json

from websocket import BINARY, PONG, Closed, WebSocket


class Attached:
    """A WebSocket of …/attach or …/terminal that keeps what came: out, err, controls."""

    def __init__(self, api, path, **options):
        self.ws = WebSocket.open(api, path, **options)
        self.out, self.err, self.controls, self.code, self.pongs = bytearray(), bytearray(), [], None, 0
        self.turn()
        self.hello = self.controls[0]["attached"]
        self.exec = self.hello["exec"]

    def turn(self):
        kind, payload = self.ws.message()
        if kind == PONG:
            self.pongs += 1
            return
        if kind != BINARY:
            raise AssertionError(f"a message of kind {kind}")
        if payload[0] == 1:
            self.out += payload[1:]
        elif payload[0] == 2:
            self.err += payload[1:]
        elif payload[0] == 3:
            self.controls.append(json.loads(payload[1:]))
        else:
            raise AssertionError(f"a message of kind {payload[0]}")

    def until(self, text, seconds=30):
        """Reads until out has text."""
        self.ws.sock.settimeout(seconds)
        try:
            while text not in self.out:
                self.turn()
        except (TimeoutError, Closed) as e:
            raise AssertionError(f"{text!r} did not come ({e!r}): {self.out[-600:]!r} {self.controls[1:]}") from e
        return self.out

    def type(self, text):
        self.ws.send(b"\0" + (text.encode() if isinstance(text, str) else text))

    def control(self, **what):
        self.ws.send(b"\3" + json.dumps(what).encode())

    def error(self, seconds=30):
        """The next complaint."""
        before = len(self.said("error"))
        self.ws.sock.settimeout(seconds)
        while len(self.said("error")) == before:
            self.turn()
        return self.said("error")[-1]

    def said(self, name):
        return [c[name] for c in self.controls if name in c]

    def finish(self, seconds=60):
        """Reads to the close; the end record, None if there was none."""
        self.ws.sock.settimeout(seconds)
        try:
            while True:
                self.turn()
        except Closed as e:
            self.code = e.code
        self.ws.sock.close()
        return self.said("end")[0] if self.said("end") else None

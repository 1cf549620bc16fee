"""Leavers: callers that go in the middle of a request or of its answer, at random; what they began ends, and nothing of it stays."""
import collections
import contextlib
import json
import random
import socket
import struct
import threading
import time

from harness import check, equal, eventually

CALLERS = 60
BOXES = 3
SECONDS = 6
ALLOWED = ("port_closed", "failed at cancelled")


def post(path, body, *headers):
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: b", "Content-Type: application/json", f"Content-Length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


def get(path, *headers):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: b", *headers, "", ""]).encode()


def request(draw, box, session):
    """The bytes of any of these."""
    at, events = f"/v1/sandboxes/{box}", "Accept: text/event-stream"
    upload = f"PUT {at}/files?path=/up{draw.randrange(9)} HTTP/1.1\r\nHost: b\r\nContent-Length: 500000\r\n\r\n".encode()
    return draw.choice((
        lambda: post(f"{at}/exec", {"argv": ["sh", "-c", f"seq {draw.choice((10, 100000))}; sleep {draw.choice((0, 0.2, 1))}"]}),
        lambda: post(f"{at}/exec", {"argv": ["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do seq 5000; sleep 0.1; done"]}, events),
        lambda: post(f"{at}/exec", {"argv": ["cat"], "stdin": {"text": "y" * 100000}}),
        lambda: post(f"{at}/sessions/{session}/commands", {"command": "sleep 0.05; echo x", "queue": True}),
        lambda: post("/v1/sandboxes", {"image": "busybox", "labels": {"left": "1"}, "limits": {"memory": 64 << 20}}),
        lambda: b"POST /v1/sandboxes HTTP/1.1\r\nHost: b\r\nContent-Length: 1000\r\n\r\n{",
        lambda: upload + b"x" * draw.choice((0, 1000, 499999, 500000)),
        lambda: get(f"{at}/files?path=/bin/busybox"),
        lambda: get(f"{at}/files/archive?path=/bin"),
        lambda: get("/v1/events", events),
        lambda: get(f"{at}/ports/9999/x"),
        lambda: get(f"{at}/processes/1/output?follow=end&stream=out"),
    ))()


def leave(node, draw, box, session, seen):
    """Sends a request or half of it, reads for a moment, and goes, at times with a reset."""
    message = request(draw, box, session)
    with socket.socket(socket.AF_UNIX) as s, contextlib.suppress(OSError):
        s.settimeout(5)
        s.connect(node.path)
        s.sendall(message[:draw.choice((len(message), len(message), len(message), len(message) // 2))])
        end = time.monotonic() + draw.choice((0, 0.001, 0.01, 0.1, 0.5, 2))
        s.settimeout(0.05)
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                if not s.recv(draw.choice((1, 100, 65536))):
                    break
        if draw.random() < 0.3:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        seen[message.split(b" HTTP", 1)[0].split(b"/")[-1][:12]] += 1


def cases(attack, node):
    @attack.attempt(f"leavers: {CALLERS} callers that go at random: others are answered, what was begun ends, and nothing stays")
    def _():
        boxes = [node.create() for _ in range(BOXES)]
        sessions = {box: node.ok("POST", f"/v1/sandboxes/{box}/sessions", {})["id"] for box in boxes}
        over, seen = time.monotonic() + SECONDS, collections.Counter()

        def run(number):
            draw = random.Random(f"{random.random()} {number}")
            while time.monotonic() < over:
                box = draw.choice(boxes)
                leave(node, draw, box, sessions[box], seen)
        with node.sandbox() as neighbour:
            threads = [threading.Thread(target=run, args=(n,)) for n in range(CALLERS)]
            for t in threads:
                t.start()
            while any(t.is_alive() for t in threads):
                equal(node.shell(neighbour, "echo here"), "here\n", "another's command")
                time.sleep(0.05)
        attack.say(f"{sum(seen.values())} requests whose callers left")
        check(sum(seen.values()) > 10 * CALLERS, f"few requests: {seen}")
        for box in boxes:
            shell = node.ok("GET", f"/v1/sandboxes/{box}/sessions/{sessions[box]}")["exec"]
            eventually("the commands end", lambda b=box, shell=shell: [
                p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{b}/processes")["processes"] if p["running"]] == [shell], 60)
            node.delete(box)
        for left in node.ok("GET", "/v1/sandboxes?limit=1000&label=left")["sandboxes"]:
            node.delete(left["id"])

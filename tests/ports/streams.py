"""Streams of every sort at once on one bothyd: followers of output, watches, terminals, and ports by HTTP, WebSocket and tunnel.

All are opened and held; then each moves bytes that are known, and every one of them is compared. What they cost is measured while they
wait and while they run."""
import asyncio
import base64
import concurrent.futures
import json
import os
import resource
import struct
import threading
import time

import census
from common import Inside, inside
from harness import ApiError, check, equal, eventually

THREADS_MAX = 64
STREAM_KB_MAX = 24  # of bothyd's PSS, held and idle
LINES = 200         # of a stream that only comes
ROUNDS = 10         # of one that goes both ways
SHARES = {"follow": 30, "watch": 15, "terminal": 15, "http": 20, "websocket": 10, "tunnel": 10}
A_SANDBOX = {"follow": 250, "watch": 50, "terminal": 50, "http": 120, "websocket": 120, "tunnel": 120}  # pids, ptys, inotify
# In the sandbox's own first directory: on the backend `fake` everything else is the machine's.
FOLLOWED = f"""until [ -e go ]; do sleep 0.1; done; i=0
while [ $i -lt {LINES} ]; do echo "line $i of what is followed"; i=$((i + 1)); done; until [ -e stop ]; do sleep 0.2; done"""


class Stream:
    """A connection by asyncio; kinds add what they expect."""

    def __init__(self, node, box, n):
        self.node, self.box, self.n = node, box, n

    async def connect(self, target, lines=""):
        self.reader, self.writer = await asyncio.open_unix_connection(self.node.path, limit=1 << 20)
        self.writer.write(f"GET {target} HTTP/1.1\r\nHost: b\r\n{lines}\r\n".encode())
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.status = int(head.split(" ", 2)[1])
        self.chunked = "transfer-encoding: chunked" in head.lower()
        if self.status >= 300:
            raise AssertionError(f"{target}: {head} {await self.reader.read(400)}")

    async def body(self):
        """The next piece of a chunked body."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        piece = await self.reader.readexactly(size)
        await self.reader.readexactly(2)
        if not size:
            raise AssertionError("the stream ended")
        return piece

    async def until(self, mark):
        got = b""
        while mark not in got:
            got += await self.body()
        return got

    def close(self):
        self.writer.close()


class Follow(Stream):
    def prepare(node, box):
        box.follow = node.start(box.id, FOLLOWED)

    def trigger(node, box):
        node.exec(box.id, ["touch", "go"])

    def finish(node, box):
        node.exec(box.id, ["touch", "stop"])

    async def open(self):
        await self.connect(self.node.at(self.box.id, self.box.follow, "/output?stream=out&follow=end"))

    async def run(self):
        wanted = b"".join(b"line %d of what is followed\n" % i for i in range(LINES))
        got = await self.until(b"line %d of" % (LINES - 1))
        while len(got) < len(wanted):
            got += await self.body()
        equal(got, wanted, "what was followed")


class Watch(Stream):
    def prepare(node, box):
        node.exec(box.id, ["mkdir", "-p", "/tmp/watched"])

    def trigger(node, box):
        node.exec(box.id, f"i=0; while [ $i -lt {ROUNDS} ]; do : >/tmp/watched/f$i; i=$((i + 1)); done")

    def finish(node, box):
        pass

    async def open(self):
        await self.connect(f"/v1/sandboxes/{self.box.id}/files/watch?path=/tmp/watched", "Accept: text/event-stream\r\n")
        self.got = await self.until(b"event: ready")

    async def run(self):
        created = [f"f{i}" for i in range(ROUNDS)]
        while any(f'"{name}"'.encode() not in self.got for name in created):
            self.got += await self.body()


class Speaks(Stream):
    """WebSocket frames."""

    async def shake(self, target):
        key = base64.b64encode(os.urandom(16)).decode()
        await self.connect(target, f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n")

    async def send(self, data):
        n = len(data)
        size = bytes([128 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n)
        self.writer.write(b"\x82" + size + bytes(4) + data)
        await self.writer.drain()

    async def receive(self):
        first, n = await self.reader.readexactly(2)
        if n >= 126:
            form = ">H" if n == 126 else ">Q"
            n = struct.unpack(form, await self.reader.readexactly(struct.calcsize(form)))[0]
        return first & 15, await self.reader.readexactly(n)


class Terminal(Speaks):
    def prepare(node, box):
        pass

    trigger = finish = prepare

    async def open(self):
        await self.shake(f"/v1/sandboxes/{self.box.id}/terminal?rows=24&cols=200")
        opcode, data = await self.receive()
        check(opcode == 2 and data[0] == 3 and b"attached" in data, data)

    async def run(self):
        for i in range(3):
            mark = f"mark-{i}-{self.n}-".encode()
            await self.send(b"\0echo " + mark + b"$((6 * 7))\n")
            got = b""
            while mark + b"42" not in got:
                opcode, data = await self.receive()
                got += data[1:] if opcode == 2 and data[0] == 1 else b""


class Port(Stream):
    def prepare(node, box):
        pass

    def trigger(node, box):
        box.inside.call("/open/go")

    finish = prepare


class Http(Port):
    async def open(self):
        await self.connect(self.box.inside.path(f"/lines/go/{LINES}"))

    async def run(self):
        wanted = b"".join(b"line %d from inside\n" % i for i in range(LINES))
        got = b""
        while len(got) < len(wanted):
            got += await self.body()
        equal(got, wanted, "what came from the server")


class WebSocket(Speaks):
    prepare = trigger = finish = Port.prepare

    async def open(self):
        await self.shake(self.box.inside.path("/ws"))
        equal(await self.receive(), (1, b"hello"), "the server's first word")

    async def run(self):
        for i in range(ROUNDS):
            data = inside.pattern(100 + 613 * i, self.n)
            await self.send(data)
            check(await self.receive() == (2, data), "another message came back")


class Tunnel(Stream):
    prepare = trigger = finish = Port.prepare

    async def open(self):
        await self.connect(f"/v1/sandboxes/{self.box.id}/forward/{self.box.inside.base + 2}", "Connection: Upgrade\r\nUpgrade: tcp\r\n")

    async def run(self):
        for i in range(ROUNDS):
            data = inside.pattern(1 + 4000 * i, self.n)
            self.writer.write(data)
            check(await self.reader.readexactly(len(data)) == data, "other bytes came back")


KINDS = {"follow": Follow, "watch": Watch, "terminal": Terminal, "http": Http, "websocket": WebSocket, "tunnel": Tunnel}


class Box:
    def __init__(self, node, kind, base):
        ports = kind in ("http", "websocket", "tunnel")
        self.inside = Inside(node, base) if ports else None
        self.id = self.inside.id if ports else node.create("busybox")


def plan(node, total, fake):
    """How many of each; a kind that this build does not have is shared among the others."""
    shares = dict(SHARES)
    if "/v1/sandboxes/{id}/files/watch" not in node.ok("GET", "/openapi.json")["paths"] or fake:
        shares["follow"] += shares.pop("watch")
    counts = {kind: total * share // 100 for kind, share in shares.items()}
    counts["follow"] += total - sum(counts.values())
    return counts


def build(node, counts, there):
    """Sandboxes, and the streams on them."""
    streams, boxes, base = [], [], there.base + 100
    for kind, count in counts.items():
        for first in range(0, count, A_SANDBOX[kind]):
            boxes.append((kind, min(count - first, A_SANDBOX[kind]), base))
            base += 10
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda b: Box(node, b[0], b[2]), boxes))
    for (kind, count, _), box in zip(boxes, made):
        KINDS[kind].prepare(node, box)
        streams += [KINDS[kind](node, box, len(streams) + i) for i in range(count)]
    return streams, [(KINDS[kind], box) for (kind, _, _), box in zip(boxes, made)]


def measure(node):
    pid = node.pid("bothyd")
    return {"threads": census.status(pid, "Threads"), "pss_kib": census.pss(pid), "descriptors": census.fds(pid)}


class Peak:
    """The most there was while it ran."""

    def __init__(self, node):
        self.node, self.most, self.stop = node, {}, threading.Event()
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.stop.wait(0.05):
            for k, v in measure(self.node).items():
                self.most[k] = max(self.most.get(k, 0), v)

    def __enter__(self):
        self.thread.start()
        return self.most

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


async def open_all(streams):
    at_once = asyncio.Semaphore(24)

    async def one(s):
        async with at_once:
            await asyncio.wait_for(s.open(), 60)
    await asyncio.gather(*(one(s) for s in streams))


async def run_all(node, streams, boxes):
    triggers = [asyncio.to_thread(kind.trigger, node, box) for kind, box in boxes]
    *ends, _ = await asyncio.gather(*(asyncio.wait_for(s.run(), 90) for s in streams), asyncio.gather(*triggers), return_exceptions=True)
    failed = [f"{type(s).__name__} {s.n}: {e!r}" for s, e in zip(streams, ends) if e is not None]
    check(not failed, f"{len(failed)} of {len(streams)} streams: " + "; ".join(failed[:5]))


def one_run(node, counts, there):
    before = measure(node)
    streams, boxes = build(node, counts, there)
    made = measure(node)
    loop = asyncio.new_event_loop()
    try:
        began = time.monotonic()
        loop.run_until_complete(open_all(streams))
        opened = time.monotonic() - began
        idle = measure(node)
        with Peak(node) as busy:
            began = time.monotonic()
            loop.run_until_complete(run_all(node, streams, boxes))
            ran = time.monotonic() - began
            for s in streams:
                s.close()
            loop.run_until_complete(asyncio.sleep(0.2))
    finally:
        loop.close()
    for kind, box in boxes:
        kind.finish(node, box)
    eventually("the streams' descriptors are gone", lambda: measure(node)["descriptors"] < idle["descriptors"] - len(streams), 30)
    for _, box in boxes:
        node.delete(box.id)
    return {"streams": len(streams), "by_kind": counts, "sandboxes": len(boxes), "open_seconds": round(opened, 2), "run_seconds": round(ran, 2),
            "before": before, "with_sandboxes": made, "idle": idle, "busiest": busy,
            "idle_kib_per_stream": round((idle["pss_kib"] - made["pss_kib"]) / len(streams), 2)}


def cases(suite, node, there):
    figures = {}
    total = suite.args.streams or (3000 if suite.args.long else 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 16384)), hard))

    @suite.case(f"{total} mixed streams on one bothyd: every byte, few threads, little memory")
    def _():
        counts = plan(node, total, suite.args.backend == "fake")
        got = one_run(node, counts, there)
        print("      " + json.dumps(got), flush=True)
        check(got["busiest"]["threads"] <= THREADS_MAX, f"{got['busiest']['threads']} threads")
        check(got["idle_kib_per_stream"] <= STREAM_KB_MAX, f"{got['idle_kib_per_stream']} KiB a stream")
        figures.update(got)
    return figures


__all__ = ["ApiError", "cases"]

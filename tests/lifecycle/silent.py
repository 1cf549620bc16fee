"""A warden that is stopped: the API ends sandboxes and answers for those that live, without waiting for it."""
import concurrent.futures
import contextlib
import http.client
import os
import signal
import socket
import threading
import time

from harness import Node, Watch, check, equal, eventually

VICTIMS = 600   # more than bothyd has threads for requests
READERS = 4
WINDOW_S = 6
TIMES = 3       # what the p99 of others may become
LEAST_S = 0.05  # a p99 below this is as good as none: a turn of the scheduler is longer on a busy machine


def p99(values):
    return sorted(values)[len(values) * 99 // 100]


class Others:
    """Commands in and looks at sandboxes that live, all the time."""

    def __init__(self, node, sandboxes):
        self.node, self.took, self.refused, self.stop = node, [], [], threading.Event()
        self.threads = [threading.Thread(target=self.loop, args=(s, exec_too)) for s in sandboxes for exec_too in (False, True)]
        for t in self.threads:
            t.start()

    def loop(self, sandbox, exec_too):
        c = self.node.connection(timeout=60)
        while not self.stop.is_set():
            began = time.monotonic()
            if exec_too:
                c.request("POST", f"/v1/sandboxes/{sandbox}/exec", '{"argv":["true"]}', {"Content-Type": "application/json"})
            else:
                c.request("GET", f"/v1/sandboxes/{sandbox}")
            r = c.getresponse()
            body = r.read()
            if r.status != 200:
                self.refused.append((r.status, body[:200]))
            self.took.append(time.monotonic() - began)
            time.sleep(0.005)
        c.close()

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join()


def at_once(node, method, ids):
    """Sends all before any answer is read; the connections."""
    lines = []
    for i in ids:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(60)
        s.connect(node.path)
        s.sendall(f"{method} /v1/sandboxes/{i} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        lines.append(s)
    return lines


def statuses(lines):
    found = []
    for s in lines:
        r = http.client.HTTPResponse(s)
        with contextlib.closing(s):
            r.begin()
            r.read()
            found.append(r.status)
    return found


def beside(node, sandboxes, method, ids):
    """(statuses, p99 of others, refused ones) while `method` is asked of all ids at once."""
    others = Others(node, sandboxes)
    watch = Watch(WINDOW_S)
    try:
        found = statuses(at_once(node, method, ids))
        while not watch.over():
            time.sleep(0.1)
    finally:
        others.end()
    return found, p99(others.took), others.refused


def alone(suite, backend):
    name = "six hundred deletes beside a warden that is stopped are answered, and hold up no other sandbox"
    if backend != "oci" or not suite.wants(name):
        return
    with Node(pool="16:32", warden=f"--max {VICTIMS + 40} --memory-reserve 0") as node:
        @suite.case(name)
        def _():
            live = [node.create(queue_wait=60) for _ in range(READERS)]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                ids = list(pool.map(lambda _: node.create(queue_wait=120), range(VICTIMS)))
            asked, own, _ = beside(node, live, "GET", ids)
            equal(set(asked), {200}, "looks")
            pid = node.pid("warden")
            os.kill(pid, signal.SIGSTOP)
            try:
                ended, under, refused = beside(node, live, "DELETE", ids)
            finally:
                os.kill(pid, signal.SIGCONT)
            check(not refused, f"{len(refused)} refused: {refused[:3]}")
            equal(set(ended), {200}, "deletes")
            suite.figures = {**getattr(suite, "figures", {}), "silent": {"p99_ms": round(own * 1000, 1), "p99_ms_under": round(under * 1000, 1)}}
            check(under <= TIMES * max(own, LEAST_S), f"p99 {under * 1000:.0f} ms instead of {own * 1000:.0f} ms")
            def gone():
                a = node.call("GET", "/v1/pools")  # refused until the warden has said something
                return a.status == 200 and a.json["pools"][0]["claimed"] == READERS
            eventually("the slots are gone", gone, 60)

"""One process of clients: commands by the SDK of the Python that runs this, while their connections are cut.

    client.py JSON      # {"sandbox", "through", "direct", "first", "count", "threads", "seed", "cut"}

Sends a line of JSON for each command: what its first stream gave and how it ended, and each connect(pid) until one told its end. cut:
how often a connection is shut down by us, beside what a proxy before it does."""
import json
import os
import random
import socket
import sys
import threading
import time

from e2b import CommandExitException, Sandbox

ASK = json.loads(sys.argv[1])
LOCK = threading.Lock()
LEFT = iter(range(ASK["first"], ASK["first"] + ASK["count"]))


def tell(result):
    with LOCK:
        print(json.dumps(result), flush=True)


def sandbox(url):
    """The same sandbox through another address; control calls are not cut."""
    return Sandbox.connect(ASK["sandbox"], sandbox_url=url)


# ---- cutting: sockets of this process that lead through ----

def sockets(port):
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            s = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        try:
            if s.family in (socket.AF_INET, socket.AF_INET6) and s.getpeername()[1] == port:
                yield s
        except OSError:
            pass
        finally:
            s.close()


def cutter(draw, port, done):
    while not done.wait(draw.uniform(0.02, 0.3)):
        found = [s for s in sockets(port)]
        for s in sockets(port):
            if draw.random() < ASK["cut"] / max(1, len(found)):
                try:
                    s.shutdown(draw.choice((socket.SHUT_RDWR, socket.SHUT_RD, socket.SHUT_WR)))
                except OSError:
                    pass


# ---- commands ----

def text_of(number, draw):
    """(command, its stdout, its stderr, its exit code)"""
    lines, parts, code = draw.choice((1, 5, 50, 400, 3000)), draw.randint(1, 4), draw.choice((0, 0, 1, 7))
    step, command, at = max(1, lines // parts), [], 1
    while at <= lines:
        to = min(lines, at + step - 1)
        command += [f"seq -f '{number}.%g' {at} {to}", f"sleep {draw.choice((0, 0, 0.05, 0.3))}"]
        at = to + 1
    command += [f"seq -f '{number}e%g' 20 >&2", f"exit {code}"]
    out = "".join(f"{number}.{i}\n" for i in range(1, lines + 1))
    return "; ".join(command), out, "".join(f"{number}e{i}\n" for i in range(1, 21)), code


def collect(handle, got):
    """(exit code, or None and why not)"""
    try:
        return handle.wait(on_stdout=lambda s: got["out"].append(s), on_stderr=lambda s: got["err"].append(s)).exit_code, None
    except CommandExitException as e:
        return e.exit_code, None
    except Exception as e:  # noqa: BLE001: whatever a version raises for a cut
        return None, f"{type(e).__name__}: {e}"


def stream(begin):
    """One stream to its end or its cut: what it gave, the pid, the exit code, why there is none."""
    got, pid = {"out": [], "err": []}, None
    try:
        handle = begin()
        pid = handle.pid
        code, why = collect(handle, got)
    except Exception as e:  # noqa: BLE001
        code, why = None, f"{type(e).__name__}: {e}"
    return {"out": "".join(got["out"]), "err": "".join(got["err"]), "pid": pid, "code": code, "why": why}


def one(box, direct, number, draw):
    command, out, errors, code = text_of(number, draw)
    streams = [stream(lambda: box.commands.run(command, background=True, timeout=120))]
    pid = streams[0]["pid"]
    while pid and streams[-1]["code"] is None and len(streams) < 50:
        if draw.random() < 0.5:
            time.sleep(draw.uniform(0, 1))
        streams.append(stream(lambda: direct.commands.connect(pid, timeout=120)))
    tell({"number": number, "pid": pid, "streams": streams, "wanted": {"out": out, "err": errors, "code": code}})


def work(n, box, direct):
    draw = random.Random(f"{ASK['seed']} {ASK['first']} {n}")
    while True:
        with LOCK:
            number = next(LEFT, None)
        if number is None:
            return
        one(box, direct, number, draw)


def main():
    done = threading.Event()
    boxes = [(sandbox(ASK["through"]), sandbox(ASK["direct"])) for _ in range(ASK["threads"])]
    if ASK["cut"]:
        port = int(ASK["through"].rsplit(":", 1)[1])
        threading.Thread(target=cutter, args=(random.Random(ASK["seed"]), port, done), daemon=True).start()
    threads = [threading.Thread(target=work, args=(i, *boxes[i])) for i in range(ASK["threads"])]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    done.set()


main()

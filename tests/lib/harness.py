"""What the suites share: a scratch node, the API over its unix socket, and counting.

    suite = Suite("conformance")
    for backend in suite.backends():
        with Node(backend) as node:
            @suite.case("exec keeps both streams apart")
            def _():
                sb = node.create("busybox")
                ...
    sys.exit(suite.finish())

Python's standard library only. Every suite takes --long, --seed N and --backend NAME and ends with
"N passed, N failed, N skipped". BOTHY_SLOW=N multiplies what is waited for, never what is asserted. BOTHY_KEEP=1 leaves the nodes up to be looked at."""
import argparse
import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import titles
from watch import Watch

TOP = pathlib.Path(os.environ.get("BOTHY_TOP") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("BOTHY_BUILD") or TOP / "build")
BOTHY = str(BUILD / "bin" / "bothy")
SLOW = int(os.environ.get("BOTHY_SLOW", "1"))  # a guest without KVM waits longer; it asserts no less


class Skip(Exception):
    """Raised by a case that cannot run here; the text is the reason."""


def commit_of(top):
    return subprocess.run(["git", "-C", top, "rev-parse", "--short=12", "HEAD"], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


class Suite:
    def __init__(self, name, backend="oci", **extra):
        parser = argparse.ArgumentParser(prog=name)
        parser.add_argument("--long", action="store_true", help="the full size")
        parser.add_argument("--seed", type=int, default=int(time.time()))
        parser.add_argument("--backend", default=backend, choices=["oci", "fake", "both", "docker", "podman", "kubernetes"])
        parser.add_argument("--only", default="", help="cases whose name contains this")
        parser.add_argument("--json", help="write the result of each case here")
        parser.add_argument("--cases", help="a file with parts of names, one a line; one that no case has fails")
        for flag, options in extra.items():
            parser.add_argument("--" + flag.replace("_", "-"), **options)
        self.args = parser.parse_args()
        self.name = name
        self.listed = pathlib.Path(self.args.cases).read_text().splitlines() if self.args.cases else []
        self.passed = self.failed = self.skipped = 0
        self.matched = False  # --only or --cases has a case
        self.prefix = ""
        self.lock = threading.Lock()  # cases may run beside each other
        self.results = []  # of every case: name, result, ms, why
        self.group = name  # of the cases that follow, for tools/conformance-table
        self.caps = None  # of the backend, if the suite has asked
        self.commit = commit_of(TOP) if os.environ.get("BOTHY_MEASURED") else ""  # now: a long run may see it change
        random.seed(self.args.seed)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # nodes are taken down
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & has it ignored, also in what we start
        print(f"{name}: backend {self.args.backend}, seed {self.args.seed}"
              f"{', long' if self.args.long else ''}", flush=True)

    def backends(self):
        """Each backend to run on; names of cases carry it when there is more than one."""
        wanted = self.args.backend
        for backend in ["oci", "fake"] if wanted == "both" else [wanted]:
            self.prefix = f"{backend}: " if wanted == "both" else ""
            yield backend
        self.prefix = ""

    def wants(self, *names):
        """Whether --only and --cases leave any of these cases, by their whole names."""
        if self.listed:
            names = [name for name in names if any(part in name for part in self.listed)]
        found = bool(names) and (not self.args.only or any(self.args.only in name for name in names))
        self.matched |= found
        return found

    def wants_any(self, *places):
        """Whether --only and --cases may leave a case of these functions (titles.py), or of these titles, in which "…" stands for anything.
        A place that makes a node for its cases asks this first."""
        if not self.listed and not self.args.only:
            return True
        found = [t for place in places for t in ([place.split("…")] if isinstance(place, str) else titles.titles_of(place))]
        found = [titles.join(([self.prefix], t)) for t in found]
        return any(titles.may_have(t, self.args.only) and any(titles.may_have(t, part) for part in self.listed or [""]) for t in found)

    @contextlib.contextmanager
    def steps(self):
        """A block of cases that build on one another: all of them up to the last that is wanted run, at the end of the block."""
        steps = Steps(self)
        yield steps
        steps.run()

    def missed(self):
        """What --cases names and no case is called."""
        return [part for part in self.listed if not any(part in result["case"] for result in self.results)]

    def case(self, name):
        """Runs the decorated function now and counts it; on any thread."""
        name = self.prefix + name

        def run(body):
            if self.wants(name):
                self.attempt(name, body)
            return body
        return run

    def attempt(self, name, body):
        """Runs a case and counts it."""
        began, error = time.monotonic(), None
        try:
            body()
        except Exception as e:  # noqa: BLE001: a case may fail in any way
            error = e
        with self.lock:
            self.tell(name, began, error)

    def tell(self, name, began, error):
        """Counts and prints how a case ended."""
        if error is None:
            self.passed += 1
            self.note(name, "passed", began)
            print(f"ok    {name} ({(time.monotonic() - began) * 1000:.0f} ms)", flush=True)
        elif isinstance(error, Skip):
            self.skipped += 1
            self.note(name, "skipped", began, error)
            print(f"skip  {name}: {error}", flush=True)
        else:
            self.failed += 1
            self.note(name, "failed", began, error)
            print(f"FAIL  {name}: {error}", flush=True)
            if not isinstance(error, (AssertionError, ApiError)) or not str(error):
                traceback.print_exception(error, limit=-3)

    def note(self, name, result, began, why=None):
        self.results.append({"case": name, "group": self.group, "result": result, "ms": round((time.monotonic() - began) * 1000),
                             "why": None if why is None else str(why)})

    def count(self, passed, failed, skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped

    def measured(self, **figures):
        """Writes figures, and what they were taken on, to $BOTHY_MEASURED if that is set."""
        path = os.environ.get("BOTHY_MEASURED")
        if not path:
            return
        memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) // 1024
        machine = {"kernel": os.uname().release, "arch": os.uname().machine, "cores": os.cpu_count(), "memory_mib": memory}
        pathlib.Path(path).write_text(json.dumps(
            {"suite": self.name, "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "commit": self.commit,
             "machine": machine, "size": "long" if self.args.long else "short", "seed": self.args.seed, "passed": self.passed,
             "failed": self.failed, "skipped": self.skipped, **figures}, indent=2) + "\n")

    def finish(self):
        if self.args.only and not self.matched:
            self.failed += 1
            print(f"FAIL  no case that ran here has {self.args.only!r} in its name", flush=True)
        for part in self.missed():
            self.failed += 1
            print(f"FAIL  no case is called {part}", flush=True)
        if self.args.json:
            pathlib.Path(self.args.json).write_text(json.dumps(
                {"suite": self.name, "backend": self.args.backend, "url": getattr(self.args, "url", None), "passed": self.passed, "failed": self.failed,
                 "skipped": self.skipped, "caps": self.caps, "cases": self.results}, indent=1) + "\n", encoding="utf-8")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 0 if self.failed == 0 and self.passed > 0 else 1


class Steps:
    """Cases of a suite of which each needs what those before it did. Kept by case(), run by run()."""

    def __init__(self, suite):
        self.suite, self.kept = suite, []

    def case(self, name):
        def keep(body):
            self.kept.append((self.suite.prefix + name, body))
            return body
        return keep

    def run(self):
        last = max((n for n, (name, _) in enumerate(self.kept) if self.suite.wants(name)), default=-1)
        for name, body in self.kept[:last + 1]:
            self.suite.attempt(name, body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=30):
        super().__init__("bothy", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        # Like the product: a path longer than sun_path is reached through its directory.
        directory = os.open(os.path.dirname(self.path), os.O_PATH)
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/{os.path.basename(self.path)}")
        finally:
            os.close(directory)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    def __repr__(self):
        return f"{self.status} {self.body[:500]!r}"


class ApiError(Exception):
    def __init__(self, answer):
        super().__init__(repr(answer))
        self.answer = answer


class Api:
    """The native API on one socket (or TCP address with a key)."""

    def __init__(self, path=None, tcp=None, key=None):
        self.path, self.tcp, self.key = path, tcp, key

    def connection(self, timeout=30):
        timeout *= SLOW
        if self.tcp:
            host, port = self.tcp.rsplit(":", 1)
            return http.client.HTTPConnection(host, int(port), timeout=timeout)
        return UnixConnection(self.path, timeout)

    def open(self, method, path, body=None, headers=None, timeout=30):
        """Sends a request; gives the connection and the response, whose body is not read yet."""
        headers = dict(headers or {})
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        c = self.connection(timeout)
        with contextlib.suppress(BrokenPipeError):  # refused before all of it was sent: read why
            c.request(method, path, body=body, headers=headers)
        return c, c.getresponse()

    def held_limits(self, limits):
        """Of these limits those that the backend holds: another one that is named is unsupported."""
        caps = self.ok("GET", "/v1/info")["caps"]
        return {name: n for name, n in limits.items() if caps.get(f"{name}_limit") != "absent"}

    def call(self, method, path, body=None, headers=None, timeout=30):
        c, r = self.open(method, path, body, headers, timeout)
        try:
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def ok(self, method, path, body=None, headers=None, timeout=30):
        a = self.call(method, path, body, headers, timeout)
        if a.status >= 300:
            raise ApiError(a)
        return a.json if a.body else None

    # ---- the verbs the suites use most ----
    def create(self, image="busybox", headers=None, **spec):
        return self.ok("POST", "/v1/sandboxes", {"image": image, **spec}, headers, timeout=90)["id"]  # a pod that is made for it takes its time

    @contextlib.contextmanager
    def sandbox(self, image="busybox", **spec):
        """One that is ended with the block."""
        made = self.create(image, **spec)
        try:
            yield made
        finally:
            with contextlib.suppress(ApiError, OSError, http.client.HTTPException):
                self.delete(made)

    def pool_full(self, seconds=60):
        """Waits until as many slots are ready as there should be, and none is being made or taken apart. A server without a pool does not wait."""
        def full():
            return all(p["ready"] >= p["low"] and not p["making"] and not p["dying"] for p in self.ok("GET", "/v1/pools")["pools"])
        eventually("the pool is full and nothing is being made or taken apart", full, seconds)

    def show(self, sandbox):
        return self.ok("GET", f"/v1/sandboxes/{sandbox}")

    def shell(self, sandbox, text, **spec):
        """What a command writes to stdout, which must end with 0 and say nothing on stderr."""
        r = self.exec(sandbox, text, **spec)
        if r["end"]["exit_code"] != 0 or bytes_of(r["err"]):
            raise AssertionError(f"{text!r} ended with {r['end']['how']} {r['end']['exit_code']}: "
                                 f"{bytes_of(r['err'])!r}")
        return bytes_of(r["out"]).decode()

    def at(self, sandbox, exec_id, rest=""):
        return f"/v1/sandboxes/{sandbox}/processes/{exec_id}{rest}"

    def delete(self, sandbox):
        return self.ok("DELETE", f"/v1/sandboxes/{sandbox}")

    def exec(self, sandbox, argv, headers=None, **spec):
        if isinstance(argv, str):
            argv = ["sh", "-c", argv]
        return self.ok("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": argv, **spec}, headers)

    def start(self, sandbox, argv, headers=None, **spec):
        if isinstance(argv, str):
            argv = ["sh", "-c", argv]
        return self.ok("POST", f"/v1/sandboxes/{sandbox}/processes", {"argv": argv, **spec}, headers)["exec"]

    def process(self, sandbox, exec_id):
        return self.ok("GET", f"/v1/sandboxes/{sandbox}/processes/{exec_id}")

    def wait(self, sandbox, exec_id, seconds=60):
        return eventually(f"the end of exec {exec_id} of {sandbox}", lambda: self.process(sandbox, exec_id)["end"], seconds)

    def output(self, sandbox, exec_id, stream="out", offset=0):
        """Everything that is there now, from offset."""
        got = b""
        while True:
            a = self.call("GET", f"/v1/sandboxes/{sandbox}/processes/{exec_id}/output"
                          f"?stream={stream}&offset={offset + len(got)}&max=16777216")
            if a.status != 200:
                raise ApiError(a)
            if not a.body:
                return got
            got += a.body

    def events(self, method, path, body=None, headers=None, timeout=30):
        """Yields (event, id, data) of an event stream; ends with it."""
        c, r = self.open(method, path, body, {"Accept": "text/event-stream", **(headers or {})}, timeout)
        try:
            if r.status != 200:
                raise ApiError(Answer(r.status, r.headers, r.read()))
            yield from read_events(r)
        finally:
            c.close()


def read_events(stream):
    event, ident, data = "message", None, []
    for raw in stream:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data:
                yield event, ident, json.loads("\n".join(data))
            event, data = "message", []
        elif line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("id:"):
            ident = line[3:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].lstrip(" "))


def bytes_of(value):
    """The bytes of {"text"} or {"b64"}."""
    return value["text"].encode() if "text" in value else base64.b64decode(value["b64"])


class Node(Api):
    """A node of its own (tools/dev up), gone when the block ends, also when a case fails."""
    foreign = False

    def __init__(self, backend="oci", images="busybox", pool="4:8", config="", mode=0o755, env="",
                 wrap=(), warden="", disk="", faults=False, build=None, tools=TOP, held=False, netns=""):
        """disk: size of its file system. faults: programs of build-faults, in which arm() has an effect. warden: more options of
        its. build: another build directory, tools: another tree's tools/node; both may be changed between restarts. held: this process binds bothyd's socket and
        keeps it, as a service manager does. env: BOTHY_<SECTION>_<KEY>=VALUE words, which override the configuration. wrap: words
        before the command that brings it up, e.g. unshare -n. netns: path of the network namespace its warden runs in."""
        self.dir = tempfile.mkdtemp(prefix="bothy-node-")
        os.chmod(self.dir, mode)
        self.backend, self.images, self.pool, self.config, self.env = backend, images, pool, config, env
        self.wrap, self.warden, self.disk, self.faults = list(wrap), warden, disk, faults
        self.build, self.tools, self.held, self.holding, self.netns = build, tools, held, None, netns
        self.engine = None  # of docker, podman, kubernetes: what runs the containers
        super().__init__(path=f"{self.dir}/run/bothyd.sock")

    @property
    def cgroup(self):
        """The name tools/node gives it, in every hierarchy."""
        return "bothy-dev-" + hashlib.sha256(os.path.realpath(self.dir).encode()).hexdigest()[:8]

    def environment(self):
        build, armed, words = self.build or BUILD, {}, self.env
        if self.faults:
            build, armed = TOP / "build-faults", {"BOTHY_FAULTS": f"{self.dir}/run/faults/warden"}
            words += " BOTHY_FAULTS=/mnt/run/faults/bothyd"
        if self.held:
            armed["LISTEN_FDS"] = "1"
        return {**os.environ, **armed, "BOTHY_TOP": str(TOP), "BOTHY_BUILD": str(build),
                "BOTHY_NODE_BACKEND": self.backend, "BOTHY_NODE_IMAGES": self.images,
                "BOTHY_NODE_POOL": self.pool, "BOTHY_NODE_CONFIG": self.config,
                "BOTHY_NODE_ENV": words, "BOTHY_NODE_WARDEN": self.warden,
                "BOTHY_NODE_DISK": self.disk, "BOTHY_NODE_NETNS": self.netns,
                "BOTHY_NODE_ENGINE": str(self.engine.door) if self.engine else ""}

    # ---- faults (src/base/fault.h): each program has a directory of its own ----
    def fault(self, program, name):
        return pathlib.Path(self.dir, "run", "faults", program, name)

    def arm(self, program, name, turn=1):
        """From now on; turn: at the n-th time it is reached (1 to 9)."""
        for n in range(1, turn):
            self.fault(program, f"{name}.{n}").touch()
        self.fault(program, name).touch()

    def is_armed(self, program, name):
        return self.fault(program, name).exists()

    def disarm(self, program):
        for path in self.fault(program, "").iterdir():
            path.unlink(missing_ok=True)

    def make_faults(self):
        for program in ("bothyd", "warden"):
            self.fault(program, "").mkdir(parents=True)
            shutil.chown(self.fault(program, ""), "bothy", "bothy")

    def hold(self):
        """Binds bothyd's socket; from now on nobody who connects is refused."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self.holding = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.holding.bind(self.path)
        os.chmod(self.path, 0o660)
        shutil.chown(self.path, "bothy", "bothy-users")
        self.holding.listen(1024)

    def node(self, *words, **options):
        """Runs tools/node, with the held socket as its descriptor 3."""
        if self.holding:
            options.update(pass_fds=(3,), preexec_fn=lambda: os.dup2(self.holding.fileno(), 3))
        return subprocess.run([*self.wrap, self.tools / "tools" / "node", *words, self.dir], check=False, **options)

    def __enter__(self):
        if self.faults:
            self.make_faults()
        if self.held:
            self.hold()
        self.engine = provider(self.backend)
        if self.engine:
            self.engine.bring(self.images.split())
            self.env += self.engine.words()
        r = self.node("up", env=self.environment(), stdout=subprocess.PIPE, text=True)
        if r.returncode:
            shutil.rmtree(self.dir, ignore_errors=True)
            raise RuntimeError("the node did not come up")
        self.exports = r.stdout
        return self

    def __exit__(self, *_):
        if os.environ.get("BOTHY_KEEP"):
            print(f"kept {self.dir}", file=sys.stderr)
            return
        found = self.sanitizer_reports()
        subprocess.run([*self.wrap, TOP / "tools" / "node", "down", self.dir], env=self.environment(), check=False)
        if self.engine:
            self.engine.clean()
        shutil.rmtree(self.dir, ignore_errors=True)
        if found:
            raise AssertionError("a sanitizer complained:\n" + found)

    def sanitizer_reports(self):
        """What the programs of a sanitizer build said about themselves."""
        lines = []
        for log in pathlib.Path(self.dir, "log").glob("*.log"):
            text = log.read_text(errors="replace").splitlines()
            for i, line in enumerate(text):
                if re.search(r"(Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:", line):
                    lines += text[i:i + 12]
        return "\n".join(lines[:60])

    def by_key(self, key):
        """The same node over TCP, as whoever has this key."""
        return Api(tcp=f"127.0.0.1:{self.port}", key=key)

    def pid(self, program):
        return int(pathlib.Path(self.dir, "ctl", program + ".pid").read_text())

    def log(self, program="bothyd"):
        return pathlib.Path(self.dir, "log", program + ".log").read_text(errors="replace")

    def kill(self, program, signo=signal.SIGKILL):
        """Kills bothyd or warden and waits until it is gone."""
        pid = self.pid(program)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signo)
        limit = Watch(20 * SLOW)  # at a polite end it writes its store to a disk that others may keep busy
        while alive(pid):
            if limit.over():
                raise AssertionError(f"{program} did not die: {limit}")
            time.sleep(0.01)

    def restart(self, program, wait=True):
        r = self.node("start-" + program, env={**self.environment(), "BOTHY_NODE_NOWAIT": "" if wait else "1"})
        if r.returncode:
            raise AssertionError(f"{program} did not come back:\n" + self.log(program)[-2000:])

    def cli(self, *args, input=None, timeout=120, env=None):
        return subprocess.run([BOTHY, *args], env={**os.environ, "BOTHY_SOCKET": self.path, **(env or {})},
                              input=input, capture_output=True, timeout=timeout * SLOW, check=False)


PROVIDERS = {}


def provider(backend):
    """What runs the containers of this backend, one for all nodes of this process, gone with it; None: the node itself does."""
    if backend in ("oci", "fake"):
        return None
    if backend not in PROVIDERS:
        import providers  # noqa: PLC0415: it needs us
        PROVIDERS[backend] = providers.start(backend)
    return PROVIDERS[backend]


def free_port():
    """One that is used later, and again after a kill: below those that the kernel gives to whoever asks for any, and not by
    the suite's seed, which another suite may have."""
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", random.SystemRandom().randrange(15000, 30000)))
            return s.getsockname()[1]


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_bytes(path):
    """A file's bytes; none if it is gone or not ours to read."""
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def find_process(words):
    """The host's pid of the process with exactly this argv."""
    line = b"".join(w.encode() + b"\0" for w in words)
    for pid in pids():
        if read_bytes(f"/proc/{pid}/cmdline") == line:
            return pid
    return None


def status_of(pid):
    """/proc/PID/status as a dictionary."""
    lines = read_bytes(f"/proc/{pid}/status").decode().splitlines()
    return {k: v.strip() for k, _, v in (line.partition(":") for line in lines)}


def alive(pid):
    """A zombie of somebody else's is dead too."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def check(condition, text="does not hold"):
    if not condition:
        raise AssertionError(text)


def equal(got, wanted, what="value"):
    if got != wanted:
        raise AssertionError(f"{what} is {got!r}, not {wanted!r}")


def expect_error(answer, status, code):
    equal(answer.status, status, f"status ({answer!r})")
    e = answer.error
    equal(e["code"], code, "code")
    for member in ("message", "remedy", "request_id"):
        check(isinstance(e.get(member), str) and e[member], f"{member} is missing in {e}")
    check("cause" in e and isinstance(e["retryable"], bool), f"cause or retryable is missing in {e}")
    return e


def eventually(what, holds, seconds=10, every=0.02):
    """Waits until holds() gives something true, and gives that."""
    limit = Watch(seconds * SLOW)
    while True:
        got = holds()
        if got:
            return got
        if limit.over():
            raise AssertionError(f"{what}: not within {seconds} s ({limit})")
        time.sleep(every)


def collect(events):
    """(out, err, end, kinds) of an event stream; offsets must follow each other without a hole
    that no gap told."""
    got, at, end, kinds = {"out": b"", "err": b""}, {}, None, []
    for kind, _, data in events:
        if kind == "ping":
            continue
        check(end is None, "an event came after end")
        kinds.append(kind)
        if kind in ("out", "err"):
            part = bytes_of(data)
            equal(data["offset"], at.get(kind, data["offset"]), f"offset of {kind}")
            got[kind] += part
            at[kind] = data["offset"] + len(part)
        elif kind == "gap":
            equal(data["from"], at.get(data["stream"], data["from"]), "start of the gap")
            at[data["stream"]] = data["to"]
        elif kind == "end":
            end = data
    return got["out"], got["err"], end, kinds


def reach(events):
    """How far an event stream goes in each stream of a command: over its bytes, and over those that a gap names."""
    to = {"out": 0, "err": 0}
    for kind, _, data in events:
        if kind in to and data["offset"] == to[kind]:
            to[kind] += len(bytes_of(data))
        elif kind == "gap" and data["from"] == to[data["stream"]]:
            to[data["stream"]] = data["to"]
    return to

"""Lives of sandboxes, each with one kind of work; every answer is checked, none is asked for twice."""
import io
import secrets
import tarfile

from harness import ApiError, bytes_of, check, collect, equal, eventually
from urllib.parse import quote

LOUD = 200_000  # bytes of a stream


def ended(end, how="exited", code=0):
    equal((end["how"], end["exit_code"]), (how, code), "how it ended")


class Life:
    """One sandbox of one client; gone when the block ends."""

    def __init__(self, api, draw, counts, **spec):
        self.api, self.draw, self.counts, self.spec = api, draw, counts, spec

    def __enter__(self):
        self.id = self.api.ok("POST", "/v1/sandboxes", {"image": "busybox", **self.spec}, timeout=90)["id"]
        self.at = f"/v1/sandboxes/{self.id}"
        self.counts["creates"] += 1
        return self

    def __exit__(self, kind, *_):
        gone = self.api.delete(self.id)
        if kind is None:
            equal((gone["state"], gone["cause"]["kind"]), ("gone", "requested"), "state and cause")
        self.counts["deletes"] += 1

    def exec(self, text, out, code=0):
        r = self.api.exec(self.id, text)
        ended(r["end"], code=code)
        equal(bytes_of(r["out"]), out, f"out of {text!r}")
        self.counts["execs"] += 1


def commands(life):
    for n in range(life.draw.randint(1, 12)):
        word, code = secrets.token_hex(6), n % 3
        life.exec(f"echo {word}; exit {code}", word.encode() + b"\n", code)


def stream(life):
    out, err, end, _ = collect(life.api.events("POST", life.at + "/exec", {
        "argv": ["sh", "-c", f"yes {life.id} | head -c {LOUD}; echo x >&2"]}))
    ended(end)
    line = life.id.encode() + b"\n"
    check(out == (line * (LOUD // len(line) + 1))[:LOUD] and err == b"x\n", "the stream's bytes")
    life.counts["streams"] += 1


def session(life):
    where = f"{life.at}/sessions"
    one = life.api.ok("POST", where, {})["id"]
    for n in range(1, 6):
        r = life.api.ok("POST", f"{where}/{one}/commands", {"command": "N=$((N+1)); cd /tmp; echo $N"})
        equal((r["kind"], r["exit_code"], bytes_of(r["out"])), ("ended", 0, f"{n}\n".encode()), "a command of a session")
        life.counts["session commands"] += 1
    if life.draw.random() < 0.7:  # the others end with their sandbox
        life.api.ok("DELETE", f"{where}/{one}")
    life.counts["sessions"] += 1


def files(life):
    where, body = life.at + "/files", secrets.token_bytes(life.draw.randint(1, 100_000))
    path = quote(f"/tmp/{secrets.token_hex(4)}/a file", safe="")
    life.api.ok("POST", f"{where}/mkdir?path=%2Ftmp%2Fd&parents=true")
    life.api.ok("PUT", f"{where}?path={path}&mkdir=true", body)
    got = life.api.call("GET", f"{where}?path={path}")
    check(got.status == 200 and got.body == body, f"the file's bytes: {got.status}")
    listed = life.api.ok("GET", f"{where}/list?path=%2Ftmp")
    check(any(e["name"] == "d" for e in listed["entries"]), "the list")
    packed = life.api.call("GET", f"{life.at}/files/archive?path=%2Ftmp")
    with tarfile.open(fileobj=io.BytesIO(packed.body)) as tar:
        check(any(m.size == len(body) for m in tar), "the archive")
    life.api.ok("DELETE", f"{where}?path={path}")
    life.counts["file verbs"] += 6


def busy(life):
    """It is deleted while it works."""
    for text in ("while :; do :; done", "yes >/dev/null", "sleep 1000 & sleep 1000", "yes"):
        if life.draw.random() < 0.5:
            life.api.start(life.id, text)
            life.counts["deleted while busy"] += 1


def kills(life):
    made = life.api.start(life.id, ["sleep", "1000"])
    a = life.api.call("POST", life.api.at(life.id, made, "/signal"), {"signal": "KILL"})
    equal(a.status, 204, "a signal's answer")
    equal(life.api.wait(life.id, made)["how"], "killed", "how it ended")
    made = life.api.start(life.id, "sleep 1000 & sleep 1000")
    life.api.ok("DELETE", life.api.at(life.id, made))
    equal(life.api.wait(life.id, made)["how"], "killed", "how it ended")
    life.exec("exit 5", b"", 5)
    life.counts["kills"] += 2


def port(life):
    word = secrets.token_hex(8)
    life.api.start(life.id, f"echo {word} >/tmp/index.html; httpd -f -p 8000 -h /tmp")

    def asked():
        a = life.api.call("GET", f"{life.at}/ports/8000/index.html")
        return a if a.status != 502 else None  # port_closed until it listens
    equal(eventually("the server answers", asked, 30).body, word.encode() + b"\n", "the server's answer")
    life.counts["ports"] += 1


def timeout(life):
    r = life.api.exec(life.id, "sleep 1000", timeout_ms=50)
    equal(r["end"]["how"], "timed_out", "how it ended")
    life.counts["time limits"] += 1


def failed(life):
    """A command that does not exist, a sandbox that does not."""
    a = life.api.call("POST", life.at + "/exec", {"argv": ["/nowhere"]})
    equal((a.status, a.error["code"]), (400, "exec_failed"), "a missing program")
    a = life.api.call("GET", "/v1/sandboxes/" + "b000" + "0" * 16)
    equal((a.status, a.error["code"]), (404, "not_found"), "a missing sandbox")
    life.counts["errors that were asked for"] += 2


def pause(life):
    made = life.api.start(life.id, "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done")
    for _ in range(3):
        a = life.api.call("POST", life.at + "/pause", {})
        if a.status != 504:  # what did not stand still in time runs on
            break
    equal(a.status, 200, f"a pause's answer ({a})")
    a = life.api.call("POST", life.at + "/exec", {"argv": ["true"]})
    equal((a.status, a.error["code"]), (409, "sandbox_paused"), "a command while it is paused")
    if life.draw.random() < 0.3:
        life.counts["deleted while paused"] += 1
        return
    life.api.ok("POST", life.at + "/resume", {})
    life.exec("echo back", b"back\n")
    check(not life.api.process(life.id, made)["end"], "the command ended")
    life.counts["pauses"] += 1


LAST = (busy, pause)  # behind these nothing else is done in a sandbox
KINDS = [commands, commands, stream, session, files, busy, kills, port, timeout, failed]


def has_pause(api):
    """Whether this build pauses."""
    made = api.create()
    try:
        api.ok("POST", f"/v1/sandboxes/{made}/pause", {})
        return True
    except ApiError:
        return False
    finally:
        api.delete(made)


def expired(api, counts):
    """Nobody deletes it: its time passes."""
    api.ok("POST", "/v1/sandboxes", {"image": "busybox", "ttl": 1}, timeout=90)
    counts["ended by ttl"] += 1


def keyed(api, counts):
    """One key, two requests, one sandbox."""
    key = {"Idempotency-Key": secrets.token_hex(8)}
    made = {api.ok("POST", "/v1/sandboxes", {"image": "busybox"}, key, timeout=90)["id"] for _ in range(2)}
    equal(len(made), 1, "sandboxes of one key")
    api.delete(made.pop())
    counts["keys"] += 1

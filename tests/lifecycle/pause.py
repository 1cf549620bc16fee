"""Pause and resume: what the answer says is compared with what is found, also over kills of bothyd and the warden."""
import contextlib
import datetime
import http.client
import pathlib
import random
import re
import statistics
import threading
import time

from attached import Attached
from harness import ApiError, Node, Watch, bytes_of, check, collect, equal, eventually, expect_error, free_port

# Counts into a stream and into a file; ends when it is told to.
COUNT = "i=0; while [ ! -e /tmp/stop{0} ]; do i=$((i+1)); echo $i; echo $i >/tmp/count{0}; usleep 2000; done; echo end"
KEPT = {"memory", "processes", "files", "sessions", "output", "streams", "connections", "time"}
LOST = {"answers", "clocks", "node"}


def at(sandbox, rest=""):
    return f"/v1/sandboxes/{sandbox}{rest}"


def pause(api, sandbox):
    return api.ok("POST", at(sandbox, "/pause"))


def resume(api, sandbox):
    return api.ok("POST", at(sandbox, "/resume"))


def counted(out):
    """How far it came; every number once and in order."""
    lines = out.split(b"\n")
    done = lines[-2:] == [b"end", b""]
    numbers = lines[:-2] if done else lines[:-1]
    equal(numbers, [b"%d" % i for i in range(1, len(numbers) + 1)], "the numbers it counted")
    return len(numbers), done


def standing(node, sandbox, exec_id):
    """The length of its output, when that has settled."""
    def settled():
        n = len(node.output(sandbox, exec_id))
        for _ in range(2):
            time.sleep(0.25)
            if len(node.output(sandbox, exec_id)) != n:
                return None
        return n
    return eventually("output stands still", settled)


def kill_both(node):
    for program in ("bothyd", "warden"):
        node.kill(program)
    for program in ("warden", "bothyd"):
        node.restart(program)


def asked(node, answers, where, body):
    """Its connection may die with bothyd: then nothing is appended."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        answers.append(node.call("POST", where, body, timeout=120))


class Follower(threading.Thread):
    """Follows a command's output and comes back by its last event id, however often it is cut."""

    def __init__(self, node, sandbox, exec_id):
        super().__init__(daemon=True)
        self.node, self.where, self.events, self.cuts = node, node.at(sandbox, exec_id, "/output?follow=end"), [], 0
        self.start()

    def run(self):
        last = None
        while not self.events or self.events[-1][0] != "end":
            with contextlib.suppress(OSError, ApiError, http.client.HTTPException):
                for event in self.node.events("GET", self.where, headers={"Last-Event-ID": last} if last else {}, timeout=90):
                    if event[0] != "ping":
                        self.events.append(event)
                    last = event[1] or last
            if not self.events or self.events[-1][0] != "end":
                self.cuts += 1
                time.sleep(0.05)

    def bytes(self):
        return b"".join(bytes_of(data) for kind, _, data in list(self.events) if kind == "out")


def cases(suite, node):
    if node.caps["freeze"] == "absent":
        @suite.case("pause: a backend that cannot says so")
        def _():
            with node.sandbox() as sb:
                for verb in ("pause", "resume"):
                    expect_error(node.call("POST", at(sb, "/" + verb)), 501, "unsupported")
                equal(node.exec(sb, ["true"])["end"]["how"], "exited", "end")
        return

    @suite.case("pause: a sandbox that is not there")
    def _():
        for verb in ("pause", "resume"):
            expect_error(node.call("POST", at("nonode0000000000none", "/" + verb)), 404, "not_found")

    whole(suite, node)
    verbs(suite, node)
    time_stands_still(suite, node)
    races(suite, node)
    kills(suite, node)
    by_hand(suite, node)


def whole(suite, node):
    @suite.case("pause: a counting process, a session, a follower and somebody attached, over kills of both: nothing is lost")
    def _():
        with node.sandbox(ttl=600) as sb:
            count = node.start(sb, COUNT.format("A"))
            cat = node.start(sb, ["sh", "-c", "echo ready; cat"], stdin_open=True)
            eventually("cat runs", lambda: node.output(sb, cat))
            session = node.ok("POST", at(sb, "/sessions"), {"shell": "sh"})["id"]
            run = at(sb, f"/sessions/{session}/commands")
            node.ok("POST", run, {"command": "cd /tmp; V=kept; f() { echo from f; }; sleep 1000 & J=$!"})
            answers = []
            inside = threading.Thread(target=asked, args=(node, answers, run, {
                "command": "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; usleep 2000; done; echo end", "timeout_ms": 60000}))
            inside.start()
            follower = Follower(node, sb, count)
            attached = Attached(node, node.at(sb, cat, "/attach"))
            attached.type("before\n")
            attached.until(b"before\n")
            seen = eventually("it counts", lambda: len(node.output(sb, count)))
            said = pause(node, sb)

            # what the answer says
            equal(said["state"], "paused", "state")
            equal({f["what"] for f in said["pause"]["kept"]}, KEPT, "what is kept")
            equal({f["what"] for f in said["pause"]["lost"]}, LOST, "what is lost")
            check(said["paused_at"] == said["pause"]["since"] and said["pause"]["until"] == said["ends"], f"times: {said}")
            check(0 < said["pause"]["resume"]["expect_ms"] <= said["pause"]["resume"]["worst_ms"], f"{said['pause']['resume']}")

            # it stands still, can be read, and streams stay open
            still = standing(node, sb, count)
            check(still >= seen, "it did not count before")
            attached.type("typed meanwhile\n")  # kept for it
            time.sleep(1)
            equal(len(node.output(sb, count)), still, "output while paused")
            check(follower.is_alive() and not follower.cuts, "the follower's stream broke")
            check(not answers and inside.is_alive(), f"the session's command ended: {answers}")
            shown = node.show(sb)
            equal((shown["state"], shown["ttl_left"], shown["running_execs"]), ("paused", said["ttl_left"], 3), "shown")
            equal(len(node.ok("GET", at(sb, "/processes"))["processes"]), 3, "processes")  # one is a shell's

            # both die, twice
            attached.ws.sock.close()
            kill_both(node)
            again = node.show(sb)
            equal((again["state"], again["paused_at"], again["ttl_left"]), ("paused", said["paused_at"], said["ttl_left"]), "after the kills")
            time.sleep(0.5)
            equal(len(node.output(sb, count)), still, "output after the kills")
            expect_error(node.call("POST", at(sb, "/exec"), {"argv": ["true"]}), 409, "sandbox_paused")
            kill_both(node)
            equal(len(node.output(sb, count)), still, "output after the second kills")
            attached = Attached(node, node.at(sb, cat, "/attach") + f"?offset={len(b'ready') + 1 + len(b'before') + 1}")

            began = time.monotonic()
            back = resume(node, sb)
            equal((back["state"], back["paused_at"], back["pause"]), ("running", None, None), "resumed")
            check(back["resumed"]["paused_ms"] > 1000, f"{back['resumed']}")
            eventually("it counts on", lambda: len(node.output(sb, count)) > still)
            print(f"      counted again {1000 * (time.monotonic() - began):.1f} ms after the resume was asked for; "
                  f"it said {again['pause']['resume'] or said['pause']['resume']}", flush=True)

            # kept: processes, memory, files, output, streams
            attached.until(b"typed meanwhile\n")
            attached.type("after\n")
            attached.until(b"after\n")
            equal(bytes(attached.out), b"typed meanwhile\nafter\n", "what came to who is attached")
            attached.control(stdin="eof")
            equal(attached.finish()["exit_code"], 0, "exit of cat")
            node.shell(sb, "touch /tmp/stopA /tmp/stop")
            equal(node.wait(sb, count)["exit_code"], 0, "exit")
            follower.join(30)
            check(not follower.is_alive(), "the follower does not end")
            out, _, end, _ = collect(iter(follower.events))
            equal(out, node.output(sb, count), "what was followed")
            n, done = counted(out)
            check(done and len(out) > still and end["exit_code"] == 0, f"{n} {done} {end}")
            # kept: the session with its state; the command that ran has counted every number
            inside.join(60)
            session_kept(node, sb, run, answers)
            told = [e["type"] for e in node.ok("GET", f"/v1/events?sandbox={sb}")["events"]]
            equal(told, ["creating", "running", "paused", "running"], "events")

    @suite.case("pause: the counting process did not count while it was paused; a neighbour did")
    def _():
        with node.sandbox() as one, node.sandbox() as two:
            ran = {sb: node.start(sb, "i=0; while :; do i=$((i+1)); echo $i; usleep 2000; done") for sb in (one, two)}
            eventually("both count", lambda: all(node.output(sb, x) for sb, x in ran.items()))
            pause(node, one)
            first = {sb: standing(node, sb, ran[sb]) if sb == one else len(node.output(sb, ran[sb])) for sb in ran}
            time.sleep(1)
            eventually("the one beside it counts on", lambda: len(node.output(two, ran[two])) > first[two] + 100)
            equal(len(node.output(one, ran[one])), first[one], "output of the paused one")
            resume(node, one)
            eventually("it goes on", lambda: len(node.output(one, ran[one])) > first[one])


def session_kept(node, sb, run, answers):
    if not answers or answers[0].status != 200:  # its connection died with bothyd: ask for what became of it
        got = eventually("the session's command ends", lambda: (lambda c: c["kind"] != "running" and c)(
            node.ok("GET", run + "/2")), 30)
        out = node.call("GET", run + "/2/output?max=16777216").body
    else:
        got, out = answers[0].json, bytes_of(answers[0].json["out"])
    equal((got["kind"], got["exit_code"]), ("ended", 0), "the session's command")
    n, done = counted(out)
    check(done and n, "the session's command did not count")
    kept = node.ok("POST", run, {"command": "pwd; echo $V; f; kill -0 $J && echo job; kill $J"})
    equal(bytes_of(kept["out"]), b"/tmp\nkept\nfrom f\njob\n", "state of the session")


def verbs(suite, node):
    @suite.case("pause: what would need somebody inside answers sandbox_paused and names resume; what is read is read")
    def _():
        with node.sandbox() as sb:
            node.shell(sb, "echo text >/tmp/file")
            x = node.start(sb, ["sh", "-c", "echo out; cat"], stdin_open=True)
            tty = node.start(sb, ["sh"], stdio="pty", stdin_open=True)
            s = node.ok("POST", at(sb, "/sessions"), {"shell": "sh"})["id"]
            node.ok("POST", at(sb, f"/sessions/{s}/commands"), {"command": "true"})
            ended = node.exec(sb, "echo ended")["exec"]
            eventually("it has written", lambda: node.output(sb, x))
            pause(node, sb)
            refused = [("POST", "/exec", {"argv": ["true"]}), ("POST", "/processes", {"argv": ["true"]}),
                       ("POST", "/sessions", {}), ("POST", f"/sessions/{s}/commands", {"command": "true"}),
                       ("POST", f"/sessions/{s}/interrupt", None), ("DELETE", f"/sessions/{s}", None),
                       ("GET", "/files?path=/tmp/file", None), ("PUT", "/files?path=/tmp/new", b"x"), ("DELETE", "/files?path=/tmp/file", None),
                       ("GET", "/files/list?path=/", None), ("GET", "/files/stat?path=/", None),
                       ("GET", "/ports/80/", None), ("POST", f"/processes/{x}/stdin", b"x"),
                       ("POST", f"/processes/{x}/signal", {"signal": "TERM"}), ("POST", f"/processes/{tty}/resize", {"rows": 10, "cols": 10}),
                       ("DELETE", f"/processes/{x}", None)]
            for method, path, body in refused:
                a = node.call(method, at(sb, path), body)
                equal((a.status, a.error["code"]), (409, "sandbox_paused"), f"{method} {path}")
                check("esume" in a.error["remedy"], f"remedy: {a.error}")
            with contextlib.suppress(ConnectionError):
                a = node.call("GET", at(sb, "/terminal"), headers={"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                                                                   "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="})
                equal(a.status, 409, "terminal")
            # reading
            equal(node.output(sb, x), b"out\n", "output")
            equal(node.process(sb, ended)["end"]["exit_code"], 0, "end record")
            check(sb in [v["id"] for v in node.ok("GET", "/v1/sandboxes?state=paused")["sandboxes"]], "not listed as paused")
            check(sb not in [v["id"] for v in node.ok("GET", "/v1/sandboxes?state=running")["sandboxes"]], "listed as running")
            equal(len(node.ok("GET", at(sb, "/sessions"))["sessions"]), 1, "sessions")
            resume(node, sb)
            equal(node.shell(sb, "cat /tmp/file; ls /tmp/new 2>/dev/null || echo none"), "text\nnone\n", "files after it")
            node.ok("DELETE", at(sb, f"/processes/{x}"))
            equal(node.wait(sb, x)["how"], "killed", "end of a kill after the resume")

    @suite.case("pause: twice, resume twice, of one that is gone; a create's key answers the paused one")
    def _():
        key = {"Idempotency-Key": f"pause-{time.time_ns()}"}
        sb = node.create(headers=key)
        first, second = pause(node, sb), pause(node, sb)
        equal((first["paused_at"], first["pause"]["since"]), (second["paused_at"], second["pause"]["since"]), "since when")
        a = node.call("POST", "/v1/sandboxes", {"image": "busybox"}, key)
        equal((a.headers["Idempotent-Replay"], a.json["id"], a.json["state"]), ("true", sb, "paused"), "replay")
        check(resume(node, sb)["resumed"]["took_ms"] > 0, "took")
        equal(resume(node, sb)["resumed"], None, "the second resume")
        node.delete(sb)
        for verb in ("pause", "resume"):
            expect_error(node.call("POST", at(sb, "/" + verb)), 410, "sandbox_gone")

    @suite.case("pause: destroyed while paused, at once, and nothing stays")
    def _():
        for _ in range(5):  # what runs beside us may hold one up
            sb = node.create()
            node.start(sb, ["sleep", "42421"])
            pause(node, sb)
            watch = Watch()
            equal(node.delete(sb)["cause"], {"kind": "requested", "by": "admin"}, "cause")
            if quick := watch.within(1):
                break
        check(quick, f"it took {watch}")
        eventually("its slot is gone", lambda: not [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if cmdline(p) == b"sleep\x0042421\x00"], 10)
        pool = node.ok("GET", "/v1/info")["pool"]
        eventually("nothing is claimed for it", lambda: node.ok("GET", "/v1/info")["pool"]["claimed"] <= pool["claimed"], 10)

    @suite.case("pause: how long a resume takes is known after a restart of bothyd, too")
    def _():
        with node.sandbox() as sb:
            said = pause(node, sb)["pause"]["resume"]
            node.kill("bothyd")
            node.restart("bothyd")
            equal(node.show(sb)["pause"]["resume"], said, "what is said of the resume")
            resume(node, sb)

    @suite.case("pause: the resume takes as long as the answer said")
    def _():
        found, said, took = [], [], []
        with node.sandbox() as sb:
            x = node.start(sb, "i=0; while :; do i=$((i+1)); echo $i; done | tail -c 0 -f 2>/dev/null || :")
            for _ in range(25):
                said.append(pause(node, sb)["pause"]["resume"]["expect_ms"])
                began = time.monotonic()
                took.append(resume(node, sb)["resumed"]["took_ms"])
                found.append(1000 * (time.monotonic() - began))
                check(took[-1] <= found[-1], f"took {took[-1]} ms, found {found[-1]} ms")
            node.call("DELETE", at(sb, f"/processes/{x}"))
        a, b, c = (statistics.median(v[5:]) for v in (said, took, found))
        print(f"      said {a:.2f} ms, took {b:.2f} ms, with the way to a caller and back {c:.2f} ms (medians of {len(said) - 5})", flush=True)
        check(b / 4 < a < 4 * b, f"said {a:.2f} ms, took {b:.2f} ms")


def cmdline(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def time_stands_still(suite, node):
    @suite.case("pause: time to live and time limits stand still, over a restart, too")
    def _():
        with node.sandbox(ttl=8) as sb:
            ran = Watch()
            limited = node.start(sb, ["sleep", "1000"], timeout_ms=5000)
            s = node.ok("POST", at(sb, "/sessions"), {"shell": "sh"})["id"]
            done = []
            t = threading.Thread(target=asked, args=(node, done, at(sb, f"/sessions/{s}/commands"), {"command": "sleep 1000", "timeout_ms": 5000}))
            t.start()
            time.sleep(0.5)
            left = pause(node, sb)["ttl_left"]
            least = min(3.5, 4.9 - ran.seconds())
            time.sleep(4)
            equal(node.process(sb, limited)["end"], None, "its end")
            node.kill("bothyd")
            node.restart("bothyd")
            time.sleep(4.5)  # more than ttl and limits together
            shown = node.show(sb)
            equal((shown["state"], shown["ttl_left"]), ("paused", left), "state")
            equal(node.process(sb, limited)["end"], None, "its end")
            watch = Watch()
            back = resume(node, sb)
            check(left - 0.5 < back["ttl_left"] <= left, f"left {left}, then {back['ttl_left']}")
            equal(node.wait(sb, limited, 20)["how"], "timed_out", "how it ended")
            check(watch.seconds() > least and watch.within(9), f"the time limit came {watch} after the resume; about 4.5 were left")
            got = eventually("the session's command ends", lambda: (lambda c: c["kind"] != "running" and c)(
                node.ok("GET", at(sb, f"/sessions/{s}/commands/1"))), 10)
            check(got["timed_out"], f"{got}")
            t.join(5)
            cause = eventually("its time is over", lambda: node.show(sb)["cause"], 15)
            equal(cause["kind"], "ttl", "cause")

    @suite.case("pause: a time limit counts only the time it ran, however often it was paused")
    def _():
        with node.sandbox() as sb:
            x = node.start(sb, ["sleep", "1000"], timeout_ms=5000)  # six tenths of a second and the way to six pauses are less
            still = 0
            for _ in range(6):
                time.sleep(0.1)
                pause(node, sb)
                time.sleep(0.4)
                still += resume(node, sb)["resumed"]["paused_ms"] / 1000
            end = node.wait(sb, x, 20)
            equal(end["how"], "timed_out", "how it ended")
            lived = seconds(end["ended"]) - seconds(end["started"])
            check(lived > 4.9 + still * (1 - 1 / 6) and still > 2, f"it lived {lived:.2f} s, of which it was paused {still:.2f} or less")


def races(suite, node):
    @suite.case("pause: races with commands, pauses and resumes; each is answered, none is lost")
    def _():
        with node.sandbox() as sb:
            began, seen, wrong = time.monotonic(), {}, []

            def going():
                """For 4 s, and until there was enough of both."""
                few = seen.get("ok", 0) <= 10 or not seen.get("sandbox_paused", 0)
                return time.monotonic() - began < (30 if few else 4)

            def turn(verb):
                while going():
                    node.ok("POST", at(sb, "/" + verb))

            def command(number):
                n = 0
                while going():
                    n += 1
                    a = node.call("POST", at(sb, "/exec"), {"argv": ["sh", "-c", f"echo {number}.{n}"]}, timeout=60)
                    code = "ok" if a.status == 200 else a.error["code"]
                    seen[code] = seen.get(code, 0) + 1
                    if a.status == 200 and bytes_of(a.json["out"]) != b"%d.%d\n" % (number, n) or code not in ("ok", "sandbox_paused"):
                        wrong.append(a)
            threads = [threading.Thread(target=turn, args=(v,)) for v in ("pause", "resume", "resume")]
            threads += [threading.Thread(target=command, args=(i,)) for i in range(3)]
            for t in threads[3:] + threads[:3]:
                t.start()
            for t in threads[:3]:
                t.join()
            resume(node, sb)
            for t in threads:
                t.join(60)
            check(not wrong and not any(t.is_alive() for t in threads), f"{wrong[:2]}")
            check(seen.get("ok", 0) > 10 and seen.get("sandbox_paused", 0) > 0, f"{seen}")
            resume(node, sb)
            equal(node.exec(sb, ["true"])["end"]["exit_code"], 0, "a command after it")

    @suite.case("pause: races with an end: gone is gone, and no slot stays frozen")
    def _():
        before = node.ok("GET", "/v1/info")["pool"]["claimed"]
        for i in range(20):
            sb = node.create()
            node.start(sb, ["sleep", "1000"])
            got = []
            threads = [threading.Thread(target=lambda v=v, s=sb: got.append((v, node.call(*v, timeout=60)))) for v in (
                ("POST", at(sb, "/pause")), ("DELETE", at(sb)), ("POST", at(sb, "/resume")))]
            for t in threads[i % 3:] + threads[:i % 3]:
                t.start()
            for t in threads:
                t.join(60)
            for verb, a in got:
                check(a.status == 200 or a.error["code"] == "sandbox_gone", f"{verb}: {a}")
            equal(node.show(sb)["state"], "gone", "state")
        eventually("all their slots are gone", lambda: node.ok("GET", "/v1/info")["pool"]["claimed"] <= before, 20)

    @suite.case("pause: a fork bomb and shells that vfork all the time stand still, or are told not to")
    def _():
        with node.sandbox(limits={"pids": 200}) as sb:
            node.start(sb, "while :; do /bin/true; (exit 3); done")
            node.start(sb, "b() { b | b & }; b; while :; do /bin/true; done")  # last: beside it nothing starts
            time.sleep(0.5)
            outcomes = []
            for _ in range(5):
                began = time.monotonic()
                a = node.call("POST", at(sb, "/pause"), timeout=60)
                outcomes.append((a.status, round(time.monotonic() - began, 2)))
                if a.status == 200:
                    equal(node.show(sb)["state"], "paused", "state")
                    resume(node, sb)
                else:
                    expect_error(a, 504, "timeout")
                    equal(node.show(sb)["state"], "running", "state")
            print(f"      pauses of a fork bomb (status, s): {outcomes}", flush=True)
            pause_status = node.call("POST", at(sb, "/pause"), timeout=60).status
            check(pause_status in (200, 504), "the last pause")
            watch = Watch()
            node.delete(sb)
            check(watch.within(5), f"its end took {watch}")


def patient(ask, seconds=30):
    """Until it is answered: lost connections and retryable errors are no answer."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ApiError as e:
            if not e.answer.error["retryable"] or time.monotonic() > end:
                raise
        except (OSError, http.client.HTTPException):
            if time.monotonic() > end:
                raise
        time.sleep(0.02)


def moved_under_fire(node, sb, verb, victims):
    """A pause or resume by somebody who does not give up, with a kill somewhere in it."""
    got, trouble = [], []

    def ask():
        try:
            got.append(patient(lambda: node.ok("POST", at(sb, "/" + verb))))
        except Exception as e:  # noqa: BLE001: told below
            trouble.append(e)
    t = threading.Thread(target=ask)
    t.start()
    time.sleep(random.uniform(0, 0.004))
    for program in victims:
        node.kill(program)
    for program in reversed(victims):
        node.restart(program)
    t.join(60)
    if trouble:
        raise trouble[0]
    return got[0]


def kills(suite, node):
    rounds = 60 if suite.args.long else 5
    found = {"rounds": 0, "kills": 0, "counted_while_paused": 0, "not_resumed": 0, "lost_or_doubled": 0}

    @suite.case(f"pause: bothyd, the warden or both killed in the middle of {rounds} pauses and resumes")
    def _():
        sb = node.create(ttl=86400)
        x = node.start(sb, COUNT.format("K"))
        eventually("it counts", lambda: node.output(sb, x))
        for _ in range(rounds):
            victims = random.choice((["bothyd"], ["warden"], ["bothyd", "warden"], ["bothyd"]))
            equal(moved_under_fire(node, sb, "pause", victims)["state"], "paused", "state")
            first = standing(node, sb, x)
            time.sleep(0.2)
            found["counted_while_paused"] += len(node.output(sb, x)) != first
            equal(moved_under_fire(node, sb, "resume", random.choice(([], victims)))["state"], "running", "state")
            try:
                eventually("it goes on", lambda n=first: len(node.output(sb, x)) > n, 20)
            except AssertionError:
                found["not_resumed"] += 1
            found["rounds"] += 1
            found["kills"] += len(victims)
        patient(lambda: node.shell(sb, "touch /tmp/stopK"))
        equal(node.wait(sb, x)["exit_code"], 0, "exit code")
        try:
            counted(node.output(sb, x))
        except AssertionError:
            found["lost_or_doubled"] += 1
        node.delete(sb)
        print(f"      {found}", flush=True)
        bad = {k: v for k, v in found.items() if k not in ("rounds", "kills") and v}
        check(not bad, f"{bad}")
    suite.figures = {**getattr(suite, "figures", {}), "pause": found}


def by_hand(suite, node):
    @suite.case("pause: the command line")
    def _():
        with node.sandbox(name="quiet") as sb:
            r = node.cli("pause", "quiet")
            equal(r.returncode, 0, f"status ({r.stderr})")
            text = r.stdout.decode()
            check(re.match(r"quiet: paused, kept until \S+Z; of its ttl are left \S+; a resume takes about \S+ ms\n  kept: memory, ", text), text)
            check("\n  lost: answers, clocks, node\n" in text, text)
            check(re.search(rf"{sb}\s+quiet\s+busybox\s+paused", node.cli("ls").stdout.decode()), "ls")
            shown = node.cli("show", "quiet").stdout.decode()
            check("Clocks go on" in shown and re.search(r"^state +paused$", shown, re.M), shown)
            r = node.cli("exec", "quiet", "true")
            check(r.returncode == 125 and b"bothy resume" in r.stderr, f"{r}")
            r = node.cli("resume", "quiet", "nobody-there")
            check(r.returncode == 125 and re.match(r"quiet: running again after \d+s; the resume took ", r.stdout.decode()), f"{r}")
            equal(node.cli("resume", "quiet").stdout.decode(), "quiet: running; it was not paused\n", "again")
            equal(node.cli("pause", "-q", "quiet").stdout, b"quiet\n", "quiet")
            check(b'"paused_ms"' in node.cli("resume", "--json", "quiet").stdout, "json")
            check(node.cli("pause").returncode == 125 and node.cli("pause", "--wrong", "quiet").returncode == 125, "wrong use")


def alone(suite, backend):
    if backend != "oci" or not suite.wants_any(alone):
        return
    port = free_port()
    # Long beside a start of bothyd, though other nodes start at the same time.
    with Node(backend, env=f"BOTHY_RETENTION_PAUSED=8s BOTHY_LISTEN_TCP=127.0.0.1:{port}") as node:
        node.port = port

        @suite.case("pause: one that nobody resumes ends in time, also after a restart, and says why")
        def _():
            sb = node.create(ttl=600)
            pause(node, sb)
            node.kill("bothyd")
            time.sleep(1)
            node.restart("bothyd")
            equal(node.show(sb)["state"], "paused", "state after 1 s")
            cause = eventually("it ends", lambda: node.show(sb)["cause"], 15)
            check(cause["kind"] == "ttl" and "paused" in cause["detail"], f"{cause}")
            expect_error(node.call("POST", at(sb, "/resume")), 410, "sandbox_gone")

        @suite.case("pause: not yours, not with a key that only reads")
        def _():
            keys = {role: node.ok("POST", "/v1/keys", {"owner": owner, "role": role})["key"]
                    for owner, role in (("one", "user"), ("two", "read"))}
            with node.sandbox() as sb:
                expect_error(node.by_key(keys["user"]).call("POST", at(sb, "/pause")), 404, "not_found")
                check(node.by_key(keys["read"]).call("POST", at(sb, "/pause")).status in (403, 404), "a reading key")
                equal(node.show(sb)["state"], "running", "state")

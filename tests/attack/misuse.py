"""Misuse of our protocol: a command that breaks its own stdio, kills what it can, hides, or never ends."""
import re

from common import WAYS, answers, each_way
from harness import Watch, bytes_of, check, collect, equal, eventually

# What a terminal or a log reader could mistake for something else.
HOSTILE = b"\x1b]0;owned\x07\x1b[2J\x1bP+q544e\x1b\\\x9b31m\xff\xfe\r\n{\"error\":{}}\r\nevent: end\ndata: {}\n\n\x00HTTP/1.1 200 OK\r\n\r\n"


def cases(attack, node):
    processes(attack, node)
    stdio(attack, node)
    deletion(attack, node)


def processes(attack, node):
    @attack.attempt("misuse: kill(-1, KILL) two hundred times: its own end is told, pid 1 serves on", tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            sleeper = node.start(sandbox, ["sleep", "1000"], user=user)
            r = node.exec(sandbox, ["/intruder", "misuse", "kill-all"], user=user)
            equal((r["end"]["how"], r["end"]["exit_code"], bytes_of(r["out"])), ("exited", 5, b"alone\n"), f"its end, {way}")
            end = node.wait(sandbox, sleeper, 5)
            equal((end["how"], end["signal"]), ("signalled", 9), f"end of what it killed, {way}")
            answers(node, sandbox)
        each_way(node, body)

    @attack.attempt("misuse: kill(-1, STOP) in a loop: every command is answered, and can be killed", tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            node.exec(sandbox, ["/intruder", "misuse", "stop-all"], user=user, timeout_ms=500)
            r = node.exec(sandbox, ["sleep", "0.2"], user=user, timeout_ms=400)
            check(r["end"]["how"] in ("exited", "timed_out"), f"{way}: {r['end']}")
        each_way(node, body)

    @attack.attempt("misuse: a daemon out of session and tree keeps our pipe: the end does not wait for it, its late words are kept",
                    tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            watch = Watch()
            r = node.exec(sandbox, ["/intruder", "misuse", "daemonise"], user=user)
            equal((r["end"]["exit_code"], bytes_of(r["out"])), (7, b"parent\n"), f"{way}")
            check(watch.within(2), f"the end waited for the daemon: {watch}")
            eventually("late words", lambda: node.output(sandbox, r["exec"]) == b"parent\nlate\n", 10)
            equal(node.process(sandbox, r["exec"])["end"], r["end"], "its end afterwards")
        each_way(node, body)


def stdio(attack, node):
    @attack.attempt("misuse: a command that closes its stdio and lives on is seen to its end", tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            r = node.exec(sandbox, ["/intruder", "misuse", "close-all"], user=user)
            equal((r["end"]["exit_code"], bytes_of(r["out"])), (6, b"before\n"), way)
        each_way(node, body)

    @attack.attempt("misuse: stdout made non-blocking, of one page, and read by its own writer: what is left arrives in order", tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            r = node.exec(sandbox, ["/intruder", "misuse", "twist"], user=user)
            out = bytes_of(r["out"])
            check(r["end"]["exit_code"] == 8 and re.fullmatch(rb"(twisted\n)*end\n", out), f"{way}: {r['end']} {out[:40]!r}")
        each_way(node, body)

    @attack.attempt("misuse: a terminal made deaf, exclusive, locked, in packet mode and of 65535 columns: its end is told", tuple(WAYS))
    def _():
        def body(sandbox, user, way):
            r = node.exec(sandbox, ["/intruder", "misuse", "terminal"], user=user, stdio="pty", timeout_ms=5000)
            equal(r["end"]["exit_code"], 4, f"exit code, {way}")
            equal(bytes_of(node.exec(sandbox, ["echo", "x"], stdio="pty")["out"]), b"x\r\n", "the next terminal")
        each_way(node, body)

    @attack.attempt("misuse: hostile sequences are bytes: the same in JSON, raw and as events, and no event of their own")
    def _():
        with node.sandbox() as sandbox:
            node.shell(sandbox, "printf '%b' '" + "".join(f"\\0{b:03o}" for b in HOSTILE) + "' >/hostile")
            r = node.exec(sandbox, ["cat", "/hostile"])
            equal(bytes_of(r["out"]), HOSTILE, "in JSON")
            equal(node.output(sandbox, r["exec"]), HOSTILE, "raw")
            out, _, end, kinds = collect(node.events("GET", node.at(sandbox, r["exec"], "/output?stream=both")))
            equal((out, kinds.count("end") <= 1, end is None or end["exit_code"] == 0), (HOSTILE, True, True), "as events")

    @attack.attempt("misuse: names and arguments with control characters reach no terminal and no log unescaped")
    def _():
        with node.sandbox(labels={"a": "\x1b[31mred"}) as sandbox:
            node.exec(sandbox, ["echo", "\x1b]0;owned\x07", "\n{\"level\":\"error\"}"])
            shown = node.cli("ls").stdout + node.cli("show", sandbox).stdout
            check(b"\x1b" not in shown and b"\x07" not in shown, f"{shown!r}")
            check("\x1b" not in node.log(), "in the log")


def deletion(attack, node):
    @attack.attempt("misuse: prints without end while it is deleted: gone within 5 s, output kept to its last byte told", tuple(WAYS))
    def _():
        for grants, user in WAYS.values():
            sandbox = node.create(grants=list(grants))
            x = node.start(sandbox, "yes no end", user=user)
            eventually("it prints", lambda: node.call("GET", node.at(sandbox, x, "/output?max=1")).body, 5)
            watch = Watch()
            equal(node.delete(sandbox)["state"], "gone", "state")
            check(watch.within(5), f"deleting took {watch}")

    @attack.attempt("misuse: twelve commands that ignore TERM, hold pipes and fork while their sandbox is deleted", tuple(WAYS))
    def _():
        for grants, user in WAYS.values():
            sandbox = node.create(grants=list(grants))
            for _ in range(12):
                node.start(sandbox, "trap '' TERM INT HUP; (trap '' TERM; while :; do sleep 0.01; done) & while :; do sleep 0.01; done", user=user)
            equal(node.delete(sandbox)["state"], "gone", "state")

    @attack.attempt("misuse: a command whose reader never reads is not waited for by others")
    def _():
        with node.sandbox() as sandbox:
            c, r = node.open("POST", f"/v1/sandboxes/{sandbox}/exec", {"argv": ["yes"]}, {"Accept": "text/event-stream"})
            equal(r.status, 200, "status")
            answers(node, sandbox)  # nobody reads c
            c.close()

"""Time limits, signals with their scopes, lists of processes."""
import random

from common import walls
from harness import SLOW, Watch, check, equal, eventually, expect_error


def number():
    """A sleep nobody else has: found by its argv."""
    return str(random.randint(10_000_000, 99_999_999))


def sleeping(node, sb, n):
    """Asked from inside: so a server elsewhere can be held to it, too. A shell's read leaves out the NULs of an argv."""
    look = f"for f in /proc/[0-9]*/cmdline; do read -r l <$f; [ \"$l\" != sleep{n} ] || exit 0; done 2>/dev/null; exit 1"
    return node.exec(sb, look)["end"]["exit_code"] == 0


def cases(suite, node):
    with node.sandbox() as sb:
        timeouts(suite, node, sb)
        scopes(suite, node, sb)
        lists(suite, node, sb)


def timeouts(suite, node, sb):
    @suite.case("a time limit ends the command and everything it started, how timed_out")
    def _():
        a, b = number(), number()
        watch = Watch()
        r = node.exec(sb, f"echo before; sleep {a} & sleep {b}", timeout_ms=2000 * SLOW)  # it has spoken by then
        check(watch.seconds() > 1.95 * SLOW and watch.within(3.6 * SLOW), f"it took {watch}")
        equal((r["end"]["how"], r["end"]["exit_code"], r["end"]["signal"]), ("timed_out", None, 15), "end")
        equal(r["out"]["text"], "before\n", "out")
        eventually("the tree is dead", lambda: not sleeping(node, sb, a) and not sleeping(node, sb, b), 3)

    @suite.case("who ignores TERM is killed two seconds later")
    def _():
        n = number()
        watch = Watch()
        r = node.exec(sb, f"trap '' TERM; sleep {n}; sleep {n}", timeout_ms=3000)  # its trap is set by then
        check(watch.seconds() > 4.8 and watch.within(7.3), f"it took {watch}")
        equal((r["end"]["how"], r["end"]["signal"]), ("timed_out", 9), "end")
        eventually("nothing sleeps", lambda: not sleeping(node, sb, n), 3)

    @suite.case("a time limit hits nobody else")
    def _():
        n = number()
        x = node.start(sb, ["sleep", n])
        eventually("it sleeps", lambda: sleeping(node, sb, n))
        node.exec(sb, ["sleep", "60"], timeout_ms=100)
        check(sleeping(node, sb, n), "another command died too")
        node.ok("DELETE", node.at(sb, x))

    @suite.case("a command that is quick enough does not notice its time limit")
    def _():
        equal(node.exec(sb, "exit 4", timeout_ms=5000)["end"]["exit_code"], 4, "exit code")


def scopes(suite, node, sb):
    @suite.case("a signal by name and by number reaches the command")
    def _():
        for signal in ("USR1", "SIGUSR1", 10):
            x = node.start(sb, 'trap "echo got; exit 7" USR1; echo ready; while :; do sleep 0.05; done')
            eventually("the trap is set", lambda: b"ready" in node.output(sb, x))
            node.ok("POST", node.at(sb, x, "/signal"), {"signal": signal})
            equal(node.wait(sb, x)["exit_code"], 7, "exit code")
            equal(node.output(sb, x), b"ready\ngot\n", "output")

    @suite.case("a caller's TERM reads killed with signal 15; a signal from inside reads signalled")
    def _():
        x = node.start(sb, ["sleep", "60"])
        node.ok("POST", node.at(sb, x, "/signal"), {"signal": "TERM"})
        end = node.wait(sb, x)
        equal((end["how"], end["signal"], end["exit_code"]), ("killed", 15, None), "end")
        end = node.exec(sb, "kill -9 $$")["end"]
        equal((end["how"], end["signal"]), ("signalled", 9), "end")

    @suite.case("scope process leaves the children, scope tree does not")
    def _():
        a, b = number(), number()
        x = node.start(sb, f"sleep {a} & setsid sleep {b} & wait")
        eventually("both sleep", lambda: sleeping(node, sb, a) and sleeping(node, sb, b))
        node.ok("POST", node.at(sb, x, "/signal"), {"signal": "KILL", "scope": "process"})
        equal(node.wait(sb, x)["signal"], 9, "signal")
        check(sleeping(node, sb, a) and sleeping(node, sb, b), "a child died with scope process")
        node.exec(sb, f"kill -9 $(pidof sleep) 2>/dev/null || pkill -9 -f 'sleep ({a}|{b})'")
        y = node.start(sb, f"sleep {a} & setsid sleep {b} & wait")
        eventually("both sleep", lambda: sleeping(node, sb, a) and sleeping(node, sb, b))
        node.ok("POST", node.at(sb, y, "/signal"), {"signal": "KILL", "scope": "tree"})
        eventually("the tree is dead", lambda: not sleeping(node, sb, a) and not sleeping(node, sb, b), 3)
        equal(node.wait(sb, y)["how"], "killed", "how")

    @suite.case("scope group reaches the command's group, not a child of another session")
    def _():
        a, b = number(), number()
        x = node.start(sb, f"sleep {a} & setsid sleep {b} & wait")
        eventually("both sleep", lambda: sleeping(node, sb, a) and sleeping(node, sb, b))
        node.ok("POST", node.at(sb, x, "/signal"), {"signal": "KILL", "scope": "group"})
        node.wait(sb, x)
        eventually("the group is dead", lambda: not sleeping(node, sb, a), 3)
        check(sleeping(node, sb, b), "a session of its own died with scope group")
        node.exec(sb, f"kill -9 $(pidof sleep) 2>/dev/null || pkill -9 -f 'sleep {b}'")

    @suite.case("scope session reaches other groups of the session")
    def _():
        a, b = number(), number()
        x = node.start(sb, f"set -m; sleep {a} & echo; setsid sleep {b} & wait", stdio="pty")
        eventually("both sleep", lambda: sleeping(node, sb, a) and sleeping(node, sb, b))
        node.ok("POST", node.at(sb, x, "/signal"), {"signal": "KILL", "scope": "session"})
        node.wait(sb, x)
        eventually("the session is dead", lambda: not sleeping(node, sb, a), 3)
        check(sleeping(node, sb, b), "a session of its own died with scope session")
        node.exec(sb, f"kill -9 $(pidof sleep) 2>/dev/null || pkill -9 -f 'sleep {b}'")

    @suite.case("a signal to a command that has ended, and an unknown signal, are refused")
    def _():
        x = node.exec(sb, ["true"])["exec"]
        check(node.call("POST", node.at(sb, x, "/signal"), {"signal": "TERM"}).status in (204, 404, 409), "to an ended one")
        y = node.start(sb, ["sleep", "5"])
        for bad in ("NOPE", 0, 65, "SIGSIG"):
            expect_error(node.call("POST", node.at(sb, y, "/signal"), {"signal": bad}), 400, "invalid_request")
        node.ok("DELETE", node.at(sb, y))

    @suite.case("delete kills the command and everything it started, and may be repeated")
    def _():
        n = number()
        x = node.start(sb, f"sleep {n} & wait")
        eventually("it sleeps", lambda: sleeping(node, sb, n))
        node.ok("DELETE", node.at(sb, x))
        equal((node.wait(sb, x)["how"], node.wait(sb, x)["signal"]), ("killed", 9), "end")
        eventually("the tree is dead", lambda: not sleeping(node, sb, n), 3)
        equal(node.ok("DELETE", node.at(sb, x))["end"]["how"], "killed", "how")


def lists(suite, node, sb):
    @suite.case("processes are listed oldest first, running and ended")
    def _():
        with node.sandbox() as own:
            a = node.exec(own, "exit 1")["exec"]
            b = node.start(own, ["sleep", "60"])
            listed = node.ok("GET", f"/v1/sandboxes/{own}/processes")["processes"]
            equal([p["exec"] for p in listed], [a, b], "order")
            equal([p["running"] for p in listed], [False, True], "running")
            check(listed[1]["pid"] and listed[1]["pid"] > 1, "pid")
            check("sleep" in listed[1]["command"], "command")
            equal(int(b), int(a) + 1, "ids")

    @suite.case("pid is that of the sandbox's own pid namespace")
    def _():
        walls(node)
        x = node.start(sb, "echo $$; sleep 60")
        eventually("it prints", lambda: node.output(sb, x))
        equal(node.process(sb, x)["pid"], int(node.output(sb, x)), "pid")
        node.ok("DELETE", node.at(sb, x))

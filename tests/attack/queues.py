"""Queues: an owner who fills those of the node with processes, builds, pauses and lists; a neighbour waits in none of them."""
import collections
import concurrent.futures
import contextlib
import subprocess

from common import INTRUDER, SMALL, Neighbour, armed, loops, undisturbed
from harness import check, equal, eventually, expect_error
from owners import api_for
from pools import held

PIDS_MAX = 4096     # limits.max_pids
HOLDERS = 2         # sandboxes that have as many processes as may be
BUILDS = 32
BUILDS_OWNER = 4    # that run at a time
RESISTING = 50
SLOW_CPU = 0.01     # of a processor: a call of the intruder's takes seconds
PAUSES = 10         # of the neighbour's, in a turn
ENDED = 1000        # commands in the list, the most there are
RUNNERS = 4         # of others beside it
LISTERS = 2
# Of templates that are removed while their builds run, and of pauses that are refused.
ALLOWED = ("there is no build", "the sandbox did not freeze", "too many pauses")


def cases(attack, node):
    mallory, other = api_for(node, "mallory"), api_for(node, "other")
    processes(attack, mallory, other)
    builds(attack, mallory, other)
    pauses(attack, mallory, other)
    lists(attack, mallory, other)


def processes(attack, mallory, other):
    @attack.attempt("processes: 4,194,304 are refused; as many as are allowed, all of them taken, hold up no neighbour's command and no create")
    def _():
        expect_error(mallory.call("POST", "/v1/sandboxes", {"image": "debian", "limits": {"pids": 4194304}}), 403, "forbidden")
        with other.sandbox() as neighbour, contextlib.ExitStack() as stack:
            boxes = [stack.enter_context(armed(mallory, limits={"pids": PIDS_MAX, "memory": 2 << 30})) for _ in range(HOLDERS)]

            @contextlib.contextmanager
            def under():
                execs = {box: mallory.start(box, ["/intruder", "hold", "pids"]) for box in boxes}
                for box, x in execs.items():
                    got = int(eventually("the processes are there", lambda b=box, x=x: held(mallory, b, x), 60)[2])
                    check(got > PIDS_MAX - 64, f"only {got} processes")
                yield
                for box, x in execs.items():
                    mallory.ok("DELETE", mallory.at(box, x))
                    mallory.wait(box, x)
            undisturbed(attack, f"{HOLDERS} times {PIDS_MAX} processes", Neighbour(other, neighbour), under)


class Builder:
    """Builds of templates by the E2B door."""

    def __init__(self, api):
        self.api = api

    def ask(self, method, path, body=None):
        answer = self.api.call(method, path, body, {"X-API-Key": self.api.key}, 60)
        check(answer.status < 300, f"{method} {path}: {answer!r}")
        return answer.json if answer.body else None

    def start(self, name, command):
        made = self.ask("POST", "/v3/templates", {"name": name})
        where = f"{made['templateID']}/builds/{made['buildID']}"
        self.ask("POST", f"/v2/templates/{where}", {"fromImage": "debian", "steps": [{"type": "RUN", "args": [command], "force": False}]})
        return where

    def remove(self, where):
        self.ask("DELETE", f"/templates/{where.split('/', 1)[0]}")

    def whole(self):
        """One from its beginning to its end."""
        where = self.start("short", "true")
        status = eventually("a build", lambda: self.over(where), 60)
        equal(status, "ready", "the build")
        return lambda: self.remove(where)

    def over(self, where):
        status = self.ask("GET", f"/templates/{where}/status")["status"]
        return status if status in ("ready", "error") else None


def running_builds(api):
    return [s["id"] for s in api.ok("GET", "/v1/sandboxes")["sandboxes"] if "bothy.build" in s["labels"]]


def builds(attack, mallory, other):
    @attack.attempt(f"builds: {BUILDS} of an owner that sleep hold up no neighbour's build, command or create")
    def _():
        mine, theirs = Builder(mallory), Builder(other)

        @contextlib.contextmanager
        def under():
            asleep = [mine.start(f"asleep-{i}", "sleep 3600") for i in range(BUILDS)]
            try:
                eventually("as many as may run do", lambda: len(running_builds(mallory)) >= BUILDS_OWNER, 60)
                yield
                equal([mine.over(where) for where in asleep], [None] * BUILDS, "builds that are over")
            finally:
                for where in asleep:
                    mine.remove(where)
                eventually("no build runs", lambda: not running_builds(mallory), 60)
        with other.sandbox() as neighbour:
            undisturbed(attack, f"{BUILDS} builds that sleep", Neighbour(other, neighbour, build=(theirs.whole, 2)), under)


def put_slow(api):
    """A sandbox that does not freeze, with hardly a processor."""
    box = api.create(limits={**SMALL, "cpu": 1}, queue_wait=60)
    answer = api.call("PUT", f"/v1/sandboxes/{box}/files?path=/intruder&mode=0755", INTRUDER.read_bytes())
    equal(answer.status // 100, 2, "the intruder's way in")
    api.start(box, ["/intruder", "misuse", "resist"])
    api.ok("PATCH", f"/v1/sandboxes/{box}", {"limits": {"cpu": SLOW_CPU}})
    return box


def pauses(attack, mallory, other):
    @attack.attempt(f"pauses: {RESISTING} sandboxes of an owner that resist hold up no neighbour's pause, resume, command or create")
    def _():
        statuses = collections.Counter()

        def pause(box):
            def once():
                answer = mallory.call("POST", f"/v1/sandboxes/{box}/pause", timeout=60)
                statuses[answer.status] += 1
                if answer.status == 200:
                    mallory.ok("POST", f"/v1/sandboxes/{box}/resume")
            return once

        def pause_and_resume(neighbour):
            other.ok("POST", f"/v1/sandboxes/{neighbour}/pause", timeout=60)
            other.ok("POST", f"/v1/sandboxes/{neighbour}/resume", timeout=60)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            boxes = list(pool.map(lambda _: put_slow(mallory), range(RESISTING)))
            try:
                with other.sandbox() as neighbour, other.sandbox() as paused:
                    more = {"pause": (lambda: pause_and_resume(paused), PAUSES)}
                    undisturbed(attack, f"{RESISTING} pauses that resist", Neighbour(other, neighbour, **more),
                                lambda: loops(*map(pause, boxes)))
                check(statuses[504] > RESISTING // 4, f"few resisted: {statuses}")
            finally:
                list(pool.map(mallory.delete, boxes))


def lists(attack, mallory, other):
    @attack.attempt(f"lists: the {ENDED} commands of a sandbox, listed all the time while others run in it, hold up no neighbour's command and no create")
    def _():
        with mallory.sandbox() as box, other.sandbox() as neighbour:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda _: mallory.exec(box, ["true"]), range(ENDED)))
            path = f"/v1/sandboxes/{box}/processes"
            equal(len(mallory.ok("GET", path)["processes"]), ENDED, "commands in the list")

            @contextlib.contextmanager
            def under():
                with contextlib.ExitStack() as stack:
                    for _ in range(LISTERS):  # processes: they take no time from the one that measures
                        curl = subprocess.Popen(["curl", "-s", "-o", "/dev/null", "-H", f"X-API-Key: {mallory.key}",
                                                 f"http://{mallory.tcp}{path}?n=[1-1000000]"])
                        stack.callback(curl.wait)
                        stack.callback(curl.kill)
                    with loops(*[lambda: mallory.exec(box, ["true"])] * RUNNERS):
                        yield
            undisturbed(attack, f"{LISTERS} lists of {ENDED} commands", Neighbour(other, neighbour), under)

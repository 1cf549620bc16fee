"""A disk of bothyd's on which nothing can be written: for a time, because it is frozen, and for commands of sessions, because it is full."""
import collections
import concurrent.futures
import contextlib
import time

from harness import SLOW, Watch, bytes_of, check, equal, eventually

FROZEN_S = 4
COMMANDS = 12
LONG = "x" * 900  # so that the frame of a command needs a block sooner than its output does
COUNT = "i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; usleep 10000; done"


def frozen(suite, node, disk):
    @suite.case("frozen: looks at other sandboxes, health and metrics are answered within a second; what writes waits, and then goes on without a gap")
    def _():
        with node.sandbox() as busy, node.sandbox() as waits, concurrent.futures.ThreadPoolExecutor() as beside:
            counts = node.start(busy, COUNT)
            eventually("it counts", lambda: node.output(busy, counts))
            slow, asked = {}, Watch()
            with disk.frozen():
                run = beside.submit(node.exec, waits, "echo after")
                made = beside.submit(node.create)
                while asked.seconds() < FROZEN_S:
                    for path in ("/healthz", "/metrics", "/v1/info", f"/v1/sandboxes/{busy}"):
                        watch = Watch()
                        equal(node.call("GET", path, timeout=FROZEN_S).status, 200, f"status of {path}")
                        if not watch.within(SLOW):
                            slow[path] = str(watch)
                    time.sleep(0.05)
            equal(slow, {}, "answers that were late")
            equal(bytes_of(run.result()["out"]), b"after\n", "a command that began meanwhile")
            node.delete(made.result())
            before = len(node.output(busy, counts))
            eventually("it counts on", lambda: len(node.output(busy, counts)) > before)
            node.shell(busy, "touch /tmp/stop")
            equal(node.wait(busy, counts)["exit_code"], 0, "exit code")
            lines = node.output(busy, counts).split()
            equal(lines, [b"%d" % i for i in range(1, len(lines) + 1)], "the numbers it counted")


def sessions(suite, node, disk):
    @suite.case("full: commands of sessions with keys are run or refused at once; with room again each key is answered, and each has run once")
    def _():
        with node.sandbox() as box:
            at = f"/v1/sandboxes/{box}/sessions"
            shells = [node.ok("POST", at, {"mode": "attached"})["id"] for _ in range(2)]
            for shell in shells:
                node.ok("POST", f"{at}/{shell}/commands", {"command": "true"})

            def ask(i, wait):
                """None: no answer in that time, as one that runs waits for room for its output."""
                with contextlib.suppress(TimeoutError):
                    return node.call("POST", f"{at}/{shells[i % 2]}/commands", {"command": f"echo {i} >>/tmp/ran; echo {i} # {LONG}"},
                                     {"Idempotency-Key": f"full-{i}"}, timeout=wait)
                return None
            seen = collections.Counter()
            with disk.full():
                for i in range(COMMANDS):
                    disk.fill()
                    answer = ask(i, 2)
                    seen["waits" if not answer else "runs" if answer.status == 200 else answer.error["code"]] += 1
            print(f"      on the full disk: {dict(seen)}", flush=True)
            check(seen["disk_full"] and set(seen) <= {"runs", "waits", "disk_full", "conflict"}, f"{seen}")

            def again(i):
                answer = ask(i, 20)
                check(answer, f"key {i} is not answered")
                return answer if answer.status != 507 else None
            for i in range(COMMANDS):
                answer = eventually(f"an answer for key {i}", lambda i=i: again(i), 20)
                equal((answer.status, answer.json["kind"], bytes_of(answer.json["out"])), (200, "ended", b"%d\n" % i), f"command {i}")
            for shell in shells:
                equal(node.ok("GET", f"{at}/{shell}")["state"], "idle", "state of the session")
                kinds = [c["kind"] for c in node.ok("GET", f"{at}/{shell}/commands")["commands"]]
                check("running" not in kinds, f"a command runs for ever: {kinds}")
            equal(sorted(map(int, node.shell(box, "cat /tmp/ran").split())), list(range(COMMANDS)), "what has run")

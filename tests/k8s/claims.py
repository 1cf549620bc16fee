"""Claims of warm pods: two bothyds of a cell at once and one of another, bothyd killed at each step, and tenants who forge."""
import contextlib
import pathlib
import secrets
import shutil
import threading
import time

import nodes
import pools
from harness import BUILD, SLOW, Node, Skip, alive, bytes_of, check, equal, eventually
from nodes import FIGURES, attempt, claimed, full, insist, marked, pods, running, settled, space

SMALL = {"image": "busybox", "limits": {"cpu": 0.015, "memory": 32 << 20}, "queue_wait": 3}
PLAIN = {"image": "busybox", "limits": {"memory": 64 << 20}}
FORGE = BUILD / "tests" / "k8s" / "client" / "forge"
# Steps of a claim (src/base/fault.h), in their order: of a warm pod, of one that is made for it, of one made to be warm; of
# one whose image is changed for it.
EXACT = ("create.queued", "kubernetes.picked", "link.claim_sent", "kubernetes.claimed", "create.committed", "create.running", "create.told",
         "kubernetes.told", "kubernetes.marked")
COLD, REFILL, SWAP = ("kubernetes.made",), ("kubernetes.refilled",), "kubernetes.swapped"
SHORT = ("kubernetes.picked", "link.claim_sent", "kubernetes.claimed", "kubernetes.told", "kubernetes.made")
RACE = "claims: two bothyds of a cell and one of another: every pod has one claimer at most"
KILLED = "claims: bothyd killed at {}: one sandbox for the key, no orphan"
TENANT = ("claims: a tenant that runs attach itself, or speaks to init's socket, forges nothing", "claims: a tenant that races every reconnect wins none",
          "claims: a tenant that stops the attach process: commands go on over another", "claims: a tenant cannot get at the attach process")


def cases(suite, k):
    race(suite, k)
    kills(suite, k)
    tenants(suite, k)


# ---- the fence broken on purpose ----
def bothyd(name, cell="b000", warm=0, most=100, secret=None):
    """A node without the cell's lease. Those of one cell have one key, as one state directory has."""
    node = Node("kubernetes", env=f" BOTHY_BACKEND_WARM={warm} BOTHY_BACKEND_MAX={most} BOTHY_KUBERNETES_UNFENCED=true BOTHY_KUBERNETES_OPERATOR=false"
                f" BOTHY_NODE_CELL={cell}")
    node.name = name
    if secret:
        state = pathlib.Path(node.dir, "bothyd")
        state.mkdir()
        (state / "attach.key").write_bytes(secret)
        (state / "attach.key").chmod(0o600)
        shutil.chown(state / "attach.key", "bothy", "bothy")
    return node


def claim(node, wins, losses):
    """One claimer: its sandbox, which says inside whose it is and where."""
    a = attempt(node, "POST", "/v1/sandboxes", SMALL, {"Idempotency-Key": nodes.key()}, 150)
    if a is None or a.status >= 300:
        losses.append((node.name, a and a.status, a and a.body[:300]))
        return
    made = a.json["id"]
    where = node.shell(made, f"echo {node.name}:{made}:$HOSTNAME >>/tmp/mark; cat /etc/hostname").strip()
    wins.append((node.name, made, a.json["class"], where))


def at_once(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join(180 * SLOW)
    check(not any(t.is_alive() for t in threads), "a claimer has no answer after three minutes")


def race(suite, k):
    warm, claimers, strangers = (40, 50, 6) if suite.args.long else (10, 14, 2)
    if not suite.wants(RACE):
        return

    @suite.case(RACE)
    def _():
        if not suite.args.long and not suite.args.part and not suite.args.only:
            raise Skip("its minute is for --long, for --part, or for --only")
        secret = secrets.token_bytes(32)
        with space(k) as ns, contextlib.ExitStack() as stack:
            one = stack.enter_context(bothyd("one", warm=warm, most=warm, secret=secret))
            other = stack.enter_context(bothyd("other", warm=warm, most=warm, secret=secret))
            stranger = stack.enter_context(bothyd("stranger", cell="b001"))
            one.delete(one.create(**SMALL))  # what was used lately is kept warm
            there = eventually("the warm pods run", lambda: (lambda r: r if len(r) >= warm else None)(running(pods(k, ns, **{nodes.STATE: "warm"}))), 240, 0.5)
            eventually("both see them", lambda: sum(nodes.pool(n)["ready"] > 0 for n in (one, other)) == 2, 60, 0.2)
            wins, losses, began = [], [], time.monotonic()
            at_once([lambda n=n: claim(n, wins, losses) for n in [one, other] * (claimers // 2) + [stranger] * strangers])
            took = time.monotonic() - began
            judge(k, ns, there, wins, losses)
            mine = [w for w in wins if w[0] != "stranger"]
            FIGURES.update(race={"warm": len(there), "claimers": claimers, "strangers": strangers, "seconds": round(took, 1), "claims": len(wins),
                                       "of_warm_pods": len({w[3] for w in mine} & there), "by_each": {n: sum(w[0] == n for w in wins) for n in ("one", "other", "stranger")},
                                       "refused": len(losses), "others_were_first": sum(n.log().count("somebody else has claimed it") for n in (one, other))})
            print(f"      {FIGURES['race']}", flush=True)
            check({w[3] for w in mine} & there, "no warm pod was claimed")


def judge(k, ns, there, wins, losses):
    """By what is in the pods. Whoever got none was told so in a way that can be repeated."""
    for name, status, body in losses:
        check(status in (429, 503) and b'"retryable":true' in body, f"{name}: {status} {body}")
    ids, places = [w[1] for w in wins], [w[3] for w in wins]
    equal(len(set(ids)), len(ids), "different sandboxes")
    equal(len(set(places)), len(places), "different pods")
    for name, made, _, where in wins:
        equal(marked(k, ns, where), [f"{name}:{made}:{made}"], f"who has written into {where}")
        check(name != "stranger" or where not in there, f"{where} is of another cell")
    records = eventually("every claim is recorded", lambda: (lambda c: c if {w[3] for w in wins} <= set(c) else None)(claimed(k, ns)), 60, 0.5)
    for _, made, _, where in wins:
        equal(records[where], made, f"the record of {where}")


# ---- kills ----
def kills(suite, k):
    points = EXACT + COLD + REFILL if suite.args.long or suite.args.only else SHORT
    if not suite.wants(*map(KILLED.format, (*points, SWAP))):
        return
    if not nodes.FAULTS.exists():
        @suite.case("claims: bothyd killed at each step")
        def _():
            nodes.need_faults()
        return
    if suite.wants(*map(KILLED.format, points)):
        with space(k) as ns, Node("kubernetes", faults=True) as node:
            for point in points:
                @suite.case(KILLED.format(point))
                def _(point=point):
                    killed_at(k, ns, node, point)
    if (suite.args.long or suite.args.only) and suite.wants(KILLED.format(SWAP)):
        with pools.bothyd(k, faults=True) as (node, ns), pools.any_image(k, ns) as warm:
            @suite.case(KILLED.format(SWAP))
            def _():
                spec = {"image": pools.B}
                node.delete(struck(k, ns, node, SWAP, spec))
                warm.full()


def killed_at(k, ns, node, point):
    node.delete(node.create(**PLAIN))  # a bothyd that was started again has forgotten what was used lately
    full(node)
    settled(k, ns, node)
    spec = {**PLAIN, "read_only": True} if point in COLD else PLAIN  # a shape that is not kept warm
    node.delete(struck(k, ns, node, point, spec))
    settled(k, ns, node)


def struck(k, ns, node, point, spec):
    """The sandbox that a key has after bothyd was killed at this point of its create."""
    key, pid = nodes.key(), node.pid("bothyd")
    node.arm("bothyd", point)
    a = attempt(node, "POST", "/v1/sandboxes", spec, {"Idempotency-Key": key})
    eventually(f"{point} was hit", lambda: not node.is_armed("bothyd", point) and not alive(pid), 30)
    began = time.monotonic()
    node.restart("bothyd")
    up = time.monotonic() - began
    made = insist(node, spec, key)
    again = time.monotonic() - began
    check(a is None or a.status >= 300 or a.json["id"] == made, f"it answered {a!r}, then {made}")
    equal(eventually("it serves", lambda: attempt_shell(node, made), 60), "here\n", "its word")
    equal(insist(node, spec, key), made, "the same answer")
    eventually("its pod is the only claimed one", lambda: list(claimed(k, ns).values()) == [made], 60, 0.2)
    FIGURES.setdefault("killed", {})[point] = {"up_seconds": round(up, 1), "answer_seconds": round(again, 1), "answered_before": a is not None}
    return made


def attempt_shell(node, made):
    a = attempt(node, "POST", f"/v1/sandboxes/{made}/exec", {"argv": ["echo", "here"]})
    return bytes_of(a.json["out"]).decode() if a is not None and a.status == 200 else None


# ---- tenants ----
LINES = 120
COUNT = f"i=0; while [ $i -lt {LINES} ]; do i=$((i+1)); echo line $i; echo other $i >&2; sleep 0.05; done; exit 7"


def tenants(suite, k):
    if not suite.wants(*TENANT):
        return
    seconds = 20 if suite.args.long else 6
    with space(k), Node("kubernetes") as node, node.sandbox(**PLAIN) as sb:
        a = node.call("PUT", f"/v1/sandboxes/{sb}/files?path=/tmp/forge&mode=755", FORGE.read_bytes())
        check(a.status < 300, repr(a))

        @suite.case(TENANT[0])
        def _():
            for how in ("socket", "attach"):
                with honest(node, sb):
                    tried, taken = forge(node, sb, how, seconds)
                check(tried > 5, f"only {tried} tries")
                equal(taken, 0, f"forgeries by {how} that were taken")
                FIGURES.setdefault("forged", {})[how] = {"tried": tried, "taken": taken}

        @suite.case(TENANT[1])
        def _():
            with honest(node, sb, 120):
                flood = node.start(sb, ["/tmp/forge", "flood", str(seconds)])
                racer = node.start(sb, ["/tmp/forge", "socket", str(seconds)])
                killer = node.start(sb, ["/tmp/forge", "kill", str(seconds)])
                results = {name: said(node, sb, x) for name, x in (("flood", flood), ("race", racer), ("kill", killer))}
            equal(results["race"][1], 0, "forgeries that were taken")
            check(results["kill"][1] > 0, "no attach process was killed")
            FIGURES.setdefault("forged", {}).update({name: {"tried": t, "taken": n} for name, (t, n) in results.items()})

        @suite.case(TENANT[2])
        def _():
            with honest(node, sb, 120):
                stopped = forge(node, sb, "stop", 0, 90)[1]
            check(stopped > 0, "no attach process was stopped")

        @suite.case(TENANT[3])
        def _():
            with honest(node, sb):
                r = node.exec(sb, ["/tmp/forge", "reach"])
            equal(r["end"]["exit_code"], 0, "its end")
            tried, taken = numbers(bytes_of(r["out"]).decode())
            check(tried > 0, "there was no attach process")
            equal(taken, 0, bytes_of(r["out"]).decode())


def numbers(text):
    words = text.split()
    return int(words[-3].strip(",")), int(words[-1])


def said(node, sb, x, seconds=120):
    end = node.wait(sb, x, seconds)
    equal((end["how"], end["exit_code"]), ("exited", 0), f"the end of exec {x}")
    return numbers(node.output(sb, x).decode())


def forge(node, sb, how, seconds, patience=60):
    begun = node.ok("POST", f"/v1/sandboxes/{sb}/processes", {"argv": ["/tmp/forge", how, str(seconds)]}, timeout=90)  # it may stop the stream that answers
    return said(node, sb, begun["exec"], patience + seconds)


@contextlib.contextmanager
def honest(node, sb, seconds=90):
    """Meanwhile a command counts: its output and its end are its own, and nothing else has appeared, when the block is over."""
    before = {p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{sb}/processes")["processes"]}
    x, record = node.start(sb, COUNT), node.show(sb)
    yield
    end = node.wait(sb, x, seconds)
    equal((end["how"], end["exit_code"]), ("exited", 7), "its end")
    for stream, word in (("out", "line"), ("err", "other")):
        equal(node.output(sb, x, stream), b"".join(b"%s %d\n" % (word.encode(), i) for i in range(1, LINES + 1)), f"its {stream}")
    equal(node.shell(sb, "echo $HOSTNAME"), sb + "\n", "whose it is")
    after = node.show(sb)
    equal((after["state"], after["id"], after.get("class")), ("running", record["id"], record.get("class")), "its record")
    started = {p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{sb}/processes")["processes"]} - before
    check(x in started and len(started) <= 6, f"processes that nobody has started: {started}")

"""What followers of a stream beyond its ceiling are promised: one that gets further is waited for and loses nothing; one that stands still
is waited for `exec.hold`, then it is cut; whoever comes back is told the gap, and where it goes on."""
import random
import time

from clients import Broken, Client, Response
from commands import Command, Ledger, fill, filled
from harness import Api, check, equal, eventually
from proxy import Proxy

TEXT = "beyond the ceiling 0123456789"
TOTAL = 12 << 20
SLOW = 5 << 20
RATE = 320_000  # bytes a second of a slow reader: a third of a send buffer takes it longer than exec.hold


def beyond(total=TOTAL):
    return Command("beyond", f"{fill(TEXT, total)}; echo done >&2; (exit 7)", filled(TEXT, total), b"done\n", 7)


def state(api, where):
    return api.ok("GET", where)


def drain(r):
    """What is left in a connection that nobody read: bytes, and whether the answer was whole."""
    n = 0
    try:
        for piece in r.pieces():
            n += len(piece)
    except Broken:
        return n, False
    return n, True


def cases(suite, node, key, hold, ceiling):
    owner, figures = Api(tcp=f"127.0.0.1:{node.port}", key=key), {}
    box = owner.create()
    client = Client(owner, random.Random(suite.args.seed))

    def start(command, ident):
        return client.begin(box, command, f"ceiling-{suite.args.seed}-{ident}")

    @suite.case(f"a follower that stands still is waited for {hold} s, then cut, and told the gap")
    def _():
        for n in range(3):  # one that was looked at too late tells nothing
            command = beyond()
            where = start(command, f"still-{n}")
            began = time.monotonic()
            still = Response(owner, "GET", where + "/output?follow=end", headers={"Accept": "text/event-stream"}, buffer=4096)
            eventually("the stream is at its ceiling", lambda: owner.process(box, where.rsplit("/", 1)[1])["out_bytes"] >= ceiling, 20)
            reached = time.monotonic()
            time.sleep(hold / 3)
            now = state(owner, where)
            if time.monotonic() - began < hold * 0.9 or not now["end"]:
                break
            still.close()
        check(not now["end"], "the command was not held back for its follower")
        check(now["out_bytes"] <= ceiling + (1 << 20), f"{now['out_bytes']} bytes beyond a ceiling of {ceiling}")
        end = eventually("the command goes on without its follower", lambda: state(owner, where)["end"], hold * 10)
        waited = time.monotonic() - began
        check(waited >= hold * 0.9, f"the command was held for {waited:.1f} s")
        got, whole = drain(still)
        still.close()
        check(not whole, "a stream that was cut looks whole")
        check(got < TOTAL, "all of it came")
        check(end["out_dropped"] > 0, "nothing was dropped")
        ledger = Ledger(command, may_gap=True)
        client.follow(where, ledger)
        equal(ledger.gaps[1], end["out_dropped"], "bytes of gaps that were told")
        figures["still"] = {"held_s": round(time.monotonic() - reached, 1), "read_before_the_cut": got, "dropped": end["out_dropped"]}

    @suite.case("a slow follower that gets further loses nothing, however long it takes")
    def _():
        command, total = beyond(SLOW), SLOW
        ledger, where = Ledger(command), start(command, "slow")
        r = Response(owner, "GET", where + "/output?follow=end", headers={"Accept": "application/octet-stream"}, buffer=65536)
        began = time.monotonic()
        for piece in r.pieces():
            ledger.bytes(1, ledger.at[1], piece)
            time.sleep(max(0, ledger.at[1] / RATE - (time.monotonic() - began)))
        r.close()
        took = time.monotonic() - began
        end = client.ask("GET", where)["end"]
        equal((ledger.at[1], end["out_bytes"], end["exit_code"]), (total, total, command.code), "bytes read, length and status")
        check(took > 3 * hold, f"it was not slow: {took:.1f} s")
        figures["slow"] = {"seconds": round(took, 1), "bytes": total}

    @suite.case("whoever is cut beyond the ceiling is told every gap, by events, raw and attached")
    def _():
        proxy = Proxy(("127.0.0.1", node.port), f"{suite.args.seed} ceiling", 0.7)
        cut = Client(Api(tcp=f"127.0.0.1:{proxy.port}", key=key), random.Random(suite.args.seed))
        gaps = 0
        for n, way in enumerate(("sse", "raw", "attach", "run") * (3 if suite.args.long else 1)):
            command, ledger = beyond(8 << 20), Ledger(beyond(8 << 20), may_gap=True)
            getattr(cut, way)(box, command, f"gap-{suite.args.seed}-{n}", ledger)
            # A follower that was away when something went is told of it; one that was there has read it.
            check(ledger.gaps[1] <= ledger.end["out_dropped"], f"{way}: gaps {ledger.gaps[1]}, dropped {ledger.end['out_dropped']}")
            gaps += ledger.gaps[1] > 0
        proxy.close()
        figures["gaps"] = {"streams_with_a_gap": gaps, "cuts": sum(proxy.cuts.values())}

    owner.delete(box)
    return figures

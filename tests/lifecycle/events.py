"""Events: every change once and in order, over reconnects and kills, to whom they belong."""
import contextlib
import http.client
import json
import pathlib
import random
import threading
import time

from harness import Api, ApiError, Node, Watch, check, equal, eventually, expect_error, read_events


def types_of(events, sandbox):
    return [e["type"] for e in events if e["sandbox"] == sandbox]


def page(api, after="0", **query):
    """All pages from there on: the events, and the last cursor."""
    got = []
    while True:
        words = "&".join(f"{k}={v}" for k, v in {"after": after, "limit": 1000, **query}.items())
        p = api.ok("GET", f"/v1/events?{words}")
        got += p["events"]
        after = p["next"]
        if not p["more"]:
            return got, after


def newest(api):
    return page(api)[1]


class Follower(threading.Thread):
    """Follows and takes up again whatever cuts it, by the number of the last event it got."""

    def __init__(self, api, after="0", query="", cut_every=0):
        super().__init__(daemon=True)
        self.api, self.after, self.query, self.cut_every = api, after, query, cut_every
        self.got, self.connections, self.over, self.error = [], 0, False, None
        self.start()

    def run(self):
        while not self.over:
            try:
                self.once()
            except (OSError, http.client.HTTPException, ApiError) as e:
                self.error = e
                time.sleep(0.05)

    def once(self):
        c, r = self.api.open("GET", f"/v1/events?{self.query}", headers={"Accept": "text/event-stream", "Last-Event-ID": self.after}, timeout=5)
        self.connections += 1
        with contextlib.closing(c):
            for kind, ident, data in read_events(r):
                if self.over:
                    return
                if kind == "ping":
                    continue
                equal(data["id"], ident, "the id of the stream and of the event")
                self.got.append(data)
                self.after = ident
                if self.cut_every and random.randrange(self.cut_every) == 0:
                    return

    def stop(self):
        self.over = True


def once_and_in_order(events):
    numbers = [int(e["id"]) for e in events]
    check(numbers == sorted(set(numbers)), "each once and in order")


def cases(suite, node):
    @suite.case("events: a life is told once and in order, by pages and by stream")
    def _():
        at = newest(node)
        sb = node.create(labels={"a": "1"})
        node.ok("PATCH", f"/v1/sandboxes/{sb}", {"labels": {"a": "2"}})
        node.delete(sb)
        wanted = ["creating", "running", "updated", "gone"]
        got, _ = eventually("four events", lambda: (p := page(node, at))[0] and len(types_of(p[0], sb)) == 4 and p, 5)
        equal(types_of(got, sb), wanted, "types by page")
        equal(got[-1]["cause"], {"kind": "requested", "by": "admin"}, "the cause")
        equal([e["owner"] for e in got if e["sandbox"] == sb], ["admin"] * 4, "owners")
        f = Follower(node, at, f"sandbox={sb}")
        eventually("four by stream", lambda: len(f.got) == 4, 5)
        f.stop()
        equal(f.got, [e for e in got if e["sandbox"] == sb], "page and stream")
        equal(types_of(page(node, at, sandbox=sb, type="gone")[0], sb), ["gone"], "by type")
        equal(len(node.ok("GET", f"/v1/events?after={at}&limit=2")["events"]), 2, "a page's limit")

    @suite.case("events: what is wrong is refused, and says what")
    def _():
        expect_error(node.call("GET", "/v1/events?after=x"), 400, "invalid_request")
        expect_error(node.call("GET", "/v1/events?type=nothing"), 400, "invalid_request")
        expect_error(node.call("GET", "/v1/events?type=gone&type=nothing"), 400, "invalid_request")
        expect_error(node.call("GET", "/v1/events?after=999999999"), 404, "not_found")
        equal(node.call("GET", "/v1/events?after=999999999").error["kind"], "cursor", "kind")
        expect_error(node.call("GET", "/v1/events", headers={"Last-Event-ID": "no"}), 400, "invalid_request")

    @suite.case("events: an owner sees its own, an administrator all")
    def _():
        apis = {}
        for owner in ("ann", "bob"):
            apis[owner] = Api(path=node.path, key=node.ok("POST", "/v1/keys", {"owner": owner})["key"])
        at = newest(node)
        streams = {owner: Follower(api, at) for owner, api in apis.items()}
        made = {owner: api.create() for owner, api in apis.items()}
        for owner, api in apis.items():
            api.delete(made[owner])
        for owner, f in streams.items():
            eventually(f"three of {owner}", lambda f=f: len(f.got) == 3, 10)
            f.stop()
            equal({e["sandbox"] for e in f.got}, {made[owner]}, f"what {owner} sees")
        other = page(apis["ann"], at, sandbox=made["bob"])[0]
        equal(other, [], "another's, by its id")
        seen = {e["sandbox"] for e in page(node, at)[0]}
        check(set(made.values()) <= seen, "the administrator sees both")

    @suite.case("events: a stream ends with the key it was opened with, and no other does")
    def _():
        keys = {name: node.ok("POST", "/v1/keys", {"owner": "ann", **more}) for name, more in
                (("removed", {}), ("other", {}), ("short", {"expires_in": 4}))}
        streams = {}
        for name, k in keys.items():
            c, r = Api(path=node.path, key=k["key"]).open("GET", "/v1/events?after=now", headers={"Accept": "text/event-stream"}, timeout=40)
            streams[name] = (c, r)
        ended = {}

        def read(name):
            with contextlib.suppress(OSError, http.client.HTTPException):
                while streams[name][1].read1(4096):
                    pass
            ended[name] = time.monotonic()
        readers = {name: threading.Thread(target=read, args=(name,), daemon=True) for name in streams}
        for t in readers.values():
            t.start()
        time.sleep(0.3)
        equal(ended, {}, "streams that ended before")
        watch = Watch()
        node.ok("DELETE", f"/v1/keys/{keys['removed']['id']}")
        readers["removed"].join(5)
        check("removed" in ended, "the stream outlives its key")
        check(watch.within(2), f"it ended after {watch}")
        readers["short"].join(30)
        check("short" in ended, "the stream outlives its key's time")
        check("other" not in ended, "another key's stream ended, too")
        expect_error(Api(path=node.path, key=keys["removed"]["key"]).call("GET", "/v1/events"), 401, "unauthenticated")
        node.ok("DELETE", f"/v1/keys/{keys['other']['id']}")
        readers["other"].join(5)
        check("other" in ended, "the other's stream outlives its key")
        for c, _ in streams.values():
            c.close()

    @suite.case("events: none is lost or doubled over cut streams and kills of bothyd")
    def _():
        rounds, kills = (40, 4) if not suite.args.long else (300, 30)
        at = newest(node)
        followers = [Follower(node, at, cut_every=n) for n in (0, 2, 5)]
        made, over = [], threading.Event()

        def load():
            for i in range(rounds):
                with contextlib.suppress(OSError, http.client.HTTPException, ApiError):
                    sb = node.create(labels={"n": str(i)})
                    made.append(sb)
                    node.delete(sb)
            over.set()
        worker = threading.Thread(target=load, daemon=True)
        worker.start()
        for _ in range(kills):
            time.sleep(random.uniform(0.1, 0.6))
            node.kill("bothyd")
            node.restart("bothyd")
        check(over.wait(120), "the load ended")
        truth, _ = eventually("all have ended", lambda: settled(node, at, made), 30)
        once_and_in_order(truth)
        for sb in made:
            told = types_of(truth, sb)
            equal((told[0], told[-1], told.count("gone")), ("creating", "gone", 1), f"what is told of {sb}: {told}")
        for f in followers:
            eventually("a follower has all", lambda f=f: f.got and f.got[-1]["id"] == truth[-1]["id"], 15)
            f.stop()
            equal(f.got, truth, f"what a follower got over {f.connections} connections")
        suite.events = {"events": len(truth), "kills": kills, "connections": sum(f.connections for f in followers), "lost": 0, "doubled": 0}

    @suite.case("events: the command line prints and follows them")
    def _():
        with node.sandbox() as sb:
            pass
        r = node.cli("events", "--sandbox", sb)
        equal(r.returncode, 0, f"status {r.stderr}")
        text = r.stdout.decode()
        check(all(w in text for w in ("creating", "running", "gone (requested by admin)", sb)), text)
        r = node.cli("events", "--sandbox", sb, "--json")
        equal(types_of([json.loads(line) for line in r.stdout.decode().splitlines()], sb), ["creating", "running", "gone"], "as JSON")
        r = node.cli("events", "--type", "wrong")
        check(r.returncode == 125 and b"type" in r.stderr, f"a wrong type: {r.stderr}")


def settled(node, at, made):
    got, after = page(node, at)
    gone = {e["sandbox"] for e in got if e["type"] == "gone"}
    live = {s["id"] for s in node.ok("GET", "/v1/sandboxes?limit=1000")["sandboxes"]} & {e["sandbox"] for e in got}
    for sb in live - gone:
        node.call("DELETE", f"/v1/sandboxes/{sb}")
    return (got, after) if set(made) <= gone and not live - gone else None


def alone(suite, backend):
    @suite.case("events: forgotten ones are told as a gap")
    def _():
        with Node(backend, env="BOTHY_RETENTION_RECORD=4s BOTHY_RETENTION_SPOOL=1s") as node:
            with node.sandbox():
                check(node.ok("GET", "/v1/events")["events"], "there is no event")
            eventually("all are forgotten", lambda: not node.ok("GET", "/v1/events")["events"], 20)
            p = node.ok("GET", "/v1/events?after=1")
            equal((p["gap"], p["events"]), (True, []), "the page after a forgotten one")
            for kind, ident, data in node.events("GET", "/v1/events?after=1"):
                equal((kind, data["from"]), ("gap", "1"), "the first of the stream")
                equal(ident, data["to"], "where it goes on")
                break
            check(pathlib.Path(node.dir).exists())

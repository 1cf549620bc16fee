"""What a key allows: sandboxes, creates a second, creates at once, the longest life; by several keys, over kills."""
import threading
import time

from harness import Api, Node, check, equal, eventually, expect_error


def key(node, owner, **limits):
    made = node.ok("POST", "/v1/keys", {"owner": owner, **limits})
    return Api(path=node.path, key=made["key"]), made["id"]


def create(api, **spec):
    return api.call("POST", "/v1/sandboxes", {"image": "busybox", **spec}, timeout=90)


def refused(answer, kind, most=60):
    e = expect_error(answer, 429, "quota_exceeded")
    equal(e["kind"], kind, "kind")
    check(e["retryable"], "it can be tried again")
    wait = int(answer.headers["Retry-After"])
    check(1 <= wait <= most, f"Retry-After {wait}")
    return wait


def end_all(*apis):
    for api in apis:
        for s in api.ok("GET", "/v1/sandboxes?limit=1000")["sandboxes"]:
            api.call("DELETE", f"/v1/sandboxes/{s['id']}")


def cases(suite, node):
    @suite.case("quota: so many live sandboxes of an owner, by whichever key; others are not concerned; over a kill")
    def _():
        ann, _ = key(node, "q-ann", max_sandboxes=2)
        free, _ = key(node, "q-ann")
        bob, _ = key(node, "q-bob", max_sandboxes=1)
        first = ann.create(ttl=30)
        free.create()
        wait = refused(create(ann), "sandboxes")
        check(wait <= 31, f"as long as the first has to live at most, not {wait}")
        bob.create()
        refused(create(bob), "sandboxes")
        node.kill("bothyd")
        node.restart("bothyd")
        refused(create(ann), "sandboxes")
        refused(create(bob), "sandboxes")
        equal(create(free).status, 201, "a key without a limit")
        ann.delete(first)
        refused(create(ann), "sandboxes")  # two of the other key's
        end_all(ann, bob)
        equal(create(ann).status, 201, "when there is room")
        end_all(ann)

    @suite.case("quota: many creates at once do not slip past the limit")
    def _():
        api, _ = key(node, "q-race", max_sandboxes=3)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(create(api))) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(90)
        equal(sorted(a.status for a in answers), [201] * 3 + [429] * 9, "answers")
        end_all(api)

    @suite.case("quota: a repeated create with its key is answered, not counted")
    def _():
        api, _ = key(node, "q-again", max_sandboxes=1, creates_per_second=0.01)
        first = api.call("POST", "/v1/sandboxes", {"image": "busybox"}, {"Idempotency-Key": "one"})
        again = api.call("POST", "/v1/sandboxes", {"image": "busybox"}, {"Idempotency-Key": "one"})
        equal((first.status, again.status, again.headers["Idempotent-Replay"]), (201, 201, "true"), "both")
        equal(again.json["id"], first.json["id"], "the same one")
        end_all(api)

    @suite.case("quota: creates a second, each key by itself")
    def _():
        slow, _ = key(node, "q-rate", creates_per_second=0.1)
        other, _ = key(node, "q-rate", creates_per_second=0.1)
        began = time.monotonic()
        equal(create(slow).status, 201, "the first")
        wait = refused(create(slow), "rate", 11)
        equal(create(other).status, 201, "another key of the same owner")
        time.sleep(wait)
        equal(create(slow).status, 201, f"after Retry-After, {time.monotonic() - began:.1f} s")
        burst, _ = key(node, "q-burst", creates_per_second=5)
        # At once: one after the other they could take as long as the rate gives them.
        statuses, gate = [], threading.Barrier(12)
        threads = [threading.Thread(target=lambda: (gate.wait(), statuses.append(create(burst).status))) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(90)
        check(5 <= statuses.count(201) < 12, f"a burst of five and what comes back meanwhile: {statuses}")
        end_all(slow, burst)

    @suite.case("quota: the longest life, of a create and of a change")
    def _():
        api, _ = key(node, "q-ttl", max_ttl=100)
        with api.sandbox() as sb:
            s = api.show(sb)
            check(s["ends"] is not None, "it ends")
            e = expect_error(api.call("PATCH", f"/v1/sandboxes/{sb}", {"ttl": 101}), 403, "forbidden")
            check("100" in e["message"], e["message"])
            api.ok("PATCH", f"/v1/sandboxes/{sb}", {"ttl": 100})
        expect_error(create(api, ttl=101), 403, "forbidden")

    @suite.case("quota: listed, changed, and kept over a kill")
    def _():
        api, ident = key(node, "q-list", max_sandboxes=1, creates_per_second=2.5, max_concurrent=7, max_ttl=60)
        wanted = {"max_sandboxes": 1, "creates_per_second": 2.5, "max_concurrent": 7, "max_ttl": 60}

        def listed():
            row = next(k for k in node.ok("GET", "/v1/keys")["keys"] if k["id"] == ident)
            return {name: row[name] for name in wanted}
        equal(listed(), wanted, "as listed")
        node.kill("bothyd")
        node.restart("bothyd")
        equal(listed(), wanted, "after a kill")
        equal(create(api).status, 201, "the first")
        refused(create(api), "sandboxes")
        node.ok("PATCH", f"/v1/keys/{ident}", {"max_sandboxes": 2, "max_ttl": 0})
        equal(listed(), {**wanted, "max_sandboxes": 2, "max_ttl": None}, "changed")
        equal(create(api).status, 201, "from the next request on")
        expect_error(node.call("PATCH", "/v1/keys/nothere0", {"max_ttl": 5}), 404, "not_found")
        expect_error(api.call("PATCH", f"/v1/keys/{ident}", {"max_sandboxes": 9}), 403, "forbidden")
        end_all(api)

    @suite.case("quota: the command line makes, changes and lists them")
    def _():
        r = node.cli("key", "create", "--owner", "q-cli", "--max-sandboxes", "3", "--creates-per-second", "0.5", "--max-ttl", "10m", "--json")
        equal(r.returncode, 0, f"create: {r.stderr}")
        ident = __import__("json").loads(r.stdout)["id"]
        r = node.cli("key", "update", "--max-sandboxes", "4", "--max-concurrent", "2", ident)
        equal(r.returncode, 0, f"update: {r.stderr}")
        text = node.cli("key", "ls").stdout.decode()
        line = next(x for x in text.splitlines() if x.startswith(ident))
        check(all(w in line for w in ("4", "0.5/s", "2", "10m")), line)
        r = node.cli("key", "update", ident)
        check(r.returncode == 125, "without a change")
        r = node.cli("key", "create", "--owner", "x", "--max-sandboxes", "many")
        check(r.returncode == 125 and b"max-sandboxes" in r.stderr, f"a wrong number: {r.stderr}")


def alone(suite, backend):
    @suite.case("quota: creates at once, and the node's defaults, which are not an administrator's")
    def _():
        with Node(backend, pool="0:1", env="BOTHY_QUOTA_MAX_SANDBOXES=5 BOTHY_QUOTA_MAX_TTL=50s",
                  warden="--max 2" if backend == "oci" else "") as node:
            tenant, _ = key(node, "tenant", max_concurrent=2)
            expect_error(create(tenant, ttl=51), 403, "forbidden")
            equal(create(node, ttl=3600).status, 201, "an administrator's")
            if backend == "oci":
                tenant.create()
                answers = []
                waiting = [threading.Thread(target=lambda: answers.append(create(tenant, queue_wait=7))) for _ in range(2)]
                for t in waiting:
                    t.start()
                eventually("two wait", lambda: node.ok("GET", "/v1/info")["counts"]["creating"] == 2, 10)
                refused(create(tenant), "concurrency")
                for t in waiting:
                    t.join(30)
                equal([a.status for a in answers], [503, 503], "those that waited")
                equal(node.ok("GET", "/v1/info")["counts"]["creating"], 0, "none is under way any more")
            end_all(node)
            ids = []
            for _ in range(2 if backend == "oci" else 5):
                ids.append(tenant.create())
            if backend != "oci":
                refused(create(tenant), "sandboxes")

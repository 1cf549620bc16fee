"""Keys over TCP: owners see only their own, roles allow what they say."""
import time

from harness import Skip, check, equal, expect_error


def key_for(node, owner, role="user", **more):
    a = node.call("POST", "/v1/keys", {"owner": owner, "role": role, **more})
    if a.status == 403:
        raise Skip("the key of this run is no administrator's: it makes no keys")
    equal(a.status, 201, f"status ({a!r})")
    made = a.json
    return made, node.by_key(made["key"])


def cases(suite, node):
    @suite.case("TCP without a key, with a wrong one and with a revoked one is unauthenticated")
    def _():
        for key in (None, "e2b_" + "0" * 40, "nonsense", ""):
            a = node.by_key(key).call("GET", "/v1/sandboxes")
            expect_error(a, 401, "unauthenticated")
        made, api = key_for(node, "brief")
        equal(api.call("GET", "/v1/sandboxes").status, 200, "status with the key")
        node.call("DELETE", f"/v1/keys/{made['id']}")
        expect_error(api.call("GET", "/v1/sandboxes"), 401, "unauthenticated")

    @suite.case("a key is shown once, listed without its text, and not kept in the store")
    def _():
        made, _ = key_for(node, "shown", note="for a test")
        check(made["key"].startswith("e2b_") and len(made["key"]) > 36, "form of the key")
        listed = [k for k in node.ok("GET", "/v1/keys")["keys"] if k["id"] == made["id"]]
        equal((len(listed), listed[0]["owner"], listed[0]["note"], "key" in listed[0]), (1, "shown", "for a test", False), "listed")
        check(made["key"] not in node.log(), "the key is in the log")
        for name in ("store.db", "store.db-wal"):
            try:
                with open(f"{node.dir}/bothyd/{name}", "rb") as f:
                    check(made["key"].encode() not in f.read(), f"the key is in {name}")
            except FileNotFoundError:
                pass

    @suite.case("X-API-Key is taken too")
    def _():
        made, _ = key_for(node, "header")
        a = node.by_key(None).call("GET", "/v1/sandboxes", headers={"X-API-Key": made["key"]})
        equal(a.status, 200, "status")

    @suite.case("what belongs to somebody else reads not_found; an administrator sees all")
    def _():
        _, ann = key_for(node, "ann")
        _, ben = key_for(node, "ben")
        sb = ann.create(name="mine")
        x = ann.exec(sb, ["echo", "hers"])["exec"]
        equal(ann.show(sb)["owner"], "ann", "owner")
        for method, path, body in (("GET", f"/v1/sandboxes/{sb}", None), ("DELETE", f"/v1/sandboxes/{sb}", None),
                                   ("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]}), ("GET", "/v1/sandboxes/mine", None),
                                   ("GET", ben.at(sb, x, "/output"), None), ("GET", f"/v1/sandboxes/{sb}/processes", None)):
            expect_error(ben.call(method, path, body), 404, "not_found")
        check(sb not in [s["id"] for s in ben.ok("GET", "/v1/sandboxes")["sandboxes"]], "it is listed for somebody else")
        own = ben.create(name="mine")
        equal(ben.show("mine")["id"], own, "the same name for another owner")
        check({sb, own} <= {s["id"] for s in node.ok("GET", "/v1/sandboxes?limit=1000")["sandboxes"]}, "the administrator's list")
        ben.delete(own)
        node.delete(sb)
        equal(ann.show(sb)["cause"]["by"], "admin", "who ended it")
        expect_error(ben.call("GET", f"/v1/sandboxes/{sb}"), 404, "not_found")

    @suite.case("idempotency keys of different owners do not meet")
    def _():
        _, ann = key_for(node, "ann")
        _, ben = key_for(node, "ben")
        a = ann.create(headers={"Idempotency-Key": "same"})
        b = ben.create(headers={"Idempotency-Key": "same"})
        check(a != b, "one owner got the other's sandbox")
        ann.delete(a)
        ben.delete(b)

    @suite.case("role read sees but does not make; role user does not administer")
    def _():
        _, ann = key_for(node, "ann")
        _, reader = key_for(node, "ann", "read")
        sb = ann.create()
        equal(reader.show(sb)["id"], sb, "what the reader sees")
        for method, path, body in (("POST", "/v1/sandboxes", {"image": "busybox"}), ("DELETE", f"/v1/sandboxes/{sb}", None),
                                   ("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]})):
            expect_error(reader.call(method, path, body), 403, "forbidden")
        for method, path, body in (("GET", "/v1/keys", None), ("POST", "/v1/keys", {"owner": "x"}),
                                   ("POST", "/v1/images/prune", {}), ("DELETE", "/v1/images/busybox", None)):
            expect_error(ann.call(method, path, body), 403, "forbidden")
        ann.delete(sb)

    @suite.case("only an administrator may name a path of the node")
    def _():
        _, ann = key_for(node, "ann")
        source = "oci:/mnt/images/busybox:latest"
        expect_error(ann.call("POST", "/v1/sandboxes", {"image": source}), 403, "forbidden")
        expect_error(ann.call("POST", "/v1/images", {"source": source, "name": "x"}), 403, "forbidden")

    @suite.case("an expired key is not taken")
    def _():
        _, brief = key_for(node, "brief", expires_in=3)
        equal(brief.call("GET", "/v1/sandboxes").status, 200, "status before")
        time.sleep(3.2)
        expect_error(brief.call("GET", "/v1/sandboxes"), 401, "unauthenticated")

    @suite.case("health needs no key, info does")
    def _():
        nobody = node.by_key(None)
        equal(nobody.call("GET", "/healthz").status, 200, "healthz")
        equal(nobody.call("GET", "/readyz").status, 200, "readyz")
        expect_error(nobody.call("GET", "/v1/info"), 401, "unauthenticated")

"""Templates: recipes by name, whose they are, what a create takes of them; the start command."""
from common import beside
from cases_owners import key_for
from harness import check, equal, eventually, expect_error


def make(api, name, **spec):
    return api.ok("POST", "/v1/templates", {"name": name, "image": "busybox", **spec})


def remove(api, name):
    equal(api.call("DELETE", f"/v1/templates/{name}").status, 204, "status of the removal")


def cases(suite, node):
    @suite.case("a template is kept as it was made, shown, listed, changed and removed")
    def _():
        whole = {"env": {"A": "1", "B": "two words"}, "user": "0", "cwd": "/tmp", "labels": {"team": "blue"}, "limits": {"memory": 64 << 20, "cpu": 0.5},
                 "ttl": 600, "read_only": False, "grants": ["setuid"], "umask": "027", "network": "none", "start": {"argv": ["sleep", "600"], "cwd": "/"}}
        made = make(node, "whole", **whole)
        try:
            equal({k: made[k] for k in whole}, whole, "members")
            check(made["changed"] == made["created"] and len(made["id"]) == 20, f"{made}")
            for at in ("whole", made["id"]):
                equal(node.ok("GET", f"/v1/templates/{at}"), made, f"shown by {at}")
            check(made in node.ok("GET", "/v1/templates")["templates"], "it is not listed")
            changed = node.ok("PATCH", "/v1/templates/whole", {"env": {"C": "3"}, "ttl": None, "start": None, "name": "renamed"})
            equal((changed["id"], changed["name"], changed["env"], changed["ttl"], changed["start"], changed["limits"]),
                  (made["id"], "renamed", {"C": "3"}, None, None, whole["limits"]), "changed")
            check(changed["changed"] >= changed["created"], "time of the change")
            expect_error(node.call("GET", "/v1/templates/whole"), 404, "not_found")
        finally:
            remove(node, made["id"])
        expect_error(node.call("GET", f"/v1/templates/{made['id']}"), 404, "not_found")

    @suite.case("templates that make no sense are refused, each with its member")
    def _():
        for body, word in (({"name": "x"}, "image"), ({"image": "busybox"}, "name"), ({"name": "-x", "image": "busybox"}, "name"),
                           ({"name": "x", "image": "busybox", "secrets": {"A": "1"}}, "secrets"),
                           ({"name": "x", "image": "busybox", "cwd": "tmp"}, "cwd"), ({"name": "x", "image": "busybox", "start": {"argv": []}}, "argv"),
                           ({"name": "x", "image": "busybox", "limits": {"memory": 1}}, "memory"),
                           ({"name": "x", "image": "--image"}, "image"), ({"name": "x", "image": "Busybox"}, "image")):
            a = node.call("POST", "/v1/templates", body)
            expect_error(a, 400, "invalid_request")
            check(word in a.error["message"], f"{a.error['message']} does not name {word}")
        made = make(node, "bad-patch")
        for patch, word in (({"image": None}, "image"), ({"image": "-e"}, "image"), ({"nonsense": 1}, "nonsense"), ({"limits": {"pids": 1}}, "pids")):
            a = node.call("PATCH", f"/v1/templates/{made['id']}", patch)
            expect_error(a, 400, "invalid_request")
            check(word in a.error["message"], f"{a.error['message']} does not name {word}")
        expect_error(node.call("PATCH", f"/v1/templates/{made['id']}", b"[1]"), 400, "invalid_request")
        equal(node.ok("GET", "/v1/templates/bad-patch"), made, "after changes that were refused")
        a = node.call("POST", "/v1/templates", {"name": "bad-patch", "image": "dash"})
        expect_error(a, 409, "conflict")
        remove(node, "bad-patch")
        a = node.call("POST", "/v1/templates", {"name": "big", "image": "busybox", "env": {f"V{i}": "x" * 1000 for i in range(200)}})
        expect_error(a, 413, "too_large")

    @suite.case("a create by template takes what it does not say itself; env and labels are put together")
    def _():
        pids, memory = node.held_limits({"pids": 77}), node.held_limits({"memory": 128 << 20})
        make(node, "by-name", env={"A": "template", "B": "template"}, labels={"a": "t", "b": "t"}, cwd="/tmp", ttl=500, limits=pids,
             grants=["setuid"], umask="027")
        try:
            sb = node.ok("POST", "/v1/sandboxes", {"template": "by-name", "env": {"B": "own"}, "labels": {"b": "own"}, "limits": memory})
            try:
                equal((sb["template"], sb["image"]["name"], sb["labels"], sb["cwd"], sb["limits"]["pids"], sb["limits"]["memory"], sb["grants"], sb["umask"]),
                      ("by-name", "busybox", {"a": "t", "b": "own"}, "/tmp", pids.get("pids", 512), memory.get("memory", 2**30), ["setuid"], "027"), "what it became")
                check(sb["ttl_left"] <= 500, f"ttl: {sb['ttl_left']}")
                equal(node.shell(sb["id"], "echo $A $B; umask"), "template own\n0027\n", "inside")
                if node.backend != "fake":  # which has no root of its own
                    equal(node.shell(sb["id"], "pwd"), "/tmp\n", "where it starts")
            finally:
                node.delete(sb["id"])
            sb = node.ok("POST", "/v1/sandboxes", {"template": "by-name", "cwd": "/", "ttl": 100, "umask": "077"})
            equal((sb["cwd"], sb["umask"], sb["ttl_left"] <= 100), ("/", "077", True), "its own words go before")
            node.delete(sb["id"])
        finally:
            remove(node, "by-name")
        expect_error(node.call("POST", "/v1/sandboxes", {"template": "by-name"}), 404, "not_found")
        expect_error(node.call("POST", "/v1/sandboxes", {"template": "x", "image": "busybox"}), 400, "invalid_request")
        expect_error(node.call("POST", "/v1/sandboxes", {}), 400, "invalid_request")

    @suite.case("a create by template that is repeated with its key gets its sandbox, also when the template is gone")
    def _():
        make(node, "for-a-key")
        body, key = {"template": "for-a-key"}, {"Idempotency-Key": "templates-key"}
        first = node.ok("POST", "/v1/sandboxes", body, key)
        remove(node, "for-a-key")
        again = node.call("POST", "/v1/sandboxes", body, key)
        equal((again.status, again.json["id"], again.headers.get("Idempotent-Replay")), (201, first["id"], "true"), "answer")
        node.delete(first["id"])

    @suite.case("templates have owners: others' read not_found, public ones are used by all and changed by their owner, one's own go before")
    def _():
        _, ann = key_for(node, "ann")
        _, ben = key_for(node, "ben")
        _, reader = key_for(node, "ann", "read")
        hers = make(ann, "hers")
        try:
            equal(hers["owner"], "ann", "owner")
            for at in ("hers", hers["id"]):
                for method, body in (("GET", None), ("PATCH", {"ttl": 5}), ("DELETE", None)):
                    expect_error(ben.call(method, f"/v1/templates/{at}", body), 404, "not_found")
            expect_error(ben.call("POST", "/v1/sandboxes", {"template": "hers"}), 404, "not_found")
            check("hers" not in [t["name"] for t in ben.ok("GET", "/v1/templates")["templates"]], "it is listed for somebody else")
            equal(reader.ok("GET", "/v1/templates/hers")["id"], hers["id"], "read by a reader")
            expect_error(reader.call("DELETE", "/v1/templates/hers"), 403, "forbidden")
            expect_error(ann.call("POST", "/v1/templates", {"name": "p", "image": "busybox", "public": True}), 403, "forbidden")
            equal(node.ok("GET", f"/v1/templates/{hers['id']}")["owner"], "ann", "an administrator sees it")
        finally:
            remove(ann, "hers")
        make(node, "for-all", public=True, labels={"whose": "all"})
        try:
            expect_error(ann.call("PATCH", "/v1/templates/for-all", {"ttl": 5}), 403, "forbidden")
            expect_error(ann.call("DELETE", "/v1/templates/for-all"), 403, "forbidden")
            sb = ann.ok("POST", "/v1/sandboxes", {"template": "for-all"})
            equal((sb["owner"], sb["labels"]), ("ann", {"whose": "all"}), "made of the public one")
            ann.delete(sb["id"])
            make(ann, "for-all", labels={"whose": "ann"})
            try:
                sb = ann.ok("POST", "/v1/sandboxes", {"template": "for-all"})
                equal(sb["labels"], {"whose": "ann"}, "made of her own")
                ann.delete(sb["id"])
            finally:
                remove(ann, "for-all")
        finally:
            remove(node, "for-all")

    @suite.case("what a template grants is the caller's to have: a network that is not allowed stays refused")
    def _():
        _, ann = key_for(node, "ann")
        make(ann, "with-network", network="open")
        a = ann.call("POST", "/v1/sandboxes", {"template": "with-network"})
        try:
            if a.status == 201:
                ann.delete(a.json["id"])
                expect_error(a, 403, "forbidden")
            check((a.status, a.error["code"]) in ((403, "forbidden"), (501, "unsupported")), f"{a!r}")
            sb = ann.ok("POST", "/v1/sandboxes", {"template": "with-network", "network": "none"})
            equal(sb["network"], "none", "network")
            ann.delete(sb["id"])
        finally:
            remove(ann, "with-network")

    @suite.case("a start command runs from the beginning, once, and is told: its exec, output and end")
    def _():
        argv = ["sh", "-c", "echo begun $WHO; cat; exec sleep 600"]
        make(node, "served", env={"WHO": "template"}, start={"argv": argv, "cwd": "/tmp"})
        try:
            sb = node.ok("POST", "/v1/sandboxes", {"template": "served"})
        finally:
            remove(node, "served")
        try:
            equal((sb["start"]["argv"], sb["start"]["cwd"], sb["start"]["exec"]), (argv, "/tmp", "1"), "start")
            x = sb["start"]["exec"]
            eventually("it speaks", lambda: node.output(sb["id"], x) == b"begun template\n")
            p = node.process(sb["id"], x)
            equal((p["start"], p["running"]), (True, True), "process")
            equal(node.process(sb["id"], node.exec(sb["id"], "true")["exec"])["start"], False, "another one")
            equal([p["exec"] for p in node.ok("GET", f"/v1/sandboxes/{sb['id']}/processes")["processes"] if p["start"]], [x], "how many")
            node.ok("POST", node.at(sb["id"], x, "/signal"), {"signal": "KILL"})
            equal(node.wait(sb["id"], x)["how"], "killed", "its end")
            equal(node.show(sb["id"])["state"], "running", "the sandbox")
        finally:
            node.delete(sb["id"])

    @suite.case("a start command that cannot run is told, and the sandbox lives")
    def _():
        with node.sandbox(start={"argv": ["/no/such/program"]}) as sb:
            x = node.show(sb)["start"]["exec"]
            equal(node.wait(sb, x)["how"], "not_started", "its end")
            equal(node.shell(sb, "echo lives"), "lives\n", "the sandbox")
        with node.sandbox() as sb:
            equal(node.show(sb)["start"], None, "of one without")

    @suite.case("templates and start commands are there after a restart; nothing is begun twice")
    def _():
        beside(node)
        make(node, "kept", env={"K": "1"})
        with node.sandbox(start={"argv": ["sleep", "600"]}) as sb:
            eventually("it has begun", lambda: "sleep 600" in node.shell(sb, "ps -o args"))  # what is only on its way is begun anew
            before = node.show(sb)["start"]
            node.kill("bothyd", 15)
            node.restart("bothyd")
            equal(node.show(sb)["start"], before, "start")
            begun = [p for p in node.ok("GET", f"/v1/sandboxes/{sb}/processes")["processes"] if p["start"]]
            equal(len(begun), 1, "start commands")
            check(node.process(sb, before["exec"])["running"], "it runs")
        equal(node.ok("GET", "/v1/templates/kept")["env"], {"K": "1"}, "template")
        remove(node, "kept")

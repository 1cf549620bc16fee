"""Owners and keys: what belongs to somebody else is not there, whatever is asked and however often."""
import json
import pathlib
import time

from harness import Api, check, equal, eventually, expect_error

UNKNOWN = "zzzzzzzzzzzzzzzzzzzz"
GUESSES = 3000
QUERY = {"path": "/tmp/x", "from": "/tmp/x", "to": "/tmp/y"}  # of parameters that must be given
QUERIES = {"/v1/sandboxes/{id}/files/search": "&name=x"}  # one of several must be given
UPGRADES = {"/v1/sandboxes/{id}/forward/{port}": {"Connection": "Upgrade", "Upgrade": "tcp"}}
ALIKE = {"/v1/sandboxes/{id}/ports/{port}": 308}  # the same for every id: a slash is missing
WORDS = {"{port}": "80", "{rest}": "x", "{session}": "1", "{command}": "1"}  # in paths, besides ids


def api_for(node, owner, role="user"):
    return Api(tcp=f"127.0.0.1:{node.port}", key=node.ok("POST", "/v1/keys", {"owner": owner, "role": role})["key"])


def routes(node):
    """(method, path, role, operation) of every operation the API describes."""
    api = node.ok("GET", "/openapi.json")
    named = api["components"]["parameters"]
    for path, item in api["paths"].items():
        for method, operation in item.items():
            if method in ("get", "put", "post", "delete", "patch"):
                given = [named[p["$ref"].rsplit("/", 1)[1]] if "$ref" in p else p
                         for p in item.get("parameters", []) + operation.get("parameters", [])]
                needed = [p["name"] for p in given if p["in"] == "query" and p.get("required")]
                query = "&".join(f"{name}={QUERY.get(name, 'x')}" for name in needed) + QUERIES.get(path, "")
                yield method.upper(), path + ("?" + query if query else ""), operation.get("x-role", "user"), operation


def body_of(node_api, operation):
    """The example, or what the operation takes for one."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return content and content.get("example")


def same(a, b, ids):
    """Two answers that differ in nothing but the id that was asked for and their own request's."""
    def plain(answer):
        text = answer.body.decode()
        for i in ids:
            text = text.replace(i, "ID")
        if text.startswith('{"error"'):
            e = json.loads(text)
            e["error"].pop("request_id")
            text = json.dumps(e)
        return answer.status, text
    equal(plain(a), plain(b), "the answer")


def cases(attack, node):
    ann, ben, reader = api_for(node, "ann"), api_for(node, "ben"), api_for(node, "ann", "read")
    table = list(routes(node))
    check(len(table) >= 25, f"only {len(table)} routes")
    sandbox = ann.create(name="hers")

    @attack.attempt("limits: nobody but an administrator is given the host's processes, memory or processors, at create or later", ("pids", "memory", "cpu", "shm"))
    def _():
        memory = next(int(line.split()[1]) * 1024 for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
        for name, much in {"pids": 4194304, "memory": memory * 50 - (1 << 20), "cpu": 1024, "shm": memory * 2}.items():
            e = expect_error(ann.call("POST", "/v1/sandboxes", {"image": "busybox", "limits": {name: much}}), 403, "forbidden")
            check(f"limits.{name}" in e["message"] and f"limits.max_{name}" in e["remedy"], e)
            if name != "shm":
                expect_error(ann.call("PATCH", f"/v1/sandboxes/{sandbox}", {"limits": {name: much}}), 403, "forbidden")

    x = ann.exec(sandbox, ["echo", "hers"])["exec"]
    owned = [r for r in table if "{id}" in r[1] and "/sandboxes/" in r[1]]

    def ask(api, route, ident, exec_id):
        method, path, _, operation = route
        headers = UPGRADES.get(path)
        for name, word in {**WORDS, "{id}": ident, "{exec}": exec_id}.items():
            path = path.replace(name, word)
        return api.call(method, path, body_of(node, operation), headers)

    for route in owned:
        @attack.attempt(f"owners: {route[0]} {route[1]} with another's id answers exactly as for an unknown one", ("id", "name"))
        def _(route=route):
            unknown = ask(ben, route, UNKNOWN, x)
            if route[1] in ALIKE:
                equal(unknown.status, ALIKE[route[1]], "status")
            else:
                expect_error(unknown, 404, "not_found")
            same(ask(ben, route, sandbox, x), unknown, (sandbox, UNKNOWN))
            same(ask(ben, route, "hers", x), ask(ben, route, "nope", x), ("hers", "nope"))
            equal(ann.show(sandbox)["state"], "running", "hers afterwards")

    @attack.attempt("owners: another's sandboxes are in no list, by name, label or state")
    def _():
        for query in ("", "?name=hers", "?state=running", "?limit=1000"):
            check(sandbox not in json.dumps(ben.ok("GET", "/v1/sandboxes" + query)), f"listed with {query!r}")

    @attack.attempt("owners: a list goes on after another's id exactly as after an unknown one: not at all")
    def _():
        unknown = ben.call("GET", f"/v1/sandboxes?cursor={UNKNOWN}")
        expect_error(unknown, 404, "not_found")
        same(ben.call("GET", f"/v1/sandboxes?cursor={sandbox}"), unknown, (sandbox, UNKNOWN))

    @attack.attempt("owners: another's idempotency key gives neither her sandbox nor her output")
    def _():
        headers = {"Idempotency-Key": "hers-alone"}
        a = ann.create(headers=headers)
        b = ben.call("POST", "/v1/sandboxes", {"image": "busybox"}, headers)
        check(b.status == 201 and b.json["id"] != a and not b.headers.get("Idempotent-Replay"), f"{b!r}")
        ann.exec(a, ["echo", "secret"], headers)
        r = ben.exec(b.json["id"], ["echo", "mine"], headers)
        equal(r["out"]["text"], "mine\n", "output under the same key")
        ann.delete(a)
        ben.delete(b.json["id"])

    writing = [r for r in table if r[2] in ("user", "admin")]

    @attack.attempt(f"roles: read may call none of the {len(writing)} operations that change something")
    def _():
        for route in writing:
            a = ask(reader, route, sandbox, x)
            check(a.status == 403, f"{route[0]} {route[1]}: {a!r}")

    administering = [r for r in table if r[2] == "admin"]

    @attack.attempt(f"roles: user may call none of the {len(administering)} operations of administrators")
    def _():
        for route in administering:
            a = ask(ben, route, "x", "1")
            check(a.status == 403, f"{route[0]} {route[1]}: {a!r}")

    @attack.attempt(f"keys: none of the {len(table)} operations but health and description answers without one, or to a wrong one")
    def _():
        for key in (None, "", "e2b_" + "0" * 40, "' OR 1=1", "e2b_" + "a" * 4000):
            nobody = Api(tcp=f"127.0.0.1:{node.port}", key=key)
            for route in table:
                if route[2] != "anyone":
                    expect_error(ask(nobody, route, sandbox, x), 401, "unauthenticated")

    @attack.attempt("keys: roles and owners that a caller puts into headers count for nothing")
    def _():
        forged = {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "X-Role": "admin", "X-Owner": "ann", "Forwarded": "for=unix:",
                  "X-Original-URL": "/healthz", "X-HTTP-Method-Override": "DELETE", "X-API-Key": ben.key}
        expect_error(ben.call("GET", f"/v1/sandboxes/{sandbox}", headers=forged), 404, "not_found")
        expect_error(ben.call("GET", "/v1/keys", headers=forged), 403, "forbidden")

    @attack.attempt("keys: a right key beside a wrong one, in either header, is not taken")
    def _():
        for headers in ({"Authorization": "Bearer e2b_wrong", "X-API-Key": ann.key}, {"Authorization": "Basic " + ann.key},
                        {"Cookie": "key=" + ann.key}):
            a = Api(tcp=f"127.0.0.1:{node.port}").call("GET", "/v1/sandboxes", headers=headers)
            expect_error(a, 401, "unauthenticated")
        expect_error(Api(tcp=f"127.0.0.1:{node.port}").call("GET", f"/v1/sandboxes?api_key={ann.key}&key={ann.key}"), 401, "unauthenticated")

    @attack.attempt(f"keys: {GUESSES} guesses: 401 each, none in a log, and a right key is as fast meanwhile")
    def _():
        guesses(attack, node, ann)

    ann.delete(sandbox)


def guesses(attack, node, right):
    def p50(n):
        took = []
        for _ in range(n):
            began = time.monotonic()
            equal(right.call("GET", "/v1/sandboxes").status, 200, "status with the right key")
            took.append(time.monotonic() - began)
        return sorted(took)[n // 2] * 1000
    before = p50(50)
    prefix = "e2b_guess"
    c = Api(tcp=f"127.0.0.1:{node.port}").connection()
    for i in range(GUESSES):
        c.request("GET", "/v1/sandboxes", headers={"Authorization": f"Bearer {prefix}{i:032d}"})
        r = c.getresponse()
        r.read()
        equal(r.status, 401, "status of a guess")
    after = p50(50)
    attack.figures["right_key_ms"] = {"before": round(before, 2), "after_guesses": round(after, 2)}
    check(after < max(20, before * 5), f"{after:.1f} ms with the right key, {before:.1f} before")
    for path in pathlib.Path(node.dir, "log").glob("*"):
        check(prefix not in path.read_text(errors="replace"), f"a guess is in {path.name}")
    check(right.key not in node.log(), "the right key is in the log")

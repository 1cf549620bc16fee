"""A sandbox's life: create, names, labels, lists, ends and their causes."""
import threading

from harness import Watch, check, equal, eventually, expect_error


def cases(suite, node):
    creating(suite, node)
    names(suite, node)
    lists(suite, node)
    ends(suite, node)


def creating(suite, node):
    @suite.case("create answers with a running sandbox and everything that was decided")
    def _():
        a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "labels": {"team": "red"}, "ttl": 600})
        equal(a.status, 201, "status")
        s = a.json
        check(len(s["id"]) == 20 and s["id"].isalnum() and s["id"] == s["id"].lower(), f"id {s['id']}")
        check(s["id"].startswith(node.ok("GET", "/v1/info")["cell"]), "the id does not begin with the cell")
        equal((s["state"], s["cause"], s["owner"], s["labels"]), ("running", None, "admin", {"team": "red"}), "sandbox")
        equal((s["limits"]["memory"], s["limits"]["cpu"], s["limits"]["pids"], s["limits"]["nofile"], s["limits"]["execs"]),
              (2**30, 1.0, 512, 1024, 256), "default limits")
        check(s["ends"] > s["created"], "ends")
        shown = node.show(s["id"])
        for member in ("id", "state", "image", "owner", "created", "ends", "labels", "limits", "read_only"):
            equal(shown[member], s[member], member)
        node.delete(s["id"])

    @suite.case("a create repeated with its key gives the same sandbox, with another body a mismatch")
    def _():
        body = {"image": "busybox", "ttl": 300}
        first = node.call("POST", "/v1/sandboxes", body, {"Idempotency-Key": "create-1"})
        again = node.call("POST", "/v1/sandboxes", body, {"Idempotency-Key": "create-1"})
        equal((first.status, again.status), (201, 201), "status")
        equal(again.json["id"], first.json["id"], "id")
        equal(again.headers.get("Idempotent-Replay"), "true", "Idempotent-Replay")
        other = node.call("POST", "/v1/sandboxes", {**body, "ttl": 301}, {"Idempotency-Key": "create-1"})
        expect_error(other, 422, "idempotency_mismatch")
        node.delete(first.json["id"])

    @suite.case("what was created with a key is ended by it, without its body")
    def _():
        made = node.call("POST", "/v1/sandboxes", {"image": "busybox"}, {"Idempotency-Key": "undone"}).json["id"]
        for turn in ("first", "second"):
            a = node.call("DELETE", "/v1/sandboxes", None, {"Idempotency-Key": "undone"})
            equal((a.status, a.json["id"], a.json["state"], a.json["cause"]["kind"]), (200, made, "gone", "requested"), f"the {turn} time")
        expect_error(node.call("DELETE", "/v1/sandboxes", None, {"Idempotency-Key": "nobodys"}), 404, "not_found")
        expect_error(node.call("DELETE", "/v1/sandboxes"), 400, "invalid_request")

    @suite.case("four creates at once with one key make one sandbox")
    def _():
        got = []

        def ask():
            got.append(node.call("POST", "/v1/sandboxes", {"image": "busybox"}, {"Idempotency-Key": "create-2"}))
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        equal([a.status for a in got], [201] * 4, "status")
        equal(len({a.json["id"] for a in got}), 1, "sandboxes")
        equal(sum(a.headers.get("Idempotent-Replay") == "true" for a in got), 3, "replays")
        node.delete(got[0].json["id"])

    @suite.case("a key that is empty, too long or not visible ASCII is refused")
    def _():
        for key in ("", "k" * 256, "a b"):
            a = node.call("POST", "/v1/sandboxes", {"image": "busybox"}, {"Idempotency-Key": key})
            expect_error(a, 400, "invalid_request")

    @suite.case("what this node cannot do is unsupported, never something else instead")
    def _():
        for spec in ({"tier": "strong"},) + (({"network": "open"},) if node.caps.get("network", "absent") == "absent" else ()):
            expect_error(node.call("POST", "/v1/sandboxes", {"image": "busybox", **spec}), 501, "unsupported")
        if node.caps["disk_limit"] == "absent":
            a = node.call("POST", "/v1/sandboxes", {"image": "busybox", "limits": {"disk": 2**30}})
            expect_error(a, 501, "unsupported")

    @suite.case("values out of range are refused by name")
    def _():
        for spec, member in (({"limits": {"memory": 1}}, "memory"), ({"limits": {"pids": 0}}, "pids"), ({"ttl": 0}, "ttl"),
                             ({"name": "-x"}, "name"), ({"umask": "9"}, "umask"), ({"cwd": "x"}, "cwd"), ({"color": 1}, "color"),
                             ({"tmpfs": [{"path": "/a/../b", "size": 4096}]}, "tmpfs"), ({"grants": ["root"]}, "grants")):
            e = expect_error(node.call("POST", "/v1/sandboxes", {"image": "busybox", **spec}), 400, "invalid_request")
            check(member in e["message"], f"{spec} gave {e['message']!r}")


def names(suite, node):
    @suite.case("a name is unique among the living and may be used instead of the id")
    def _():
        sb = node.create(name="harbour")
        e = expect_error(node.call("POST", "/v1/sandboxes", {"image": "busybox", "name": "harbour"}), 409, "conflict")
        equal(e["kind"], "name", "kind")
        equal(node.show("harbour")["id"], sb, "id by name")
        equal(node.exec("harbour", ["echo", "x"])["out"]["text"], "x\n", "exec by name")
        node.delete("harbour")
        again = node.create(name="harbour")
        check(again != sb, "the same sandbox")
        node.delete(again)

    @suite.case("of many creates of one name at once one wins, and the others leave nothing")
    def _():
        answers = []
        body = {"image": "busybox", "name": "one-of-many"}
        threads = [threading.Thread(target=lambda: answers.append(node.call("POST", "/v1/sandboxes", body)))
                   for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        equal(sorted(a.status for a in answers), [201] + [409] * 7, "statuses")
        equal({a.json["error"]["kind"] for a in answers if a.status == 409}, {"name"}, "kinds")
        winner = next(a.json["id"] for a in answers if a.status == 201)
        listed = [s["id"] for s in node.ok("GET", "/v1/sandboxes?name=one-of-many")["sandboxes"]]
        equal(listed, [winner], "sandboxes of the name")
        equal(node.exec(winner, ["true"])["end"]["exit_code"], 0, "exit code")
        node.delete(winner)


def lists(suite, node):
    @suite.case("lists filter by label, name and state, and go on at a cursor")
    def _():
        made = [node.create(labels={"batch": "b7", "n": str(i)}, name=f"b7-{i}") for i in range(5)]

        def ids(query):
            return [s["id"] for s in node.ok("GET", "/v1/sandboxes?" + query)["sandboxes"]]
        equal(sorted(ids("label=batch=b7")), sorted(made), "by label")
        equal(ids("label=batch=b7&label=n=3"), [made[3]], "by two labels")
        equal(ids("label=batch%3Db8"), [], "by a value nobody has")
        check(set(made) <= set(ids("label=batch")), "by a label's key")
        equal(ids("name=b7-2"), [made[2]], "by name")
        pages, cursor = [], ""
        while cursor is not None and len(pages) < 20:
            page = node.ok("GET", f"/v1/sandboxes?label=batch=b7&limit=2&cursor={cursor}" if cursor else "/v1/sandboxes?label=batch=b7&limit=2")
            check(len(page["sandboxes"]) <= 2, "a page is too long")
            pages += [s["id"] for s in page["sandboxes"]]
            cursor = page["next"]
        equal(pages, made, "pages, oldest first")
        node.delete(made[0])
        equal(ids("label=batch=b7&state=gone"), [made[0]], "gone ones")
        check(made[0] not in ids("label=batch=b7"), "a gone one is listed without being asked for")
        for sb in made[1:]:
            node.delete(sb)

    @suite.case("a bad query is refused by name")
    def _():
        for query, member in (("limit=0", "limit"), ("limit=x", "limit"), ("state=dead", "state")):
            e = expect_error(node.call("GET", "/v1/sandboxes?" + query), 400, "invalid_request")
            check(member in e["message"], f"{query} gave {e['message']!r}")


def ends(suite, node):
    @suite.case("delete ends it: cause requested by whom; again changes nothing; output stays readable")
    def _():
        sb = node.create()
        x = node.exec(sb, "echo kept; exit 2")["exec"]
        running = node.start(sb, ["sleep", "1000"])
        gone = node.delete(sb)
        equal((gone["state"], gone["cause"]["kind"], gone["cause"]["by"]), ("gone", "requested", "admin"), "sandbox")
        check(gone["ended"] >= gone["created"], "ended")
        equal(node.delete(sb)["cause"], gone["cause"], "cause after a second delete")
        equal(node.show(sb)["state"], "gone", "state")
        e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]}), 410, "sandbox_gone")
        check("requested" in (e["cause"] or ""), f"cause is {e['cause']}")
        equal(node.output(sb, x), b"kept\n", "output")
        equal(node.process(sb, x)["end"]["exit_code"], 2, "end")
        # Whoever pumps its output writes the end, which may be a moment behind the answer.
        end = eventually("the end of what ran", lambda: node.process(sb, running)["end"], 5)
        check(end["how"] in ("unknown", "killed"), f"end of what ran: {end}")
        if end["how"] == "unknown":
            equal(end["cause"]["kind"], "requested", "its cause")

    @suite.case("who follows a command is told its end when the sandbox is deleted")
    def _():
        sb = node.create()
        got = []
        x = node.start(sb, "echo a; sleep 1000")
        t = threading.Thread(target=lambda: got.extend(node.events("GET", node.at(sb, x, "/output?follow=end"))))
        t.start()
        eventually("the first byte", lambda: got)
        node.delete(sb)
        t.join(5)
        check(not t.is_alive(), "the stream did not end")
        equal(got[-1][0], "end", "last event")
        check(got[-1][2]["how"] in ("unknown", "killed"), f"end {got[-1][2]['how']}")

    @suite.case("its time ends it, with cause ttl")
    def _():
        before = Watch()
        sb = node.create(ttl=1)
        made = Watch()
        s = eventually("it is gone", lambda: (lambda v: v if v["state"] == "gone" else None)(node.show(sb)), 6)
        check(before.seconds() > 0.9 and made.within(4), f"at the wrong time: {before}")
        equal(s["cause"]["kind"], "ttl", "cause")
        expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]}), 410, "sandbox_gone")

    @suite.case("what does not exist is not_found of its kind")
    def _():
        for path, kind in (("/v1/sandboxes/abcdabcdabcdabcdabcd", "sandbox"), ("/v1/sandboxes/nobody", "sandbox"),
                           ("/v1/images/nosuch", "image"), ("/v2/nothing", "route"), ("/", "route")):
            e = expect_error(node.call("GET", path), 404, "not_found")
            equal(e["kind"], kind, f"kind of {path}")

    @suite.case("a second daemon restart finds sandboxes, their commands and output again")
    def _():
        with node.sandbox(name="keeper", labels={"a": "b"}) as sb:
            x = node.start(sb, "echo one; read -r l; echo two; exit 6", stdin_open=True)
            eventually("one", lambda: node.output(sb, x) == b"one\n")
            before = node.show(sb)
            for _ in range(2):
                node.kill("bothyd", 15)
                node.restart("bothyd")
            after = node.show("keeper")
            for member in ("id", "state", "owner", "created", "ends", "labels", "limits", "read_only", "user", "cwd"):
                equal(after[member], before[member], member)
            node.ok("POST", node.at(sb, x, "/stdin?eof=true"), b"\n")
            equal(node.wait(sb, x)["exit_code"], 6, "exit code")
            equal(node.output(sb, x), b"one\ntwo\n", "output")
            equal(node.exec(sb, ["echo", "still"])["out"]["text"], "still\n", "a new command")

"""Running a command: streams, exit status, stdin, terminals, repeating a request."""
import base64
import hashlib
import json
import threading
import time

from harness import Watch, bytes_of, check, collect, equal, eventually, expect_error

BOTH = "echo out; echo err >&2; exit 3"


def cases(suite, node):
    with node.sandbox() as sb:
        results(suite, node, sb)
        merged_and_pty(suite, node, sb)
        stdin(suite, node, sb)
        repeated(suite, node, sb)
        refused(suite, node, sb)


def results(suite, node, sb):
    @suite.case("exec keeps both streams apart and tells exit code 3, as JSON")
    def _():
        r = node.exec(sb, BOTH)
        equal(r["out"]["text"], "out\n", "out")
        equal(r["err"]["text"], "err\n", "err")
        end = r["end"]
        equal((end["how"], end["exit_code"], end["signal"], end["oom"]), ("exited", 3, None, False), "end")
        equal((end["out_bytes"], end["err_bytes"], end["out_dropped"], end["err_dropped"]), (4, 4, 0, 0), "lengths")
        equal(end["exec"], r["exec"], "exec of the end record")
        check(end["started"] <= end["ended"], "it ended before it started")
        check(end["usage"]["maxrss_kb"] > 0, "usage says nothing")
        equal((r["out"]["offset"], r["out"]["length"], r["out"]["truncated"]), (0, 4, False), "out")

    @suite.case("exec as an event stream gives the same, end last")
    def _():
        out, err, end, kinds = collect(node.events("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh", "-c", BOTH]}))
        equal((out, err), (b"out\n", b"err\n"), "streams")
        equal((end["how"], end["exit_code"]), ("exited", 3), "end")
        equal(kinds[-1], "end", "last event")

    @suite.case("the answer to an exec names it, and the process shows the same end")
    def _():
        a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["true"]})
        equal(a.status, 200, "status")
        equal(a.headers["Bothy-Exec"], a.json["exec"], "Bothy-Exec")
        p = node.process(sb, a.json["exec"])
        equal(p["end"], a.json["end"], "end of the process")
        equal((p["running"], p["started"]), (False, True), "state")

    @suite.case("an event stream goes on after Last-Event-ID without a byte missing or twice")
    def _():
        x = node.start(sb, "for i in 1 2 3 4 5 6; do echo o$i; echo e$i >&2; sleep 0.05; done")
        node.wait(sb, x)
        seen = list(node.events("GET", node.at(sb, x, "/output?follow=end")))
        whole = collect(iter(seen))
        equal(whole[0], b"".join(b"o%d\n" % i for i in range(1, 7)), "out")
        for k in range(len(seen) - 1):
            rest = collect(node.events("GET", node.at(sb, x, "/output?follow=end"), headers={"Last-Event-ID": seen[k][1]}))
            before = collect(iter(seen[:k + 1]))
            equal(before[0] + rest[0], whole[0], f"out cut after event {k}")
            equal(before[1] + rest[1], whole[1], f"err cut after event {k}")
            equal(rest[2], whole[2], "end")

    @suite.case("events arrive while the command runs")
    def _():
        for _ in range(10):  # a busy machine is late at times, but not always
            began = time.monotonic()
            first = None
            for kind, _, _ in node.events("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh", "-c", "echo now; sleep 1"]}):
                first = first or (kind, time.monotonic() - began)
            equal(first[0], "out", "first event")
            if first[1] < 0.8:
                break
        else:
            raise AssertionError(f"the first byte took {first[1]:.2f} s")

    @suite.case("bytes that are not text come as base64, exactly")
    def _():
        r = node.exec(sb, r"printf '\000\377\001'; printf 'gr\303\274n' >&2")
        equal(base64.b64decode(r["out"]["b64"]), b"\x00\xff\x01", "out")
        equal(r["err"]["text"], "gr\u00fcn", "err")
        check("text" not in r["out"], "both forms are given")

    @suite.case("a command goes on when the connection of its exec is lost")
    def _():
        c, r = node.open("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh", "-c", "echo a; sleep 0.6; echo b"]},
                         {"Accept": "text/event-stream"})
        x = r.headers["Bothy-Exec"]
        c.close()
        equal(node.wait(sb, x)["exit_code"], 0, "exit code")
        equal(node.output(sb, x), b"a\nb\n", "output")

    @suite.case("arguments arrive as they are: spaces, quotes, newlines, empty, 128 KiB less one")
    def _():
        words = ["a b", "'\"$HOME`", "line\nline", "", "\u00fc", "x" * 131071 if node.backend == "oci" else "x" * 100000]
        r = node.exec(sb, ["sh", "-c", 'for w; do printf "%s|" "$w"; done', "sh"] + words)
        equal(bytes_of(r["out"]).decode(), "".join(w + "|" for w in words), "words")


def merged_and_pty(suite, node, sb):
    @suite.case("merged puts both streams into out in the order written")
    def _():
        r = node.exec(sb, "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done", stdio="merged")
        equal(r["out"]["text"], "".join(f"o{i}\ne{i}\n" for i in range(1, 6)), "out")
        equal(r["err"]["length"], 0, "length of err")

    @suite.case("a pty is a terminal of the size asked for, with TERM")
    def _():
        r = node.exec(sb, 'tty >/dev/null && echo tty; stty size; echo "[$TERM]"; test -t 0 && test -t 1 && test -t 2 && echo all',
                      stdio="pty", rows=31, cols=97)
        lines = bytes_of(r["out"]).decode().replace("\r", "").splitlines()
        equal(lines[:2], ["tty", "31 97"], "tty and size")
        check(lines[2] not in ("[]", ""), "TERM is empty on a pty")
        equal(lines[3], "all", "stdin, stdout, stderr")

    @suite.case("without a pty there is no terminal and no TERM")
    def _():
        equal(node.shell(sb, 'test -t 0 || echo no; echo "[${TERM-unset}]"'), "no\n[unset]\n", "out")

    @suite.case("input of a pty arrives and is echoed by the terminal")
    def _():
        x = node.start(sb, 'read -r line; echo "got $line"', stdio="pty", stdin_open=True)
        node.ok("POST", node.at(sb, x, "/stdin"), b"hello\n")
        equal(node.wait(sb, x)["exit_code"], 0, "exit code")
        check(b"got hello\r\n" in node.output(sb, x), f"output is {node.output(sb, x)!r}")


def stdin(suite, node, sb):
    @suite.case("stdin given at once arrives and ends, text and bytes")
    def _():
        r = node.exec(sb, ["cat"], stdin={"text": "gr\u00fcn\n"})
        equal(r["out"]["text"], "gr\u00fcn\n", "text")
        raw = bytes(range(256)) * 700
        r = node.exec(sb, ["cat"], stdin={"b64": base64.b64encode(raw).decode()})
        equal(bytes_of(r["out"]), raw, "bytes")

    @suite.case("without stdin a command reads end of file at once")
    def _():
        equal(node.exec(sb, ["cat"])["end"]["exit_code"], 0, "exit code")

    @suite.case("stdin by offset: appended once, a wrong offset is a conflict that names the length")
    def _():
        x = node.start(sb, ["cat"], stdin_open=True)
        check(node.process(sb, x)["stdin_open"], "stdin_open is false")
        equal(node.ok("POST", node.at(sb, x, "/stdin?offset=0"), b"one,"), {"length": 4}, "answer")
        e = expect_error(node.call("POST", node.at(sb, x, "/stdin?offset=0"), b"one,"), 409, "conflict")
        check("4" in e["message"], f"the message names no length: {e['message']}")
        equal(node.ok("POST", node.at(sb, x, "/stdin?offset=4"), b"two,"), {"length": 8}, "answer")
        equal(node.ok("POST", node.at(sb, x, "/stdin"), b"three"), {"length": 13}, "append")
        eventually("cat has written it", lambda: node.output(sb, x) == b"one,two,three")
        check(node.process(sb, x)["running"], "it ended without end of file")
        node.ok("POST", node.at(sb, x, "/stdin?eof=true"))
        equal(node.wait(sb, x)["exit_code"], 0, "exit code")
        equal(node.output(sb, x), b"one,two,three", "output")

    @suite.case("the last bytes of stdin with their offset and end, sent twice, are taken once")
    def _():
        x = node.start(sb, "cat; sleep 1", stdin_open=True)
        node.ok("POST", node.at(sb, x, "/stdin?offset=0"), b"one,")
        for _ in range(2):
            equal(node.ok("POST", node.at(sb, x, "/stdin?offset=4&eof=true"), b"two"), {"length": 7}, "answer")
        expect_error(node.call("POST", node.at(sb, x, "/stdin?offset=4&eof=true"), b"more"), 409, "conflict")
        equal(node.wait(sb, x)["exit_code"], 0, "exit code")
        equal(node.output(sb, x), b"one,two", "output")

    @suite.case("stdin after end of file, or not open, is refused")
    def _():
        x = node.start(sb, "cat >/dev/null; sleep 0.4", stdin_open=True)
        node.ok("POST", node.at(sb, x, "/stdin?eof=true"), b"x")
        check(node.call("POST", node.at(sb, x, "/stdin"), b"y").status in (400, 409), "bytes after eof were taken")
        y = node.start(sb, ["sleep", "0.4"])
        check(node.call("POST", node.at(sb, y, "/stdin"), b"y").status in (400, 409), "closed stdin took bytes")

    @suite.case("3 MB through stdin arrive whole, pushed back while nobody reads")
    def _():
        x = node.start(sb, "sleep 0.3; sha256sum", stdin_open=True)
        raw, at = bytes(i % 251 for i in range(3_000_000)), 0
        while at < len(raw):
            at = node.ok("POST", node.at(sb, x, f"/stdin?offset={at}"), raw[at:at + 500_000])["length"]
        node.ok("POST", node.at(sb, x, "/stdin?eof=true"))
        equal(node.wait(sb, x)["exit_code"], 0, "exit code")
        equal(node.output(sb, x).split()[0].decode(), hashlib.sha256(raw).hexdigest(), "sum of what arrived")


def repeated(suite, node, sb):
    @suite.case("an exec repeated with its key runs once and gives the same answer")
    def _():
        file = f"/tmp/once-{sb}"
        body = {"argv": ["sh", "-c", f"echo ran >>{file}; cat {file}"]}
        first = node.call("POST", f"/v1/sandboxes/{sb}/exec", body, {"Idempotency-Key": "k1"})
        again = node.call("POST", f"/v1/sandboxes/{sb}/exec", body, {"Idempotency-Key": "k1"})
        equal((first.status, again.status), (200, 200), "status")
        equal(again.headers.get("Idempotent-Replay"), "true", "Idempotent-Replay")
        check(first.headers.get("Idempotent-Replay") is None, "the first answer is a replay")
        equal(again.json, first.json, "answer")
        equal(node.shell(sb, f"cat {file}; rm {file}"), "ran\n", "file")

    @suite.case("an exec's key with another body is idempotency_mismatch")
    def _():
        node.exec(sb, ["true"], {"Idempotency-Key": "k2"})
        a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["false"]}, {"Idempotency-Key": "k2"})
        expect_error(a, 422, "idempotency_mismatch")

    @suite.case("two callers at once with one key get one exec")
    def _():
        got = []
        body = {"argv": ["sh", "-c", "sleep 0.3; echo done"]}

        def ask():
            got.append(node.call("POST", f"/v1/sandboxes/{sb}/exec", body, {"Idempotency-Key": "k3"}))
        threads = [threading.Thread(target=ask) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        equal([a.status for a in got], [200, 200], "status")
        equal(got[0].json["exec"], got[1].json["exec"], "exec")
        equal(sorted(a.headers.get("Idempotent-Replay", "no") for a in got), ["no", "true"], "replays")


def refused(suite, node, sb):
    @suite.case("a program that is not there is exec_failed with the reason, and leaves a record")
    def _():
        e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["/no/such"]}), 400, "exec_failed")
        check("ENOENT" in (e["cause"] or "") or "No such file" in (e["cause"] or ""), f"cause: {e['cause']}")
        last = node.ok("GET", f"/v1/sandboxes/{sb}/processes")["processes"][-1]
        equal((last["end"]["how"], last["end"]["errno"], last["end"]["stage"]), ("not_started", 2, "exec"), "record")

    @suite.case("a start of a program that is not there is exec_failed too, every time")
    def _():
        for _ in range(20):
            expect_error(node.call("POST", f"/v1/sandboxes/{sb}/processes", {"argv": ["/no/such"]}), 400, "exec_failed")

    @suite.case("a start that takes its time to fail is exec_failed, one that takes its time to say something is not")
    def _():
        slow = {"argv": ["no-such-program"], "env": {"PATH": "/n:" * 43000}}  # each is looked at
        expect_error(node.call("POST", f"/v1/sandboxes/{sb}/processes", slow), 400, "exec_failed")
        for _ in range(10):  # a busy machine is late at times, but not always
            watch = Watch()
            a = node.call("POST", f"/v1/sandboxes/{sb}/processes", {"argv": ["sleep", "30"]})
            soon = watch.within(1.5)
            equal(a.status, 201, "a silent one")
            node.ok("POST", node.at(sb, a.json["exec"], "/signal"), {"signal": "KILL"})
            if soon:
                break
        else:
            raise AssertionError(f"its start was told too late, it was not found to run: {watch}")

    @suite.case("the same key gives the same answer also when the sandbox has ended")
    def _():
        with node.sandbox() as one:
            key, body = {"Idempotency-Key": "kept"}, {"argv": ["sh", "-c", "cat; exit 3"], "stdin": {"text": "said\n"}}
            first = node.ok("POST", f"/v1/sandboxes/{one}/exec", body, key)
            at = node.ok("POST", f"/v1/sandboxes/{one}/sessions", {"shell": "sh"})["id"]
            command = {"command": "echo of a session; (exit 4)"}
            ran = node.ok("POST", f"/v1/sandboxes/{one}/sessions/{at}/commands", command, key)
            node.delete(one)
            a = node.call("POST", f"/v1/sandboxes/{one}/exec", body, key)
            equal((a.status, a.headers.get("Idempotent-Replay")), (200, "true"), f"{a!r}")
            equal((a.json["end"], a.json["out"]), (first["end"], first["out"]), "the answer")
            again = node.ok("POST", f"/v1/sandboxes/{one}/sessions/{at}/commands", command, key)
            equal((again["exit_code"], again["out"]), (ran["exit_code"], ran["out"]), "the answer of a session")
            expect_error(node.call("POST", f"/v1/sandboxes/{one}/exec", body, {"Idempotency-Key": "another"}), 410, "sandbox_gone")

    @suite.case("who ends before reading its stdin has its own end, and a missing program its own error")
    def _():
        for _ in range(20):
            equal(node.exec(sb, ["true"], stdin={"text": "nobody reads it\n"})["end"]["exit_code"], 0, "exit code")
            a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["no-such-program"], "stdin": {"text": "x"}})
            expect_error(a, 400, "exec_failed")

    @suite.case("a file that cannot be run is exec_failed")
    def _():
        e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["/etc/passwd"]}), 400, "exec_failed")
        check("EACCES" in (e["cause"] or "") or "ermission" in (e["cause"] or ""), f"cause: {e['cause']}")

    @suite.case("an unknown member, a wrong type, a value out of range are refused by name")
    def _():
        for body, member in (({"argv": ["true"], "tty": True}, "tty"), ({"argv": "true"}, "argv"), ({"argv": []}, "argv"),
                             ({"argv": ["true"], "rows": 0}, "rows"), ({"argv": ["true"], "cwd": "tmp"}, "cwd"),
                             ({"argv": ["true"], "stdin": {"text": "a", "b64": "YQ=="}}, "stdin"), ({}, "argv")):
            e = expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", body), 400, "invalid_request")
            check(member in e["message"], f"{body} gave {e['message']!r}")

    @suite.case("several requests on one connection")
    def _():
        c = node.connection()
        for n in range(5):
            c.request("POST", f"/v1/sandboxes/{sb}/exec", json.dumps({"argv": ["echo", str(n)]}))
            r = c.getresponse()
            equal(json.loads(r.read())["out"]["text"], f"{n}\n", "out")
        c.request("POST", f"/v1/sandboxes/{sb}/exec", b"{", {"Content-Type": "application/json"})
        r = c.getresponse()
        equal((r.status, json.loads(r.read())["error"]["code"]), (400, "invalid_request"), "bad JSON")
        c.close()

    @suite.case("a request cut in the middle harms nobody")
    def _():
        for raw in (b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", b"GET /v1/in", b"\0\0\0\0\r\n\r\n"):
            c = node.connection()
            c.connect()
            c.sock.sendall(raw)
            c.close()
        equal(node.exec(sb, ["true"])["end"]["exit_code"], 0, "exit code")

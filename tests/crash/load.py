"""Commands whose every byte is known, and clients who do not give up.

A client sends each request with an Idempotency-Key or an offset and repeats it until it is answered,
and resumes streams at the last event; so whatever is killed, each command must be seen to run once
and to give exactly its bytes."""
import http.client
import json
import random
import re
import secrets
import threading
import time

from harness import SLOW, ApiError, Watch, bytes_of, collect

LOST = (OSError, http.client.HTTPException, json.JSONDecodeError, EOFError)
COUNTS = ("lost", "wrong_ends", "wrong_bytes", "doubles")  # of what must not happen


class Trouble(AssertionError):
    """kind: one of COUNTS."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Unanswered(Trouble):
    def __init__(self, text):
        super().__init__("lost", text)


def patient(ask, seconds=60, again=lambda: None):
    """Repeats a request until it is answered: lost connections and retryable errors are no answer."""
    limit = Watch(seconds * SLOW)
    while True:
        try:
            return ask()
        except ApiError as e:
            if not retryable(e.answer) or limit.over():
                raise
        except LOST as e:
            if limit.over():
                raise Unanswered(f"no answer in {seconds} s: {e!r}") from e
        again()
        time.sleep(0.03)


def retryable(answer):
    try:
        return answer.error["retryable"]
    except (ValueError, KeyError):
        return True  # half an answer


# Each gives (request members, bytes for stdin or None, expected out, expected err, exit code).
def pipes(lines, code, ident):
    script = (f"echo {ident} >>$RAN; i=0; while [ $i -lt {lines} ]; do printf '%-199s\\n' \"o$i {ident}\"; "
              f"printf '%-99s\\n' \"e$i {ident}\" >&2; i=$((i+1)); sleep 0.04; done; exit {code}")
    out = "".join(f"{f'o{i} {ident}':<199}\n" for i in range(lines))
    err = "".join(f"{f'e{i} {ident}':<99}\n" for i in range(lines))
    return {"argv": ["sh", "-c", script]}, None, out.encode(), err.encode(), code


def merged(lines, code, ident):
    body, _, _, _, _ = pipes(lines, code, ident)
    out = "".join(f"{f'o{i} {ident}':<199}\n{f'e{i} {ident}':<99}\n" for i in range(lines))
    return {**body, "stdio": "merged"}, None, out.encode(), b"", code


def pty(lines, code, ident):
    body, _, out, _, _ = merged(lines, code, ident)
    return {**body, "stdio": "pty"}, None, out.replace(b"\n", b"\r\n"), b"", code


def stdin(lines, code, ident):
    raw = "".join(f"{f'i{i} {ident}':<300}\n" for i in range(lines * 10)).encode()
    script = f"echo {ident} >>$RAN; cat; echo end >&2; exit {code}"
    return {"argv": ["sh", "-c", script], "stdin_open": True}, raw, raw, b"end\n", code


def whole(lines, code, ident):
    """Its stdin comes with the request: whoever repeats that must not find it without its end."""
    body, raw, out, err, code = stdin(lines, code, ident)
    return {"argv": body["argv"], "stdin": {"text": raw.decode()}}, None, out, err, code


def burst(lines, code, ident):
    """Much at once: the kill falls into the middle of a drain."""
    n = lines * 1000
    script = (f"echo {ident} >>$RAN; awk 'BEGIN {{ for (i = 0; i < {n}; i++) printf \"%-31s\\n\", \"b\" i }}'; "
              f"sleep 0.2; exit {code}")
    return {"argv": ["sh", "-c", script]}, None, "".join(f"{f'b{i}':<31}\n" for i in range(n)).encode(), b"", code


def tty(lines, code, ident):
    """A terminal with input, which a bothyd that is killed forgets: only for kills of others."""
    raw = "".join(f"{i} {ident}\n" for i in range(lines)).encode()
    script = (f"echo {ident} >>$RAN; n=0; while [ $n -lt {lines} ] && read -r line; do n=$((n+1)); "
              f"echo \"<$line>\" >>/tmp/tty-{ident}; done; cat /tmp/tty-{ident}; exit {code}")
    out = raw.replace(b"\n", b"\r\n") + "".join(f"<{i} {ident}>\r\n" for i in range(lines)).encode()
    return {"argv": ["sh", "-c", script], "stdio": "pty", "stdin_open": True}, raw, out, b"", code


KINDS = (pipes, merged, pty, stdin, whole, burst)


def twice(ask):
    """The same request on two connections at once; both are answered, with the same."""
    got = [None, None]

    def one(i):
        try:
            got[i] = ask()
        except Exception as e:  # noqa: BLE001: told by the caller
            got[i] = e
    other = threading.Thread(target=one, args=(1,), daemon=True)
    other.start()
    one(0)
    other.join()
    for answer in got:
        if isinstance(answer, Exception):
            raise answer
    return got


class Load:
    def __init__(self, node, sandboxes, commands, kinds=KINDS, creates=True, pulls=False, timed=0):
        """kinds: of commands; creates, pulls: whether sandboxes and images come and go beside them. timed: this number of clients, each
        with one sandbox after the other that ends by its time."""
        self.node, self.commands, self.kinds = node, commands, kinds
        self.beside = [*([self.creates] if creates else []), *([self.pulls] if pulls else []), *[self.ends_by_time] * timed]
        self.tag = secrets.token_hex(8)
        self.sandboxes = [node.create(env={"BOTHY_LOAD": self.tag}) for _ in range(sandboxes)]
        self.done, self.lock = [], threading.Lock()
        self.failure, self.stopping = None, False
        self.created = self.pulled = self.timed = self.retries = self.resumed = 0
        self.counts = dict.fromkeys(COUNTS, 0)
        self.reasons = {}  # why streams were resumed
        self.seed = random.random()

    def ran_file(self, sandbox):
        return f"/tmp/ran-{self.tag}-{sandbox}"

    def start(self):
        self.threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(self.commands)]
        self.threads += [threading.Thread(target=run, daemon=True) for run in self.beside]
        for t in self.threads:
            t.start()

    def finish(self):
        self.stopping = True
        for t in self.threads:
            t.join(120)
            if t.is_alive():
                self.fail(Unanswered("a client hangs"))

    def fail(self, trouble, what=""):
        with self.lock:
            self.counts[getattr(trouble, "kind", "lost")] += 1
            self.failure = self.failure or f"{what}: {type(trouble).__name__}: {trouble}"

    def again(self):
        with self.lock:
            self.retries += 1

    def ask(self, *args, **kw):
        return patient(lambda: self.node.ok(*args, **kw), again=self.again)

    # ---- one command after the other ----
    def work(self, number):
        draw = random.Random(f"{self.seed} {number}")
        count = 0
        while not self.stopping and not self.failure:
            ident = f"{number}.{count}"
            count += 1
            kind = draw.choice(self.kinds)
            try:
                self.command(draw, self.sandboxes[number % len(self.sandboxes)], kind, ident)
            except Exception as e:  # noqa: BLE001: whatever it is, it is the result
                self.fail(e, f"{kind.__name__} {ident}")
                return

    def command(self, draw, sandbox, kind, ident):
        body, raw, out, err, code = kind(draw.randint(5, 40), draw.randint(0, 120), ident)
        body["env"] = {"RAN": self.ran_file(sandbox)}
        made = self.begin(draw, f"/v1/sandboxes/{sandbox}/processes", body, ident)
        where = f"/v1/sandboxes/{sandbox}/processes/{made['exec']}"
        if raw is not None:
            self.feed(draw, where, raw)
        events = self.follow(where)
        got_out, got_err, end, _ = collect(iter(events))
        same(got_out, out, f"out of {where}")
        same(got_err, err, f"err of {where}")
        ends((end["how"], end["exit_code"], end["out_bytes"], end["err_bytes"]), ("exited", code, len(out), len(err)))
        ends(self.ask("GET", where)["end"], end)
        same(patient(lambda: self.node.output(sandbox, made["exec"])), out, f"out by offset of {where}")
        with self.lock:
            self.done.append(ident)

    def begin(self, draw, where, body, ident):
        """Every fourth comes on two connections at once, and every one may come again after a kill."""
        def ask():
            return self.ask("POST", where, body, {"Idempotency-Key": f"{self.tag}-{ident}"})
        answers = twice(ask) if draw.random() < 0.25 else [ask()]
        if len({a["exec"] for a in answers}) > 1:
            raise Trouble("doubles", f"one key, two commands: {answers}")
        return answers[0]

    def feed(self, draw, where, raw):
        at = 0
        over = False
        while not over:
            n = draw.randint(1, 20_000)
            last = at + n >= len(raw)
            at, over = self.append(where, at, raw[at:at + n], last)
            time.sleep(draw.uniform(0, 0.1))

    def append(self, where, at, part, last):
        """(length, whether it has ended). A conflict after a lost answer says how much is there already: all, or what a
        kill in mid-write left; an end that is not there yet is sent alone."""
        def ask():
            a = self.node.call("POST", f"{where}/stdin?offset={at}{'&eof=true' if last else ''}", part)
            if a.status == 200:
                return a.json["length"], last
            text = a.error["message"] if a.status == 409 else ""
            told = re.search(r"length is (\d+)", text)
            if told and at < int(told[1]) <= at + len(part):
                return int(told[1]), False
            if last and re.search(r"has ended|is closed", text):  # our end came through
                return at + len(part), True
            raise ApiError(a)
        return patient(ask, again=self.again)

    def follow(self, where):
        """The whole event stream, resumed at its last event however often it breaks."""
        events, last = [], None
        limit = Watch(120 * SLOW)
        while not limit.over():
            try:
                headers = {"Last-Event-ID": last} if last else {}
                for event in self.node.events("GET", where + "/output?follow=end", headers=headers, timeout=30):
                    if event[0] != "ping":
                        events.append(event)
                    last = event[1] or last
                    if event[0] == "end":
                        return events
            except ApiError as e:
                if not retryable(e.answer):
                    raise
                why = repr(e.answer)
            except LOST as e:
                why = repr(e)
            else:
                why = "it ended without an end event"
            with self.lock:
                self.resumed += 1
                self.reasons[why] = self.reasons.get(why, 0) + 1
            time.sleep(0.03)
        raise Unanswered(f"{where} did not end in 120 s")

    # ---- sandboxes beside them ----
    def creates(self):
        draw = random.Random(f"{self.seed} creates")
        while not self.stopping and not self.failure:
            try:
                self.come_and_go(draw.random() < 0.5)
            except Exception as e:  # noqa: BLE001
                self.fail(e, "create")
                return
            with self.lock:
                self.created += 1
            time.sleep(draw.uniform(0.1, 0.4))

    def ends_by_time(self):
        """Sandboxes that live for a second or two; the cause of each must be its time, whichever program is killed when it is over."""
        draw = random.Random(f"{self.seed} {threading.get_ident()}")
        while not self.stopping and not self.failure:
            try:
                body = {"image": "busybox", "ttl": draw.randint(1, 2), "queue_wait": 20}
                made = self.ask("POST", "/v1/sandboxes", body, {"Idempotency-Key": secrets.token_hex(8)})["id"]
                ends(self.cause_of(made)["kind"], "ttl")
            except Exception as e:  # noqa: BLE001
                self.fail(e, "end by time")
                return
            with self.lock:
                self.timed += 1

    def cause_of(self, sandbox):
        """The cause of its end, when it has ended."""
        limit = Watch(60 * SLOW)
        while not limit.over():
            shown = self.ask("GET", f"/v1/sandboxes/{sandbox}")
            if shown["state"] == "gone":
                return shown["cause"]
            time.sleep(0.05)
        raise Unanswered(f"sandbox {sandbox} did not end by its time")

    def pulls(self):
        """An image of the node's own directory: unpacked, named, forgotten, pruned."""
        draw = random.Random(f"{self.seed} pulls")
        while not self.stopping and not self.failure:
            try:
                patient(lambda: self.node.ok("POST", "/v1/images", {"source": "oci:/mnt/images/dash:latest", "name": "beside"}),
                        again=self.again)
                patient(lambda: self.node.call("DELETE", "/v1/images/beside"), again=self.again)
                patient(lambda: self.node.ok("POST", "/v1/images/prune", {}), again=self.again)
            except Exception as e:  # noqa: BLE001
                self.fail(e, "pull")
                return
            with self.lock:
                self.pulled += 1
            time.sleep(draw.uniform(0.1, 0.4))

    def come_and_go(self, two=True, image="busybox", **spec):
        """A sandbox made under one key, on two connections at once if two; its command; its end."""
        key = secrets.token_hex(8)
        body = {"image": image, "queue_wait": 20, "labels": {"key": key}, **spec}

        def ask():
            return self.ask("POST", "/v1/sandboxes", body, {"Idempotency-Key": key})["id"]
        made = twice(ask) if two else [ask()]
        if len(set(made)) > 1:
            raise Trouble("doubles", f"one key, two sandboxes: {made}")
        made = made[0]
        r = self.ask("POST", f"/v1/sandboxes/{made}/exec", {"argv": ["sh", "-c", f"echo {key}"]}, {"Idempotency-Key": "x"})
        same(bytes_of(r["out"]), key.encode() + b"\n", "first command of a new sandbox")
        again = self.ask("POST", "/v1/sandboxes", body, {"Idempotency-Key": key})["id"]
        if again != made:
            raise Trouble("doubles", f"one key, two sandboxes: {made}, later {again}")
        gone = self.ask("DELETE", f"/v1/sandboxes/{made}")
        ends(gone["cause"]["kind"], "requested")
        return made


def ends(got, wanted):
    if got != wanted:
        raise Trouble("wrong_ends", f"the end is {got!r}, not {wanted!r}")


def same(got, wanted, what):
    if got == wanted:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
    raise Trouble("wrong_bytes", f"{what}: {len(got)} bytes, wanted {len(wanted)}, first difference at {at}: "
          f"{got[at:at + 40]!r}, wanted {wanted[at:at + 40]!r}")

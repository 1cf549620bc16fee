"""Plays a case in a session and says what did not hold.

A session is what client.Session is: run, start and result, queue, interrupt, close."""
import dataclasses
import functools
import re
import time

from data import LIMIT, Text


@dataclasses.dataclass
class Result:
    """How a command ended. Streams are read when they are asked for."""
    rc: int
    kind: str
    read_out: object
    read_err: object
    cwd: str = ""
    out_bytes: int = 0
    timed_out: bool = False
    rung: str = ""
    seconds: float = 0.0  # from the request to the result
    raw: dict = None  # the whole answer

    @functools.cached_property
    def out(self):
        return self.read_out()

    @functools.cached_property
    def err(self):
        return self.read_err()


class Wrong(AssertionError):
    """Something does not hold. late: nothing but time is wrong."""

    def __init__(self, text, late=False):
        super().__init__(text)
        self.late = late


def brief(raw):
    return repr(raw[:120]) + (f"… ({len(raw)} bytes)" if len(raw) > 120 else "")


def wrong_streams(step, got, text):
    """What is wrong with the bytes."""
    for stream in ("out", "err"):
        if not {stream, stream + "_has", stream + "_match"} & set(step):
            continue
        raw = getattr(got, stream)
        if stream in step and raw != text.bytes(step[stream]):
            yield f"{stream} is {brief(raw)}, not {brief(text.bytes(step[stream]))}"
        for part in step.get(stream + "_has", ()):
            if text.bytes(part) not in raw:
                yield f"{stream} is {brief(raw)}, without {part!r}"
        if stream + "_match" in step and not re.search(text.bytes(step[stream + "_match"]), raw, re.S):
            yield f"{stream} is {brief(raw)}, not like {step[stream + '_match']!r}"
    if "out_bytes" in step and got.out_bytes != step["out_bytes"]:
        yield f"out has {got.out_bytes} bytes, not {step['out_bytes']}"


def wrong_end(step, got, text, turn):
    """What is wrong with how it ended."""
    rc = turn if step["rc"] == "@I@" else step["rc"]
    if rc != "any" and got.rc not in (rc if isinstance(rc, list) else [rc]):
        yield f"rc is {got.rc}, not {rc}"
    if "kind" in step and got.kind != step["kind"]:
        yield f"kind is {got.kind}, not {step['kind']}"
    if "cwd" in step and got.cwd != text.bytes(step["cwd"]).decode():
        yield f"cwd is {got.cwd}, not {step['cwd']}"
    if "rung" in step and got.rung != step["rung"]:
        yield f"the ladder went to {got.rung or 'nothing'}, not {step['rung']}"
    if got.timed_out and "limit" not in step:
        yield f"the limit of {LIMIT} s was reached ({got.rung})"
    if "timed_out" in step and got.timed_out != step["timed_out"]:
        yield f"timed_out is {got.timed_out}"


def at_another_time(step, got, text):
    """What a rung had asked for was not done when the next one's time came; or the shell had not come as far as it should when the deadline did."""
    if "rung" not in step or not got.rung:
        return False
    wanted = text.bytes(step.get("out", ""))
    return got.rung != step["rung"] or got.out != wanted and wanted.startswith(got.out)


def judge(step, got, text, turn):
    bad = [*wrong_end(step, got, text, turn), *wrong_streams(step, got, text)]
    if bad:
        raise Wrong("; ".join(bad) + (f"; err {brief(got.err)}" if "err" not in step and got.err else ""), late=at_another_time(step, got, text))
    if "within" in step and got.seconds > step["within"]:
        raise Wrong(f"it took {got.seconds:.2f} s, not {step['within']}", late=True)


class Play:
    """One case. open_session(name) gives a session, kill(program) kills and starts a program of the node."""

    def __init__(self, case, directory, big, open_session, kill=None):
        self.case, self.directory, self.big = case, directory, big
        self.open_session, self.kill = open_session, kill
        self.sessions, self.tickets = {}, []

    def session(self, step):
        name = step.get("session", "")
        if name not in self.sessions:
            self.sessions[name] = self.open_session(name)
        return self.sessions[name]

    def text(self, turn=0):
        return Text(self.directory, self.big, turn)

    def words(self, step, what, turn=0):
        """The arguments of run and start."""
        return self.text(turn).bytes(what), step.get("limit", LIMIT), step.get("merge", False)

    def run(self, step):
        for turn in range(step.get("times", 1)):
            judge(step, self.session(step).run(*self.words(step, step["run"], turn)), self.text(turn), turn)

    def together(self, step):
        parts = step["together"]
        got = self.session(step).queue([self.text().bytes(part["run"]) for part in parts])
        for part, result in zip(parts, got):
            judge(part, result, self.text(), 0)

    def step(self, step):
        if "run" in step:
            self.run(step)
        elif "start" in step:
            self.tickets.append(self.session(step).start(*self.words(step, step["start"])))
        elif "await" in step:
            judge({"limit": 0, **step}, self.session(step).result(self.tickets.pop(0)), self.text(), 0)
        elif "together" in step:
            self.together(step)
        elif "interrupt" in step:
            for _ in range(step["interrupt"]):
                self.session(step).interrupt()
        elif "kill" in step:
            time.sleep(0.3)  # so that the command is under way
            self.kill(step["kill"])
        else:
            time.sleep(step["sleep"])

    def play(self):
        try:
            for n, step in enumerate(self.case["steps"], 1):
                try:
                    self.step(step)
                except Wrong as e:
                    raise Wrong(f"step {n}: {e}", e.late) from None
        finally:
            for session in self.sessions.values():
                session.close()

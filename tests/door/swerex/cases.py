"""The cases of tests/sessions by SWE-ReX's client, whose streams are one text and whose results have no more than an exit code. Runs in
a client's venv. Given {"where", "cases", "directory", "big"}, prints {"id": null or what is wrong}; a line each, so that one that hangs costs no other.

What is judged: exit codes; that what a command writes to either stream is in its text, as the client's own server would decode it; that one
that should be interrupted raises CommandTimeoutError; that wrong syntax raises BashIncorrectSyntaxError; times."""
import contextlib
import io
import json
import pathlib
import re
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "sessions"))

import play  # noqa: E402
import target  # noqa: E402
from swerex.exceptions import BashIncorrectSyntaxError, CommandTimeoutError  # noqa: E402
from swerex.runtime.abstract import BashAction, BashInterruptAction, CloseBashSessionRequest, CreateBashSessionRequest  # noqa: E402

ANSI = re.compile(r"\x1B[@-_][0-?]*[ -/]*[@-~]")
TIMED_OUT = "timed out"
HANGS = 30  # s beyond a command's own limit


def as_told(raw):
    """What SWE-ReX makes of bytes."""
    return ANSI.sub("", raw.decode("utf-8", "backslashreplace")).replace("\r\n", "\n")


def wrong(step, got, text, turn):
    rc = turn if step["rc"] == "@I@" else step["rc"]
    if got.rc == TIMED_OUT:
        if "limit" not in step:
            yield "it raised CommandTimeoutError"
    elif rc not in ("any", got.rc):
        yield f"exit_code is {got.rc}, not {rc}"
    for stream in ("out", "err"):
        wanted = [step[stream]] if stream in step else step.get(stream + "_has", [])
        for part in wanted:
            if got.rc == TIMED_OUT and as_told(text.bytes(part)).strip() in got.out:
                continue  # an interrupt's output is stripped
            if as_told(text.bytes(part)) not in got.out:
                yield f"output is {got.out[:120]!r}, without {as_told(text.bytes(part))[:120]!r}"
        if stream + "_match" in step and not re.search(text.bytes(step[stream + "_match"]).decode(), got.out, re.S):
            yield f"output is {got.out[:120]!r}, not like {step[stream + '_match']!r}"


def judge(step, got, text, turn):
    bad = list(wrong(step, got, text, turn))
    if bad:
        raise play.Wrong("; ".join(bad))
    if "within" in step and got.seconds > step["within"]:
        raise play.Wrong(f"it took {got.seconds:.2f} s, not {step['within']}", late=True)


class Session:
    def __init__(self, run, runtime, name):
        self.run_now, self.runtime, self.name = run, runtime, name
        with contextlib.redirect_stdout(io.StringIO()):
            run(runtime.create_session(CreateBashSessionRequest(session=name, startup_timeout=20)))

    def ask(self, action, seconds):
        with contextlib.redirect_stdout(io.StringIO()):
            return self.run_now(self.runtime.run_in_session(action), seconds)

    def run(self, text, limit=20, merge=False):
        began = time.monotonic()
        try:
            got = self.ask(BashAction(command=text.decode("utf-8", "surrogateescape"), session=self.name, timeout=limit, check="silent"), limit + HANGS)
            rc, out = got.exit_code, got.output
        except CommandTimeoutError:
            rc, out = TIMED_OUT, self.ask(BashInterruptAction(session=self.name), HANGS).output
        except BashIncorrectSyntaxError as e:
            rc, out = 2, e.extra_info["bash_stderr"]
        return play.Result(rc, "", lambda: out, lambda: "", seconds=time.monotonic() - began)

    def interrupt(self):
        self.ask(BashInterruptAction(session=self.name), HANGS)

    def close(self):
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
            self.run_now(self.runtime.close_session(CloseBashSessionRequest(session=self.name)))


def one(case, given, number):
    run, runtime = target.Loop(), target.runtime(given["where"])
    try:
        play.Play(case, f"{given['directory']}/{case['id']}", given["big"], lambda name: Session(run, runtime, f"c{number}{name}")).play()
    except Exception as e:  # noqa: BLE001: whatever it is, the case has failed
        return f"{type(e).__name__}: {str(e)[:300]}"
    return None


def main():
    play.judge = judge
    given = target.task()
    for number, case in enumerate(given["cases"]):
        print(json.dumps([case["id"], one(case, given, number)]), flush=True)


main()

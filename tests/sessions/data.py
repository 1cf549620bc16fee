"""The cases: cases/*.json, each a list of

    {"id": "81", "name": "exit N keeps state", "shells": ["bash"], "steps": [
      {"run": "Z=1; exit 3", "rc": 3, "kind": "shell_exited"},
      {"run": "echo $Z", "rc": 0, "out": "1\\n"}]}

A case has a fresh session. Of a case:
  shells    those it is for; all if left out
  skip      {shell or mode: reason}: cannot pass there
  long      shells of which the short size leaves it out: the bytes are the same ones
  session   members of the request that opens its sessions (user, cwd, env)
  sandbox   members of a create: it gets a sandbox of its own
  alone     nothing runs beside it
  mode      "detached": only there; "attached": not there
Of a step, what is done:
  run       a command; times: so often, @I@ is the turn
  start, await    a command that is not waited for, and its result
  together  commands sent before any result is read
  interrupt so often; kill: a program of the node, started again; sleep: seconds
  session   the name of another session of this case; merge: err goes into out
and what must hold:
  rc        a list: one of these; "any": it ends, and the session is usable; kind, cwd, out, err, out_bytes as they are
  out_has, err_has    parts of it; out_match, err_match    a pattern found in it
  limit     the time limit that is sent, in seconds; LIMIT if left out, and then it must not be reached
  rung      which rung of the ladder must suffice: interrupt, kill_tree, kill_shell; timed_out: whether the limit was reached
  within    the result is there in so many seconds
Text is a string, {"b64"}, {"parts": ["text", ["text", times]]}, {"seq": n} or {"big": times}, the bytes of @BIG@. @T@ is a directory
of the case's own."""
import base64
import json
import pathlib
import random

HERE = pathlib.Path(__file__).resolve().parent
SHELLS = ("bash", "dash", "ash")
LIMIT = 20  # s; the slowest take one
BIG = random.Random(1).randbytes(300000)
MAKE_BIG = "import random, sys; open(sys.argv[1], 'wb').write(random.Random(1).randbytes(300000))"

CASE = {"id", "name", "shells", "skip", "long", "session", "sandbox", "alone", "mode", "steps"}
DOES = {"run", "start", "await", "together", "interrupt", "kill", "sleep"}
MORE = {"times", "session", "merge", "rc", "kind", "cwd", "out", "err", "out_bytes", "out_has", "err_has", "out_match", "err_match",
        "limit", "rung", "timed_out", "within"}


class Text:
    """Text of a case, for one run of it."""

    def __init__(self, directory, big, turn=0):
        self.words = ((b"@T@", directory.encode()), (b"@BIG@", big.encode()), (b"@I@", str(turn).encode()))

    def bytes(self, value):
        if isinstance(value, str):
            raw = value.encode()
        elif "b64" in value:
            raw = base64.b64decode(value["b64"])
        elif "parts" in value:
            raw = b"".join(p.encode() if isinstance(p, str) else p[0].encode() * p[1] for p in value["parts"])
        elif "seq" in value:
            raw = b"".join(b"%d\n" % i for i in range(1, value["seq"] + 1))
        else:
            raw = BIG * value["big"]
        if isinstance(value, dict) and "big" in value:
            return raw
        for word, text in self.words:
            raw = raw.replace(word, text)
        return raw


def check_step(case, step):
    done = DOES & set(step)
    if len(done) != 1 or set(step) - DOES - MORE:
        raise ValueError(f"case {case['id']}: what is {sorted(set(step) - DOES - MORE) or sorted(step)}?")
    if done & {"run", "await"} and "rc" not in step:
        raise ValueError(f"case {case['id']}: a step without rc")
    for part in step.get("together", ()):
        check_step(case, part)


def load():
    """Every case, checked, in the order of the files."""
    found = []
    for path in sorted((HERE / "cases").glob("*.json")):
        for case in json.loads(path.read_text()):
            if set(case) - CASE or not case["steps"]:
                raise ValueError(f"{path.name}: case {case.get('id')}: {sorted(set(case) - CASE)}")
            for step in case["steps"]:
                check_step(case, step)
            found.append({**case, "group": path.stem})
    if len({c["id"] for c in found}) != len(found):
        raise ValueError("two cases have one id")
    return found

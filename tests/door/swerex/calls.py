"""Calls of SWE-ReX's own tests (tests/test_execution.py and test_server.py of its repository) and more, by its client. Runs in a
client's venv; prints what each call gave: {"name": {"ok": {...}} or {"raised": "module.Class", "message", "extra": [...]}}."""
import asyncio
import contextlib
import io
import json
import pathlib
import sys
import tempfile

import target
from swerex.runtime.abstract import (BashAction, BashInterruptAction, CloseBashSessionRequest, Command, CreateBashSessionRequest, ReadFileRequest,
                                     UploadRequest, WriteFileRequest)

D = "/tmp/rex-calls"
# name, command, what else: in the session "default", which is made before
RUNS = [
    ("hello", "echo 'hello world'", {}), ("both streams", "echo out; echo err >&2", {}), ("empty string", "echo ''", {}),
    ("newline first", "printf '\nx'", {}), ("many newlines", "printf '\n\nx\n\n\n'", {}), ("white space", "printf '  x'", {}),
    ("leading space", "echo '\n \nhello\nworld'", {}), ("not found", "doesntexit", {"check": "silent"}),
    ("false and true", "false && true", {"check": "silent"}), ("false or true", "false || true", {}), ("raise", "false", {}),
    ("raise with words", "false", {"error_msg": "custom"}), ("silent 7", "(exit 7)", {"check": "silent"}), ("ignore 7", "(exit 7)", {"check": "ignore"}),
    ("set state", "cd /tmp; export FOO=bar; f() { echo fn; }", {}), ("keep state", 'echo "$PWD $FOO $(f)"', {}),
    ("empty", "", {}), ("a newline", "\n", {}), ("blank lines", "\n\n \n", {}), ("lines around", "\n echo 'test'\n\n", {}),
    ("lines between", "\n\n\n echo 'test1' \n  \n \n echo 'test2' \n\n\n", {}), ("here-document", "python3 <<EOF\nprint('hello world')\nprint('hello world 2')\nEOF", {}),
    ("in the background", "(sleep 10) >/dev/null 2>&1 &", {"check": "silent"}), ("comment", "# echo 'hello world'", {}),
    ("two commands", "echo 'hello world'; echo 'hello again'", {}), ("and", "echo 'hello world' && echo 'hello again'", {}),
    ("loop", "for i in {1..3};\n do echo 'hello world';\n done", {}), ("brackets", "[[ $env == $env ]]", {}),
    ("a check of its own", "/usr/bin/env bash -n <<'EOF'\necho 'hello world'\nEOF", {}), ("array", "echo 'hw';A=();echo 'asdf'", {}),
    ("array and false", "A=(); false", {"check": "silent"}), ("wrong syntax", "(a", {}), ("wrong syntax in lines", "echo one\nfor do done (\n", {}),
    ("nothing of it was run", "echo two", {}), ("echo of lines", "echo 'hello\nworld'", {}), ("characters", "echo 'héllo 世界'", {}),
    ("not UTF-8", "printf 'a\\377b'", {}), ("colours", "printf '\\033[31mred\\033[0m\\n'", {}), ("timeout", "sleep 10", {"timeout": 0.1}),
]


class Log:
    def __init__(self):
        self.told = {}

    async def call(self, name, coroutine, seconds=60):
        assert name not in self.told, name
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the client prints
                got = await asyncio.wait_for(coroutine, seconds)
            self.told[name] = {"ok": got.model_dump()}
        except Exception as e:  # noqa: BLE001: any may be what is told
            self.told[name] = {"raised": f"{type(e).__module__}.{type(e).__name__}", "message": str(e), "extra": sorted(getattr(e, "extra_info", {}) or {}),
                               "status": getattr(e, "status", None)}


def action(command, **more):
    return BashAction(command=command, **{"timeout": 20, **more})


def opening(**more):
    return CreateBashSessionRequest(startup_timeout=20, **more)


async def server(log, r, where):
    await log.call("is_alive", r.is_alive(timeout=30))
    wrong = target.runtime({**where, "token": "wrong" + where["token"]})
    await log.call("is_alive with a wrong key", wrong.is_alive(timeout=30))
    await log.call("execute with a wrong key", wrong.execute(Command(command=["true"])))


async def sessions(log, r):
    await log.call("create_session", r.create_session(opening()))
    await log.call("create_session again", r.create_session(opening()))
    for name, command, more in RUNS:
        await log.call(f"run: {name}", r.run_in_session(action(command, **more)))
    await log.call("interrupt after a timeout", r.run_in_session(BashInterruptAction(timeout=5)))
    await log.call("run: after an interrupt", r.run_in_session(action("echo 'asdf'")))
    await log.call("interrupt of nothing", r.run_in_session(BashInterruptAction(timeout=5)))
    await log.call("run: no such session", r.run_in_session(action("true", session="non_existent")))
    await log.call("close: no such session", r.close_session(CloseBashSessionRequest(session="non_existent")))


async def more_sessions(log, r):
    for name in ("shell1", "shell2", "with blanks / and ünicode"):
        await log.call(f"create {name}", r.create_session(opening(session=name)))
    await log.call("x in shell1", r.run_in_session(action("x=42", session="shell1")))
    await log.call("x of shell1", r.run_in_session(action("echo $x", session="shell1")))
    await log.call("x of shell2", r.run_in_session(action("echo $x", session="shell2")))
    await log.call("run in one with a long name", r.run_in_session(action("echo here", session="with blanks / and ünicode")))
    await log.call("close shell2", r.close_session(CloseBashSessionRequest(session="shell2")))
    await log.call("close shell2 again", r.close_session(CloseBashSessionRequest(session="shell2")))
    await log.call("run in shell2", r.run_in_session(action("true", session="shell2")))
    await r.write_file(WriteFileRequest(path=f"{D}/rc", content="export SOURCED=yes\n"))
    await log.call("create with sources", r.create_session(opening(session="sourced", startup_source=[f"{D}/rc"])))
    await log.call("run: sourced", r.run_in_session(action("echo $SOURCED", session="sourced")))


async def interactive(log, r):
    await log.call("create for programs", r.create_session(opening(session="talk")))

    def say(text, **more):
        return r.run_in_session(action(text, session="talk", **more))
    await log.call("a directory of a program's own", say(f"mkdir -p {D}/sub; cd {D}/sub; export KEPT=1"))
    await log.call("python", say("python3 -q", is_interactive_command=True, expect=[">>> "]))
    await log.call("python: a line", say("print('hello world')", is_interactive_command=True, expect=[">>> "]))
    await log.call("python: where it is", say("import os; print(os.getcwd(), os.environ['KEPT'])", is_interactive_command=True, expect=[">>> "]))
    await log.call("python: quit", say("quit()\n", is_interactive_quit=True))
    await log.call("run: after a program", say("echo 'hello world'"))
    await log.call("python again", say("python3 -q", is_interactive_command=True, expect=["nothing of it", ">>> "]))
    await log.call("python again: a number", say("6*7", is_interactive_command=True, expect=[r"4\d"]))
    await log.call("python again: quit", say("quit()\n", is_interactive_quit=True))
    await log.call("expected, and not there", say("cat", is_interactive_command=True, expect=["WONTHITTHIS"], timeout=0.3))
    await log.call("interrupt of a program", r.run_in_session(BashInterruptAction(session="talk", timeout=5)))
    await log.call("run: after that", say("echo 'hello again'"))


async def execute(log, r):
    def run(command, **more):
        return r.execute(Command(command=command, **more))
    for name, coroutine in (
            ("a shell", run("echo 'hello world'", shell=True)), ("an empty string", run("echo ''", shell=True)), ("a list", run(["echo", "hello world"])),
            ("no newline", run(["echo", "-n", "hello world"])), ("space", run("echo '\n \nhello world'", shell=True)),
            ("both streams", run(["sh", "-c", "echo o; echo e >&2; exit 3"])), ("merged", run(["bash", "-c", "echo out; echo err 1>&2"], merge_output_streams=True)),
            ("timeout", run(["sleep", "10"], timeout=0.1)), ("check", run(["false"], check=True, error_msg="m")), ("check of a text", run("exit 4", shell=True, check=True)),
            ("directory", run("pwd", shell=True, cwd="/tmp")), ("variables", run('echo "$V"', shell=True, env={"V": "v w", "PATH": "/usr/bin:/bin"})),
            ("no such program", run(["/no/such/cmd"])), ("no such word", run(["no-such-cmd"])), ("a text that is no program", run("echo hello")),
            ("not executable", run(["/etc/passwd"])), ("no such directory", run(["true"], cwd="/no/such")), ("killed", run(["sh", "-c", "kill -9 $$"])),
            ("nothing", run("", shell=True, check=True)), ("a newline", run("\n", shell=True, check=True)), ("not UTF-8", run(["printf", "a\\377b"])),
            ("a list behind a shell", run(["echo $0 $1", "a", "b"], shell=True))):
        await log.call(f"execute: {name}", coroutine)


async def files(log, r):
    def read(name, **more):
        return r.read_file(ReadFileRequest(path=f"{D}/{name}", **more))
    await log.call("write", r.write_file(WriteFileRequest(path=f"{D}/a/b/text", content="héllo\n")))
    await log.call("read", read("a/b/text"))
    await log.call("write over it", r.write_file(WriteFileRequest(path=f"{D}/a/b/text", content="x\0y")))
    await log.call("read a NUL", read("a/b/text"))
    await log.call("read: not there", read("nope"))
    await log.call("read: a directory", read("a"))
    await log.call("write: a directory", r.write_file(WriteFileRequest(path=f"{D}/a", content="")))
    await r.execute(Command(command=f"printf 'a\\377\\r\\nb' > {D}/bin; head -c 1048576 /dev/zero | tr '\\0' x > {D}/large", shell=True))
    await log.call("read: not UTF-8", read("bin"))
    await log.call("read: escaped", read("bin", encoding="utf-8", errors="backslashreplace"))
    await log.call("read: latin-1", read("bin", encoding="latin-1"))
    await log.call("read: replaced", read("bin", errors="replace"))
    await log.call("read: no such encoding", read("bin", encoding="klingon"))
    await log.call("read: large", read("large"))


async def uploads(log, r):
    with tempfile.TemporaryDirectory() as t:
        top = pathlib.Path(t)
        (top / "f").write_bytes(b"\x00\x01bin")
        (top / "tree/sub").mkdir(parents=True)
        (top / "tree/one").write_text("1")
        (top / "tree/sub/two").write_text("2")
        await log.call("upload a file", r.upload(UploadRequest(source_path=f"{t}/f", target_path=f"{D}/up/f")))
        await log.call("upload a directory", r.upload(UploadRequest(source_path=f"{t}/tree", target_path=f"{D}/updir")))
        await log.call("upload it again", r.upload(UploadRequest(source_path=f"{t}/tree", target_path=f"{D}/updir")))
    await log.call("what was uploaded", r.execute(Command(command=f"wc -c < {D}/up/f; cd {D}/updir; find . -type f | sort; cat one sub/two", shell=True)))


async def all_calls(where):
    log, r = Log(), target.runtime(where)
    await server(log, r, where)
    await r.execute(Command(command=f"rm -rf {D}; mkdir -p {D}", shell=True))
    await sessions(log, r)
    await more_sessions(log, r)
    await execute(log, r)
    await files(log, r)
    await uploads(log, r)
    await interactive(log, r)
    await log.call("close_session", r.close_session(CloseBashSessionRequest()))
    await log.call("run: after close_session", r.run_in_session(action("true")))
    await log.call("close", r.close())
    return log.told


json.dump(asyncio.run(all_calls(target.task())), sys.stdout)

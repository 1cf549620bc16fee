"""SWE-ReX's interfaces on a deployment of ours: sessions, commands, files, errors of its own kinds."""
import asyncio
import pathlib
import sys
import tempfile

from between import COMMAND, TOLD, between
from bothy import Client
from bothy.swerex import BothyDeploymentConfig
from swerex import exceptions as E
from swerex.deployment.abstract import AbstractDeployment
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from swerex.runtime.local import LocalRuntime


async def raises(kind, awaitable):
    try:
        got = await awaitable
    except kind as e:
        return str(e)
    raise AssertionError(f"no {kind.__name__}, but {got!r}")


def bash(command, **more):
    return BashAction(command=command, **{"timeout": 60, **more})


async def sessions(rex):
    await raises(E.SessionDoesNotExistError, rex.run_in_session(bash("true")))
    await rex.create_session(CreateBashSessionRequest(startup_source=["/etc/profile"], startup_timeout=10))
    await raises(E.SessionExistsError, rex.create_session(CreateBashSessionRequest()))
    seen = await rex.run_in_session(bash("echo hi; echo err >&2; cd /tmp; export FOO=bar; f() { echo fn; }"))
    assert (seen.output, seen.exit_code) == ("hi\nerr\n", 0), seen
    assert (await rex.run_in_session(bash('echo "$PWD $FOO $(f)"'))).output == "/tmp bar fn\n"
    assert "custom" in await raises(E.NonZeroExitCodeError, rex.run_in_session(bash("false", error_msg="custom")))
    assert (await rex.run_in_session(bash("(exit 7)", check="silent"))).exit_code == 7
    assert (await rex.run_in_session(bash("(exit 7)", check="ignore"))).exit_code is None
    assert (await rex.run_in_session(bash("(exit 2)", check="silent"))).exit_code == 2, "2 is no syntax error by itself"
    await raises(E.BashIncorrectSyntaxError, rex.run_in_session(bash("for do done (")))
    wrong = await raises(E.BashIncorrectSyntaxError, rex.run_in_session(bash("touch /tmp/begun\nfor do done (")))
    assert "syntax error near" in wrong and "/tmp/begun" in wrong, wrong
    await rex.run_in_session(bash("test ! -e /tmp/begun", error_msg="a part of several lines that are wrong was run"))
    assert (await rex.run_in_session(bash("for i in 1 2\ndo\n  echo $i\ndone\ncat <<X\nthree\nX"))).output == "1\n2\nthree\n"
    assert "begun" in await raises(E.CommandTimeoutError, rex.run_in_session(bash("echo begun; sleep 60", timeout=3, check="silent")))
    await rex.run_in_session(BashInterruptAction())
    assert (await rex.run_in_session(bash("echo $FOO; exit 3", check="silent"))).exit_code == 3
    assert (await rex.run_in_session(bash("echo still $FOO"))).output == "still bar\n", "the session outlives exit and a time limit"
    late = await raises(E.CommandTimeoutError, rex.run_in_session(bash("FOO=lost; trap '' INT; while :; do :; done", timeout=1)))
    assert "the session goes on as it was before this command" in late, late
    assert (await rex.run_in_session(bash("echo $FOO"))).output == "bar\n", "what was before the command"
    await raises(E.SwerexException, rex.run_in_session(bash("python3", is_interactive_command=True)))
    await rex.close_session(CloseBashSessionRequest())
    await raises(E.SessionDoesNotExistError, rex.run_in_session(bash("true")))
    await rex.write_file(WriteFileRequest(path="/tmp/slow.sh", content="echo begun; sleep 60\n"))
    slow = CreateBashSessionRequest(session="slow", startup_source=["/tmp/slow.sh"], startup_timeout=4)
    assert "begun" in await raises(E.CommandTimeoutError, rex.create_session(slow)), "a file that was not sourced to its end"
    await raises(E.SessionDoesNotExistError, rex.run_in_session(bash("true", session="slow")))
    for _ in range(100):  # an end is asked for, and comes
        left = [one for one in await rex.sandbox.sessions() if one.state != "ended"]
        if not left:
            break
        await asyncio.sleep(0.1)
    assert not left, f"a shell is left: {left}"
    await rex.create_session(CreateBashSessionRequest(session="slow"))
    await rex.close_session(CloseBashSessionRequest(session="slow"))


async def commands(rex):
    done = await rex.execute(Command(command="echo $A; echo e >&2; exit 4", shell=True, env={"A": "1"}, cwd="/tmp"))
    assert (done.stdout, done.stderr, done.exit_code) == ("1\n", "e\n", 4), done
    assert (await rex.execute(Command(command=["sh", "-c", "echo a; echo b >&2"], merge_output_streams=True))).stdout == "a\nb\n"
    for command in (Command(command=["echo $0 $1", "a", "b c"], shell=True), Command(command=["sh", "-c", "kill -9 $$"])):
        here = await LocalRuntime().execute(command)
        assert await rex.execute(command) == here, f"{command} is {await rex.execute(command)}, not {here}"
    assert "exit code -15." in await raises(E.NonZeroExitCodeError, rex.execute(Command(command="kill $$", shell=True, check=True)))
    assert "m: " in await raises(E.NonZeroExitCodeError, rex.execute(Command(command=["false"], check=True, error_msg="m")))
    await raises(E.CommandTimeoutError, rex.execute(Command(command=["sleep", "60"], timeout=0.5)))


async def files(rex):
    await rex.write_file(WriteFileRequest(path="/tmp/new/dir/f", content="ü\r\n"))
    assert (await rex.read_file(ReadFileRequest(path="/tmp/new/dir/f"))).content == "ü\r\n"
    await raises(FileNotFoundError, rex.read_file(ReadFileRequest(path="/tmp/none")))
    await raises(IsADirectoryError, rex.read_file(ReadFileRequest(path="/tmp")))
    with tempfile.TemporaryDirectory() as here:
        pathlib.Path(here, "sub").mkdir()
        pathlib.Path(here, "sub", "x").write_text("x")
        await rex.upload(UploadRequest(source_path=here, target_path="/tmp/up"))
    assert (await rex.read_file(ReadFileRequest(path="/tmp/up/sub/x"))).content == "x"


async def lost_output(rex):
    faults = between(rex.sandbox)
    faults.forgets = True
    assert (await rex.execute(Command(command=COMMAND, shell=True))).stdout == TOLD
    await rex.create_session(CreateBashSessionRequest(session="forgetful"))
    assert (await rex.run_in_session(bash(COMMAND, session="forgetful"))).output == TOLD
    faults.forgets = False


async def main():
    deployment = BothyDeploymentConfig(image=sys.argv[1]).get_deployment()
    assert isinstance(deployment, AbstractDeployment)
    await raises(E.DeploymentNotStartedError, deployment.is_alive())
    await deployment.start()
    sandbox = deployment.runtime.sandbox.id
    assert await deployment.is_alive()
    for part in (sessions, commands, files, lost_output):
        await part(deployment.runtime)
        print(part.__name__)
    await deployment.runtime.close()
    assert not await deployment.is_alive(timeout=1e-9), "its time limit is held"
    await deployment.stop()
    lost = BothyDeploymentConfig(image=sys.argv[1]).get_deployment()
    await lost.start()
    other, faults = lost.runtime.sandbox.id, between(lost.runtime.sandbox)
    faults.refuses = True
    await lost.stop()  # nobody answers: no error
    faults.refuses = False
    await lost.stop()
    await raises(E.DeploymentNotStartedError, lost.is_alive())
    with Client() as client:
        assert [client.get(one).info.state for one in (sandbox, other)] == ["gone", "gone"]

asyncio.run(main())

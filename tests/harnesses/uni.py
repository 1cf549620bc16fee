"""uni-agent's interface on our provider: one-shot commands with its error policy, a native shell, files."""
import asyncio
import pathlib
import sys
import tempfile

import bothy.uni_agent  # noqa: F401: registers it
from between import COMMAND, TOLD, between
from uni_agent.sandbox.base import SandboxConfig
from uni_agent.sandbox.registry import build_sandbox


async def main():
    sandbox = build_sandbox(SandboxConfig(provider="bothy", image=sys.argv[1], runtime_timeout=600, sandbox_kwargs={"env": {"A": "1"}}))
    assert sandbox.supports_shell and not await sandbox.is_alive()
    async with sandbox:
        done = await sandbox.exec(["sh", "-c", "echo $A$B; pwd; echo e >&2; exit 3"], workdir="/tmp", env={"B": "2"})
        assert (done.exit_code, done.stdout, done.stderr) == (3, "12\n/tmp\n", "e\n"), done
        assert (await sandbox.exec(["sleep", "60"], timeout=0.5)).exit_code == -1
        assert (await sandbox.exec(["no-such-program"])).exit_code == 127
        assert (await sandbox.exec_shell("echo ${BASH_VERSION:+bash}")).stdout == "bash\n"
        shell = await sandbox.open_shell(cwd="/tmp", env={"C": "3"})
        assert (await shell.run("cd /; X=7; echo $C")).stdout == "3\n"
        assert (await shell.run("exit 5")).exit_code == 5
        try:
            await shell.run("sleep 60", timeout=0.5)
            raise AssertionError("no time limit")
        except TimeoutError:
            pass
        try:
            await shell.run("X=8; trap '' INT; while :; do :; done", timeout=1)
            raise AssertionError("no time limit")
        except TimeoutError as e:
            assert "the session goes on as it was before this command" in str(e), e
        assert (await shell.run("echo $X $PWD >&2")).stderr == "7 /\n", "the shell outlives exit and a time limit"
        await shell.close()
        await sandbox.write_file("/tmp/d/f", b"\0\xff")
        assert await sandbox.read_file("/tmp/d/f") == b"\0\xff"
        with tempfile.TemporaryDirectory() as here:
            pathlib.Path(here, "x").write_text("x")
            await sandbox.upload(here, "/tmp/up")
            await sandbox.download("/tmp/up", pathlib.Path(here, "back"))
            assert pathlib.Path(here, "back", "x").read_text() == "x"
        assert await sandbox.is_alive()
        faults = between(sandbox.bothy)
        faults.forgets = True
        assert (await sandbox.exec_shell(COMMAND)).stdout == TOLD, "where output is missing it says so"
        shell = await sandbox.open_shell()
        assert (await shell.run(COMMAND)).stdout == TOLD
        faults.forgets, faults.refuses = False, True
        try:
            await sandbox.stop()
            raise AssertionError("nobody answered")
        except bothy.BothyError:
            faults.refuses = False
        assert await sandbox.is_alive()
        await sandbox.bothy.delete()
        assert not await sandbox.is_alive()
        try:
            await sandbox.exec(["true"])
            raise AssertionError("a dead sandbox is no result")
        except bothy.BothyError:
            pass
    print("one-shot commands, shell, files")

asyncio.run(main())

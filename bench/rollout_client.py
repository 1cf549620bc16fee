"""Short tasks as an agent's rollouts have them, through bothy's Python client or through docker's command line; one JSON line at the end.

    rollout_client.py bothy|docker-exec|docker-shell TASKS AT_ONCE IMAGE…    (BOTHY_SOCKET; DOCKER: the words of its command line, as JSON)

A task: a sandbox of one of the images, 20 commands in a shell, a file written, the tests run, the sandbox ended. Each result is compared with
what it must be: a task with one that differs has failed."""
import asyncio
import json
import os
import sys
import time

FIXED = "def double(n):\n    return 2 * n\n"
LOOK = [("pwd", "/repo"), ("ls", "README\ncalc.py\ntest_calc.py"), ("cat README", "a small repository"), ("wc -l <calc.py", "2"),
        ("grep -n return calc.py", "2:    return n"), ("python3 -B -c 'import calc; print(calc.double(3))'", "3"), ("echo $((6 * 7))", "42"),
        ("head -n 1 calc.py", "def double(n):"), ("find . -name '*.py' | wc -l", "2"), ("test -f README && echo yes", "yes")]
COMMANDS = LOOK + LOOK  # 20; none may leave a file, or the second `ls` differs
TESTS = "python3 -m unittest -q"


class DockerExec:
    """Each command is an exec of its own."""

    def __init__(self):
        self.words = json.loads(os.environ["DOCKER"])

    async def run(self, *words, stdin=None):
        p = await asyncio.create_subprocess_exec(*self.words, *words, stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                                                 stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
        out, err = await p.communicate(stdin)
        return p.returncode, out.decode(), err.decode()

    async def task(self, image):
        code, out, err = await self.run("run", "--detach", "--network", "none", image, "sleep", "3600")
        if code:
            raise RuntimeError(err)
        name = out.strip()
        try:
            await self.work(name)
        finally:
            await self.run("rm", "--force", name)

    async def work(self, name):
        for command, wanted in COMMANDS:
            must(command, await self.run("exec", "-w", "/repo", name, "bash", "-c", command), wanted)
        must("write", await self.run("exec", "-i", name, "sh", "-c", "cat >/repo/calc.py", stdin=FIXED.encode()), "")
        passed(await self.run("exec", "-w", "/repo", name, "bash", "-c", TESTS))

    async def close(self):
        return


class DockerShell(DockerExec):
    """One `docker exec -i … bash` for all commands of a task, as a harness keeps it open; stderr goes to stdout, and a line of ours ends each."""
    MARK = b"-- rollout:"

    async def work(self, name):
        shell = await asyncio.create_subprocess_exec(*self.words, "exec", "-i", "-w", "/repo", name, "bash", stdin=asyncio.subprocess.PIPE,
                                                     stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
        try:
            shell.stdin.write(b"exec 2>&1\n")
            for command, wanted in COMMANDS:
                must(command, await self.say(shell, command), wanted)
            must("write", await self.say(shell, f"cat >calc.py <<'X'\n{FIXED}X"), "")
            passed(await self.say(shell, TESTS))
        finally:
            shell.stdin.close()
            await shell.wait()

    async def say(self, shell, command):
        shell.stdin.write(f"{command}\necho '{self.MARK.decode()}' $?\n".encode())
        await shell.stdin.drain()
        out = b""
        while self.MARK not in out:
            more = await shell.stdout.readline()
            if not more:
                raise RuntimeError(f"{command}: the shell has ended: {out!r}")
            out += more
        out, _, status = out.partition(self.MARK)
        return int(status), out.decode(), out.decode()


class Bothy:
    def __init__(self):
        from bothy import AsyncClient  # noqa: PLC0415: docker's turn does without
        self.client = AsyncClient()

    async def task(self, image):
        async with await self.client.create(image, ttl=3600) as sandbox:
            session = await sandbox.session(cwd="/repo")
            for command, wanted in COMMANDS:
                ended = await session.run(command)
                must(command, (ended.exit_code, ended.text, ended.err.decode()), wanted)
            await sandbox.files.write("/repo/calc.py", FIXED)
            ended = await session.run(TESTS)
            passed((ended.exit_code, ended.text, ended.err.decode()))

    async def close(self):
        await self.client.aclose()


def must(command, got, wanted):
    if (got[0], got[1].strip()) != (0, wanted):
        raise RuntimeError(f"{command}: {got}")


def passed(got):
    if got[0] != 0 or "OK" not in got[2]:
        raise RuntimeError(f"tests: {got}")


SUBJECTS = {"bothy": Bothy, "docker-exec": DockerExec, "docker-shell": DockerShell}


async def main(kind, tasks, at_once, images):
    subject, gate, took, failed = SUBJECTS[kind](), asyncio.Semaphore(at_once), [], []

    async def one(n):
        async with gate:
            began = time.monotonic_ns()
            try:
                await subject.task(images[n % len(images)])
                took.append(time.monotonic_ns() - began)
            except Exception as e:  # noqa: BLE001: a task may fail in any way; it is counted
                failed.append(f"{n}: {type(e).__name__}: {str(e)[:300]}")
    began = time.monotonic()
    await asyncio.gather(*(one(n) for n in range(tasks)))
    seconds = time.monotonic() - began
    await subject.close()
    print(json.dumps({"seconds": seconds, "ns": took, "failed": failed}))

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))

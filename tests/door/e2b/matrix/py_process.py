"""Commands: output, users, limits of time, stdin, those that go on."""
import asyncio
import hashlib
import inspect
import time

from client import A, Authentication, CommandExit, Invalid, NotFound, Skip, Timeout, VERSION, behaviour, check, equal, exceptions, have, raises, takes

MISSING = 2000000000
Refused = Authentication + exceptions("SandboxException", "InvalidArgumentException")


@behaviour
async def run_output(t):
    r = await t.run("echo out; echo err >&2")
    equal((r.exit_code, r.stdout, r.stderr, r.error or None), (0, "out\n", "err\n", None), "result")


@behaviour
async def run_callbacks(t):
    got = []
    r = await t.run("echo a; sleep 1; echo b; echo c >&2", on_stdout=lambda x: got.append(("o", x)), on_stderr=lambda x: got.append(("e", x)))
    text = ["".join(str(getattr(x, "line", x)) for kind, x in got if kind == k) for k in "oe"]
    equal(text, ["a\nb\n", "c\n"], "what callbacks got")
    check(len([k for k, _ in got if k == "o"]) >= 2, "output comes as it is written")
    equal(r.stdout, "a\nb\n", "stdout")


@behaviour
async def run_exit_code(t):
    e = await raises(CommandExit, lambda: t.run("echo x; echo y >&2; exit 3"))
    equal((e.exit_code, e.stdout, e.stderr), (3, "x\n", "y\n"), "result")


@behaviour
async def run_signalled(t):
    e = await raises(CommandExit, lambda: t.run("kill -TERM $$"))
    check(e.exit_code != 0 and "terminated" in str(e.error), (e.exit_code, e.error))


@behaviour
async def run_not_found(t):
    e = await raises(CommandExit, lambda: t.run("there-is-no-such-program"))
    equal(e.exit_code, 127, "exit code")
    check("not found" in e.stderr, e.stderr)


@behaviour
async def run_unicode(t):
    equal(await t.out("printf 'ž€😀\\n'; echo ž€😀"), "ž€😀\nž€😀\n")


@behaviour
async def run_big_output(t):
    r = await t.run("head -c 6000000 /dev/zero | tr '\\0' x; printf '€%.0s' $(seq 20000)")
    check(r.stdout == "x" * 6000000 + "€" * 20000, f"{len(r.stdout)} characters")


@behaviour
async def run_binary_output(t):
    r = await t.run("printf 'a\\377\\376b\\0c'")
    check(r.stdout.startswith("a") and r.stdout.endswith("c"), repr(r.stdout))


@behaviour
async def run_without_output(t):
    r = await t.run("true")
    equal((r.exit_code, r.stdout, r.stderr), (0, "", ""), "result")


@behaviour
async def run_envs(t):
    equal(await t.out("echo \"$GIVEN|$MORE\"", envs={"MORE": "ž 'q' \"d\" $X"}), "by create|ž 'q' \"d\" $X\n")
    equal(await t.out("echo $GIVEN", envs={"GIVEN": "by run"}), "by run\n")


@behaviour
async def run_cwd(t):
    equal(await t.out("pwd", cwd="/usr/lib"), "/usr/lib\n")
    equal(await t.out("pwd"), "/home/user\n", "where it runs when not told")


@behaviour
async def run_cwd_missing(t):
    e = await raises(Invalid, lambda: t.run("pwd", cwd="/no/such/dir"))
    check("/no/such/dir" in str(e), e)


@behaviour
async def run_user_default(t):
    equal(await t.out("id -un; echo $HOME; echo $USER"), "user\n/home/user\nuser\n")


@behaviour
async def run_user_user(t):
    equal(await t.out("id -un", user="user"), "user\n")


@behaviour
async def run_user_root(t):
    equal(await t.out("id -u; echo $HOME", user="root"), "0\n/root\n")


@behaviour
async def run_user_other(t):
    equal(await t.out("id -un", user="nobody"), "nobody\n")


@behaviour
async def run_user_unknown(t):
    e = await raises(Refused, lambda: t.run("id", user="nosuchuser"))
    check("nosuchuser" in str(e) or VERSION < (2, 0, 0), e)


@behaviour
async def run_sudo(t):
    equal(await t.out("sudo -n id -u"), "0\n")


@behaviour
async def run_quotes(t):
    equal(await t.out("printf '%s\\n' \"a'b\" 'c\"d' \"$(printf 'e\\nf')\" \\\\ '*'"), "a'b\nc\"d\ne\nf\n\\\n*\n")


@behaviour
async def run_long_text(t):
    equal(await t.out("# " + "x" * 100000 + "\necho end"), "end\n")


@behaviour
async def run_lines(t):
    equal(await t.out("f() {\n  echo \"in $1\"\n}\nfor i in 1 2; do\n  f $i\ndone"), "in 1\nin 2\n")


@behaviour
async def run_timeout(t):
    began = time.monotonic()
    await raises(Timeout, lambda: t.run("echo begun; sleep 47", timeout=2))
    check(time.monotonic() - began < 6, "it took too long")
    await asyncio.sleep(0.5)

    async def gone():
        return (await t.out("pgrep -f '[s]leep 47' | wc -l")) == "0\n"
    await t.eventually("what it ran is gone", gone, 6)


@behaviour
async def run_no_timeout(t):
    equal(await t.out("sleep 1; echo unhurried", timeout=0), "unhurried\n")


@behaviour
async def run_leaves_daemon(t):
    began = time.monotonic()
    pid = int(await t.out("setsid sleep 30 >/dev/null 2>&1 & echo $!"))
    check(time.monotonic() - began < 8, "the command waited for what it left")
    equal(await t.out(f"kill {pid} && echo lived"), "lived\n", "the daemon")


@behaviour
async def run_many_at_once(t):
    calls = [t.spawn(lambda i=i: t.sb.commands.run(f"sleep 0.2; echo {i}; echo e{i} >&2")) for i in range(20)]
    got = await asyncio.gather(*calls)
    equal([(r.stdout, r.stderr) for r in got], [(f"{i}\n", f"e{i}\n") for i in range(20)], "results")


@behaviour
async def run_sequence(t):
    for i in range(20):
        equal(await t.out(f"echo {i}"), f"{i}\n")


@behaviour
async def background(t):
    handle = await t.start("echo one; sleep 0.5; echo two")
    check(isinstance(handle.pid, int) and handle.pid > 0, handle.pid)
    r = await A(handle.wait())
    equal((r.exit_code, r.stdout), (0, "one\ntwo\n"), "result")


@behaviour
async def background_exit_code(t):
    handle = await t.start("echo x; exit 9")
    e = await raises(CommandExit, lambda: handle.wait())
    equal((e.exit_code, e.stdout), (9, "x\n"), "result")


@behaviour
async def background_events(t):
    """Sync handles are iterated, async ones have callbacks."""
    if t.is_async:
        got = []
        handle = await t.start("echo a; sleep 0.3; echo b", on_stdout=lambda x: got.append(x))
        await A(handle.wait())
    else:
        handle = await t.start("echo a; sleep 0.3; echo b")
        got = [out for out, _, _ in handle if out]
    equal("".join(got), "a\nb\n", "what came")


@behaviour
async def background_list(t):
    handle = await t.start("sleep 31", envs={"MARK": "listed"}, cwd="/tmp")
    found = [p for p in await A(t.sb.commands.list()) if p.pid == handle.pid]
    equal(len(found), 1, "entries of it")
    equal((found[0].cmd, found[0].args[-1], found[0].cwd), ("/bin/bash", "sleep 31", "/tmp"), "what the list says")
    equal(found[0].envs.get("MARK"), "listed", "env of the list")
    await t.end(handle)

    async def gone():
        return handle.pid not in [p.pid for p in await A(t.sb.commands.list())]
    await t.eventually("the list forgets it", gone)


@behaviour
async def background_kill(t):
    handle = await t.start("sleep 48 & sleep 48 & wait")
    equal(await A(handle.kill()), True, "kill")
    e = await raises(CommandExit, lambda: handle.wait())
    check(e.exit_code != 0, e.exit_code)


@behaviour
async def kill_pid(t):
    handle = await t.start("sleep 33")
    equal(await A(t.sb.commands.kill(handle.pid)), True, "kill")
    await raises(CommandExit, lambda: handle.wait())
    equal(await A(t.sb.commands.kill(MISSING)), False, "kill of a missing one")


def held(t):
    """Shell that waits until a file is there: go(t) writes it, when everybody who is to see what follows is connected."""
    return f"until [ -e {t.dir}/go ]; do sleep 0.1; done"


async def go(t):
    await A(t.sb.files.write(f"{t.dir}/go", "1"))


@behaviour
async def background_disconnect(t):
    handle = await t.start(f"{held(t)}; echo late; echo done >/tmp/disconnected")
    await A(handle.disconnect())
    again = await A(t.sb.commands.connect(handle.pid))
    await go(t)
    r = await A(again.wait())
    check("late" in r.stdout and r.exit_code == 0, r)
    equal(await A(t.sb.files.read("/tmp/disconnected")), "done\n", "what it did")


@behaviour
async def connect_pid(t):
    handle = await t.start(f"{held(t)}; echo seen by both; exit 0")
    again = await A(t.sb.commands.connect(handle.pid))
    equal(again.pid, handle.pid, "pid")
    await go(t)
    equal([(await A(h.wait())).stdout for h in (handle, again)], ["seen by both\n"] * 2, "what both got")


@behaviour
async def connect_pid_from_elsewhere(t):
    handle = await t.start(f"{held(t)}; echo found; exit 4")
    await A(handle.disconnect())
    sb = await t.connect(t.sb.sandbox_id)
    again = await A(sb.commands.connect(handle.pid))
    await go(t)
    e = await raises(CommandExit, lambda: again.wait())
    equal((e.exit_code, e.stdout), (4, "found\n"), "result")


async def connected(sb, pid):
    return await A((await A(sb.commands.connect(pid))).wait())


@behaviour
async def connect_pid_ended(t):
    handle = await t.start("echo over; exit 5")
    await raises(CommandExit, lambda: handle.wait())
    e = await raises(CommandExit, lambda: connected(t.sb, handle.pid))
    equal(e.exit_code, 5, "exit code")


@behaviour
async def connect_pid_missing(t):
    await raises(NotFound, lambda: t.sb.commands.connect(MISSING))


@behaviour
async def stdin(t):
    handle = await t.start("read a; read b; echo got $a $b", stdin=True)
    await A(t.sb.commands.send_stdin(handle.pid, "x1\n"))
    await A(t.sb.commands.send_stdin(handle.pid, "ž2\n"))
    equal((await A(handle.wait())).stdout, "got x1 ž2\n")


@behaviour
async def stdin_of_handle(t):
    handle = await t.start("read a; echo got $a", stdin=True)
    if not hasattr(handle, "send_stdin"):
        await t.end(handle)
        raise Skip("this version does not have it: send_stdin of a handle")
    await A(handle.send_stdin("by handle\n"))
    equal((await A(handle.wait())).stdout, "got by handle\n")


@behaviour
async def stdin_bytes(t):
    have("bytes" in str(inspect.signature(t.sb.commands.send_stdin)), "stdin as bytes")
    handle = await t.start("head -c 4 | od -An -tx1", stdin=True)
    await A(t.sb.commands.send_stdin(handle.pid, b"\x00\xff\x01\n"))
    equal((await A(handle.wait())).stdout, " 00 ff 01 0a\n")


@behaviour
async def stdin_much(t):
    size, part = 3000000, "0123456789abcdef" * 4096
    handle = await t.start(f"head -c {size} | sha256sum", stdin=True)
    text = (part * (size // len(part) + 1))[:size]
    for at in range(0, size, len(part)):
        await A(t.sb.commands.send_stdin(handle.pid, text[at:at + len(part)]))
    equal((await A(handle.wait())).stdout.split()[0], hashlib.sha256(text.encode()).hexdigest())


@behaviour
async def stdin_none(t):
    have(takes(t.sb.commands.run, "stdin"), "commands without stdin")
    equal(await t.out("cat; echo eof", timeout=10), "eof\n")


@behaviour
async def stdin_close(t):
    have(hasattr(t.sb.commands, "close_stdin"), "close_stdin")
    handle = await t.start("cat; echo eof", stdin=True)
    await A(t.sb.commands.send_stdin(handle.pid, "q\n"))
    await A(t.sb.commands.close_stdin(handle.pid))
    equal((await A(handle.wait())).stdout, "q\neof\n")


@behaviour
async def stdin_stream(t):
    have(hasattr(t.sb.commands, "stream_input"), "stream_input")
    handle = await t.start("cat; echo eof", stdin=True)
    parts = ["a\n", b"b\n", "c" * 70000 + "\n"]
    if t.is_async:
        way = await A(t.sb.commands.stream_input(handle.pid))
        for part in parts:
            await A(way.send(part))
        await A(way.close())
    else:
        t.sb.commands.stream_input(handle.pid, parts)
    await A(t.sb.commands.close_stdin(handle.pid))
    equal((await A(handle.wait())).stdout, "a\nb\n" + "c" * 70000 + "\neof\n")


@behaviour
async def stdin_missing_pid(t):
    await raises(NotFound, lambda: t.sb.commands.send_stdin(MISSING, "x"))


@behaviour
async def git(t):
    have(hasattr(t.sb, "git"), "git")
    repo = f"{t.dir}/repo"
    await A(t.sb.git.init(repo))
    await A(t.sb.files.write(f"{repo}/a.txt", "1"))
    await A(t.sb.git.add(repo))
    await A(t.sb.git.commit(repo, "first", author_name="a", author_email="a@b.c"))
    check((await A(t.sb.git.status(repo))).is_clean, "not clean after the commit")

"""Terminals."""
import asyncio

import e2b
from client import A, CommandExit, behaviour, check, equal, have, raises

try:
    PtySize = e2b.PtySize
except AttributeError:
    from e2b.sandbox.commands.main import PtySize
MISSING = 2000000000


class Terminal:
    """Both flavours of one: async ones have a callback, sync ones are read by wait."""

    def __init__(self, t):
        self.t, self.got = t, []

    async def open(self, rows=30, cols=100, **options):
        pty = self.t.sb.pty
        if self.t.is_async:
            options["on_data"] = self.got.append
        self.handle = await A(pty.create(PtySize(rows=rows, cols=cols), **options))
        return self

    async def send(self, text):
        await A(self.t.sb.pty.send_stdin(self.handle.pid, text.encode()))

    async def end(self):
        """Until the shell has ended; what was on it."""
        try:
            await A(self.handle.wait() if self.t.is_async else self.handle.wait(on_pty=self.got.append))
        except CommandExit:
            pass
        return b"".join(self.got).decode(errors="replace")


@behaviour
async def pty(t):
    terminal = await Terminal(t).open()
    await terminal.send("stty size; tty; echo $((6*7)); exit 0\n")
    screen = await terminal.end()
    for part in ("30 100", "/dev/pts/", "42"):
        check(part in screen, screen)


@behaviour
async def pty_resize(t):
    terminal = await Terminal(t).open()
    await A(t.sb.pty.resize(terminal.handle.pid, PtySize(rows=40, cols=120)))
    await terminal.send("stty size; exit 0\n")
    check("40 120" in await terminal.end())


@behaviour
async def pty_options(t):
    terminal = await Terminal(t).open(cwd="/usr", user="root", envs={"MARK": "m1"})
    await terminal.send("echo [$(pwd) $(id -u) $MARK $TERM]; exit 0\n")
    check("[/usr 0 m1 xterm-256color]" in await terminal.end())


@behaviour
async def pty_interrupt(t):
    terminal = await Terminal(t).open()
    await terminal.send("sleep 60\n")
    await asyncio.sleep(1)
    await terminal.send("\x03")
    await terminal.send("echo st$((1))ll; exit 0\n")
    check("st1ll" in await terminal.end())


@behaviour
async def pty_unicode(t):
    terminal = await Terminal(t).open()
    await terminal.send("printf '%s\\n' \"<ž€😀>\"; exit 0\n")
    check("<ž€😀>" in await terminal.end())


@behaviour
async def pty_kill(t):
    terminal = await Terminal(t).open()
    equal(await A(t.sb.pty.kill(terminal.handle.pid)), True, "kill")
    await terminal.end()
    equal(await A(t.sb.pty.kill(MISSING)), False, "kill of a missing one")


@behaviour
async def pty_connect(t):
    have(hasattr(t.sb.pty, "connect"), "connect of a terminal")
    terminal = await Terminal(t).open()
    await A(terminal.handle.disconnect())
    got = []
    again = await A(t.sb.pty.connect(terminal.handle.pid, **({"on_data": got.append} if t.is_async else {})))
    await terminal.send("echo ag$((1))in; exit 0\n")
    terminal.handle, terminal.got = again, got
    check("ag1in" in await terminal.end())


@behaviour
async def pty_stream_input(t):
    have(hasattr(t.sb.pty, "stream_input"), "stream_input of a terminal")
    terminal = await Terminal(t).open()
    parts = ["echo a$((1))b\n", b"exit 0\n"]
    if t.is_async:
        way = await A(t.sb.pty.stream_input(terminal.handle.pid))
        for part in parts:
            await A(way.send(part))
        await A(way.close())
    else:
        t.sb.pty.stream_input(terminal.handle.pid, parts)
    check("a1b" in await terminal.end())


@behaviour
async def pty_missing_pid(t):
    await raises(Exception, lambda: t.sb.pty.send_stdin(MISSING, b"x"))
    await raises(Exception, lambda: t.sb.pty.resize(MISSING, PtySize(rows=1, cols=1)))

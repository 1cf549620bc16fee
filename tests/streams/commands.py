"""Commands whose every byte is known, and the ledger in which a client writes what it got of one."""
import collections

COUNTS = ("losses", "doubles", "wrong_bytes", "wrong_ends", "unanswered")
Command = collections.namedtuple("Command", "kind script out err code")
MANY = "äöü€𝄞 "
HIGH = bytes.maketrans(b"0123456789", bytes(range(0x80, 0x8a)))


class Trouble(AssertionError):
    """kind: one of COUNTS."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def filled(text, n):
    """What `yes TEXT | head -c N` writes."""
    line = text.encode() + b"\n"
    return (line * (n // len(line) + 1))[:n]


def fill(text, n):
    return f"yes '{text}' | head -c {n}"


def quick(draw, ident):
    """Over before anybody asks."""
    return Command("quick", f"echo {ident}; echo e{ident} >&2", f"{ident}\n".encode(), f"e{ident}\n".encode(), 0)


def trickle(draw, ident):
    lines, wait = draw.randint(3, 25), draw.choice(("0.01", "0.02", "0.04"))
    script = (f"i=0; while [ $i -lt {lines} ]; do printf '%-199s\\n' \"o$i {ident}\"; printf '%-99s\\n' \"e$i {ident}\" >&2; "
              f"i=$((i+1)); sleep {wait}; done")
    out = "".join(f"{f'o{i} {ident}':<199}\n" for i in range(lines))
    err = "".join(f"{f'e{i} {ident}':<99}\n" for i in range(lines))
    return Command("trickle", script, out.encode(), err.encode(), 0)


def parts(draw, ident, kind, text, tail="", change=lambda b: b, most=60_000):
    """A few blocks with pauses between them."""
    sizes = [draw.randint(1, most) for _ in range(draw.randint(1, 4))]
    script = "; ".join(f"{fill(text, n)}{tail}; sleep 0.02" for n in sizes)
    return Command(kind, script, b"".join(change(filled(text, n)) for n in sizes), b"", 0)


def blocks(draw, ident):
    return parts(draw, ident, "blocks", f"{ident} abcdefghijklmnopqrstuvwxyz")


def letters(draw, ident):
    """Characters of two, three and four bytes, which events must not split into something else."""
    return parts(draw, ident, "letters", MANY + ident, most=30_000)


def binary(draw, ident):
    """Not UTF-8."""
    return parts(draw, ident, "binary", f"{ident}0123456789", " | tr 0-9 '\\200-\\211'", lambda b: b.translate(HIGH))


def large(draw, ident):
    return parts(draw, ident, "large", f"large {ident}", most=500_000)


def behind(draw, ident):
    """Nothing for a while, then a little and the end at once."""
    return Command("behind", f"sleep 0.2; echo {ident}", f"{ident}\n".encode(), b"", 0)


KINDS = (quick, quick, trickle, trickle, blocks, blocks, letters, binary, large, behind)


def drawn(draw, ident):
    """One of them, which says in a file that it runs, with a status of its own."""
    c, code = draw.choice(KINDS)(draw, ident), draw.randint(0, 99)
    return c._replace(script=f"echo {ident} >>/tmp/ran; {c.script}; (exit {code})", code=code)


class Ledger:
    def __init__(self, command, may_gap=False):
        self.wanted, self.code, self.may_gap = {1: command.out, 2: command.err}, command.code, may_gap
        self.at, self.gaps, self.end = {1: 0, 2: 0}, {1: 0, 2: 0}, None

    @property
    def offset(self):
        return f"{self.at[1]}.{self.at[2]}"

    def bytes(self, stream, offset, data):
        at = self.at[stream]
        if offset < at:
            raise Trouble("doubles", f"offset {offset} again, {at} was next")
        if offset > at:
            raise Trouble("losses", f"offset {offset}, but {at} was next")
        if self.wanted[stream][at:at + len(data)] != data:
            raise Trouble("wrong_bytes", f"{len(data)} bytes at {at} of stream {stream}")
        self.at[stream] = at + len(data)

    def gap(self, stream, begin, to):
        if not self.may_gap:
            raise Trouble("losses", f"a gap from {begin} to {to} below the ceiling")
        if begin != self.at[stream] or to <= begin:
            raise Trouble("losses", f"a gap from {begin} to {to}, but {self.at[stream]} was next")
        self.gaps[stream] += to - begin
        self.at[stream] = to

    def ended(self, end):
        """The end record of an exec."""
        if self.end is not None:
            raise Trouble("doubles", "a second end")
        got = (end["how"], end["exit_code"], end["out_bytes"], end["err_bytes"])
        self.check_end(got, ("exited", self.code, len(self.wanted[1]), len(self.wanted[2])), end)

    def command_ended(self, end):
        """The result of a session's command."""
        if self.end is not None:
            raise Trouble("doubles", "a second end")
        self.check_end((end["kind"], end["exit_code"]), ("ended", self.code), end)

    def check_end(self, got, wanted, end):
        if got != wanted:
            raise Trouble("wrong_ends", f"{got}, not {wanted}")
        for stream in (1, 2):
            if self.at[stream] != len(self.wanted[stream]):
                raise Trouble("losses", f"the end came at {self.at[stream]} of {len(self.wanted[stream])} bytes of stream {stream}")
        self.end = end

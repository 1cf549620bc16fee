"""The output that commands write under power cuts, for the guest that runs them and for the host that judges what is left of it."""
import functools

LARGE = 100_000  # bytes of each stream of a large one; else stdout has a line and stderr nothing
LAST = 30_000


def command(code, large):
    if not large:
        return f"echo {code}; exit {code}"
    return f"seq {code} {LAST} | head -c {LARGE}; seq {code + 1} {LAST} | head -c {LARGE} >&2; exit {code}"


@functools.lru_cache(maxsize=256)
def output(code, large, stream):
    if not large:
        return b"%d\n" % code if stream == "out" else b""
    return b"".join(b"%d\n" % i for i in range(code + (stream == "err"), LAST + 1))[:LARGE]

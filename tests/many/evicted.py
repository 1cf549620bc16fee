"""Commands whose output went for room, put into the journal of a sandbox while bothyd is away: BEGIN, END and MARK of each."""
import pathlib
import shutil
import struct
import time
import zlib

MAGIC, FORMAT, RECORD = 0x314A5942, 1, 256  # src/exec/journal.h
BEGIN, END, MARK = 1, 2, 3
EXITED, OUT_BYTES = 1, 2000
AT_ONCE = 10_000  # commands that are written together


def record(kind, number, body):
    def sealed(checksum):
        return struct.pack("<IHHIIQ", MAGIC, kind, FORMAT, checksum, 0, number) + body.ljust(RECORD - 24, b"\0")
    return sealed(zlib.crc32(sealed(0)))


def command(number, now):
    """The three records of one that wrote OUT_BYTES to stdout and ended with 0; its output is gone."""
    ended = struct.pack("<QIIiIIIQQQQQQQIIIIQ", number, 2, 100, 0, 0, 0, 0, 0, now, 0, now + 1000, 1, 1, 1, 0, 0, 0, 0, 0)
    return b"".join((record(BEGIN, number, struct.pack("<32xQQII", now, 0, 0, 0) + b"echo x"),
                     record(END, number, ended + struct.pack("<QQIiII", OUT_BYTES, 0, EXITED, 0, 0, 0)),
                     record(MARK, number, struct.pack("<IIQQ", 1, 0, 0, OUT_BYTES))))


def next_number(raw):
    """The first id behind those of the journal's commands."""
    return max((struct.unpack_from("<Q", raw, at + 16)[0] for at in range(0, len(raw), RECORD)
                if struct.unpack_from("<H", raw, at + 4)[0] == BEGIN), default=0) + 1


def add(node, sandbox, count):
    """Returns the id of the last one."""
    path, now = pathlib.Path(node.dir, "bothyd", "spool", sandbox, "journal"), time.time_ns()
    first = next_number(path.read_bytes() if path.exists() else b"")
    with path.open("ab") as f:
        for at in range(first, first + count, AT_ONCE):
            f.write(b"".join(command(number, now) for number in range(at, min(at + AT_ONCE, first + count))))
    shutil.chown(path, "bothy", "bothy")
    return first + count - 1

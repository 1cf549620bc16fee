"""Bytes to an HTTP server as they are, whole or in pieces, and what comes back.

    raw.exchange(socket, b"GET / HTTP/1.1\\r\\n…", step=1)   # ("400", True): the statuses, and whether it closed then"""
import contextlib
import re
import socket

from watch import Watch


def exchange(s, data, step=0, seconds=5, wanted=1, quiet=0.15, closes=False):
    """Closes s. With as many answers as wanted it listens for `quiet` seconds more: does the server close? closes: it has to, and gets
    all of `seconds` for it."""
    quiet = seconds if closes else quiet
    s.settimeout(seconds)
    out, closed = b"", False
    with contextlib.suppress(OSError):  # refused before all was sent
        for i in range(0, len(data), step or len(data)):
            s.sendall(data[i:i + (step or len(data))])
    limit, answered = Watch(seconds), None
    while not closed and not limit.over() and not (answered and answered.over()):
        if len(statuses(out)) >= wanted and not answered:
            answered = Watch(quiet)
        s.settimeout(quiet if answered else seconds)
        try:
            got = s.recv(1 << 16)
        except socket.timeout:
            continue
        except ConnectionResetError:
            got = b""
        closed = not got
        out += got
    s.close()
    return " ".join(statuses(out)), closed


def statuses(out):
    return [x.decode() for x in re.findall(rb"HTTP/1\.1 (\d{3})", out)]

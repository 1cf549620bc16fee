"""Bytes to an HTTP server as they are, whole or in pieces, and what comes back.

    raw.exchange(socket, b"GET / HTTP/1.1\\r\\n…", step=1)   # ("400", True): the statuses, and whether it closed then"""
import contextlib
import re
import socket
import time


def exchange(s, data, step=0, seconds=5, wanted=1, quiet=0.15):
    """Closes s. With as many answers as wanted it listens for `quiet` seconds more: does the server close?"""
    s.settimeout(seconds)
    out, closed = b"", False
    with contextlib.suppress(OSError):  # refused before all was sent
        for i in range(0, len(data), step or len(data)):
            s.sendall(data[i:i + (step or len(data))])
    end = time.monotonic() + seconds
    while time.monotonic() < end and not closed:
        s.settimeout(quiet if len(statuses(out)) >= wanted else seconds)
        try:
            got = s.recv(1 << 16)
        except socket.timeout:
            break
        except ConnectionResetError:
            got = b""
        closed = not got
        out += got
    s.close()
    return " ".join(statuses(out)), closed


def statuses(out):
    return [x.decode() for x in re.findall(rb"HTTP/1\.1 (\d{3})", out)]

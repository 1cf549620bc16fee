"""The socket of a daemon that the caller did not name: the same search as the command line's."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

NODE = "/run/bothy/bothyd.sock"
NODE_CONFIG = "/etc/bothy/bothy.yaml"
STARTING = 60.0  # seconds; `bothy` itself gives up after 30


def find_socket() -> str:
    """Returns the socket that answers, as `find_daemon`.

    Returns the node's socket if none answers: the error of the first request then names it."""
    return find_daemon() or NODE


def find_daemon() -> str | None:
    """Returns the socket that answers: the node's, else that of the user's own daemon, which `bothy` starts if it is installed. None: none answers."""
    found = next((path for path in (NODE, *_own()) if _answers(path)), None)
    if found or os.geteuid() == 0 or os.path.exists(NODE) or os.path.exists(NODE_CONFIG):
        return found
    return _start()


def _own() -> list[str]:
    """Returns where the user's daemon listens, and where it leaves a link for callers with another runtime directory."""
    home = os.path.expanduser("~")
    state = os.path.join(_absolute("XDG_STATE_HOME") or os.path.join(home, ".local/state"), "bothy")
    runtime = _absolute("XDG_RUNTIME_DIR")
    run = os.path.join(runtime, "bothy") if runtime else os.path.join(state, "run")
    return [os.path.join(run, "bothyd.sock"), os.path.join(state, "bothyd.sock")]


def _absolute(name: str) -> str | None:
    """Returns a base directory of the environment; a relative one counts as none."""
    path = os.environ.get(name)
    return path if path and os.path.isabs(path) else None


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.setblocking(False)
        try:
            s.connect(path)
        except BlockingIOError:  # its queue is full
            return True
        except OSError:
            return False
        return True


def _start() -> str | None:
    """Starts the user's daemon by a call of `bothy`, which waits until it answers."""
    program = shutil.which("bothy")
    if not program:
        return None
    try:
        subprocess.run([program, "ls"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=STARTING, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next((path for path in _own() if _answers(path)), None)

"""A real terminal whose screen can be read: a tmux server of its own, with a plain shell in it."""
import os
import re
import subprocess
import tempfile
import time
import uuid

from harness import BOTHY, Watch


class Screen:
    PROMPT = "host% "

    def __init__(self, node, cols=80, rows=24, env=None):
        self.name = f"bothy-{uuid.uuid4().hex[:10]}"
        self.dir = tempfile.mkdtemp(prefix="bothy-screen-")
        self.node, self.cols, self.rows = node, cols, rows
        self.env = {**os.environ, "TMUX_TMPDIR": self.dir, "BOTHY_SOCKET": node.path, "LC_ALL": "C.UTF-8",
                    "PATH": os.path.dirname(BOTHY) + ":" + os.environ["PATH"], "HISTFILE": "", **(env or {})}
        self.env.pop("TMUX", None)
        with open(f"{self.dir}/rc", "w", encoding="utf-8") as rc:
            rc.write(f"PS1='{self.PROMPT}'\n")
        self.shell = f"bash --noprofile --rcfile {self.dir}/rc"

    def __enter__(self):
        try:
            self.open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def open(self):
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(self.cols), "-y", str(self.rows),
                  self.shell)
        for option in (("default-terminal", "screen-256color"), ("status", "off"), ("history-limit", "20000"),
                       ("escape-time", "0"), ("window-size", "manual")):
            self.tmux("set-option", "-g", *option)
        self.tmux("respawn-pane", "-k", self.shell)  # with the options
        self.until(r"host%$")

    def __exit__(self, *_):
        self.tmux("kill-server", check=False)
        subprocess.run(["rm", "-rf", self.dir], check=False)

    def tmux(self, *args, check=True, text=None):
        r = subprocess.run(["tmux", "-u", "-L", self.name, *args], env=self.env, input=text, capture_output=True, text=True,
                           timeout=30, check=False)
        if check and r.returncode:
            raise AssertionError(f"tmux {args[0]}: {r.stderr.strip()}")
        return r.stdout

    # ---- the keyboard ----
    def keys(self, *names):
        """tmux's names: Enter, C-c, Left, …"""
        self.tmux("send-keys", *names)

    def type(self, text):
        self.tmux("send-keys", "-l", "--", text)

    def line(self, text):
        self.type(text)
        self.keys("Enter")

    def resize(self, cols, rows):
        self.cols, self.rows = cols, rows
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    # ---- what a user sees ----
    def show(self, escapes=False, history=False):
        """Lines that were wrapped are one again."""
        flags = (["-e"] if escapes else []) + (["-S", "-"] if history else [])
        return "\n".join(x.rstrip() for x in self.tmux("capture-pane", "-p", "-J", *flags).split("\n"))

    def lines(self):
        """As they are on the screen."""
        return self.tmux("capture-pane", "-p").split("\n")

    def state(self, name):
        """A variable of the pane: alternate_on, cursor_flag, mouse_any_flag, pane_pid, …"""
        return self.tmux("display-message", "-p", "#{" + name + "}").strip()

    def until(self, pattern, seconds=30, escapes=False, history=False):
        """Waits until the screen (without empty lines at its end) matches."""
        limit = Watch(seconds)
        while True:
            text = self.show(escapes, history).rstrip("\n")
            found = re.search(pattern, text, re.M)
            if found:
                return found
            if limit.over():
                raise AssertionError(f"{pattern!r} is not on the screen:\n{text}\n{'-' * 40}")
            time.sleep(0.05)

    def run(self, command, seconds=30):
        """A command of the plain shell; what it printed."""
        mark = uuid.uuid4().hex[:8]
        self.line(f"clear; {command}; printf '\\n%s%s\\n' {mark[:4]} {mark[4:]}")
        self.until(rf"^{mark}$", seconds)
        return self.show().split(mark)[0].strip()

    def modes(self):
        return self.run("stty -g")

    def children(self):
        """Pids of what the plain shell runs."""
        pid = self.state("pane_pid")
        r = subprocess.run(["pgrep", "-P", pid], capture_output=True, text=True, check=False)
        return [int(x) for x in r.stdout.split()]

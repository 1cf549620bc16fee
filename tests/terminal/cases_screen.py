"""bothy shell, attach, run -it and exec -it as a person uses them."""
import hashlib
import os
import signal
import subprocess
import time

from common import equal, until
from harness import BUILD
from screen import Screen

IMAGE = "agent"


def enter(screen, sandbox, options="", prompt="in> "):
    """A shell in the sandbox, with a prompt we know."""
    screen.line(f"clear; bothy shell {options} {sandbox}")
    screen.until(r"[#$]$")
    screen.line(f"PS1='{prompt}'; clear")
    screen.until(rf"\A{prompt.strip()}$")


def in_front(node, sandbox, command):
    """Waits until it runs in the foreground of a terminal."""
    until(f"{command} runs", lambda: node.exec(sandbox, f"ps -eo stat,args | grep -q '^[^ ]*+ .*{command}$'")["end"]["exit_code"] == 0)


def client(screen):
    return until("the client runs", screen.children)[0]


def cases(suite, node):
    box = node.create(IMAGE, env={"LANG": "C.UTF-8"})

    @suite.case("screen: colours, TERM, the size, line editing, history")
    def _():
        with Screen(node) as s:
            enter(s, box)
            s.line("echo T=$TERM S=$(stty size)")
            s.until(r"^T=screen-256color S=24 80$")
            s.line(r"printf '\033[38;5;208mORANGE\033[m \033[1;31mRED\033[m \033[48;2;1;2;3mTRUE\033[m\n'")
            s.until(r"^\x1b\[38;5;208mORANGE\x1b\[39m \x1b\[1m\x1b\[31mRED", escapes=True)
            s.until(r"\x1b\[48;2;1;2;3mTRUE", escapes=True)
            s.line("ls --color=always -d /")
            s.until(r"\x1b\[[0-9;]*m(\x1b\[[0-9;]*m)*/", escapes=True)
            s.type("echo helo world")
            s.keys(*["Left"] * 7)
            s.type("l")
            s.keys("C-a")
            s.type("printf X; ")
            s.keys("Enter")
            s.until(r"^Xhello world$")
            s.line("echo number $((6*7))")
            s.until("^number 42$")
            s.line("clear")
            s.until(r"\Ain>$")
            s.keys("Up", "Up", "Enter")
            s.until(r"^number 42$")
            s.keys("C-d")
            s.until(r"^host%$")

    @suite.case("screen: Ctrl-C, Ctrl-Z and fg, Ctrl-backslash")
    def _():
        with Screen(node) as s:
            enter(s, box)
            s.line("sleep 1000")
            in_front(node, box, "sleep 1000")
            s.keys("C-c")
            s.until(r"\^C\s*in>$")
            s.line("echo rc=$?")
            s.until("^rc=130$")
            s.line("sleep 1001")
            in_front(node, box, "sleep 1001")
            s.keys("C-z")
            s.until(r"Stopped\s+sleep 1001")
            s.line("jobs -l | wc -l; fg")
            s.until(r"^1$")
            s.until(r"^sleep 1001$")
            in_front(node, box, "sleep 1001")
            s.keys("C-c")
            s.until(r"\^C\s*in>$")
            s.line("echo jobs:$(jobs | wc -l)")
            s.until("^jobs:0$")
            s.line("sleep 1002")
            in_front(node, box, "sleep 1002")
            s.keys("C-\\")
            s.until(r"Quit")
            s.line("exit 3")
            s.until(r"^host%$")
            s.line("echo status=$?")
            s.until("^status=3$")

    @suite.case("screen: the window changes; vim draws itself to the new size")
    def _():
        with Screen(node) as s:
            enter(s, box)
            s.line("seq -f 'this is line %g' 200 > /tmp/text; clear; vim -u NONE -N -c 'set number laststatus=2' /tmp/text")
            s.until(r"^ *22 this is line 22$")
            lines = s.lines()
            assert lines[0].strip() == "1 this is line 1" and "/tmp/text" in lines[22], lines
            s.resize(100, 40)
            s.until(r"^ *38 this is line 38$")
            lines = s.lines()
            assert "/tmp/text" in lines[38], lines
            assert lines[37].strip() == "38 this is line 38", lines
            s.resize(60, 15)
            s.until(r"^\S*/tmp/text")
            until("vim has 15 rows", lambda: "/tmp/text" in s.lines()[13])
            s.line(":set lines? columns?")
            s.until(r"lines=15")
            s.until(r"columns=60")
            s.keys("Enter")
            s.type("G")
            s.until(r"^ *200 this is line 200$")
            s.line(":q!")
            s.until(r"in>$")
            equal(s.state("alternate_on"), "0", "the other screen")
            s.line("clear; stty size")
            s.until(r"^15 60$")
            s.line("exit")
            s.until(r"^host%$")

    @suite.case("screen: vim edits a file")
    def _():
        with Screen(node) as s:
            enter(s, box)
            s.line("vim -u NONE -N /tmp/written")
            s.until(r"^~$")
            s.type("ifirst line")
            s.keys("Enter")
            s.type("second äöü 日本")
            s.keys("Escape")
            s.line(":wq")
            s.until(r"in>$")
            equal(node.shell(box, "cat /tmp/written"), "first line\nsecond äöü 日本\n", "what vim wrote")

    @suite.case("screen: top runs and quits")
    def _():
        with Screen(node) as s:
            enter(s, box)
            s.line("top -d 0.5")
            s.until(r"load average")
            s.until(r"^ *PID USER.*COMMAND")
            first = s.lines()[0]
            until("top draws again", lambda: s.lines()[0] != first, 20)
            s.type("q")
            s.until(r"in>$")
            s.line("exit")
            s.until(r"^host%$")

    @suite.case("screen: characters of every width")
    def _():
        with Screen(node) as s:
            enter(s, box, "-e LANG=C.UTF-8")
            s.line("printf '%s\\n' '|日本語|é|👍|ß|' 'äöü ÄÖÜ €'")
            s.until(r"^\|日本語\|é\|👍\|ß\|$")
            s.until(r"^äöü ÄÖÜ €$")
            s.type("echo 日本x語")
            s.keys("Left", "Left", "BSpace", "End")
            s.type("!")
            s.keys("Enter")
            s.until(r"^日x語!$|^日本語!$")

    @suite.case("screen: detach and reattach: scrollback, state, modes of our terminal")
    def _():
        with Screen(node) as s:
            before = s.modes()
            enter(s, box)
            s.line("KEPT=yes; seq -f 'row %g' 15")
            s.until(r"^row 15$")
            s.keys("C-p", "C-q")
            left = s.until(r"detached, the command goes on; come back with: bothy attach (\S+) (\d+)$")
            equal(left[1], box, "sandbox")
            s.until(r"host%$")
            equal(s.modes(), before, "modes after detaching")
            s.line(f"clear; bothy attach {box} {left[2]}")
            s.until(r"^row 15$")
            s.line("echo state=$KEPT")
            s.until("^state=yes$")
            s.line("exit 5")
            s.until(r"host%$")
            s.line("echo status=$?")
            s.until("^status=5$")
            equal(s.modes(), before, "modes after the end")

    @suite.case("screen: detach inside of vim puts our screen back; reattach draws vim again")
    def _():
        with Screen(node) as s:
            s.line("echo before the shell")
            enter(s, box)
            s.line("seq 100 > /tmp/n; vim -u NONE -N -c 'set mouse=a' /tmp/n")
            s.until(r"^23$")
            equal((s.state("alternate_on"), s.state("mouse_any_flag")), ("1", "1"), "vim's modes")
            s.keys("C-p", "C-q")
            s.until(r"detached,")
            equal((s.state("alternate_on"), s.state("mouse_any_flag"), s.state("cursor_flag")), ("0", "0", "1"), "after")
            s.line(f"bothy attach {box}")  # the newest with a terminal
            until("vim is on the screen", lambda: s.state("alternate_on") == "1" and "23" in s.lines())
            s.resize(80, 30)
            s.until(r"^29$")
            s.line(":q!")
            s.until(r"in>$")
            s.line("exit")
            s.until(r"host%$")

    @suite.case("screen: other detach keys; what begins like them reaches the shell")
    def _():
        with Screen(node) as s:
            enter(s, box, "--detach-keys ctrl-x,d")
            s.line("echo one")
            s.until("^one$")
            s.keys("C-p", "Enter")  # not held: the line before
            s.until(r"(?s)^one$.*^one$")
            s.line("cat -v")
            in_front(node, box, "cat -v")
            s.keys("C-x")
            s.type("e")
            s.keys("Enter")
            s.until(r"\^Xe\s+\^Xe")
            s.keys("C-x")
            s.type("d")
            s.until("detached,")
            s.run(f"bothy shell --detach-keys nonsense {box}")
            s.until("not a sequence of keys")

    @suite.case("screen: run -it: a sandbox for one terminal, gone with it")
    def _():
        with Screen(node) as s:
            before = s.modes()
            s.line(f"clear; bothy run -it --name t1 {IMAGE} -- bash --norc")
            s.until(r"[#$]$")
            s.line("tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all three; exit 7")
            s.until(r"^/dev/pts/\d+$")
            s.until(r"^24 80$")
            s.until(r"^all three$")
            s.until(r"host%$")
            s.line("echo status=$?")
            s.until("^status=7$")
            equal(s.modes(), before, "modes")
            equal([x for x in node.ok("GET", "/v1/sandboxes")["sandboxes"] if x["name"] == "t1"], [], "left sandboxes")
            s.line(f"clear; bothy run -it --name t2 {IMAGE} -- bash --norc")
            s.until(r"[#$]$")
            s.keys("C-p", "C-q")
            s.until("detached,")
            s.until(r"host%$")
            equal(len([x for x in node.ok("GET", "/v1/sandboxes")["sandboxes"] if x["name"] == "t2"]), 1, "it stays")
            s.run("bothy rm t2")
            s.line(f"clear; bothy run -it --name t3 {IMAGE} -- bash --norc")
            s.until(r"[#$]$")
            os.kill(client(s), signal.SIGTERM)
            s.until(r"host%$")
            assert "come back" not in s.show(), s.show()
            until("it goes with us", lambda: not [x for x in node.ok("GET", "/v1/sandboxes")["sandboxes"] if x["name"] == "t3"])
            known = node.ok("GET", "/v1/info")["caps"]["images"] != "absent"  # else nobody knows the image's command
            s.line("clear; bothy run -it busybox" + ("" if known else " -- sh"))
            s.until(r"[~/] #$")
            s.line("exit 2")
            s.until(r"host%$")

    @suite.case("screen: exec -it, exec -t, and neither")
    def _():
        with Screen(node) as s:
            s.line(f"clear; bothy exec -it -u agent -w /tmp {box} -- sh -c 'id -un; pwd; read x; echo got $x; exit 4'")
            s.until(r"^agent$")
            s.until(r"^/tmp$")
            s.line("hello")
            s.until(r"^got hello$")
            s.until(r"host%$")
            s.line("echo status=$?")
            s.until("^status=4$")
            out = s.run(f"bothy exec -t {box} -- sh -c 'test -t 1 && echo tty' < /dev/null")
            assert out.endswith("tty"), out
            s.line(f"clear; bothy exec -t {box} -- sh -c 'trap \"echo caught; exit 6\" INT; echo up; while :; do sleep 0.1; done'; echo rc=$?")
            s.until(r"^up$")
            s.keys("C-c")
            s.until(r"caught$")
            s.until(r"^rc=6$")
            out = s.run(f"bothy exec {box} -- sh -c 'test -t 1 || echo pipes'")
            assert out.endswith("pipes"), out
            out = s.run(f"bothy exec -it {box} -- true < /dev/null; echo rc=$?")
            assert "stdin is no terminal" in out and "rc=125" in out, out
            out = s.run(f"bothy shell {box} < /dev/null; echo rc=$?")
            assert "stdin is no terminal" in out and "rc=125" in out, out
            out = s.run(f"bothy shell {box} -- nothing-like-this; echo rc=$?")
            assert "rc=127" in out, out
            out = s.run("bothy shell no-such-box; echo rc=$?")
            assert "rc=125" in out and "bothy ls" in out, out

    @suite.case("screen: TERM, HUP, INT to the client: our terminal is as it was, the shell goes on")
    def _():
        with Screen(node) as s:
            before = s.modes()
            for signo in (signal.SIGTERM, signal.SIGHUP):
                enter(s, box)
                s.line("vim -u NONE -N")
                s.until(r"^~$")
                os.kill(client(s), signo)
                s.until(r"detached,")
                s.until(r"host%$")
                s.line("echo status=$?")
                s.until(f"^status={128 + signo}$")
                equal(s.modes(), before, f"modes after {signo.name}")
                equal(s.state("alternate_on"), "0", "the other screen")
            enter(s, box)
            s.line("sleep 1000")
            in_front(node, box, "sleep 1000")
            os.kill(client(s), signal.SIGINT)
            s.until(r"\^C\s*in>$")
            os.kill(client(s), signal.SIGSEGV)  # a crash of ours
            s.until(r"Segmentation fault")
            s.until(r"host%$")
            equal(s.modes(), before, "modes after a crash")

    @suite.case("screen: the window is closed: the shell goes on")
    def _():
        with Screen(node) as s:
            enter(s, box)
            s.line("KEPT=open; echo pid $$")
            s.until(r"^pid \d+$")
            gone = client(s)
        until("the client has ended", lambda: not os.path.exists(f"/proc/{gone}"))
        with Screen(node) as s:
            s.line(f"clear; bothy attach {box}")
            s.until(r"in>$")
            s.line("clear; echo state=$KEPT")
            s.until(r"^state=open$")
            s.line("exit")
            s.until(r"host%$")

    @suite.case("screen: a pipe into a terminal, and only looking")
    def _():
        with Screen(node) as s:
            x = node.start(box, ["bash", "--norc"], stdio="pty", stdin_open=True)
            out = s.run(f"echo 'echo sum $((40+2)); exit 3' | bothy attach {box} {x}; echo status=$?")
            assert "sum 42" in out and "status=3" in out, out
            y = node.start(box, "trap 'echo caught' INT; echo up; while :; do sleep 0.1; done", stdio="pty", stdin_open=True)
            s.line(f"clear; bothy attach --no-stdin {box} {y}; echo status=$?")
            s.until(r"^up$")
            s.keys("C-c")
            s.until(r"^status=130$")
            equal(node.process(box, y)["running"], True, "the command goes on")
            equal(b"caught" in node.output(box, y), False, "it was not told")
            node.ok("DELETE", node.at(box, y))

    @suite.case("screen: the client is stopped and continued")
    def _():
        with Screen(node) as s:
            before = s.modes()
            enter(s, box)
            os.kill(client(s), signal.SIGTSTP)
            s.until(r"Stopped.*bothy shell")
            equal(s.modes(), before, "modes while stopped")
            s.resize(90, 20)
            s.line("clear; fg")
            s.until(r"bothy shell")
            s.line("echo back; stty size")
            s.until(r"^back$")
            s.until(r"^20 90$")
            s.line("exit")
            s.until(r"host%$")

    @suite.case("screen: a paste of 300 KiB arrives whole")
    def _():
        with Screen(node) as s:
            enter(s, box)
            text = "".join(f"line {i} of a long paste, with some words to fill it up\n" for i in range(5000))
            s.line("stty -echo; cat > /tmp/pasted; stty echo; md5sum < /tmp/pasted")
            in_front(node, box, "cat")
            s.tmux("load-buffer", "-", text=text)
            s.tmux("paste-buffer", "-r")
            s.keys("C-d")
            s.until(r"^" + hashlib.md5(text.encode()).hexdigest(), 60)

    @suite.case("screen: output without end stops at Ctrl-C")
    def _():
        with Screen(node) as s:
            enter(s, box)
            s.line("yes flood")
            s.until(r"(?s)flood\nflood\nflood")
            time.sleep(2)
            s.keys("C-c")
            s.until(r"\^C\s*in>$", 60)
            s.line("clear; echo calm")
            s.until(r"^calm$")

    @suite.case("screen: attach to a command without a terminal: streams, Ctrl-C, its end")
    def _():
        with Screen(node) as s:
            x = node.start(box, "trap 'echo caught; exit 6' INT; echo out; echo err >&2; while :; do sleep 0.1; done")
            s.line(f"clear; bothy attach --all {box} {x} 2>/tmp/{s.name}; echo status=$?")
            s.until("^out$")
            s.keys("C-c")
            s.until("caught")
            s.until("^status=6$")
            equal(open(f"/tmp/{s.name}", encoding="utf-8").read(), "err\n", "stderr")
            os.unlink(f"/tmp/{s.name}")
            y = node.start(box, "cat; exit 1", stdin_open=True)
            out = s.run(f"printf 'a\\nb\\n' | bothy attach {box} {y}; echo status=$?")
            assert out.endswith("a\nb\nstatus=1"), out

    @suite.case("screen: a pipe into attach arrives whole while bothyd is killed")
    def _():
        lines = b"".join(b"line %06d\n" % n for n in range(60000))
        x = node.start(box, "head -c 3; echo; sha256sum; wc -c </dev/null", stdin_open=True)
        api = ("POST", f"/v1/sandboxes/{box}/processes/{x}/stdin")
        node.ok(*api, body=b"one")
        with subprocess.Popen([BUILD / "bin/bothy", "attach", "--all", box, str(x)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={**os.environ, "BOTHY_SOCKET": node.path}) as p:
            for n in range(0, len(lines), 60000):
                p.stdin.write(lines[n:n + 60000])
                p.stdin.flush()
                if n in (240000, 480000):
                    node.kill("bothyd")
                    node.restart("bothyd")
            out = p.communicate(timeout=60)[0].decode()
        equal(out, f"one\n{hashlib.sha256(lines).hexdigest()}  -\n0\n", "what the command read")

    @suite.case("screen: two pipes into one command both arrive whole")
    def _():
        x = node.start(box, "cat", stdin_open=True)
        words = [BUILD / "bin/bothy", "attach", box, str(x)]
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE,
                   "env": {**os.environ, "BOTHY_SOCKET": node.path}}
        wanted = b""
        with subprocess.Popen(words, **options) as one, subprocess.Popen(words, **options) as two:
            try:
                for n in range(4):
                    for p, name in ((one, b"one"), (two, b"two")):
                        p.stdin.write(b"%s %d\n" % (name, n))
                        p.stdin.flush()
                        wanted += b"%s %d\n" % (name, n)
                        until("the line arrives", lambda whole=wanted: node.output(box, x) == whole)
                two.stdin.close()
                equal(node.wait(box, x)["exit_code"], 0, "the end of the input arrives, too")
            finally:
                node.call("DELETE", node.at(box, x))  # else the attached would stay
            equal([p.wait(30) for p in (two, one)], [0, 0], "status")
            equal([p.stderr.read() for p in (two, one)], [b"", b""], "stderr")

    @suite.case("screen: bothyd is killed under a shell: it goes on by itself, or by attach")
    def _():
        with Screen(node) as s:
            before = s.modes()
            enter(s, box)
            s.line("KEPT=through; i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo tick $i; sleep 0.02; done")
            s.until(r"^tick ([2-9]\d|\d{3})$")  # 20 itself may have left the screen
            node.kill("bothyd")
            s.until(r"the connection is lost, trying again")
            node.restart("bothyd")
            s.until(r"^tick 300$", 60)
            s.line("echo state=$KEPT")
            s.until(r"^state=through$")
            ticks = [int(x.split()[1]) for x in s.show(history=True).split("\n") if x.startswith("tick ")]
            equal(ticks, list(range(1, 301)), "every line once and in order")
            s.line("exit")
            s.until(r"host%$")
            equal(s.modes(), before, "modes")

        with Screen(node, env={"BOTHY_PATIENCE": "1"}) as s:
            before = s.modes()
            enter(s, box)
            s.line("KEPT=again; echo is set")
            s.until(r"^is set$")  # a key that is on its way dies with bothyd
            node.kill("bothyd")
            s.until(r"did not come back")
            s.until(r"host%$")
            s.line("echo status=$?")
            s.until("^status=125$")
            equal(s.modes(), before, "modes")
            node.restart("bothyd")
            s.line(f"clear; bothy attach {box}")
            s.until(r"in>$")
            s.line("echo state=$KEPT")
            s.until(r"^state=again$")
            s.line("exit")
            s.until(r"host%$")

    @suite.case("screen: the sandbox is removed under a shell: it says so")
    def _():
        other = node.create(IMAGE)
        with Screen(node) as s:
            before = s.modes()
            enter(s, other)
            node.delete(other)
            s.until(r"host%$")
            s.line("echo status=$?")
            s.until(r"^status=(125|137)$")
            equal(s.modes(), before, "modes")

    node.delete(box)

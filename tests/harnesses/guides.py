"""Every command of the guide pages of harnesses: fenced sh blocks are run in one shell, in order; a text block behind one is what it prints;
a python, yaml or toml block behind the words `FILE`: is that file."""
import os
import pathlib
import re
import signal
import subprocess

from blocks import read_blocks
from harness import BUILD, SLOW, TOP, check

PAGES = ("python", "mini-swe-agent", "inspect-ai", "swe-rex-deployment", "uni-agent", "harbor")
FENCE = re.compile(r"^(?:`(?P<file>[\w./-]+)`:\n+)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
LIMIT = 600


def blocks(text):
    """(line, kind, file, text, expected output)"""
    found = []
    for m in FENCE.finditer(text):
        if m["kind"] == "text":
            found[-1][4] = m["text"]
        else:
            found.append([text.count("\n", 0, m.start()) + 1, m["kind"], m["file"], m["text"], None])
    return found


def matches(expected, printed):
    """… is anything."""
    parts = [re.escape(part) for part in expected.strip().split("…")]
    return re.fullmatch("[\\s\\S]*?".join(parts), printed.strip()) is not None


def run_page(place, page, more):
    """`more`: of its environment. Where its Python needs another /usr (sdk.words), so does its shell."""
    environment, before = {**place.environment, **more}, place.words[:-1]
    where = place.where / f"guide-{page}"
    where.mkdir()
    (where / "python").symlink_to(place.where / "source")
    (where / "tests").symlink_to(TOP / "tests")
    for line, kind, file, text, expected in blocks((TOP / "docs/guide" / f"{page}.md").read_text()):
        if file:
            (where / file).parent.mkdir(parents=True, exist_ok=True)
            (where / file).write_text(text)
        elif kind == "sh":
            done = subprocess.run([*before, "bash", "-euo", "pipefail", "-c", text], cwd=where, env=environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT * SLOW, check=False,
                                  preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            check(done.returncode == 0, f"line {line}: status {done.returncode}: {done.stdout[-2000:]}")
            check(expected is None or matches(expected, done.stdout), f"line {line}: printed\n{done.stdout[-2000:]}\ninstead of\n{expected}")
        else:
            check(False, f"line {line}: a {kind} block that is no file and that nothing runs")


def run_readme(place):
    """The example of python/README.md, on the image that it names, beside the directory that it uploads."""
    block, = (b for b in read_blocks((TOP / "python" / "README.md").read_text()) if b.kind == "python")
    subprocess.run([BUILD / "bin" / "bothy", "image", "pull", "--as", "debian:12", "oci:/mnt/images/debian:latest"], env=place.environment, check=True,
                   stdout=subprocess.DEVNULL)
    (place.where / "src").mkdir(exist_ok=True)
    (place.where / "src" / "file").write_text("a file\n")
    (place.where / "readme.py").write_text(block.text)
    said = place.python("readme.py")
    check("agent in /srv" in said.splitlines(), f"it printed {said}")


def cases(suite, place):
    @suite.case("the example of python/README.md")
    def _():
        run_readme(place)

    for page in PAGES:
        @suite.case(f"every command of docs/guide/{page}.md")
        def _(page=page):
            more = {"PYTHONPATH": os.environ.get("BOTHY_UNI_AGENT") or str(pathlib.Path(__file__).parent / "uni")} if page == "uni-agent" else {}
            run_page(place.of_harbor() if page == "harbor" else place, page, more)

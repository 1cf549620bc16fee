"""Fenced blocks of a document, for suites that execute them.

    ```sh        commands; a `text` block right behind them is what they print ("…" stands for anything)
    ```console   lines that begin with "$ " are commands, the others what they print
    ```yaml, ```json, ```python, …   a file if the words `FILE`: stand before it

Each kind of block of a page is run by a suite (RUN_BY). An HTML comment in front of a block, invisible to readers, says what its examples
take for granted, or why they are not run:

    <!-- before: bothy create --name hut debian -->
    <!-- not run: needs a registry -->"""
import dataclasses
import pathlib
import re
import subprocess
import tempfile

# The suite that runs each kind of block of a page; all blocks of other pages of docs/guide are run by the suite guides. tools/check-docs holds
# that no block is left out, tools/ci-select that a changed page selects these suites.
HARNESS = dict.fromkeys(("sh", "text", "python", "yaml", "toml", "json"), "harnesses")
RUN_BY = {
    "README.md": {"sh": "readme", "text": "readme", "console": "user", "python": "door/e2b/interpreter"},
    "python/README.md": {"python": "harnesses"},
    "docs/guide/code-run.md": {"sh": "code_run", "text": "code_run"},
    "docs/guide/docker.md": {"console": "user", "yaml": "user"},
    "docs/guide/e2b.md": dict.fromkeys(("sh", "yaml", "python", "js"), "door/e2b/interpreter"),
    "docs/guide/mcp.md": dict.fromkeys(("sh", "text", "json"), "door/mcp"),
    "docs/guide/swe-rex.md": {"sh": "door/swerex", "text": "door/swerex"},
    "docs/guide/kubernetes.md": {"yaml": "k8s", "text": "k8s"},
    "docs/guide/metrics.md": {"sh": "guides", "yaml": "metrics"},
    **{f"docs/guide/{page}.md": HARNESS for page in ("python", "mini-swe-agent", "inspect-ai", "swe-rex-deployment", "uni-agent", "harbor")},
}
GUIDES = dict.fromkeys(("sh", "console", "yaml", "json", "text"), "guides")

BLOCK = re.compile(r"^(?:<!-- (?P<word>before|not run): (?P<said>.*?) -->\n+)?(?:`(?P<file>[\w./-]+)`:\n+)?"
                   r"(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)


@dataclasses.dataclass
class Block:
    line: int
    kind: str
    file: str | None
    text: str
    before: str = ""        # commands that the page does not show
    skip: str = ""          # why it is not run
    prints: str | None = None


def read_blocks(text):
    found, end = [], 0
    for m in BLOCK.finditer(text):
        line = text.count("\n", 0, m.start("text"))
        between = text[end:m.start()].strip()
        end = m.end()
        if m["kind"] == "text" and found and found[-1].kind == "sh" and not between:
            found[-1].prints = m["text"]
            continue
        block = Block(line, m["kind"], m["file"], m["text"])
        if m["word"] == "before":
            block.before = m["said"]
        elif m["word"] == "not run":
            block.skip = m["said"]
        if block.kind == "console":
            lines = block.text.splitlines(keepends=True)
            block.text = "".join(line[2:] for line in lines if line.startswith("$ "))
            block.prints = "".join(line for line in lines if not line.startswith("$ "))
        found.append(block)
    return found


def suites_of_page(page):
    """Returns {kind of block: suite}."""
    return RUN_BY.get(page, GUIDES)


def environment_after(text, environment, where):
    """Runs commands in a shell and returns (status, output, environment), so that later programs have its variables."""
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", f"{text}\nenv -0 >{out.name}"], env=environment, cwd=where, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
        after = dict(word.split("=", 1) for word in out.read().decode().split("\0") if "=" in word)
    return done.returncode, done.stdout, after or environment


def config_error(text, where, bothyd):
    """A yaml block is a piece of bothy.yaml, which bothyd reads. Returns None, or what it says."""
    path = pathlib.Path(where, "bothy.yaml")
    path.write_text(text)
    done = subprocess.run([bothyd, "--config", path, "--print-config"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
    return None if done.returncode == 0 else done.stdout


def pattern(expected):
    """… alone on a line is any number of lines; inside a line it is anything of that line. Columns are as wide as the values of the day."""
    out = []
    for line in expected.splitlines():
        if line.strip() == "…":
            out.append(r"(?:.*\n)*?")
        else:
            out.append(".*".join(re.sub(r"(\\ )+", r"\\s+", re.escape(p)) for p in line.split("…")) + r"\s*\n")
    return "".join(out)


def prints(expected, printed):
    """Whether the output is what the page shows."""
    whole = printed if printed.endswith("\n") else printed + "\n"
    return re.fullmatch(pattern(expected), whole) is not None

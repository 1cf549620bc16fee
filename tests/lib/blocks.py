"""Fenced blocks of a document, for suites that execute them.

    ```sh        commands; a `text` block right behind them is what they print ("…" stands for anything)
    ```console   lines that begin with "$ " are commands, the others what they print
    ```yaml, ```json, ```python, …   a file if the words `FILE`: stand before it

An HTML comment in front of a block, invisible to readers, says what its examples take for granted, or why they are not run:

    <!-- before: bothy create --name hut debian -->
    <!-- not run: needs a registry -->"""
import dataclasses
import re

BLOCK = re.compile(r"^(?:<!-- (?P<word>before|not run): (?P<said>.*?) -->\n+)?(?:`(?P<file>[\w./-]+)`:\n+)?"
                   r"(?P<indent> *)```(?P<kind>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S)


@dataclasses.dataclass
class Block:
    line: int
    kind: str
    file: str | None
    text: str
    before: str = ""        # commands that nobody sees
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

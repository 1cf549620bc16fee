"""The tables of README.md: which targets there are, what they drive, and every parser of outside bytes."""
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
FILES_MAX = 300  # of one target's corpus
INPUT_MAX = 65536
CORPUS_MAX = 2 << 20  # bytes of all of them


def rows(heading):
    """The cells of the table below this heading."""
    text = (HERE / "README.md").read_text()
    part = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [x for x in part.splitlines() if x.startswith("|")]
    return [[c.strip() for c in x.strip("|").split("|")] for x in lines[2:]]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def files_of_targets():
    """Target to source files, relative to src."""
    return {quoted(row[0])[0]: quoted(row[1]) for row in rows("Targets")}


def targets():
    return sorted(files_of_targets())

"""Programs that use an SDK as it is published. Their cases are functions with @case (Python) or members of CASES (JavaScript); a case may need
those before it. A program runs the cases that BOTHY_CASES names, and prints a line of JSON for each: name, why it failed, ms."""
import json
import re
import subprocess
import time

from harness import SLOW


def names_of(program):
    text = program.read_text()
    return re.findall(r"^@case\ndef (\w+)\(", text, re.M) or re.findall(r"^  async (\w+)\(", text, re.M)


def chosen(suite, language, program):
    """Returns the names of the cases that --only leaves, with those before them."""
    names = names_of(program)
    return names[:max((n + 1 for n, name in enumerate(names) if suite.wants(f"{language}: {name}")), default=0)]


def run(suite, language, program, words, environment, count, seconds, text=None):
    """Runs the chosen cases and counts them. words: the whole command; count: how many cases the program has."""
    names = chosen(suite, language, program)
    p = subprocess.run(list(map(str, words)), env={**environment, "BOTHY_CASES": " ".join(names)}, input=text, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, text=True, timeout=seconds * SLOW, check=False)
    lines = [json.loads(line) for line in p.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        suite.tell(f"{language}: {line['name']}", time.monotonic() - line["ms"] / 1000, AssertionError(line["why"]) if line["why"] else None)
    ran = [line["name"] for line in lines]
    if ran != names or len(names_of(program)) != count:
        suite.tell(f"{language}: all cases are run", time.monotonic(), AssertionError(f"of {len(names_of(program))}, {count} expected, {ran} were run: {p.stderr[-600:]}"))

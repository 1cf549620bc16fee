"""A Dockerfile's instructions as a list: comments and continued lines, here-documents, variables. What is unknown is an error, not left out."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Mapping, Sequence

from ._errors import BothyError

HEREDOC = re.compile(r"(?<!\S)\d*<<(-?)(['\"]?)([A-Za-z_]\w*)\2")  # a word's beginning, as BuildKit has it: `1<<3` and `<<<` are the shell's
VARIABLE = re.compile(r"\\(.)|\$(?:(\w+)|\{(\w+)(?:(:[-+])([^}]*))?\})")
WORD = re.compile(r"(?:\\.|[^\s\"'\\]|\"(?:\\.|[^\"])*\"|'[^']*')+")
WITH_HEREDOC = ("RUN", "COPY", "ADD")


class DockerfileError(BothyError):
    """What the Dockerfile asks for cannot be done here; the message has the line."""


@dataclasses.dataclass(frozen=True)
class Heredoc:
    name: str
    text: str
    literal: bool
    """Its name was quoted: variables stay as they are."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    line: int
    name: str
    flags: Mapping[str, str]
    value: str
    heredocs: tuple[Heredoc, ...] = ()

    def wrong(self, why: str) -> DockerfileError:
        return DockerfileError(f"Dockerfile line {self.line}: {self.name}: {why}")

    @property
    def words(self) -> list[str] | None:
        """Of the form ["a", "b"]; None: it has another."""
        if not self.value.startswith("["):
            return None
        try:
            found = json.loads(self.value)
        except ValueError:
            return None
        return found if isinstance(found, list) and all(isinstance(one, str) for one in found) else None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """$name, ${name}, ${name:-other}, ${name:+other}; \\$ is a dollar."""
    def value(m: re.Match[str]) -> str:
        if m[1] is not None:
            return m[1] if m[1] in "$\\" else m[0]
        found, kind, other = variables.get(m[2] or m[3], ""), m[4], m[5] or ""
        if kind == ":+":
            return expand(other, variables) if found else ""
        return expand(other, variables) if kind == ":-" and not found else found
    return VARIABLE.sub(value, text)


def pairs(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """Of ENV: NAME=value…, or NAME value."""
    if "=" not in instruction.value.split(None, 1)[0]:
        name, _, value = instruction.value.partition(" ")
        return {name: expand(value.strip(), variables)}
    found = {}
    for word in WORD.findall(instruction.value):
        name, equals, value = word.partition("=")
        if not equals:
            raise instruction.wrong(f"{word!r} has no value")
        found[name] = _unquoted(value, variables)
    return found


def declared(instruction: Instruction, variables: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Of ARG: NAME=value…, each with those before it, or NAME, which has its value from before FROM."""
    found: dict[str, str] = {}
    for word in WORD.findall(instruction.value):
        name, equals, value = word.partition("=")
        if equals or name in before:
            found[name] = _unquoted(value, {**variables, **found}) if equals else before[name]
    return found


def _unquoted(value: str, variables: Mapping[str, str]) -> str:
    parts = re.findall(r"'([^']*)'|\"((?:\\.|[^\"])*)\"|([^'\"]+)", value)
    return "".join(single or expand(re.sub(r"\\([\"\\ ])", r"\1", double or plain), variables) for single, double, plain in parts)


def parse(text: str) -> Sequence[Instruction]:
    lines = text.splitlines()
    found: list[Instruction] = []
    at = 0
    while at < len(lines):
        first = at
        line = lines[at].strip()
        at += 1
        if not line or line.startswith("#"):
            continue
        while line.endswith("\\") and at < len(lines):
            more = lines[at]
            at += 1
            if more.strip() and not more.strip().startswith("#"):
                line = line[:-1] + (more.strip() if line[:-1].endswith(" ") else more.rstrip())
        name, _, value = line.partition(" ")
        heredocs, at = _heredocs(name.upper(), value, lines, at, first + 1)
        flags, value = _flags(value.strip())
        found.append(Instruction(first + 1, name.upper(), flags, value, heredocs))
    return found


def _heredocs(name: str, value: str, lines: list[str], at: int, number: int) -> tuple[tuple[Heredoc, ...], int]:
    found = []
    for dash, quote, mark in HEREDOC.findall(value) if name in WITH_HEREDOC else ():
        body = []
        while at < len(lines) and (lines[at].lstrip("\t") if dash else lines[at]) != mark:
            body.append(lines[at].lstrip("\t") if dash else lines[at])
            at += 1
        if at == len(lines):
            raise DockerfileError(f"Dockerfile line {number}: {name}: nothing ends <<{mark}")
        at += 1
        found.append(Heredoc(mark, "".join(f"{one}\n" for one in body), bool(quote)))
    return tuple(found), at


def _flags(value: str) -> tuple[dict[str, str], str]:
    flags = {}
    while value.startswith("--"):
        word, _, value = value.partition(" ")
        name, _, argument = word[2:].partition("=")
        flags[name] = argument
        value = value.lstrip()
    return flags, value


def split(value: str) -> list[str]:
    return shlex.split(value)

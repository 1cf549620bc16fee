"""Dockerfiles as the package reads them; without a node."""
import asyncio
import pathlib
import tempfile
import types
from unittest import mock

from bothy import NotFound, build, dockerfile
from bothy._context import Context
from harness import check, equal

TEXT = """# syntax=docker/dockerfile:1
ARG BASE=debian
FROM ${BASE}:12 AS only
ENV A=1 B="two words" C='$A' \\
    D=x\\ y
ENV OLD form of it
RUN echo one && \\
    # a comment between
    echo two
RUN <<EOF
echo $A
EOF
COPY --chown=1000:1000 --chmod=0640 <<-"END" a.txt /srv/
\tliteral $A
\tEND
CMD ["python3", "-m", "app"]
"""


def refused(text):
    try:
        instructions = list(dockerfile.parse(text))
        build.base_of(instructions)
        for one in instructions:
            if one.name == "ENV":
                dockerfile.pairs(one, {})
    except dockerfile.DockerfileError as e:
        return str(e)
    raise AssertionError(f"{text!r} was taken")


def built(text, **image_env):
    """The image that was asked for, and the environment that each RUN is given beside the image's."""
    sandbox, client = mock.AsyncMock(), mock.AsyncMock()
    sandbox.__aenter__.return_value = sandbox
    sandbox.exec.return_value = types.SimpleNamespace(ok=True)
    client.template.side_effect = NotFound(404, {})
    client.pull.return_value = types.SimpleNamespace(env=image_env, user="", cwd="/")
    client.create.return_value = sandbox
    with tempfile.TemporaryDirectory() as here:
        pathlib.Path(here, "Dockerfile").write_text(text)
        asyncio.run(build.build_template(client, "built", pathlib.Path(here)))
    return client.create.await_args.args[0], [call.kwargs["env"] for call in sandbox.exec.await_args_list]


def cases(suite):
    @suite.case("Dockerfiles: instructions, continued lines, here-documents, flags")
    def _():
        found = list(dockerfile.parse(TEXT))
        equal([i.name for i in found], ["ARG", "FROM", "ENV", "ENV", "RUN", "RUN", "COPY", "CMD"], "instructions")
        base, before, rest = build.base_of(found)
        equal((base, before, len(rest)), ("debian:12", {"BASE": "debian"}, 6), "base")
        equal(dockerfile.pairs(found[2], {"A": "0"}), {"A": "1", "B": "two words", "C": "$A", "D": "x y"}, "variables")
        equal(dockerfile.pairs(found[3], {}), {"OLD": "form of it"}, "the old form")
        check("one" in found[4].value and "two" in found[4].value and "comment" not in found[4].value, found[4].value)
        equal((found[5].heredocs[0].text, found[5].heredocs[0].literal, found[5].line), ("echo $A\n", False, 10), "a here-document")
        equal((dict(found[6].flags), found[6].heredocs[0].text, found[6].heredocs[0].literal),
              ({"chown": "1000:1000", "chmod": "0640"}, "literal $A\n", True), "flags and a literal one")
        equal(found[7].words, ["python3", "-m", "app"], "words")

    @suite.case("Dockerfiles: shifts and here-strings are no here-documents; an empty line does not end a continued one")
    def _():
        text = "FROM a\nRUN echo $((1<<3)) $((a<<b)) && cat <<<word\nRUN echo $((1 <<20))\nRUN one && \\\n\n    two\nRUN cat 3<<EOF\nx\nEOF\n"
        found = list(dockerfile.parse(text))
        equal([(i.name, len(i.heredocs)) for i in found], [("FROM", 0), ("RUN", 0), ("RUN", 0), ("RUN", 0), ("RUN", 1)], "instructions")
        equal(found[3].value.split(), ["one", "&&", "two"], "the continued line")

    @suite.case("Dockerfiles: variables with defaults and alternatives")
    def _():
        equal(dockerfile.expand("$A ${A} ${B:-none} ${A:+some} ${B:+some}|\\$A", {"A": "1"}), "1 1 none some |$A", "expanded")

    @suite.case("Dockerfiles: an ARG before FROM has its value behind it where it is declared again")
    def _():
        equal(built("ARG V=3.12\nFROM python:${V}\nRUN one\nARG V\nRUN two\n"), ("python:3.12", [{}, {"V": "3.12"}]), "declared again")
        equal(built("ARG V=1\nFROM a\nARG V=2\nRUN one\nARG V\nARG NEVER\nRUN two\n")[1], [{"V": "2"}, {"V": "1"}], "with a value, and without")
        equal(built('ARG A=1 B\nFROM a\nARG A B C="x $A"\nRUN one\n')[1], [{"A": "1", "C": "x 1"}], "several of them")
        equal(built("ARG V=1\nFROM a\nARG V\nENV W=$V\nENV V=3\nRUN one\n", V="2")[1], [{"V": "3", "W": "1"}], "over the image's, under ENV")

    @suite.case("Dockerfiles: what cannot be built says so, with its line")
    def _():
        for text, part in (("RUN x\n", "before FROM"), ("", "no FROM"), ("FROM a\nFROM b\n", "line 2"), ("FROM a\nRUN <<X\n", "nothing ends"),
                           ("FROM a\nENV A=1 B\n", "no value")):
            check(part in refused(text), refused(text))

    @suite.case("Dockerfiles: what COPY finds, and what .dockerignore takes away")
    def _():
        with tempfile.TemporaryDirectory() as here:
            for name in ("a.txt", "b.txt", "sub/c.txt", "sub/deep/d.log", "keep.log", "x.log"):
                path = pathlib.Path(here, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)
            pathlib.Path(here, ".dockerignore").write_text("# no logs\n*.log\n**/*.log\n!keep.log\n")
            context = Context(pathlib.Path(here))
            equal(context.sources("*.txt"), ["a.txt", "b.txt"], "a pattern")
            equal(context.sources("sub/"), ["sub"], "a directory")
            equal(context.sources("../etc/passwd"), [], "what is outside")
            equal([n for n in context.names() if n.endswith(".log")], ["keep.log"], "logs")

"""What the documents name exists: files by their paths, tests by their suite and words of their name."""
import re

from harness import TOP, check

DOCUMENTS = ("docs/security/threat-model.md", "SECURITY.md")


def paths(text):
    """`src/x/y.c` in backticks, and the targets of links."""
    for word in re.findall(r"`([^`\s]+)`", text):
        if re.match(r"(src|tests|tools|docs|deploy|api)/", word):
            yield word


def links(text, document):
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            yield (TOP / document).parent / target


def tests(text):
    """`suite` *words of a case*"""
    return re.findall(r"`([\w/]+)` \*([^*]+)\*", text)


def sources(suite):
    found = [p for p in (TOP / "tests" / suite).rglob("*") if p.is_file() and "corpus" not in p.parts and p.suffix in ("", ".py", ".c", ".sh")]
    return "\n".join(p.name + "\n" + p.read_text(errors="replace") for p in found)


def cases(suite):
    for document in DOCUMENTS:
        text = (TOP / document).read_text()

        @suite.case(f"documents: every file that {document} names is there")
        def _(text=text, document=document):
            named = [TOP / p for p in paths(text)] + list(links(text, document))
            check(len(named) > 1, "it names none")
            check(not (missing := [str(p) for p in named if not p.exists()]), f"missing: {missing}")

    @suite.case("documents: every test that the threat model names is there")
    def _():
        named = tests((TOP / DOCUMENTS[0]).read_text())
        check(len(named) > 30, f"it names {len(named)}")
        texts = {s: sources(s) for s, _ in named}
        missing = [f"{s}: {words}" for s, words in named if words not in texts[s]]
        check(not missing, f"missing: {missing}")

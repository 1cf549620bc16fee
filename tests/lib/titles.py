"""Titles of cases, read from the source of the functions that define them. A suite asks for them before it starts a node, so that
`--only` with the name of a case brings up what that case needs, and nothing else.

A title is a list of its fixed parts: "open reaches {what}, as the host" is ["open reaches ", ", as the host"]. Between two parts anything
may stand. Names of the module (`NAMES[2]`, `f"{ROWS} records"`) are put in; names of a function are not known.

    tests/lib/titles.py     checks itself with planted functions, and the gates of all suites"""
import ast
import functools
import inspect
import pathlib
import re
import sys
import types

TESTS = pathlib.Path(__file__).resolve().parents[1]
LIB = pathlib.Path(__file__).resolve().parent
LEAST = 8  # characters of fixed parts that make a text a part of a title with unknown parts
ANYTHING = ["", ""]
PLAIN = (ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Attribute, ast.Subscript, ast.BinOp, ast.Add, ast.Mod, ast.Mult, ast.FloorDiv,
         ast.JoinedStr, ast.FormattedValue, ast.Tuple)


def is_ours(path):
    path = pathlib.Path(path).resolve()
    return TESTS in path.parents and path.parent != LIB


def value_of(node, names):
    """Returns the value of an expression of the module's names without calls, else None."""
    if not all(isinstance(n, PLAIN) for n in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "title", "eval"), {"__builtins__": {}}, names)  # noqa: S307: the tests' own source
    except Exception:  # noqa: BLE001: a name of a function
        return None


def join(parts):
    """Joins lists of fixed parts: the last of one and the first of the next stand side by side."""
    whole = [""]
    for one in parts:
        whole[-1] += one[0]
        whole += one[1:]
    return whole


def title_of(node, names):
    known = value_of(node, names)
    if isinstance(known, str):
        return [known]
    if isinstance(node, ast.JoinedStr):
        return join(title_of(v, names) for v in node.values)
    if isinstance(node, ast.FormattedValue):
        text = value_of(ast.fix_missing_locations(ast.JoinedStr([node])), names)
        return [text] if text is not None else ANYTHING
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return join((title_of(node.left, names), title_of(node.right, names)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        base = title_of(node.func.value, names)
        return re.split(r"\{[^{}]*\}", base[0]) if len(base) == 1 else ANYTHING
    return ANYTHING


def bound_names(tree):
    """Names that a function binds itself: they hide those of its module."""
    bound = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    bound |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return bound - {name for n in ast.walk(tree) if isinstance(n, ast.Global) for name in n.names}


@functools.cache
def parsed(path):
    return ast.parse(pathlib.Path(path).read_text())


def tree_of(function):
    """Returns the syntax tree of a function or class."""
    first = inspect.getsourcelines(function)[1]
    for node in ast.walk(parsed(inspect.getsourcefile(function))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and min([node.lineno] + [d.lineno for d in node.decorator_list]) == first:
            return node
    raise OSError(f"no source of {function}")


def titles_of(function, seen=None):
    """Yields the titles of the cases that a function or class of the tests defines, by itself or by others that it names."""
    function, seen = inspect.unwrap(function), set() if seen is None else seen
    if function in seen:
        return
    try:
        tree = tree_of(function)
    except (OSError, TypeError):
        if seen:
            return  # a lambda, or a class that a function has made
        raise
    seen.add(function)
    hidden = bound_names(tree)
    names = {k: v for k, v in vars(sys.modules[function.__module__]).items() if k not in hidden}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and (isinstance(node.func, ast.Attribute) and node.func.attr in ("case", "tell") or
                                                         isinstance(node.func, ast.Name) and node.func.id == "case"):
            first = node.args[0]
            yield from (title_of(e, names) for e in ((first.body, first.orelse) if isinstance(first, ast.IfExp) else (first,)))
        elif isinstance(node, (ast.Name, ast.Attribute)):
            other = value_of(node, names)
            if isinstance(other, (types.FunctionType, type)) and is_ours(getattr(sys.modules.get(other.__module__), "__file__", None) or "/"):
                yield from titles_of(other, seen)


def likeness(title, text):
    """Returns how many characters of a text stand in fixed parts where it fits best into a title, -1 if it fits nowhere."""
    tokens = [c for n, part in enumerate(title) for c in ([None] if n else []) + list(part)]
    states = {at: 0 for at in range(len(tokens) + 1)}
    for c in text:
        after = {}
        for at, score in states.items():
            while at < len(tokens) and tokens[at] is None:
                after[at] = max(after.get(at, -1), score)
                at += 1
            if at < len(tokens) and tokens[at] == c:
                after[at + 1] = max(after.get(at + 1, -1), score + 1)
        states = after
    return max(states.values(), default=-1)


def may_have(title, text):
    """Says whether a case with this title may have a text in its name. True for a whole name; a text that stands between fixed parts
    alone is not found."""
    score = likeness(title, text)
    return score >= min(LEAST, sum(map(len, title)), (len(text) + 1) // 2) if score >= 0 else False


# ---- planted ----

ROWS, NAMES, KILLED = 100, ("one: first", "one: second"), "killed at {}"


def plant_inner(suite, name):
    @suite.case(f"{name} is seen by the inner one")
    def _():
        pass


def plant(suite, backend):
    for ROWS_OF in ("a",):
        suite.case(f"{ROWS} rows of {ROWS_OF}")(lambda: None)
        suite.case(NAMES[1])(lambda: None)
        suite.case(KILLED.format(ROWS_OF) + f" on {backend}")(lambda: None)
    plant_inner(suite, backend)


PLANTED = [("100 rows of a", True), ("rows of", True), ("100 rows of x and y", True), ("one: second", True), ("one: first", False),
           ("killed at claim.moved on oci", True), ("lled at cl", True), ("oci is seen by the inner one", True), ("the network step", False),
           ("rows", True), ("zzz", False), ("7 rows of a", False)]


def is_calls(node, *names):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def gates_without_case():
    """Yields (path, line, text) of each text that a gate asks for (`suite.wants("…")`) and that is no whole title of its suite."""
    for folder in sorted({p.parent for p in TESTS.rglob("run")} - {TESTS / "unit"}):
        files = [p for p in folder.iterdir() if p.is_file() and (p.suffix == ".py" or p.name == "run" and "python3" in p.read_text().split("\n")[0])]
        calls = [(p, node) for p in files for node in ast.walk(parsed(p)) if is_calls(node, "case", "attempt", "wants")]
        titles = [title_of(node.args[0], {}) for _, node in calls if node.func.attr != "wants" and node.args]
        for path, node in calls:
            for one in node.args if node.func.attr == "wants" else []:
                if isinstance(one, ast.Constant) and not any(re.fullmatch(".*".join(map(re.escape, t)), one.value) for t in titles if any(t)):
                    yield path, one.lineno, one.value


def main():
    global is_ours
    is_ours = lambda path: True  # noqa: E731: this folder's functions are left out else
    found, bad = list(titles_of(plant)), 0
    for text, wanted in PLANTED:
        if any(may_have(title, text) for title in found) != wanted:
            print(f"titles: {text!r} was judged wrongly by {found}")
            bad += 1
    for path, line, text in gates_without_case():
        print(f"{path.relative_to(TESTS.parent)}:{line}: no case is called {text!r}: name it whole, or ask wants_any() for the function that defines it")
        bad += 1
    print(f"titles: {len(PLANTED)} planted texts, {bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Cells by e2b-code-interpreter of PyPI: client.py FILE; the plot's PNG goes to FILE. A line of JSON for each case."""
import base64
import json
import os
import pathlib
import sys
import time

import cells
from e2b_code_interpreter import Sandbox

CASES = []


def case(function):
    CASES.append(function)
    return function


def check(condition, what):
    if not condition:
        raise AssertionError(str(what)[:400])


@case
def cell_value(sb):
    e = sb.run_code("x = 20\nx + 1")
    check(e.text == "21" and e.error is None, e)
    check(sb.run_code("x * 2").text == "40", "the state is lost")


@case
def cell_output(sb):
    out, err = [], []
    e = sb.run_code("import sys\nprint('one')\nprint('zwölf', file=sys.stderr)", on_stdout=lambda m: out.append(m.line), on_stderr=lambda m: err.append(m.line))
    check("".join(out) == "one\n" and "".join(err) == "zwölf\n", (out, err))
    check("".join(e.logs.stdout) == "one\n", e.logs)


@case
def cell_error(sb):
    e = sb.run_code("def f():\n    1/0\nf()")
    check(e.error and e.error.name == "ZeroDivisionError" and "division" in e.error.value and "f()" in e.error.traceback, e.error)


@case
def cell_plot(sb):
    e = sb.run_code(cells.PLOT)
    check(e.error is None and e.results, e)
    png = base64.b64decode(e.results[0].png)
    check(png.startswith(b"\x89PNG\r\n\x1a\n") and len(png) > 5000, f"{len(png)} bytes")
    pathlib.Path(sys.argv[1]).write_bytes(png)


@case
def cell_chart(sb):
    chart = sb.run_code(cells.BARS).results[0].chart
    check(chart and chart.type.value == "bar" and chart.title == "bars" and len(chart.elements) == 3, chart)


@case
def cell_table(sb):
    e = sb.run_code(cells.TABLE)
    check("<table" in (e.results[0].html or ""), e.results[0])


@case
def cell_file(sb):
    """What a cell writes, the files have; as the same user."""
    sb.run_code("open('/tmp/made', 'w').write('by a cell')")
    check(sb.files.read("/tmp/made") == "by a cell", "another text")
    check(sb.run_code("import getpass; getpass.getuser()").text == "user", "another user")


@case
def cell_context(sb):
    context = sb.create_code_context(language="python", cwd="/tmp")
    sb.run_code("y = 1", context=context)
    check(sb.run_code("'y' in globals()").text == "False", "contexts share their state")
    check(sb.run_code("import os; os.getcwd()", context=context).text == "/tmp", "another directory")
    if hasattr(sb, "list_code_contexts"):
        check(context.id in [c.id for c in sb.list_code_contexts()], "not listed")
        sb.restart_code_context(context)
        check(sb.run_code("'y' in globals()", context=context).text == "False", "the state outlived a restart")
        sb.remove_code_context(context)
        check(context.id not in [c.id for c in sb.list_code_contexts()], "listed after its end")


@case
def cell_javascript(sb):
    e = sb.run_code("console.log([1, 2, 3].map(x => x * 2).join())", language="javascript")
    check("".join(e.logs.stdout) == "2,4,6\n", e)


@case
def cell_bash(sb):
    e = sb.run_code("echo $((6 * 7)); echo oops >&2", language="bash")
    check("".join(e.logs.stdout) == "42\n" and "".join(e.logs.stderr) == "oops\n", e)


@case
def cell_environment(sb):
    check(sb.run_code("import os; os.environ['GIVEN']", envs={"GIVEN": "by the cell"}).text == "by the cell", "another value")


@case
def cell_timeout(sb):
    began = time.monotonic()
    try:
        sb.run_code("import time; time.sleep(60)", timeout=2)
        raise AssertionError("it came to an end")
    except Exception as e:
        check("imed out" in str(e) or "imeout" in type(e).__name__, repr(e))
    check(time.monotonic() - began < 10, "it took too long")
    check(sb.run_code("1 + 1").text == "2", "nothing runs after it")


def main():
    sb = Sandbox.create(timeout=300)
    try:
        for function in CASES:
            if function.__name__ not in os.environ["BOTHY_CASES"].split():
                continue
            began, why = time.monotonic(), None
            try:
                function(sb)
            except Exception as e:
                why = f"{type(e).__name__}: {str(e)[:400]}"
            print(json.dumps({"name": function.__name__, "why": why, "ms": round((time.monotonic() - began) * 1000)}), flush=True)
    finally:
        sb.kill()


main()

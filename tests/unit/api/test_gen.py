"""What has no C form is refused with its place, never skipped."""
import pathlib
import subprocess
import sys
import tempfile

HEAD = """openapi: 3.0.3
x-decode: all
info: {title: t, version: "1"}
"""


def schema(text, more=""):
    return HEAD + more + "components:\n  schemas:\n    A:\n      type: object\n" + text


REFUSED = {
    "an unknown key of a schema": (
        schema("      properties:\n        a: {type: string, uniqueItems: true}\n"),
        "A.a: 'uniqueItems'",
    ),
    "a pattern without a length": (
        schema("      properties:\n        a: {type: string, pattern: '^a$'}\n"),
        "needs a maxLength",
    ),
    "a pattern of another dialect": (
        schema("      properties:\n        a: {type: string, maxLength: 3, pattern: '\\d'}\n"),
        "common subset",
    ),
    "a schema within itself": (
        schema("      properties:\n        a: {$ref: '#/components/schemas/A'}\n"),
        "contains itself",
    ),
    "a reference to nowhere": (
        schema("      properties:\n        a: {$ref: '#/components/schemas/B'}\n"),
        "leads nowhere",
    ),
    "a reference out of the file": (
        schema("      properties:\n        a: {$ref: 'other.yaml#/A'}\n"),
        "leads out of the file",
    ),
    "an array of arrays": (
        schema("      properties:\n        a: {type: array, items: {type: array}}\n"),
        "array of arrays",
    ),
    "a map to numbers": (
        schema("      properties:\n        a: {type: object, additionalProperties: {type: integer}}\n"),
        "of maps",
    ),
    "a choice of objects": (
        schema("      properties:\n        a: {oneOf: [{type: object}, {type: string}]}\n"),
        "of oneOf",
    ),
    "a required member that is not there": (
        schema("      required: [b]\n      properties:\n        a: {type: string}\n"),
        "requires b",
    ),
    "a default that is no value": (
        schema("      properties:\n        a: {type: string, enum: [x], default: y}\n"),
        "default 'y'",
    ),
    "an unknown mode": (schema("      properties: {}\n", "x-mode: relaxed\n"), "x-mode 'relaxed'"),
    "an unknown role": (
        HEAD + "paths: {/x: {get: {operationId: x, x-role: king, responses: {}}}}\n",
        "x-role 'king'",
    ),
    "an operation without a name": (
        HEAD + "paths: {/x: {get: {responses: {}}}}\n",
        "no operationId",
    ),
    "an operation twice": (
        HEAD + "paths: {/x: {get: {operationId: x}}, /y: {get: {operationId: x}}}\n",
        "is there twice",
    ),
    "a path parameter nobody describes": (
        HEAD + "paths: {'/x/{id}': {get: {operationId: x}}}\n",
        "parameter id",
    ),
}


def run(gen, text):
    with tempfile.TemporaryDirectory() as d:
        file = pathlib.Path(d) / "t.yaml"
        file.write_text(text)
        r = subprocess.run([sys.executable, gen, file, d], capture_output=True, text=True, check=False)
        return r.returncode, r.stderr


def main():
    bad = 0
    for what, (text, expected) in REFUSED.items():
        code, err = run(sys.argv[1], text)
        ok = code == 1 and expected in err and "Traceback" not in err
        print(("ok   " if ok else "FAIL ") + what)
        if not ok:
            print(err)
            bad += 1
    code, err = run(sys.argv[1], schema("      properties:\n        a: {type: string}\n"))
    if code:
        print("FAIL a plain file is taken\n" + err)
        bad += 1
    return 1 if bad else 0


sys.exit(main())

"""Virtual environments with the project's own package, python/bothy, as its users get it: built as a wheel and installed.

What it needs besides comes from $BOTHY_CACHE/sdk (door/e2b/sdk.py), so that a second run needs no network."""
import pathlib
import shutil
import subprocess
import sys

from harness import TOP

sys.path.insert(0, str(TOP / "tests" / "door" / "e2b"))

import sdk  # noqa: E402

PACKAGE = TOP / "python"
QUIET = ["--quiet", "--disable-pip-version-check"]


def build_wheel(where):
    """python/ as a wheel, made of a copy: what a build leaves behind is not the tree's."""
    source = where / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "dist", ".*"))
    subprocess.run([sdk.installed("py-tools") / "bin/python", "-m", "pip", "wheel", *QUIET, "--no-build-isolation", "--no-deps", "--no-index",
                    "-w", where, source], check=True)
    return next(where.glob("*.whl"))


def wheels():
    """A directory with what building and installing the package takes: pip's find-links."""
    house = sdk.CACHE / "wheels-of-python"
    if not (house / ".complete").exists():
        subprocess.run([sdk.installed("py-tools") / "bin/python", "-m", "pip", "download", *QUIET, "-d", house, "httpx>=0.25,<1", "hatchling"],
                       check=True)
        (house / ".complete").touch()
    return house


def pip_settings():
    """Of the environment: `pip install ./python` as the guides have it, without the network."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels()), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}


def clean(where, wheel):
    """A virtual environment with the wheel and what it asks for, and nothing else; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", where], check=True)
    subprocess.run([sdk.installed("py-tools") / "bin/python", "-m", "pip", "--python", where / "bin/python", "install", *QUIET, "--no-index",
                    "--find-links", wheels(), wheel], check=True)
    return where / "bin/python"


def beside(where, name, wheel):
    """A fresh virtual environment that also sees the packages of sdk's py-NAME, pip and their programs among them; the words that run its
    Python. The wheel is in the fresh one."""
    known = sdk.installed(f"py-{name}")
    interpreter = sdk.words(known, "python")
    subprocess.run([*interpreter[:-1], str((known / "bin/python").resolve()) if len(interpreter) == 1 else "/usr/bin/python3", "-m", "venv",
                    "--without-pip", where], check=True)
    inside = next((where / "lib").glob("python3*")) / "site-packages"
    (inside / "known.pth").write_text(f"{next((known / 'lib').glob('python3*')) / 'site-packages'}\n")
    words = [*interpreter[:-1], str(where / "bin/python")]
    subprocess.run([*words, "-m", "pip", "install", *QUIET, "--no-index", "--no-deps", wheel], check=True)
    for program in (known / "bin").iterdir():
        first, _, rest = program.read_bytes().partition(b"\n") if program.is_file() else (b"", b"", b"")
        if first.startswith(b"#!") and b"python" in first and not (where / "bin" / program.name).exists():
            copy = where / "bin" / program.name
            copy.write_bytes(f"#!{where}/bin/python\n".encode() + rest)
            copy.chmod(0o755)
    return words

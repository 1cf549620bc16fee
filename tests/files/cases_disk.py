"""A full disk: a clean error, what was there stays, and afterwards everything works again."""
from common import Files, member, noise, tar
from harness import Node, Skip, check, equal, expect_error

MIB = 1 << 20


def run(suite):
    if not suite.wants("a full disk: write", "a full disk: archive"):
        return
    if suite.args.backend != "oci":
        for name in ("a full disk: write", "a full disk: archive"):
            @suite.case(name)
            def _():
                raise Skip("the disk of sandboxes is the engine's, and not ours to fill")
        return
    with Node(images="busybox", pool="1:1", disk="512M") as node:
        f = Files(node, node.create())

        @suite.case("a full disk: write")
        def _():
            f.write("/kept", b"kept")
            a = f.stream_up("", "/kept", noise(600 * MIB))
            expect_error(a, 507, "disk_full")
            equal(f.read("/kept"), b"kept", "the file it would have replaced")
            check(".bothy-" not in f.shell("ls -A /"), "a temporary file is left")
            f.write("/after", b"x" * MIB)

        @suite.case("a full disk: archive")
        def _():
            f.shell("dd if=/dev/zero of=/fill bs=1M 2>/dev/null; dd if=/dev/zero of=/fill2 bs=4k 2>/dev/null; true")
            a = f.unpack("/tmp", tar(*[member(f"d/f{i}", b"y" * MIB) for i in range(60)]))
            expect_error(a, 507, "disk_full")
            check(".bothy-" not in f.shell("ls -A /tmp /tmp/d 2>/dev/null; true"), "a temporary file is left")
            f.shell("rm /fill /fill2")
            equal(f.unpack("/tmp", tar(*[member(f"d/f{i}", b"y" * MIB) for i in range(60)])).status, 200, "afterwards")
            equal(f.read("/tmp/d/f59"), b"y" * MIB, "content")

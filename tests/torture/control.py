"""The test's side of shim.c: a node whose two programs run with it, and the file by which a call is told to fail."""
import mmap
import pathlib
import shutil
import struct

from harness import BUILD, Node

CALL, STORE, FRAME, SPINE = 1, 2, 3, 4
# The shim stands before the sanitizer's own functions. Leaks are looked for at an end that these programs do not have.
ASAN = "verify_asan_link_order=0:detect_leaks=0:handle_segv=1"
UBSAN = "print_stacktrace=1"
FIELDS = struct.Struct("=IIIIIIiI32s16s128s")
# Threads that are on no request's path: what they do is their own, and happens when it likes.
SKIP = {"bothyd": "|keeper|image|", "warden": "|refill|layers|trash|"}


class Control:
    def __init__(self, path, skip):
        path.write_bytes(bytes(4096))
        path.chmod(0o666)
        with open(path, "r+b") as f:
            self.page = mmap.mmap(f.fileno(), 4096)
        self.skip = skip.encode()

    def arm(self, sort, target, choice=0):
        """From now on; target 0 counts only."""
        self.page[:FIELDS.size] = FIELDS.pack(0, sort, target, choice, 0, 0, 0, 0, b"", b"", self.skip)
        self.page[:4] = struct.pack("=I", 1)

    def disarm(self):
        """{count, fired, call, errno, ways, thread} of what was armed."""
        self.page[:4] = struct.pack("=I", 0)
        _, _, _, _, count, fired, errnum, ways, call, thread, _ = FIELDS.unpack(self.page[:FIELDS.size])
        return {"count": count, "fired": bool(fired), "errno": errnum, "ways": ways,
                "call": call.split(b"\0")[0].decode(), "thread": thread.split(b"\0")[0].decode()}

    @property
    def count(self):
        return struct.unpack("=I", self.page[16:20])[0]


class TorturedNode(Node):
    """Both programs with the shim; control["bothyd"] and control["warden"]."""

    def __init__(self, **options):
        shim = "tests/torture/shim.so"
        super().__init__(env=f"LD_PRELOAD=/mnt/build/{shim} TORTURE_BOTHYD=/mnt/run/torture.bothyd ASAN_OPTIONS={ASAN} UBSAN_OPTIONS={UBSAN}", **options)
        self.shim = (options.get("build") or BUILD) / shim

    def environment(self):
        return {**super().environment(), "LD_PRELOAD": str(self.shim), "TORTURE_WARDEN": f"{self.dir}/run/torture.warden",
                "ASAN_OPTIONS": ASAN, "UBSAN_OPTIONS": UBSAN}

    def sanitizer(self):
        """What a sanitizer has said so far, of either program."""
        return [line for p in self.control for line in self.log(p).splitlines() if "Sanitizer" in line or "runtime error" in line]

    def __enter__(self):
        pathlib.Path(self.dir, "run").mkdir()
        self.control = {p: Control(pathlib.Path(self.dir, "run", f"torture.{p}"), SKIP[p]) for p in ("bothyd", "warden")}
        for p in self.control:
            shutil.chown(f"{self.dir}/run/torture.{p}", "bothy")
        return super().__enter__()

"""A file system that the test owns: an ext4 in a file, which it fills, freezes, breaks and mends, under bothyd's state or the warden's.

    with on_a_disk(node) as disk:      bothyd's state has moved there, and bothyd runs on it
        disk.fill(leave=12 << 20)
        ...
        disk.empty()

A mount namespace that was made while it was mounted holds it: the warden's state is put on one before the warden starts
(Disk(node, "warden")), bothyd's when the warden runs."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import time

from harness import Skip


def run(*words, **options):
    return subprocess.run([str(w) for w in words], check=options.pop("check", True), capture_output=True, text=True, **options)


class Disk:
    def __init__(self, node, part="bothyd", size="200M"):
        self.at, self.image, self.part = f"{node.dir}/{part}", f"{node.dir}/{part}-state.img", part
        run("truncate", "-s", size, self.image)
        run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1", self.image)
        if os.path.isdir(self.at):  # what is there already goes along
            with contextlib.ExitStack() as stack:
                aside = f"{node.dir}/{part}-aside"
                os.mkdir(aside)
                stack.callback(os.rmdir, aside)
                run("mount", "-o", "loop", self.image, aside)
                stack.callback(run, "umount", aside)
                run("cp", "-a", f"{self.at}/.", f"{aside}/")
        else:
            os.mkdir(self.at)
        self.mount()

    def mount(self, options="rw"):
        run("mount", "-o", f"loop,nosuid,nodev,errors=remount-ro,{options}", self.image, self.at)
        if "rw" not in options.split(","):
            return
        if self.part == "bothyd":
            shutil.chown(self.at, "bothy", "bothy")
        os.chmod(self.at, 0o700)
        shutil.rmtree(f"{self.at}/lost+found", ignore_errors=True)

    def fill(self, leave=0):
        """Every block but the last ones, of which as many bytes are free. Again: what has become free since."""
        with open(f"{self.at}/filler", "ab", buffering=0) as f:
            with contextlib.suppress(OSError):
                os.posix_fallocate(f.fileno(), f.tell(), shutil.disk_usage(self.at).free - leave - (1 << 20))
            f.seek(0, os.SEEK_END)
            with contextlib.suppress(OSError):
                while not leave:
                    f.write(b"x" * 4096)

    def empty(self):
        os.unlink(f"{self.at}/filler")

    @contextlib.contextmanager
    def full(self, leave=0):
        self.fill(leave)
        try:
            yield
        finally:
            self.empty()

    @contextlib.contextmanager
    def frozen(self):
        """Whoever writes waits."""
        run("fsfreeze", "--freeze", self.at)
        try:
            yield
        finally:
            run("fsfreeze", "--unfreeze", self.at)

    def fail(self):
        """The file system finds an error in itself and is read-only from then on, also for who has files open: the one way in
        which that happens under a program that runs (a remount is refused)."""
        device = os.path.basename(run("findmnt", "-no", "SOURCE", self.at).stdout.strip())
        trigger = pathlib.Path("/sys/fs/ext4", device, "trigger_fs_error")
        if not trigger.exists():
            raise Skip("this kernel has no trigger_fs_error for ext4")
        run("sync", "-f", self.at)
        trigger.write_text("a test\n")

    def mend(self):
        """Nobody has it open: it is checked and mounted for writing. It is a copy that is: mount namespaces of strangers, which
        were made meanwhile, may hold the broken one."""
        self.umount()
        mended = f"{self.image}.mended"
        run("cp", "--sparse=always", self.image, mended)
        os.replace(mended, self.image)
        r = run("e2fsck", "-fy", self.image, check=False)
        if r.returncode > 1:
            raise AssertionError(f"e2fsck: {r.stdout}{r.stderr}")
        self.mount()

    def umount(self):
        for _ in range(300):
            if run("umount", self.at, check=False).returncode == 0:
                return
            time.sleep(0.05)
        run("umount", "-l", self.at, check=False)


@contextlib.contextmanager
def on_a_disk(node, size="200M"):
    """Moves the state of a running node's bothyd to a disk of its own, until the end of the block."""
    node.kill("bothyd")
    disk = Disk(node, size=size)
    try:
        node.restart("bothyd")
        yield disk
    finally:
        node.kill("bothyd")
        disk.umount()

"""A guest under QEMU without KVM: its disks, its serial line, its end.

Root is the cache's disk, whose changes are thrown away; the second disk (virtio-blk) has the tree under test, is made for each
guest and keeps what is written, also when QEMU is killed. Two disks of one sort are found in any order: the root is the only NVMe."""
import contextlib
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from harness import BUILD, TOP

CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev"))
GUESTS = CACHE / "guests"
ARGUMENTS = "console=ttyS0 root=/dev/nvme0n1 rw quiet panic=-1 mitigations=off audit=0 random.trust_cpu=on tsc=unstable clocksource=acpi_pm no_timer_check"
PROGRAMS = ("cli/bothy", "daemon/bothyd", "warden/bothy-warden", "init/bothy-init", "kit/bothy-kit", "unpack/bothy-unpack",
            "backend/bothy-fake-node")
# Enters a mount namespace in which the Debian 13 tree sees the cache and the guest's directory; the process stays the same.
ENTER = 'mount --make-rprivate / && mount --bind "$1" "$0/srv" && mount --bind "$2" "$0/mnt" && shift 2 && exec setpriv --pdeathsig KILL chroot "$0" "$@"'


def make_cache():
    subprocess.run([TOP / "tools" / "guests", GUESTS], check=True)
    subprocess.run([TOP / "tools" / "test-images", CACHE / "images"], check=True)


def kernels():
    """{name: version} of the cache."""
    return {d.name: (d / "version").read_text().strip() for d in sorted((GUESTS / "kernels").iterdir()) if d.suffix != ".part"}


def copy_build(build, into):
    """Programs without their debugging part, and what the suites want of the tests."""
    for name in PROGRAMS:
        (into / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "-o", into / "src" / name, build / "src" / name], check=True)
        shutil.copymode(build / "src" / name, into / "src" / name)
    for name in ("seccomp.json", "seccomp.bpf"):
        shutil.copy2(build / "src" / "warden" / name, into / "src" / "warden" / name)
    shutil.copytree(build / "bin", into / "bin", symlinks=True)
    for program in (build / "tests").rglob("*"):
        if program.is_file() and os.access(program, os.X_OK) and program.parts[-2] not in ("unit", "fuzz") and ".p" not in program.parent.suffix:
            (into / program.relative_to(build)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(program, into / program.relative_to(build))
    (into / "build.ninja").touch()


def make_tree(into):
    """The tree under test, as a guest finds it below /bothy/top."""
    ignore = shutil.ignore_patterns("__pycache__", "corpus")
    for name in ("tests", "tools", "deploy", "api"):
        shutil.copytree(TOP / name, into / "top" / name, symlinks=True, ignore=ignore)
    for name in ("SECURITY.md", "ARCHITECTURE.md"):
        shutil.copy2(TOP / name, into / "top" / name)
    copy_build(BUILD, into / "top" / "build")
    copy_build(TOP / "build-faults", into / "top" / "build-faults")
    (into / "cache").mkdir()
    # Not what somebody is making there: a tree with a /proc mounted in it never ends.
    shutil.copytree(CACHE / "images", into / "cache" / "images", symlinks=True, ignore=shutil.ignore_patterns("agent*", "debian", ".*", "*.part", "tmp*"))
    shutil.copy2(TOP / "tests/kernels/inside/init", into / "init")


class Tree:
    """The tree under test, staged once for all guests of a run."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bothy-guests-"))
        self.lock = threading.Lock()
        make_tree(self.dir / "stage")

    def disk(self, name, job, files=None, size=12 << 30):
        """A second disk with this job and these files; one is made at a time."""
        files = {"job.json": json.dumps({"nonce": name, **job}), **(files or {})}
        with self.lock:
            for path, text in files.items():
                (self.dir / "stage" / path).parent.mkdir(exist_ok=True)
                (self.dir / "stage" / path).write_text(text)
            try:
                return self.make_disk(self.dir / "stage", self.dir / f"{name}.img", size)
            finally:
                for path in files:
                    (self.dir / "stage" / path).unlink()

    @staticmethod
    def make_disk(stage, image, size):
        image.unlink(missing_ok=True)
        with open(image, "wb") as f:
            f.truncate(size)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", stage, image], check=True)
        return image

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)


class Lost(AssertionError):
    """The guest ended, or said nothing for too long."""


class Guest:
    def __init__(self, kernel, disk, memory=2048, cpus=2, init="/vminit", log=None, append=""):
        self.kernel, self.disk, self.memory, self.cpus, self.init, self.append = kernel, pathlib.Path(disk), memory, cpus, init, append
        self.log = open(log or self.disk.with_suffix(".log"), "ab")
        self.lines, self.qemu = queue.Queue(), None

    def command(self):
        return ["qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(self.cpus), "-m", str(self.memory),
                "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
                "-kernel", f"/srv/kernels/{self.kernel}/vmlinuz", "-append", f"{ARGUMENTS} init={self.init} {self.append}",
                "-drive", "file=/srv/root.img,if=none,id=r,format=raw,snapshot=on,cache=unsafe", "-device", "nvme,drive=r,serial=root",
                "-drive", f"file=/mnt/{self.disk.name},if=none,id=c,format=raw,cache=unsafe", "-device", "virtio-blk-pci,drive=c"]

    def __enter__(self):
        self.qemu = subprocess.Popen(["unshare", "--mount", "sh", "-c", ENTER, GUESTS / "qemu", GUESTS, self.disk.parent, *self.command()],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        threading.Thread(target=self.read, args=(self.qemu.stdout,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.cut()
        self.log.close()

    def read(self, stream):
        """Whole lines only: what a cut left half said was not said."""
        for raw in stream:
            with contextlib.suppress(ValueError):
                self.log.write(raw)
                self.log.flush()
            if raw.endswith(b"\n"):
                self.lines.put(raw.decode(errors="replace").rstrip("\r\n"))
        self.lines.put(None)

    def cut(self):
        """Power off: what the guest had not written is gone."""
        if self.qemu.poll() is None:
            self.qemu.send_signal(signal.SIGKILL)
        self.qemu.wait()

    def told(self, seconds):
        """Each line until the guest ends; Lost after this many seconds in all."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self.lines.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise Lost(f"the guest did not end in {seconds} s; its log is {self.log.name}") from None
            if line is None:
                return
            yield line

    def events(self, seconds):
        """(kind, data) for the guest's own lines, ("line", text) for what its suites print."""
        for line in self.told(seconds):
            kind, _, rest = line.partition("guest: ")[2].partition(" ")
            if line.startswith("guest: ") and rest.startswith("{"):
                yield kind, json.loads(rest)
            else:
                yield "line", line

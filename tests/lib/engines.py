"""Container engines of a test's own: a dockerd with its containerd, and a rootless Podman. Never the machine's.

    with engines.Dockerd("busybox") as engine:
        engine.url               # unix:/…/docker.sock
        engine.call("GET", "/info")

Each has its own directory, socket and cgroup, no bridge and no firewall rules, and takes all of it away again, also
containers that a run which was cut off has left."""
import contextlib
import http.client
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from watch import Watch

CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev"))
PODMAN = CACHE / "podman"  # tools/podman
PODMAN_UID = 64500  # of nobody; its range of ids lies behind the slots' and the rivals'
PODMAN_IDS = 0x70000000


def make_archive(image, directory, layout=None):
    """What `docker load` and `ctr images import` take, of an OCI layout; decompressed first: not everybody knows zstd."""
    plain, archive = directory / f"{image}.plain", directory / f"{image}.tar"
    copy = ["skopeo", "--insecure-policy", "copy", "-q"]
    subprocess.run([*copy, "--dest-decompress", f"oci:{layout or CACHE / 'images' / image}:latest", f"dir:{plain}"], check=True)
    subprocess.run([*copy, f"dir:{plain}", f"docker-archive:{archive}:docker.io/library/{image}:latest"], check=True)
    shutil.rmtree(plain)
    return archive


class Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("engine", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Engine:
    """What both have: a directory, daemons with their logs, the API on a socket, images out of the cache."""
    name = ""

    def __init__(self, *images, cgroup=None):
        self.images, self.cgroup = images, cgroup or f"/bothy-{self.name}-{os.getpid()}"
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"bothy-{self.name}-"))
        self.dir.chmod(0o755)
        self.daemons = []

    def __enter__(self):
        try:
            self.start()
            for image in self.images:
                self.load(image)
        except BaseException:
            self.__exit__()
            raise
        return self

    @property
    def socket(self):
        return self.dir / "docker.sock"

    @property
    def url(self):
        return f"unix:{self.socket}"

    def call(self, method, path, body=None, timeout=120):
        """Status and bytes of an answer; a body that is no bytes goes as JSON."""
        connection = Connection(self.socket, timeout)
        try:
            kind = "application/json" if not isinstance(body, (bytes, type(None))) and not hasattr(body, "read") else "application/x-tar"
            data = json.dumps(body) if kind == "application/json" else body
            connection.request(method, path, data, {"Content-Type": kind} if body is not None else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ok(self, method, path, body=None):
        status, answer = self.call(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{self.name}: {method} {path}: {status} {answer[:500]!r}")
        return json.loads(answer) if answer else None

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.call("GET", "/_ping", timeout=5)[0] == 200
        return False

    def daemon(self, *words, **options):
        with (self.dir / f"{pathlib.Path(str(words[0])).name}.log").open("ab") as log:
            self.daemons.append(subprocess.Popen([str(w) for w in words], stdout=log, stderr=log,
                                                 stdin=subprocess.DEVNULL, start_new_session=True, **options))

    def wait(self, ready, seconds=60):
        limit = Watch(seconds)
        while not ready():
            if limit.over() or any(d.poll() is not None for d in self.daemons):
                for log in self.dir.glob("*.log"):
                    print(log.read_text(errors="replace")[-2000:], file=sys.stderr)
                raise RuntimeError(f"{self.name} did not come up")
            time.sleep(0.05)

    def load(self, image, layout=None):
        archive = make_archive(image, self.dir, layout)
        with archive.open("rb") as f:
            status, answer = self.call("POST", "/images/load", f)
        if status >= 300:
            raise RuntimeError(f"{self.name} did not load {image}: {answer!r}")
        archive.unlink()

    def remove_containers(self):
        with contextlib.suppress(OSError, RuntimeError, http.client.HTTPException, ValueError):
            for left in self.ok("GET", "/containers/json?all=true"):
                self.call("DELETE", f"/containers/{left['Id']}?force=true&v=true")

    def stop_daemons(self, how=signal.SIGTERM):
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.send_signal(how)
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()

    def __exit__(self, *_):
        if self.daemons and self.daemons[-1].poll() is None:
            self.remove_containers()
        self.stop_daemons()
        remove_cgroups(self.cgroup)
        for line in reversed(pathlib.Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{self.dir}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


def cgroups(name):
    """Of this name in every hierarchy, innermost first."""
    tops = [path for pattern in ("", "*/") for path in pathlib.Path("/sys/fs/cgroup").glob(pattern + name.strip("/"))]
    return sorted({part for top in tops for part in (top, *top.glob("**/"))}, reverse=True)


def remove_cgroups(name, seconds=10):
    """What is in there is ours to kill."""
    limit = Watch(seconds)
    while (left := cgroups(name)) and not limit.over():
        for part in left:
            with contextlib.suppress(OSError):
                for pid in (part / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
                part.rmdir()
        time.sleep(0.02)


def runs_group(group):
    """Whether a process of this group lives; one that nobody has waited for does not."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                return True
    return False


class Dockerd(Engine):
    """No CRI; a bridge only if asked for."""
    name = "docker"

    def start(self):
        (self.dir / "containerd.toml").write_text(
            f'version = 2\nroot = "{self.dir}/c-root"\nstate = "{self.dir}/c-state"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{self.dir}/c.sock"\n')
        (self.dir / "daemon.json").write_text("{}\n")
        self.daemon("containerd", "--config", self.dir / "containerd.toml")
        self.wait((self.dir / "c.sock").exists)
        self.start_dockerd()

    def start_dockerd(self):
        self.daemon("dockerd", "--containerd", self.dir / "c.sock", "--data-root", self.dir / "d-root",
                    "--exec-root", self.dir / "d-exec", "--pidfile", self.dir / "docker.pid", "--host", f"unix://{self.socket}",
                    "--config-file", self.dir / "daemon.json", "--bridge", "none", "--iptables=false", "--ip6tables=false",
                    "--ip-forward=false", "--cgroup-parent", self.cgroup, "--storage-driver", "overlay2")
        self.wait(self.answers)

    def stop_dockerd(self, how=signal.SIGTERM):
        """The containerd stays, as it does when only dockerd is started again."""
        daemon = self.daemons.pop()
        daemon.send_signal(how)
        daemon.wait(60)

    def restart(self, how=signal.SIGTERM):
        self.stop_dockerd(how)
        self.start_dockerd()


class Podman(Engine):
    """Rootless, as a user of nobody. It is shown the second version of cgroups only, as a machine of today has it,
    and names for its user, which has no others."""
    name = "podman"
    uid = PODMAN_UID

    @staticmethod
    def missing():
        """Why it cannot run here; None: it can."""
        if not (PODMAN / "usr/bin/podman").exists():
            return f"there is no {PODMAN}: tools/dev setup brings it"
        return None if Podman.hierarchy() else "this machine has no cgroup v2"

    @staticmethod
    def hierarchy():
        return next((line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()
                     if line.split()[2] == "cgroup2"), None)

    def write(self, name, text):
        (self.dir / name).write_text(text)
        return self.dir / name

    def settings(self):
        """What it is told by files; the rest by its environment."""
        programs = PODMAN / "usr/bin"
        self.write("containers.conf",
                   f'[containers]\nlog_driver = "none"\n'
                   f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "crun"\n'
                   f'conmon_path = ["{programs}/conmon"]\nnetwork_cmd_path = "{programs}/slirp4netns"\n'
                   f'helper_binaries_dir = ["{PODMAN}/usr/lib/podman"]\n'
                   f'[network]\nnetwork_config_dir = "{self.dir}/home/networks"\n')
        self.write("storage.conf", '[storage]\ndriver = "overlay"\n'
                   f'graphroot = "{self.dir}/home/storage"\nrunroot = "{self.dir}/run/storage"\n')
        self.write("passwd", pathlib.Path("/etc/passwd").read_text() + f"bothy-podman:x:{PODMAN_UID}:{PODMAN_UID}::{self.dir}/home:/bin/sh\n")
        self.write("group", pathlib.Path("/etc/group").read_text() + f"bothy-podman:x:{PODMAN_UID}:\n")
        self.write("registries.conf", 'unqualified-search-registries = ["docker.io"]\n[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n')
        self.libraries()
        self.write("ids", f"bothy-podman:{PODMAN_IDS}:65536\n")
        for name in ("home", "run"):
            (self.dir / name).mkdir(exist_ok=True)
            (self.dir / name).chmod(0o700)
            shutil.chown(self.dir / name, PODMAN_UID, PODMAN_UID)

    def libraries(self):
        """By the loader's cache: what Podman starts itself, to clean up behind a container, gets no LD_LIBRARY_PATH."""
        conf = self.write("ld.so.conf", f"{next((PODMAN / 'usr/lib').glob('*-linux-gnu'))}\ninclude /etc/ld.so.conf\n")
        subprocess.run(["ldconfig", "-X", "-C", self.dir / "ld.so.cache", "-f", conf], check=True)

    @property
    def socket(self):
        return self.dir / "run/podman.sock"

    def environment(self):
        return {"PATH": f"{PODMAN}/usr/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": f"{self.dir}/home",
                "USER": "bothy-podman", "XDG_RUNTIME_DIR": f"{self.dir}/run", "TMPDIR": f"{self.dir}/home",
                "CONTAINERS_CONF": f"{self.dir}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{self.dir}/storage.conf",
                "CONTAINERS_REGISTRIES_CONF": f"{self.dir}/registries.conf"}

    def words(self, *words):
        """A command of podman's, as its user, in its view of the machine."""
        top = pathlib.Path(self.hierarchy(), self.cgroup.strip("/"))
        binds = [("ld.so.cache", "/etc/ld.so.cache"), ("passwd", "/etc/passwd"), ("group", "/etc/group"), ("ids", "/etc/subuid"), ("ids", "/etc/subgid")]
        inside = "\n".join(["set -e", "mount -t cgroup2 none /sys/fs/cgroup"]
                           + [f"mount --bind {shlex.quote(str(self.dir / name))} {to}" for name, to in binds]
                           + [f'exec setpriv --reuid {PODMAN_UID} --regid {PODMAN_UID} --clear-groups --inh-caps=-all -- "$@"'])
        return ["sh", "-c", f'echo $$ >{shlex.quote(str(top / "cgroup.procs"))} && exec unshare --mount --cgroup sh -c "$0" sh "$@"',
                inside, "podman", *map(str, words)]

    def start(self):
        self.settings()
        top = pathlib.Path(self.hierarchy(), self.cgroup.strip("/"))
        top.mkdir(exist_ok=True)
        for path in (top, top / "cgroup.procs", top / "cgroup.subtree_control", top / "cgroup.threads"):
            shutil.chown(path, PODMAN_UID, PODMAN_UID)
        self.start_service()

    def start_service(self):
        self.daemon(*self.words("system", "service", "--time=0", f"unix://{self.socket}"), env=self.environment(), cwd=self.dir / "home")
        self.wait(self.answers)

    def stop_daemons(self, how=signal.SIGTERM):
        """All of the service: it is two processes, one in the user namespace. The one that was started ends before the other, which
        removes the socket when it goes; that must not be the next one's."""
        for daemon in self.daemons:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(daemon.pid, how)
        groups = [daemon.pid for daemon in self.daemons]
        super().stop_daemons(how)
        limit = Watch(15)
        while any(map(runs_group, groups)):
            if limit.over():
                for group in groups:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(group, signal.SIGKILL)
            time.sleep(0.02)

    def restart(self, how=signal.SIGTERM):
        self.stop_daemons(how)
        self.start_service()

"""A real registry on loopback, and images made for it without a daemon.

    with Registry(scratch) as reg:
        image = Image([tar_layer({"hello": b"x"})])
        ref = reg.push(image, "team/tool:1")          # "127.0.0.1:PORT/team/tool:1"

docker-registry is Debian's. Layers are bytes of a tar, gzip, zstd or plain; everything that goes over
the wire is made here, so that a test can also make it wrong."""
import contextlib
import crypt
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import threading
import time
import urllib.request

from harness import free_port

OCI = "application/vnd.oci.image."
DOCKER = "application/vnd.docker."
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "unknown")


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar_layer(files, links=()):
    """A plain tar of {path: bytes}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        seen = set()
        for path in sorted(files):
            parts = path.split("/")
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                if above not in seen:
                    seen.add(above)
                    info = tarfile.TarInfo(above)
                    info.type, info.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(info)
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(files[path]), 0o755
            tar.addfile(info, io.BytesIO(files[path]))
        for path, target in links:
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return out.getvalue()


def busybox_layer():
    """What every image below has at the bottom, so that it can run something."""
    binary = pathlib.Path("/bin/busybox").read_bytes()
    names = ("sh", "cat", "ls", "echo", "sleep", "sha256sum", "find", "wc")
    return tar_layer({"bin/busybox": binary, "etc/passwd": b"root:x:0:0::/:/bin/sh\n"},
                     [("bin/" + name, "busybox") for name in names])


def compress(data, form, level=6):
    if form == "gzip":
        return gzip.compress(data, level, mtime=0)
    if form == "zstd":
        return subprocess.run(["zstd", "-q", "-3", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


class Image:
    """Manifest, config and blobs. form: oci or docker; compression: gzip, zstd, plain."""

    def __init__(self, layers, form="oci", compression="gzip", arch=ARCH, cmd=("sh",), blobs=None):
        """blobs: compressed already, one for each layer."""
        self.blobs, descriptors = {}, []
        suffix = {"gzip": "+gzip", "zstd": "+zstd", "plain": ""}[compression]
        for i, layer in enumerate(layers):
            blob = blobs[i] if blobs else compress(layer, compression)
            self.blobs[digest(blob)] = blob
            media = OCI + "layer.v1.tar" + suffix if form == "oci" else DOCKER + "image.rootfs.diff.tar" + suffix.replace("+", ".")
            descriptors.append({"mediaType": media, "digest": digest(blob), "size": len(blob)})
        self.layers = [d["digest"] for d in descriptors]
        self.diff_ids = [digest(layer) for layer in layers]
        config = json.dumps({"architecture": arch, "os": "linux", "config": {"Cmd": list(cmd), "Env": ["PATH=/bin"]},
                             "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]}}).encode()
        self.config = digest(config)
        self.blobs[self.config] = config
        self.media = OCI + "manifest.v1+json" if form == "oci" else DOCKER + "distribution.manifest.v2+json"
        self.manifest = json.dumps({"schemaVersion": 2, "mediaType": self.media, "config": {
            "mediaType": OCI + "config.v1+json" if form == "oci" else DOCKER + "container.image.v1+json",
            "digest": self.config, "size": len(config)}, "layers": descriptors}).encode()
        self.digest, self.arch = digest(self.manifest), arch
        self.size = sum(d["size"] for d in descriptors)


class ImageList:
    def __init__(self, images, form="oci"):
        self.images = images
        self.media = OCI + "index.v1+json" if form == "oci" else DOCKER + "distribution.manifest.list.v2+json"
        self.manifest = json.dumps({"schemaVersion": 2, "mediaType": self.media, "manifests": [
            {"mediaType": i.media, "digest": i.digest, "size": len(i.manifest), "platform": {"os": "linux", "architecture": i.arch}}
            for i in images]}).encode()
        self.digest = digest(self.manifest)


def make_ca(scratch, name="127.0.0.1"):
    """An authority and a certificate for the address: paths of ca, cert, key."""
    at = pathlib.Path(scratch)
    run = lambda *a: subprocess.run(a, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: E731
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", "/CN=bothy test authority", "-keyout", at / "ca.key", "-out", at / "ca.pem")
    run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=" + name,
        "-keyout", at / "tls.key", "-out", at / "tls.csr")
    (at / "tls.ext").write_text(f"subjectAltName=IP:{name}\n")
    run("openssl", "x509", "-req", "-in", at / "tls.csr", "-CA", at / "ca.pem", "-CAkey", at / "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", at / "tls.ext", "-out", at / "tls.pem")
    return at / "ca.pem", at / "tls.pem", at / "tls.key"


class Registry:
    """docker-registry with a directory of its own. users: {name: password} turns authentication on."""

    def __init__(self, scratch, tls=None, users=None, delay_ms=0):
        self.dir = pathlib.Path(scratch)
        self.dir.mkdir(parents=True, exist_ok=True)
        self.port, self.tls, self.users, self.process = free_port(), tls, users, None
        self.host = f"127.0.0.1:{self.port}"

    def config(self, users):
        config = {"version": "0.1", "log": {"level": "error", "accesslog": {"disabled": False}},
                  "storage": {"filesystem": {"rootdirectory": str(self.dir / "store")}, "delete": {"enabled": True},
                              "cache": {}},
                  "http": {"addr": f"127.0.0.1:{self.port}", "secret": "test"}}
        if self.tls:
            config["http"]["tls"] = {"certificate": str(self.tls[0]), "key": str(self.tls[1])}
        if users:
            lines = [f"{u}:{crypt.crypt(p, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))}\n" for u, p in users.items()]
            (self.dir / "htpasswd").write_text("".join(lines))
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(self.dir / "htpasswd")}}
        return config

    def start(self, users=None):
        path = self.dir / "registry.json"  # JSON is YAML
        path.write_text(json.dumps(self.config(users if users is not None else self.users)))
        self.log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen(["docker-registry", "serve", path], stdout=self.log, stderr=self.log)
        for _ in range(500):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError("docker-registry did not start:\n" + (self.dir / "log").read_text()[-2000:])

    def stop(self, signo=signal.SIGKILL):
        if self.process:
            self.process.send_signal(signo)
            self.process.wait()
            self.process = None
            self.log.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def settle(self):
        """A request is written down when its answer has gone: who asked may be ahead of that."""
        size = -1
        for _ in range(40):
            before, size = size, (self.dir / "log").stat().st_size
            if size == before:
                return
            time.sleep(0.05)

    def requests(self):
        """Method and path of what was asked so far."""
        self.settle()
        out = []
        for line in (self.dir / "log").read_text(errors="replace").splitlines():
            if '"GET ' in line or '"HEAD ' in line:
                out.append(line.split('"')[1].rsplit(" ", 1)[0])
        return out

    def blob_gets(self):
        return [r.rsplit("/", 1)[1] for r in self.requests() if r.startswith("GET") and "/blobs/sha256:" in r]

    # The registry's own layout on disk: what a push would make, and also what it would refuse.
    def put_blob(self, repo, name, data):
        hexa = name.split(":")[1]
        root = self.dir / "store/docker/registry/v2"
        blob = root / "blobs/sha256" / hexa[:2] / hexa
        blob.mkdir(parents=True, exist_ok=True)
        if not (blob / "data").exists():
            (blob / "data").write_bytes(data)
        for kind in ("_layers", "_manifests/revisions"):
            link = root / "repositories" / repo / kind / "sha256" / hexa
            link.mkdir(parents=True, exist_ok=True)
            (link / "link").write_text(name)

    def blob_path(self, name):
        hexa = name.split(":")[1]
        return self.dir / "store/docker/registry/v2/blobs/sha256" / hexa[:2] / hexa / "data"

    def put_tag(self, repo, tag, name):
        at = self.dir / "store/docker/registry/v2/repositories" / repo / "_manifests/tags" / tag
        for link in (at / "current", at / "index/sha256" / name.split(":")[1]):
            link.mkdir(parents=True, exist_ok=True)
            (link / "link").write_text(name)

    def push(self, image, name):
        """Puts it in place and gives the whole name."""
        repo, tag = name.rsplit(":", 1)
        for one in getattr(image, "images", [image]):
            for d, data in one.blobs.items():
                self.put_blob(repo, d, data)
            self.put_blob(repo, one.digest, one.manifest)
        self.put_blob(repo, image.digest, image.manifest)
        self.put_tag(repo, tag, image.digest)
        return f"{self.host}/{name}"

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.host}{path}", timeout=10) as r:
            return r.read()


class Slow:
    """A relay before a registry, as another host: so many bytes a second towards the caller, and a signal once so
    many have passed. Tests hold a pull in its middle with it."""

    def __init__(self, target, rate=4_000_000):
        self.target, self.rate = target, rate
        self.passed, self.at, self.reached = 0, None, threading.Event()
        self.held = threading.Event()
        self.held.set()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(256)
        self.host = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                caller, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(caller,), daemon=True).start()

    def serve(self, caller):
        host, port = self.target.host.rsplit(":", 1)
        try:
            server = socket.create_connection((host, int(port)), 5)
            server.settimeout(None)
        except OSError:
            caller.close()
            return
        threading.Thread(target=self.move, args=(caller, server, False), daemon=True).start()
        self.move(server, caller, True)

    def move(self, source, sink, counted):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if counted:
                    self.held.wait()
                    time.sleep(len(data) / self.rate)
                    self.count(len(data))
                sink.sendall(data)
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def count(self, n):
        with self.lock:
            self.passed += n
            if self.at is not None and self.passed >= self.at:
                self.reached.set()

    def after(self, n):
        """From now on: wait_reached() returns once n more bytes have passed."""
        with self.lock:
            self.at = self.passed + n
            self.reached.clear()

    def wait_reached(self, seconds=30):
        if not self.reached.wait(seconds):
            raise AssertionError("the pull did not come that far")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.held.set()
        self.listener.close()

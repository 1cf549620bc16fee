"""What runs the containers of the backends docker, podman and kubernetes, as the harness sees it: where it is reached (door), images brought
into its store without a registry (bring), what nodes have left taken away (clean). One for a process; it ends with it."""
import atexit
import base64
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import engines
from harness import TOP, Skip


def make_images(names):
    subprocess.run([TOP / "tools" / "test-images", engines.CACHE / "images"], check=True, stdout=2)
    if "agent" in names:
        subprocess.run([TOP / "tools" / "agent-image", engines.CACHE / "images"], check=True, stdout=2)


def key_of(layout):
    return hashlib.sha256((pathlib.Path(layout) / "index.json").read_bytes()).hexdigest()[:16]


class Provider:
    """Over a Dockerd or a Podman of engines.py."""

    def __init__(self, engine):
        self.engine, self.here = engine, set()
        engine.__enter__()
        atexit.register(self.end)

    @property
    def door(self):
        """Its socket, for everybody: whoever may use it is root of its containers, and all of them are a test's."""
        os.chmod(self.engine.socket, 0o666)
        os.chmod(pathlib.Path(self.engine.socket).parent, 0o755)
        return self.engine.socket

    def words(self):
        return ""

    def bring(self, images, layouts=None):
        """Images of tools/test-images, or of an OCI layout; each once."""
        make_images(images)
        for name in images:
            if name not in self.here or layouts:
                self.engine.load(name, (layouts or {}).get(name))
                self.here.add(name)

    def clean(self):
        self.engine.remove_containers()

    def end(self):
        with contextlib.suppress(Exception):
            self.engine.__exit__(None, None, None)


class Pods:
    """A cluster of kube.py. Nodes have a namespace each; images are in its containerd under the names that Docker gives them."""

    def __init__(self, cluster=None):
        """cluster: one that is up, and somebody else's to take down."""
        import kube  # noqa: PLC0415: only where there is a cluster
        self.borrowed, self.namespace = cluster is not None, None
        self.cluster, self.here = cluster or kube.Cluster(), set()
        if not self.borrowed:
            self.cluster.__enter__()
        atexit.register(self.end)
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="bothy-pods-"))
        self.work.chmod(0o755)
        self.namespaces = []
        self.image = self.cluster.load_bothy()
        self.write_kubeconfig()

    def write_kubeconfig(self):
        """One that an ordinary user can read, with everything in it: of a cluster that a test has made."""
        pki = self.cluster.dir / "pki"
        ca = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
        self.door = self.work / "kubeconfig"
        self.door.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"https://{self.cluster.address}:443", "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": (pki / "admin.token").read_text().strip()}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}]}))
        self.door.chmod(0o644)

    @contextlib.contextmanager
    def within(self, namespace):
        """Nodes that come up in this block share a namespace, which is the caller's."""
        self.namespace = namespace
        try:
            yield
        finally:
            self.namespace = None

    def words(self):
        """What a node's configuration says beyond where the cluster is. This cluster enforces no NetworkPolicy: that sandboxes without a network have
        none is the tests' word here, and what they must not reach is nothing of theirs."""
        name = self.namespace
        if not name:
            manager = self.cluster.namespace()
            self.namespaces.append(manager)
            name = manager.__enter__()
        return f" BOTHY_KUBERNETES_NAMESPACE={name} BOTHY_KUBERNETES_IMAGE={self.image} BOTHY_KUBERNETES_SECURITY=baseline" \
               " BOTHY_KUBERNETES_POLICIES=vouched"

    def bring(self, images, layouts=None):
        make_images(images)
        for name in images:
            if name in self.here and not layouts:
                continue
            layout = (layouts or {}).get(name) or engines.CACHE / "images" / name
            mark = self.mark_of(name, layout)
            if not mark.exists():  # a cluster that is borrowed may have it from the suite before
                archive = engines.make_archive(name, self.work, layout)
                self.cluster.load(archive)
                archive.unlink()
                mark.touch()
            self.here.add(name)

    def mark_of(self, name, layout):
        """A file that says that the cluster has this very image under this name."""
        for old in (marks := self.cluster.dir / "brought").glob(f"{name}@*"):
            if not old.name.endswith(key_of(layout)):
                old.unlink()
        marks.mkdir(exist_ok=True)
        return marks / f"{name}@{key_of(layout)}"

    def clean(self):
        for manager in self.namespaces:
            manager.__exit__(None, None, None)
        self.namespaces.clear()

    def end(self):
        with contextlib.suppress(Exception):
            self.clean()
        if not self.borrowed:
            self.cluster.__exit__(None, None, None)
        shutil.rmtree(self.work, ignore_errors=True)


def start(backend):
    if backend == "docker":
        return Provider(engines.Dockerd())
    if backend == "podman":
        reason = engines.Podman.missing()
        if reason:
            raise Skip(reason)
        return Provider(engines.Podman())
    return Pods()

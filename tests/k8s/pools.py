"""A bothyd outside of the suite's cluster, and pools in it: what the parts about images and pods share."""
import contextlib
import json
import os
import subprocess
import tempfile
import time

import definitions
import harness
import providers
from harness import TOP, Node, equal, eventually
from kube import path_of, thing

A, B = "localhost/busybox:a", "localhost/busybox:b"


@contextlib.contextmanager
def bothyd(k, env="", images="", **how):
    """(node, namespace). It keeps no pods but those of pools; root is in its pods, unless env says otherwise."""
    definitions.install(k)
    if "kubernetes" not in harness.PROVIDERS:
        harness.PROVIDERS["kubernetes"] = providers.Pods(k)
    with k.namespace() as ns, harness.PROVIDERS["kubernetes"].within(ns), Node("kubernetes", images=images, env=" BOTHY_BACKEND_WARM=0 " + env, **how) as node:
        yield node, ns


class Pool:
    def __init__(self, k, ns, name, template, replicas, spec):
        self.k, self.ns, self.name, self.replicas = k, ns, name, replicas
        self.template = thing("SandboxTemplate", f"{name}-{ns}", spec={"image": A, **template})
        self.pool = thing("SandboxPool", name, ns, {"templateRef": f"{name}-{ns}", "replicas": replicas, **spec})

    @property
    def status(self):
        return self.k.get(path_of(self.pool)).get("status", {})

    def full(self, seconds=90):
        """As its status and its pods say, and still do a moment later: the status is behind a claim that was quick."""
        def is_full():
            s = self.status
            return (s.get("readyReplicas") == s.get("replicas") == self.replicas == len(self.pods(state="warm"))
                    and not s.get("claimedReplicas"))
        eventually(f"pool {self.name} is full", is_full, seconds, 0.1)
        time.sleep(0.5)
        eventually(f"pool {self.name} stays full", is_full, seconds, 0.1)

    def scale(self, replicas):
        self.replicas = replicas
        self.k.ok("PATCH", path_of(self.pool), {"spec": {"replicas": replicas}}, "application/merge-patch+json")

    def pods(self, **labels):
        """Those that nobody is deleting, by name."""
        select = ",".join(f"bothy.dev/{n}={v}" for n, v in {"pool": self.name, **labels}.items())
        return {p["metadata"]["name"]: p for p in self.k.get(f"/api/v1/namespaces/{self.ns}/pods?labelSelector={select}")["items"]
                if "deletionTimestamp" not in p["metadata"]}

    def __enter__(self):
        self.k.apply(self.template)
        self.k.apply(self.pool)
        self.full()
        return self

    def __exit__(self, *_):
        self.k.call("DELETE", path_of(self.pool))
        eventually(f"pool {self.name} is gone", lambda: self.k.gone(path_of(self.pool)), 90, 0.2)
        self.k.call("DELETE", path_of(self.template))


def pool(k, ns, name="p", template=None, replicas=1, **spec):
    return Pool(k, ns, name, template or {}, replicas, spec)


def any_image(k, ns, replicas=1, name="any", **template):
    """Whose pods take any image at the claim."""
    return pool(k, ns, name, {"imagePolicy": {"allow": ["*"]}, **template}, replicas, anyImage=True)


def pod_of(k, ns, sandbox):
    """The pod of a sandbox, as its label has it; None: there is none."""
    found = k.get(f"/api/v1/namespaces/{ns}/pods?labelSelector=bothy.dev/sandbox={sandbox}")["items"]
    return found[0] if found else None


def ended(node, sandbox, seconds=60):
    """The cause of a sandbox that is gone."""
    def gone():
        now = node.show(sandbox)
        return now["cause"] if now["state"] == "gone" else None
    return eventually(f"{sandbox} has ended", gone, seconds, 0.1)


def record(k, ns, sandbox, **wanted):
    """The status of its Sandbox object, once it has these."""
    made = thing("Sandbox", f"sbx-{sandbox}", ns)

    def has():
        if k.gone(path_of(made)):
            return None
        status = k.get(path_of(made)).get("status", {})
        return status if all(status.get(n) == v for n, v in wanted.items()) else None
    return eventually(f"the object of {sandbox} has {wanted}", has, 60, 0.1)


def make_image(k, name, fill, config=None, arch=None, options=()):
    """An image of what fill(directory) puts there, in the cluster's store."""
    with tempfile.TemporaryDirectory() as work:
        root, archive = f"{work}/root", f"{work}/image.tar"
        os.mkdir(root)
        fill(root)
        words = {"CONFIG": json.dumps(config)} if config else {}
        words |= {"ARCH": arch} if arch else {}
        subprocess.run([TOP / "tools" / "k8s-image", "rootfs", name, root, archive], env={**k.environment, **words}, check=True)
        k.load(archive, *options)


def runs(node, sandbox, argv, wanted, **spec):
    r = node.exec(sandbox, argv, **spec)
    equal((r["end"]["exit_code"], harness.bytes_of(r["out"]).decode()), (0, wanted), f"{argv}")

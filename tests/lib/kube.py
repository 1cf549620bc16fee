"""A real Kubernetes of one node (tools/k8s-up), and its API without kubectl in between.

    with Cluster(audit=True) as k, k.namespace() as ns:
        k.ok("POST", f"/api/v1/namespaces/{ns}/pods", pod("p", ns))
        eventually("it runs", lambda: k.get(f"/api/v1/namespaces/{ns}/pods/p")["status"]["phase"] == "Running")

BOTHY_K8S=DIR takes one that is up in DIR, and leaves it: for whoever writes tests. Nothing here may then stop parts of it."""
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import secrets
import shutil
import ssl
import subprocess
import sys
import tempfile
import time

from harness import BUILD, SLOW, TOP, Answer, Skip, eventually

CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev"))
GROUP = "/apis/bothy.dev/v1alpha1"
MERGE, APPLY, JSON_PATCH = "application/merge-patch+json", "application/apply-patch+yaml", "application/json-patch+json"
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet")


class KubeError(Exception):
    """An answer that says no."""

    def __init__(self, answer):
        super().__init__(f"{answer.status} {answer.body[:1000].decode(errors='replace')}")
        self.answer = answer

    @property
    def said(self):
        return self.answer.json.get("message", "")


class Server:
    """The API server, as one who is known to it: by certificate, or by a token."""

    def __init__(self, address, ca, cert=None, token=None):
        self.address, self.token = address, token
        self.tls = ssl.create_default_context(cafile=ca)
        if cert:
            self.tls.load_cert_chain(*cert)

    def call(self, method, path, body=None, kind="application/json", timeout=60):
        headers = {"Content-Type": kind, "Accept": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        c = http.client.HTTPSConnection(self.address, 443, timeout=timeout * SLOW, context=self.tls)
        try:
            c.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    def ok(self, method, path, body=None, kind="application/json", timeout=60):
        a = self.call(method, path, body, kind, timeout)
        if a.status >= 300:
            raise KubeError(a)
        return a.json

    def get(self, path):
        return self.ok("GET", path)

    def refused(self, method, path, body=None, kind="application/json"):
        """What it says to something that it must not take: (status, message)."""
        a = self.call(method, path, body, kind)
        if a.status < 400:
            raise AssertionError(f"{method} {path} was taken: {a!r}")
        return a.status, a.json.get("message", "")

    def apply(self, thing, force=True):
        """By server-side apply; things of the kinds that the tests use."""
        return self.ok("PATCH", path_of(thing) + f"?fieldManager=tests&force={str(force).lower()}", thing, APPLY)

    def gone(self, path):
        return self.call("GET", path).status == 404


PLURALS = {"Pod": "api/v1/pods", "Namespace": "api/v1/namespaces", "Secret": "api/v1/secrets", "ConfigMap": "api/v1/configmaps",
           "ServiceAccount": "api/v1/serviceaccounts", "PersistentVolume": "api/v1/persistentvolumes",
           "PersistentVolumeClaim": "api/v1/persistentvolumeclaims", "ResourceQuota": "api/v1/resourcequotas", "LimitRange": "api/v1/limitranges",
           "SandboxTemplate": "apis/bothy.dev/v1alpha1/sandboxtemplates", "SandboxPool": "apis/bothy.dev/v1alpha1/sandboxpools",
           "Sandbox": "apis/bothy.dev/v1alpha1/sandboxes"}


def path_of(thing, named=True):
    base, _, plural = PLURALS[thing["kind"]].rpartition("/")
    meta = thing["metadata"]
    inside = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"/{base}{inside}/{plural}" + (f"/{meta['name']}" if named else "")


def thing(kind, name, namespace=None, spec=None, version="bothy.dev/v1alpha1"):
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": meta} | ({} if spec is None else {"spec": spec})


def pod(name, namespace, image="localhost/busybox:a", command=("/bin/idle",), restricted=False, **spec):
    """A pod that waits, and goes at once when it is told to."""
    container = {"name": "c", "image": image, "imagePullPolicy": "IfNotPresent", "command": list(command)}
    if restricted:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        spec.setdefault("securityContext", {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}})
    return thing("Pod", name, namespace, {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "dnsPolicy": "Default",
                                          "containers": [container], **spec}, "v1")


def image_archive(*words):
    """An archive of tools/k8s-image in the cache, keyed by the tool: image_archive("busybox", "a")."""
    tool = TOP / "tools" / "k8s-image"
    key = hashlib.sha256(tool.read_bytes()).hexdigest()[:12]
    path = CACHE / "k8s" / f"{'-'.join(words)}-{key}.tar"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        subprocess.run([tool, *words, part], check=True)
        os.replace(part, path)
    return path


class Cluster(Server):
    def __init__(self, audit=False, images=(), directory=None):
        """images: more archives than busybox a and b. directory: of one that is up."""
        self.audit, self.images = audit, [image_archive("busybox", tag) for tag in ("a", "b")] + list(images)
        self.borrowed = directory or os.environ.get("BOTHY_K8S")
        self.dir = pathlib.Path(self.borrowed or tempfile.mkdtemp(prefix="bothy-k8s-"))

    def tool(self, name, *words, **options):
        return subprocess.run([TOP / "tools" / name, self.dir, *words], check=False, **options)

    def __enter__(self):
        if not self.borrowed:
            words = [w for a in self.images for w in ("--image", a)] + (["--audit"] if self.audit else [])
            if self.tool("k8s-up", *words, stdout=subprocess.DEVNULL).returncode:
                shutil.rmtree(self.dir, ignore_errors=True)
                raise RuntimeError("the cluster did not come up")
        self.reach()
        return self

    def reach(self):
        pki = self.dir / "pki"
        address = (self.dir / "admin.kubeconfig").read_text().split("https://")[1].split(":")[0]
        super().__init__(address, pki / "ca.crt", cert=(pki / "admin.crt", pki / "admin.key"))

    def __exit__(self, *_):
        if not self.borrowed:
            self.down()

    def down(self):
        """Nothing happens the second time."""
        if os.environ.get("BOTHY_KEEP"):
            print(f"kept {self.dir}", file=sys.stderr)
        elif (self.dir / "ctl").exists():
            subprocess.run([TOP / "tools" / "k8s-down", self.dir], check=True)
            shutil.rmtree(self.dir, ignore_errors=True)

    # ---- its parts ----
    def own(self):
        if self.borrowed:
            raise Skip("the cluster is somebody else's (BOTHY_K8S)")

    def stop(self, part, signal="TERM"):
        self.own()
        self.tool("k8s-up", "--stop", part, "--signal", signal).check_returncode()

    def start(self, part):
        self.own()
        self.tool("k8s-up", "--start", part).check_returncode()

    def restart(self, part, signal="TERM"):
        self.own()
        self.tool("k8s-up", "--restart", part, "--signal", signal).check_returncode()

    def pid(self, part):
        return int((self.dir / "ctl" / f"{part}.pid").read_text())

    @property
    def node(self):
        return self.get("/api/v1/nodes")["items"][0]["metadata"]["name"]

    @property
    def etcd(self):
        return f"http://{self.node}:2379"

    @property
    def kubeconfig(self):
        return str(self.dir / "admin.kubeconfig")

    @property
    def environment(self):
        return {**os.environ, "KUBECONFIG": self.kubeconfig, "PATH": f"{self.dir}/bin:{os.environ['PATH']}"}

    # ---- what people do ----
    def kubectl(self, *words, input=None, fails=False):
        """What it prints; with fails what it complains of, and it must."""
        r = subprocess.run([self.dir / "bin" / "kubectl", *words], env=self.environment, input=input, capture_output=True, text=True,
                           timeout=120 * SLOW, check=False)
        if bool(r.returncode) != fails:
            raise AssertionError(f"kubectl {' '.join(map(str, words))} ended with {r.returncode}: {r.stderr or r.stdout}")
        return r.stderr if fails else r.stdout

    def load(self, archive, *options):
        subprocess.run([self.dir / "bin" / "ctr", "images", "import", *options, archive], stdout=subprocess.DEVNULL, check=True)

    def load_bothy(self):
        """bothy-init and bothy-kit of this build, as an image whose name has their hash, so that builds do not meet."""
        tag = hashlib.sha256(b"".join((BUILD / "bin" / name).read_bytes() for name in ("bothy-init", "bothy-kit"))).hexdigest()[:12]
        with tempfile.TemporaryDirectory() as out:
            subprocess.run([TOP / "deploy" / "oci" / "build", out, "--init", "--name", f"localhost/bothy:{tag}"], stdout=subprocess.DEVNULL, check=True)
            self.load(f"{out}/bothy-init.tar")
        return f"localhost/bothy-init:{tag}"

    @contextlib.contextmanager
    def namespace(self, labels=None, name=None):
        """One of the test's own, whose default service account is there; gone with the block (in the background)."""
        name = name or f"t-{secrets.token_hex(4)}"
        self.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        try:
            eventually("the default service account", lambda: not self.gone(f"/api/v1/namespaces/{name}/serviceaccounts/default"), 30)
            yield name
        finally:
            self.call("DELETE", f"/api/v1/namespaces/{name}")

    def by_token(self, namespace, account):
        """The API server as a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token = self.ok("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})["status"]["token"]
        return Server(self.address, self.dir / "pki" / "ca.crt", token=token)

    def run_pod(self, made, seconds=60):
        """Creates it and waits until it runs."""
        self.ok("POST", path_of(made, named=False), made)
        return eventually(f"{made['metadata']['name']} runs", lambda: self.running(made), seconds, 0.1)

    def running(self, made):
        now = self.get(path_of(made))
        states = now["status"].get("containerStatuses", [])
        return now if states and all("running" in s["state"] for s in states) else None

    @contextlib.contextmanager
    def volume(self, name, storage_class="local", size="1Gi"):
        """A static local volume; what was written stays below its directory until the block ends."""
        path = self.dir / "volumes" / name
        path.mkdir(parents=True)
        made = thing("PersistentVolume", name, spec={
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": storage_class,
            "local": {"path": str(path)}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]}]}]}}}, version="v1")
        self.ok("POST", "/api/v1/persistentvolumes", made)
        try:
            yield path
        finally:
            self.call("DELETE", path_of(made))
            shutil.rmtree(path, ignore_errors=True)

    # ---- what was asked of it ----
    def audit_mark(self):
        """A place in the audit log: audited() begins there."""
        self.get("/version")
        return (self.dir / "log" / "audit.log").stat().st_size

    def audited(self, since=0, wait=1.0):
        """Requests since a mark, as the API server noted them; it writes them a moment later."""
        time.sleep(wait * SLOW)
        with open(self.dir / "log" / "audit.log", "rb") as log:
            log.seek(since)
            return [json.loads(line) for line in log.read().splitlines() if line.endswith(b"}")]


def writes(entries, user=None):
    """Those that change something, of one user."""
    return [e for e in entries if e["verb"] in ("create", "update", "patch", "delete", "deletecollection") and (user is None or e["user"]["username"] == user)]


def left_of(directory):
    """What a cluster that is down has left: cgroups, links, processes, mounts; by the names that tools/k8s/common gives."""
    tag = hashlib.sha256(os.path.realpath(directory).encode()).hexdigest()[:8]
    cgroups = [str(p) for p in pathlib.Path("/sys/fs/cgroup").glob(f"*/bothy-k8s-{tag}")] + [str(p) for p in pathlib.Path("/sys/fs/cgroup").glob(f"bothy-k8s-{tag}")]
    links = [f"bk{tag}"] if os.path.exists(f"/sys/class/net/bk{tag}") else []
    mounts = [line for line in pathlib.Path("/proc/mounts").read_text().splitlines() if str(directory) in line]
    processes = []
    for p in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"{directory}/".encode() in p.read_bytes():
                processes.append(p.parent.name)
    files = [str(directory)] if os.path.exists(directory) else []
    return cgroups + links + mounts + processes + files

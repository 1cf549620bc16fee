"""The cluster itself: what tests lean on."""
import contextlib
import http.client
import os
import subprocess
import tempfile

from harness import TOP, check, equal, eventually
from kube import KubeError, left_of, path_of, pod, writes

PROBE = 'nc -w 5 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null && echo reached'


def container(k, made):
    return k.get(path_of(made))["status"]["containerStatuses"][0]


def exec_in(k, made, *words):
    """By kubectl. After a restart of the kubelet it knows its pods a moment later."""
    meta = made["metadata"]
    return k.kubectl("-n", meta["namespace"], "exec", meta["name"], "--", *words)


def failed_up():
    """An up whose programs end at once, in a directory of its own."""
    directory = tempfile.mkdtemp(prefix="bothy-k8s-")
    os.rmdir(directory)
    r = subprocess.run([TOP / "tools" / "k8s-up", directory], env={**os.environ, "BOTHY_KUBE_BINARY": "/bin/true"}, capture_output=True, text=True, check=False)
    return r, directory


def cases(suite, k):
    @suite.case("cluster: an up that fails says what ended, and leaves nothing")
    def _():
        r, directory = failed_up()
        check(r.returncode != 0, "it did not fail")
        check("etcd ended" in r.stderr, r.stderr)
        equal(left_of(directory), [], "what is left")

    @suite.case("cluster: a second one in the same directory is refused")
    def _():
        k.own()
        r = k.tool("k8s-up", capture_output=True, text=True)
        check(r.returncode == 1 and "has a cluster already" in r.stderr, r.stderr)

    if not suite.wants("cluster: pods run, and reach the API server at the services' address", "cluster: a container outlives every part that is killed",
                       "cluster: the audit log tells who wrote what"):
        return
    with k.namespace() as ns:
        made = pod("p", ns)
        k.run_pod(made)

        @suite.case("cluster: pods run, and reach the API server at the services' address")
        def _():
            equal(exec_in(k, made, "cat", "/version"), "a\n", "its image")
            check("reached" in exec_in(k, made, "sh", "-c", PROBE), "the API server was not reached")

        @suite.case("cluster: the audit log tells who wrote what")
        def _():
            mark = k.audit_mark()
            k.ok("POST", f"/api/v1/namespaces/{ns}/configmaps", {"metadata": {"name": "audited"}})

            def found():
                return [w["objectRef"]["name"] for w in writes(k.audited(mark), "admin") if w["objectRef"]["resource"] == "configmaps"]
            equal(eventually("it is in the log", found, 30), ["audited"], "writes of admin")

        @suite.case("cluster: a container outlives every part that is killed")
        def _():
            before = container(k, made)
            for part in ("containerd", "kubelet", "kube-apiserver", "etcd"):
                k.restart(part, "KILL")
            eventually("the node is Ready", lambda: is_ready(k), 60, 0.2)
            eventually("exec works again", lambda: works(k, made), 60, 0.5)
            after = container(k, made)
            equal((after["containerID"], after["restartCount"]), (before["containerID"], 0), "its container")


def is_ready(k):
    """Without etcd, which was just begun again, the API server has no answer."""
    with contextlib.suppress(KubeError, OSError, http.client.HTTPException):
        conditions = k.get(f"/api/v1/nodes/{k.node}")["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return False


def works(k, made):
    try:
        return exec_in(k, made, "cat", "/version") == "a\n"
    except AssertionError:
        return False

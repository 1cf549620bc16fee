"""The client of the API server and the backend on it (src/backend/kubernetes), each by a program of its own, whose cases are counted here."""
import re
import subprocess
import tempfile
import time

from harness import BUILD, TOP, Skip

PROGRAMS = BUILD / "tests" / "k8s" / "client"
LINE = re.compile(r"\s+(ok|FAILED|skipped)\s+(\w+)(?: \((\d+) ms\))?:? ?(.*)")


def outcome(how, why):
    return {"FAILED": AssertionError(why), "skipped": Skip(why)}.get(how)


def take(suite, group, line):
    """Counts a line of a program as a case."""
    m = LINE.match(line)
    if m and suite.wants(f"{group}: {m[2]}"):
        with suite.lock:
            suite.tell(f"{group}: {m[2]}", time.monotonic() - int(m[3] or 0) / 1000, outcome(m[1], m[4]))


def count(suite, group, program, words):
    with subprocess.Popen([PROGRAMS / program, *words], stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            take(suite, group, line.rstrip())

    @suite.case(f"{group}: the program came to its end")
    def _():
        if run.returncode not in (0, 1):
            raise AssertionError(f"it ended with {run.returncode}")


def client(suite, k, work):
    count(suite, "client", "kube-client", ["--kubeconfig", k.kubeconfig, "--etcd", k.etcd, "--dir", work] + (["--long"] if suite.args.long else []))


def boxes(suite, k, work):
    """In a namespace that is restricted; with --long in one that is baseline, too."""
    subprocess.run([TOP / "deploy" / "oci" / "build", work, "--init", "--name", "localhost/bothy:boxes"], stdout=subprocess.DEVNULL, check=True)
    k.load(f"{work}/bothy-init.tar")
    words = ["--kubeconfig", k.kubeconfig, "--bothy", "localhost/bothy-init:boxes", "--dir", work]
    count(suite, "boxes", "kube-box", words)
    if suite.args.long:
        count(suite, "boxes as root", "kube-box", [*words, "--baseline"])


def cases(suite, k):
    for group, run, program in (("client", client, "kube-client"), ("boxes", boxes, "kube-box")):
        if not suite.wants_any(f"{group}…: …"):
            continue
        if not (PROGRAMS / program).exists():
            @suite.case(f"{group}: all")
            def _():
                raise Skip(f"there is no {program} in this build")
            continue
        with tempfile.TemporaryDirectory() as work:
            run(suite, k, work)

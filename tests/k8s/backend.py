"""Sandboxes in pods: the backend by its contract, and the suites that every backend is held to."""
import pathlib
import re
import subprocess

from harness import BUILD, TOP, Skip, check

BOX = BUILD / "tests" / "k8s" / "client" / "kube-box"
CORE = pathlib.Path(__file__).with_name("conformance.core")
SUITES = ("conformance", "sessions", "files", "terminal", "ports")
ENDED = "{} came to its end"
COUNTS = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")


def cases(suite, k):
    contract(suite, k)
    conformance(suite, k)


def wanted(suite, name):
    """Whether --only has this whole group; its own cases have names of their own."""
    return suite.wants(name, ENDED.format(name))


def counted(suite, name, words, **options):
    """Runs something that ends with counts, which are added; what it prints is shown."""
    counts = None
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, **options) as run:
        for line in run.stdout:
            print("  " + line, end="", flush=True)
            counts = COUNTS.match(line) or counts
    if counts:
        suite.count(*map(int, counts.groups()))

    @suite.case(ENDED.format(name))
    def _():
        check(counts, f"it ended with {run.returncode} and without counts")


def skipped(suite, name, why):
    @suite.case(name)
    def _():
        raise Skip(why)


def contract(suite, k):
    if not wanted(suite, "backend: contract"):
        return
    if not suite.args.part and not suite.args.long and not suite.args.only:
        return skipped(suite, "backend: contract", "it is for --long and --part backend: the core of conformance has its time")
    if not BOX.exists():
        return skipped(suite, "backend: contract", f"there is no {BOX.name} in this build")
    counted(suite, "backend: contract", [BOX, "--kubeconfig", k.kubeconfig, "--bothy", k.load_bothy()])


def conformance(suite, k):
    """The core of the one suite in the short size, all five of them in the long one."""
    for name in SUITES if suite.args.long else SUITES[:1]:
        title = f"backend: {name}"
        if not wanted(suite, title):
            continue
        words = [TOP / "tests" / name / "run", "--backend", "kubernetes", "--seed", str(suite.args.seed)]
        if not suite.args.long:
            words += ["--cases", CORE, "--images", "busybox user"]
        counted(suite, title, words, env={**k.environment, "BOTHY_K8S": str(k.dir)})

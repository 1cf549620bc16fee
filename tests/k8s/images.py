"""Images in pods: every kind of image runs; those that a claim brings into a waiting pod, by any of their names; those that do not come."""
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from harness import Skip, check, equal, eventually
from kube import JSON_PATCH, path_of, pod
from pools import A, B, any_image, bothyd, make_image, pod_of, pool, runs
from registry import Registry

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SAY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
    printf("%u %s\n", getuid(), getenv("MARK") ? getenv("MARK") : "-");
    return 0;
}
"""
MATRIX = "images: {}: runs, and files go in and out"
KINDS = ("scratch with a static program", "libraries and no shell", "USER root", "USER by name", "ENTRYPOINT and CMD of its own", "a large layer")
BURST = "images: more claims at once than the pool has pods: each runs the image it asked for"
NAMES = ("images: one for another machine has its files, and its programs are refused with the reason", "images: a claim by any name of the same image gets it",
         "images: one that does not come fails the claim at the first try, and its pod is replaced", "images: so it is without a pool",
         "images: how soon the kubelet holds back a pod that is given images again and again")


def compiled(where, *options):
    """The program that says who it is, at /say."""
    subprocess.run(["cc", "-O1", "-x", "c", *options, "-o", f"{where}/say", "-"], input=SAY.encode(), check=True)


def with_libraries(root):
    compiled(root)
    listed = subprocess.run(["ldd", f"{root}/say"], capture_output=True, text=True, check=True).stdout
    for word in listed.split():
        if word.startswith("/"):
            os.makedirs(f"{root}{os.path.dirname(word)}", exist_ok=True)
            shutil.copy(word, f"{root}{word}")


def with_shell(root):
    """busybox, two users and the program."""
    compiled(root, "-static")
    for name in ("bin", "etc", "tmp", "home"):
        os.mkdir(f"{root}/{name}")
    os.chmod(f"{root}/tmp", 0o1777)
    os.chmod(f"{root}/home", 0o777)
    shutil.copy("/bin/busybox", f"{root}/bin/busybox")
    for name in ("sh", "cat", "ls", "true"):
        os.symlink("busybox", f"{root}/bin/{name}")
    pathlib.Path(root, "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nagent:x:1234:1234::/home:/bin/sh\n")
    pathlib.Path(root, "etc/group").write_text("root:x:0:\nagent:x:1234:\n")
    pathlib.Path(root, "bin/entry").write_text("#!/bin/sh\n>/tmp/entered\nexec \"$@\"\n")
    os.chmod(f"{root}/bin/entry", 0o755)


def large(root, size):
    with_shell(root)
    with open(f"{root}/large", "wb") as f:
        for i in range(size >> 20):
            f.write(hashlib.sha256(b"%d" % i).digest() * (1 << 15))


def images(long):
    """kind -> (fill, config, what /say says as the pod's own user)."""
    size = 1 << 30 if long else 32 << 20
    env = [PATH, "MARK=image"]
    return {KINDS[0]: (lambda root: compiled(root, "-static"), {}, "0 -\n"),
            KINDS[1]: (with_libraries, {"Env": env}, "0 image\n"),
            KINDS[2]: (with_shell, {"Env": env, "User": "root", "WorkingDir": "/tmp"}, "0 image\n"),
            KINDS[3]: (with_shell, {"Env": env, "User": "agent", "WorkingDir": "/home"}, "0 image\n"),
            KINDS[4]: (with_shell, {"Env": env, "Entrypoint": ["/bin/entry"], "Cmd": ["/bin/true"]}, "0 image\n"),
            KINDS[5]: (lambda root: large(root, size), {"Env": env}, "0 image\n")}


def try_kind(node, name, said):
    """Everything of it that can be asked of any image."""
    with node.sandbox(name) as sb:
        runs(node, sb, ["/say"], said)
        content = os.urandom(100_000)
        a = node.call("PUT", f"/v1/sandboxes/{sb}/files?path=/put-here", content)
        check(a.status < 300, repr(a))
        equal(node.call("GET", f"/v1/sandboxes/{sb}/files?path=/put-here").body == content, True, "the file comes back as it went in")
        yield sb


def matrix(suite, k):
    made = images(suite.args.long)
    with bothyd(k) as (node, _):
        for i, (kind, (fill, config, said)) in enumerate(made.items()):
            @suite.case(MATRIX.format(kind))
            def _(i=i, fill=fill, config=config, said=said, kind=kind):
                name = f"localhost/kind:{i}"
                make_image(k, name, fill, config)
                for sb in try_kind(node, name, said):
                    more(node, sb, kind, suite.args.long)

        @suite.case(NAMES[0])
        def _():
            other = "arm64" if os.uname().machine == "x86_64" else "amd64"
            make_image(k, "localhost/kind:other", foreign, {"Env": [PATH]}, other, ["--all-platforms"])
            with node.sandbox("localhost/kind:other") as sb:
                a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["/say"]})
                equal((a.status, a.error["code"]), (400, "exec_failed"), repr(a))
                check("ENOEXEC" in str(a.error) or "format" in str(a.error), repr(a))


def foreign(root):
    """The program, for a processor that this machine has not."""
    compiled(root, "-static")
    with open(f"{root}/say", "r+b") as f:
        f.seek(18)  # e_machine
        f.write((183 if os.uname().machine == "x86_64" else 62).to_bytes(2, "little"))


def more(node, sb, kind, long):
    """What only this kind has."""
    if kind in KINDS[:2]:
        a = node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh", "-c", "true"]})
        equal((a.status, a.error["code"]), (400, "exec_failed"), "a shell that is not there")
    if kind == KINDS[3]:
        runs(node, sb, ["/say"], "1234 image\n", user="agent")
    if kind == KINDS[4]:
        equal(node.exec(sb, ["ls", "/tmp/entered"])["end"]["exit_code"], 1, "its entry point was run: ls")
    if kind == KINDS[5]:
        equal(node.shell(sb, "cat /large | busybox wc -c").strip(), str(1 << 30 if long else 32 << 20), "its size")


# ---- images that a claim brings ----
def ctr(k, *words):
    return subprocess.run([k.dir / "bin" / "ctr", "images", *words], capture_output=True, text=True, check=True).stdout


def digest_of(k, name):
    return next(line.split()[2] for line in ctr(k, "ls").splitlines() if line.startswith(name + " "))


def aliases(k):
    """Names of the image b: as it is, another repository, without its host, by its digest."""
    digest = digest_of(k, B)
    given = {"localhost/team/tool:1": None, "docker.io/library/again:latest": ["again", "docker.io/library/again"], f"localhost/busybox@{digest}": None}
    for name in given:
        ctr(k, "tag", "--force", B, name)
    return [B] + [n for name, short in given.items() for n in (short or [name])]


def swaps(suite, k):
    with bothyd(k) as (node, ns), any_image(k, ns, 2) as p:
        @suite.case(NAMES[1])
        def _():
            want = None
            for name in aliases(k):
                p.full()
                made = node.ok("POST", "/v1/sandboxes", {"image": name}, timeout=90)
                equal(made["class"], "kubelet", f"class of {name}")
                runs(node, made["id"], ["cat", "/version"], "b\n")
                found = eventually("its image's id is told", lambda m=made: image_id(k, ns, m["id"]), 20, 0.1)
                want = want or found
                equal(found, want, f"the image of {name}")
                node.delete(made["id"])

        @suite.case(NAMES[2])
        def _():
            with tempfile.TemporaryDirectory() as work, Registry(f"{work}/locked", users={"alice": "correct horse"}) as locked:
                for name in (f"{locked.host}/team/private:1", "localhost/nothing:1", "Localhost/Not A Name"):
                    p.full()
                    before = set(p.pods())
                    took, e = refused(node, name)
                    equal(e["code"], "image_pull_failed", f"{name}: {e}")
                    check(took < 30, f"{name}: {took:.1f} s")
                    p.full()
                    check(len(before - set(p.pods())) == 1, f"{name}: one pod was to be replaced")
                check(not any("/blobs/" in r for r in locked.requests()), "something was pulled")

        @suite.case(BURST)
        def _():
            p.full()
            made = burst(node, [B] * 5)
            check("cold" in {m["class"] for m in made}, f"the pool had enough: {[m['class'] for m in made]}")
            said = [node.shell(m["id"], "cat /version") for m in made]
            for m in made:
                node.delete(m["id"])
            equal(said, ["b\n"] * 5, "what they run")

    with bothyd(k, "BOTHY_KUBERNETES_SECURITY=restricted") as (node, ns), pool(k, ns) as p:
        @suite.case(NAMES[3])
        def _():
            took, e = refused(node, "localhost/nothing:1")
            equal(e["code"], "image_pull_failed", str(e))
            check(took < 30, f"{took:.1f} s")
            eventually("its pod is gone", lambda: len(k.get(f"/api/v1/namespaces/{ns}/pods")["items"]) == 1, 30, 0.2)
            p.full()


def burst(node, names):
    with concurrent.futures.ThreadPoolExecutor(len(names)) as many:
        return list(many.map(lambda name: node.ok("POST", "/v1/sandboxes", {"image": name}, timeout=120), names))


def image_id(k, ns, sandbox):
    found = pod_of(k, ns, sandbox)
    states = [s for s in found["status"].get("containerStatuses", []) if s["name"] == "sandbox" and "running" in s["state"]] if found else []
    return states[0]["imageID"].rpartition("@")[2] if states else None


def refused(node, name):
    began = time.monotonic()
    a = node.call("POST", "/v1/sandboxes", {"image": name}, timeout=150)
    check(a.status >= 400, f"{name} was made: {a!r}")
    return time.monotonic() - began, a.error


# ---- the kubelet's patience ----
def back_off(suite, k):
    """One pod whose image is changed every twenty seconds, as pools that recycle pods would."""
    @suite.case(NAMES[4])
    def _():
        if not suite.args.long:
            raise Skip("minutes: --long")
        with k.namespace() as ns:
            made = pod("swapped", ns, A)
            k.run_pod(made)
            began, seen, starts = time.monotonic(), None, []
            for turn in range(1, 16):
                image = B if turn % 2 else A
                k.ok("PATCH", path_of(made), [{"op": "replace", "path": "/spec/containers/0/image", "value": image}], JSON_PATCH)
                asked = time.monotonic()
                held = eventually(f"turn {turn}: it runs again, or is held back", lambda i=image, t=turn: settled(k, made, t), 60, 0.05)
                starts.append(round(time.monotonic() - asked, 2))
                if held == "CrashLoopBackOff":
                    seen = (turn, round(time.monotonic() - began))
                    break
                time.sleep(20)
            print(f"      CrashLoopBackOff: {f'at change {seen[0]}, after {seen[1]} s' if seen else 'never in 15 changes'}; seconds of each change: {starts}", flush=True)


def settled(k, made, turn):
    """running, once it was restarted so often; or why it waits."""
    s = k.get(path_of(made))["status"]["containerStatuses"][0]
    if s["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff":
        return "CrashLoopBackOff"
    return "running" if s["restartCount"] >= turn and "running" in s["state"] else None


def cases(suite, k):
    if suite.wants(*[MATRIX.format(kind) for kind in KINDS], NAMES[0]):
        matrix(suite, k)
    if suite.wants(*NAMES[1:4], BURST):
        swaps(suite, k)
    back_off(suite, k)

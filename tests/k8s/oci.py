"""deploy/oci: the image of bothy, made here and run in a pod."""
import gzip
import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile

from harness import BUILD, TOP, check, equal, eventually
from kube import path_of, pod

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def make(out):
    """{name: archive} of both images."""
    subprocess.run([TOP / "deploy" / "oci" / "build", out], stdout=subprocess.DEVNULL, check=True)
    return {name: pathlib.Path(out, f"{name}.tar") for name in ("bothy", "bothy-init")}


def read(archive):
    """(config, tar of the layer, name) of an image."""
    with tarfile.open(archive) as tar:
        found = json.load(tar.extractfile("manifest.json"))[0]
        layer = gzip.decompress(tar.extractfile(found["Layers"][0]).read())
        return json.load(tar.extractfile(found["Config"])), tarfile.open(fileobj=io.BytesIO(layer)), found["RepoTags"][0]


def ended(k, made):
    now = k.get(path_of(made))
    return now if now["status"]["phase"] in ("Succeeded", "Failed") else None


def once(k, ns, name, image, command, **spec):
    """Status and output of a command in a pod of its own."""
    made = pod(name, ns, image, command, restricted=True, restartPolicy="Never", **spec)
    made["spec"]["securityContext"].pop("runAsUser", None)
    made["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = True
    k.ok("POST", path_of(made, named=False), made)
    now = eventually(f"{name} ends", lambda: ended(k, made), 60, 0.2)
    return now["status"]["phase"], k.call("GET", path_of(made) + "/log").body.decode()


def cases(suite, k):
    if not suite.wants_any(cases):
        return
    with tempfile.TemporaryDirectory() as first:
        made = make(first)

        @suite.case("image: the same programs give the same bytes")
        def _():
            with tempfile.TemporaryDirectory() as second:
                for name, archive in make(second).items():
                    equal(archive.read_bytes() == made[name].read_bytes(), True, f"{name} made twice is the same")

        @suite.case("image: nothing of this machine and nothing with rights is in it")
        def _():
            for name, archive in made.items():
                config, layer, _ = read(archive)
                equal(config["config"]["User"], "10001:10001", f"user of {name}")
                for entry in layer:
                    check(not entry.mode & 0o6000 and not entry.name.startswith("/") and ".." not in entry.name, f"{name} has {entry.name} {entry.mode:o}")
                    check(not entry.isfile() or entry.uid == 0 and not entry.mode & 0o022, f"{entry.name} can be written")
                    check(not entry.isfile() or str(BUILD).encode() not in layer.extractfile(entry).read(), f"{entry.name} names {BUILD}")

        @suite.case("image: bothyd and bothy run in it, as a user that is not root, on a root that is read-only")
        def _():
            for archive in made.values():
                k.load(archive)
            name, version = read(made["bothy"])[2], subprocess.run([BUILD / "bin" / "bothyd", "--version"], capture_output=True, text=True, check=True).stdout
            with k.namespace(RESTRICTED) as ns:
                equal(once(k, ns, "daemon", name, ["/usr/sbin/bothyd", "--version"]), ("Succeeded", version), "bothyd --version")
                how, said = once(k, ns, "config", name, ["/usr/sbin/bothyd", "--print-config"])
                check(how == "Succeeded" and "backend:" in said, said)
                how, said = once(k, ns, "cli", name, ["/usr/bin/bothy", "ls"])
                check(how == "Failed" and "bothyd.sock" in said, said)

        @suite.case(f"image: bothy-init is small ({os.path.getsize(made['bothy-init']) // 1024} KiB)")
        def _():
            check(os.path.getsize(made["bothy-init"]) < 1 << 20, "it is above 1 MiB")
            check(os.path.getsize(made["bothy"]) < 40 << 20, "bothy's is above 40 MiB")
            names = {entry.name for entry in read(made["bothy-init"])[1]}
            equal(names, {"bothy-init", "bothy-kit"}, "what is in it")

"""Every odd image behaves as documented; images come, are listed and go."""
import contextlib
import os
import pathlib

from common import OWN_STORE, native, needs, told, walls
from harness import ApiError, Skip, bytes_of, check, collect, equal, expect_error

ENGINES = "it is about an engine's own store of images (caps.images is not emulated)"
CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev")) / "images"


@contextlib.contextmanager
def started(node, image):
    """A sandbox; skips where the engine's runtime does not start this image, and the create says so."""
    try:
        made = node.create(image)
    except ApiError as e:
        cause = e.answer.error.get("cause") or ""
        if node.caps["images"] != "emulated" or "is invalid: Not a directory" not in cause:
            raise
        raise Skip(f"caps.images is emulated: the engine does not start {image}: {cause}") from e
    try:
        yield made
    finally:
        node.delete(made)


def cases(suite, node):
    odd(suite, node)
    store(suite, node)


def odd(suite, node):
    @suite.case("image static: one binary and no shell")
    def _():
        walls(node)
        s = node.ok("POST", "/v1/sandboxes", {"image": "static"})
        sb = s["id"]
        if told(node):
            equal(s["image"]["entrypoint"], ["/probe"], "entrypoint")
        lines = bytes_of(node.exec(sb, ["/probe", "a b"])["out"]).decode().splitlines()
        equal(lines[:2], ["arg=/probe", "arg=a b"], "args")
        check("env=FROM=image" in lines and "uid=0" in lines and "cwd=/" in lines, f"lines {lines}")
        equal(node.exec(sb, ["/probe", "exit", "9"])["end"]["exit_code"], 9, "exit code")
        equal(node.exec(sb, ["/probe", "signal", "11"])["end"]["signal"], 11, "signal")
        equal(node.exec(sb, ["/probe", "cat"], stdin={"text": "x"})["out"]["text"], "x", "cat")
        expect_error(node.call("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["sh"]}), 400, "exec_failed")
        node.delete(sb)

    @suite.case("image forty: 40 layers, whiteouts and opaque directories give the expected tree")
    def _():
        walls(node)
        wanted = dict(line.split("\t", 1) for line in (CACHE / "forty.expect").read_text().splitlines())
        with node.sandbox("forty") as sb:
            text = node.shell(sb, "cd /; for f in $(find keep gone pile turn tmp/late -type f | sort); do printf '%s\\t' $f; cat $f; done")
            equal(dict(line.split("\t", 1) for line in text.splitlines()), wanted, "tree")
            if node.caps["images"] == "native":  # another's unpacker takes what a layer says of a directory that it only passes through
                equal(node.shell(sb, "stat -c %a /tmp").strip(), "1777", "mode of /tmp, which layer 35 only passes through")

    @suite.case("image user: USER, WORKDIR and ENV hold")
    def _():
        walls(node)
        with node.sandbox("user") as sb:
            user = "alice" if told(node) else "root"  # of a name only ENV and WORKDIR come with the container
            equal(node.shell(sb, 'echo $(id -un) $(pwd) "$GREETING"'), f"{user} /work/space hello from the image\n", "out")
            shown = node.show(sb)["image"]
            check(set(shown.get("digest", "sha256:absent")[7:]) != {"0"}, f"a digest that is none: {shown}")
            if not told(node):
                return
            equal((shown["user"], shown["cwd"], shown["cmd"]), ("alice", "/work/space", ["id; pwd"]), "shown")
            equal(node.shell(sb, "echo x >~/f; stat -c %u ~/f").strip(), "1000", "a file at home")

    def has_kernel_files(image):
        with started(node, image) as sb:
            equal(node.shell(sb, "cut -d' ' -f1 /proc/self/stat >/dev/null && test -d /sys && test ! -L /proc && echo x >/dev/null && "
                             "head -c4 /dev/urandom | wc -c && test -e /dev/pts/ptmx && echo yes"), "4\nyes\n", image)

    @suite.case("image bare: /proc, /sys and /dev are there nevertheless")
    def _():
        walls(node)
        has_kernel_files("bare")

    @suite.case("image symproc: /proc, /sys and /dev are there nevertheless")
    def _():
        walls(node)
        if not told(node):
            raise Skip("caps.images is absent: the cluster's runtime starts the image, and runc mounts no /proc over a link")
        has_kernel_files("symproc")

    @suite.case("image dash: /bin/sh is dash and there is nothing else")
    def _():
        walls(node)
        with node.sandbox("dash") as sb:
            equal(node.shell(sb, "echo $((6 * 7)); exec 3</proc/self/status; read -r a b <&3; echo $a"), "42\nName:\n", "out")

    @suite.case("image debian: bash, python3 and git run")
    def _():
        walls(node)
        with node.sandbox("debian") as sb:
            r = node.exec(sb, ["bash", "-c", "python3 -c 'print(6*7)'; git --version; echo ${BASH_VERSION%%.*}"])
            lines = bytes_of(r["out"]).decode().splitlines()
            check(lines[0] == "42" and lines[1].startswith("git version") and lines[2] == "5", f"{r}")

    @suite.case("every applet path of busybox is a link that works")
    def _():
        walls(node)
        with node.sandbox() as sb:
            equal(node.shell(sb, "ls -l /bin/cat | grep -c busybox; cat /etc/passwd | head -n 1").splitlines()[0], "1", "links")


def store(suite, node):
    @suite.case("images are listed and shown by name and by digest")
    def _():
        needs(node, "images")
        listed = {i["name"]: i for i in node.ok("GET", "/v1/images")["images"]}
        name = next(n for n in listed if "busybox" in n)
        image = listed[name]
        check(image["digest"].startswith("sha256:") and image["size"] > 10_000, f"{image}")
        own = node.caps["images"] == "native"  # an engine does not tell us its layers
        equal(len(image["layers"]), 1 if own else 0, "layers of busybox")
        equal(node.ok("GET", "/v1/images/busybox")["digest"], image["digest"], "by name")
        equal(node.ok("GET", "/v1/images/" + image["digest"])["digest"], image["digest"], "by digest")
        equal(node.ok("GET", "/v1/images/" + image["digest"][7:25])["digest"], image["digest"], "by the start of its digest")
        forty = next(i for n, i in listed.items() if "forty" in n)
        equal(len(forty["layers"]), 40 if own else 0, "layers of forty")

    @suite.case("the same image comes as oci:, docker-archive: and dir:")
    def _():
        native(node, "images", OWN_STORE)
        layers = node.ok("GET", "/v1/images/busybox")["layers"]
        for n, source in enumerate(("oci:/mnt/images/busybox:latest", "docker-archive:/mnt/images/busybox.tar", "dir:/mnt/images/busybox.dir")):
            got = node.ok("POST", "/v1/images", {"source": source, "name": f"copy{n}"})
            equal(got["layers"], layers, f"layers of {source}")
            with node.sandbox(f"copy{n}") as sb:
                equal(node.shell(sb, "echo x"), "x\n", "out")
            equal(node.call("DELETE", f"/v1/images/copy{n}").status, 204, "delete")
            expect_error(node.call("GET", f"/v1/images/copy{n}"), 404, "not_found")

    @suite.case("a sandbox may name a local source; pull never does not fetch")
    def _():
        native(node, "images", OWN_STORE)
        with node.sandbox("oci:/mnt/images/dash:latest") as sb:
            equal(node.shell(sb, "echo x"), "x\n", "out")
        a = node.call("POST", "/v1/sandboxes", {"image": "never-heard-of", "pull": "never"})
        expect_error(a, 404, "not_found")
        equal(a.error["kind"], "image", "kind")

    @suite.case("a pull as an event stream tells progress and ends with the image")
    def _():
        native(node, "images", OWN_STORE)
        events = list(node.events("POST", "/v1/images", {"source": "oci:/mnt/images/user:latest", "name": "told"}))
        equal(events[-1][0], "image", "last event")
        check(any(kind == "progress" for kind, _, _ in events), f"events {[k for k, _, _ in events]}")
        node.call("DELETE", "/v1/images/told")

    @suite.case("a source that is not there is image_pull_failed with the reason")
    def _():
        native(node, "images", OWN_STORE)
        e = expect_error(node.call("POST", "/v1/images", {"source": "oci:/no/such:latest", "name": "x"}), 502, "image_pull_failed")
        check(e["cause"], "no cause")

    @suite.case("forgetting an image leaves its sandboxes alone; prune spares what they use")
    def _():
        native(node, "images", OWN_STORE)
        node.ok("POST", "/v1/images", {"source": "oci:/mnt/images/dash:latest", "name": "short"})
        with node.sandbox("short") as sb:
            equal(node.call("DELETE", "/v1/images/short").status, 204, "delete")
            node.ok("POST", "/v1/images/prune", {})
            equal(node.shell(sb, "echo alive"), "alive\n", "out")
        check(node.ok("POST", "/v1/images/prune", {})["freed_bytes"] >= 0, "freed_bytes")
        with node.sandbox("dash") as sb:
            equal(node.shell(sb, "echo kept"), "kept\n", "an image of the same layers")

    @suite.case("where images are an engine's, local sources and other names are refused with a remedy, and never fetches nothing")
    def _():
        if node.caps.get("images") != "emulated":
            raise Skip(ENGINES)
        for body in ({"source": "oci:/mnt/images/busybox:latest"}, {"source": "docker-archive:/x.tar"}, {"source": "busybox", "name": "other"}):
            e = expect_error(node.call("POST", "/v1/images", body), 501, "unsupported")
            check("docker" in e["remedy"], e)
        for body in ({"image": "never-heard-of", "pull": "never"}, {"image": "sha256:" + "0" * 64}):
            a = node.call("POST", "/v1/sandboxes", body)
            expect_error(a, 404, "not_found")
            equal(a.error["kind"], "image", "kind")

    @suite.case("where images are an engine's, one is used by its id, and forgetting it is of the record alone")
    def _():
        if node.caps.get("images") != "emulated":
            raise Skip(ENGINES)
        got = node.ok("POST", "/v1/images", {"source": "dash", "pull": "missing"})
        with node.sandbox(got["digest"]) as sb, node.sandbox("dash") as named:
            equal(node.shell(sb, "echo x"), "x\n", "by its id")
            equal(node.call("DELETE", "/v1/images/dash").status, 204, "delete")
            expect_error(node.call("GET", "/v1/images/dash"), 404, "not_found")
            equal(node.ok("POST", "/v1/images/prune", {})["freed_bytes"], 0, "freed_bytes")
            equal(node.shell(named, "echo alive"), "alive\n", "out")
        with node.sandbox("dash") as sb:
            equal(node.shell(sb, "echo kept"), "kept\n", "the engine has it")

    @suite.case("a sandbox keeps its image's files while others come and go")
    def _():
        walls(node)
        with node.sandbox("user") as sb:
            out, _, end, _ = collect(node.events("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["cat", "/etc/group"]}))
            check(b"readers" in out and end["exit_code"] == 0, f"{out}")

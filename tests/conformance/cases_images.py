"""Every odd image behaves as documented; images come, are listed and go."""
import os
import pathlib

from common import needs
from harness import bytes_of, check, collect, equal, expect_error

CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev")) / "images"


def cases(suite, node):
    odd(suite, node)
    store(suite, node)


def odd(suite, node):
    @suite.case("image static: one binary and no shell")
    def _():
        needs(node, "images")
        s = node.ok("POST", "/v1/sandboxes", {"image": "static"})
        sb = s["id"]
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
        needs(node, "images")
        wanted = dict(line.split("\t", 1) for line in (CACHE / "forty.expect").read_text().splitlines())
        with node.sandbox("forty") as sb:
            text = node.shell(sb, "cd /; for f in $(find keep gone pile turn tmp/late -type f | sort); do printf '%s\\t' $f; cat $f; done")
            equal(dict(line.split("\t", 1) for line in text.splitlines()), wanted, "tree")
            equal(node.shell(sb, "stat -c %a /tmp").strip(), "1777", "mode of /tmp, which layer 35 only passes through")

    @suite.case("image user: USER, WORKDIR and ENV hold")
    def _():
        needs(node, "images")
        with node.sandbox("user") as sb:
            equal(node.shell(sb, 'echo $(id -un) $(pwd) "$GREETING"'), "alice /work/space hello from the image\n", "out")
            shown = node.show(sb)["image"]
            equal((shown["user"], shown["cwd"], shown["cmd"]), ("alice", "/work/space", ["id; pwd"]), "shown")
            equal(node.shell(sb, "echo x >~/f; stat -c %u ~/f").strip(), "1000", "a file at home")

    @suite.case("images bare and symproc: /proc, /sys and /dev are there nevertheless")
    def _():
        needs(node, "images")
        for image in ("bare", "symproc"):
            with node.sandbox(image) as sb:
                equal(node.shell(sb, "cut -d' ' -f1 /proc/self/stat >/dev/null && test -d /sys && test ! -L /proc && echo x >/dev/null && "
                                 "head -c4 /dev/urandom | wc -c && test -e /dev/pts/ptmx && echo yes"), "4\nyes\n", image)

    @suite.case("image dash: /bin/sh is dash and there is nothing else")
    def _():
        needs(node, "images")
        with node.sandbox("dash") as sb:
            equal(node.shell(sb, "echo $((6 * 7)); exec 3</proc/self/status; read -r a b <&3; echo $a"), "42\nName:\n", "out")

    @suite.case("image debian: bash, python3 and git run")
    def _():
        needs(node, "images")
        with node.sandbox("debian") as sb:
            r = node.exec(sb, ["bash", "-c", "python3 -c 'print(6*7)'; git --version; echo ${BASH_VERSION%%.*}"])
            lines = bytes_of(r["out"]).decode().splitlines()
            check(lines[0] == "42" and lines[1].startswith("git version") and lines[2] == "5", f"{r}")

    @suite.case("every applet path of busybox is a link that works")
    def _():
        needs(node, "images")
        with node.sandbox() as sb:
            equal(node.shell(sb, "ls -l /bin/cat | grep -c busybox; cat /etc/passwd | head -n 1").splitlines()[0], "1", "links")


def store(suite, node):
    @suite.case("images are listed and shown by name and by digest")
    def _():
        needs(node, "images")
        listed = {i["name"]: i for i in node.ok("GET", "/v1/images")["images"]}
        name = next(n for n in listed if "busybox" in n)
        image = listed[name]
        check(image["digest"].startswith("sha256:") and image["size"] > 10_000 and len(image["layers"]) == 1, f"{image}")
        equal(node.ok("GET", "/v1/images/busybox")["digest"], image["digest"], "by name")
        equal(node.ok("GET", "/v1/images/" + image["digest"])["digest"], image["digest"], "by digest")
        equal(node.ok("GET", "/v1/images/" + image["digest"][7:25])["digest"], image["digest"], "by the start of its digest")
        forty = next(i for n, i in listed.items() if "forty" in n)
        equal(len(forty["layers"]), 40, "layers of forty")

    @suite.case("the same image comes as oci:, docker-archive: and dir:")
    def _():
        needs(node, "images")
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
        needs(node, "images")
        with node.sandbox("oci:/mnt/images/dash:latest") as sb:
            equal(node.shell(sb, "echo x"), "x\n", "out")
        a = node.call("POST", "/v1/sandboxes", {"image": "never-heard-of", "pull": "never"})
        expect_error(a, 404, "not_found")
        equal(a.error["kind"], "image", "kind")

    @suite.case("a pull as an event stream tells progress and ends with the image")
    def _():
        needs(node, "images")
        events = list(node.events("POST", "/v1/images", {"source": "oci:/mnt/images/user:latest", "name": "told"}))
        equal(events[-1][0], "image", "last event")
        check(any(kind == "progress" for kind, _, _ in events), f"events {[k for k, _, _ in events]}")
        node.call("DELETE", "/v1/images/told")

    @suite.case("a source that is not there is image_pull_failed with the reason")
    def _():
        needs(node, "images")
        e = expect_error(node.call("POST", "/v1/images", {"source": "oci:/no/such:latest", "name": "x"}), 502, "image_pull_failed")
        check(e["cause"], "no cause")

    @suite.case("forgetting an image leaves its sandboxes alone; prune spares what they use")
    def _():
        needs(node, "images")
        node.ok("POST", "/v1/images", {"source": "oci:/mnt/images/dash:latest", "name": "short"})
        with node.sandbox("short") as sb:
            equal(node.call("DELETE", "/v1/images/short").status, 204, "delete")
            node.ok("POST", "/v1/images/prune", {})
            equal(node.shell(sb, "echo alive"), "alive\n", "out")
        check(node.ok("POST", "/v1/images/prune", {})["freed_bytes"] >= 0, "freed_bytes")
        with node.sandbox("dash") as sb:
            equal(node.shell(sb, "echo kept"), "kept\n", "an image of the same layers")

    @suite.case("a sandbox keeps its image's files while others come and go")
    def _():
        needs(node, "images")
        with node.sandbox("user") as sb:
            out, _, end, _ = collect(node.events("POST", f"/v1/sandboxes/{sb}/exec", {"argv": ["cat", "/etc/group"]}))
            check(b"readers" in out and end["exit_code"] == 0, f"{out}")

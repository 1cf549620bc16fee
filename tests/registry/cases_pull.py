"""What comes: every form of image, by tag and digest, what is shared, progress, policies, prune."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading
import time

from common import BUSYBOX, forget_all, held, helpers, image_of, is_here, layers_on_disk, nothing_under_way, pull, pulled
from harness import BOTHY, Watch, check, equal, eventually, expect_error, read_bytes
from registry import DOCKER, Image, ImageList, digest, tar_layer


def cases(suite, world):
    forms(suite, world)
    sharing(suite, world)
    progress(suite, world)
    policy(suite, world)
    prune(suite, world)


def forms(suite, world):
    node, reg = world.node, world.plain

    @suite.case("gzip, zstd and plain layers, OCI's and Docker's manifests, and the files in them")
    def _():
        for form, compression in (("oci", "gzip"), ("oci", "zstd"), ("oci", "plain"), ("docker", "gzip"), ("docker", "plain")):
            text = f"{form} {compression}\n".encode()
            ref = reg.push(Image([BUSYBOX, tar_layer({"etc/what": text})], form, compression), f"forms/{form}:{compression}")
            got = pulled(node, ref)
            equal(got["layers"], [digest(BUSYBOX), digest(tar_layer({"etc/what": text}))], f"layers of {ref}")
            with node.sandbox(ref) as sb:
                equal(node.shell(sb, "cat /etc/what"), text.decode(), ref)

    @suite.case("a layer is what its bytes are, not what its type says")
    def _():
        image = Image([BUSYBOX, tar_layer({"etc/what": b"mislabelled"})], blobs=[BUSYBOX, tar_layer({"etc/what": b"mislabelled"})])
        with node.sandbox(pulled(node, reg.push(image, "forms/liar:1"))["name"]) as sb:
            equal(node.shell(sb, "cat /etc/what"), "mislabelled", "content")

    @suite.case("by digest, and by tag and digest; the digest is checked")
    def _():
        image = image_of(1000)
        ref = reg.push(image, "forms/digest:1")
        repo = ref.rsplit(":", 1)[0]
        for name in (f"{repo}@{image.digest}", f"{repo}:1@{image.digest}"):
            equal(pulled(node, name)["name"], name, "name")
            with node.sandbox(name) as sb:
                equal(node.shell(sb, "wc -c </data/0").strip(), "1000", "content")
        e = expect_error(pull(node, f"{repo}@{digest(b'nothing')}"), 404, "not_found")
        equal(e["kind"], "image", "kind")

    @suite.case("of a list the image for this machine is taken; without one it is image_unsupported")
    def _():
        for form in ("oci", "docker"):
            mine = Image([BUSYBOX, tar_layer({"arch": b"mine"})], form)
            other = Image([BUSYBOX, tar_layer({"arch": b"other"})], form, arch="riscv64")
            ref = reg.push(ImageList([other, mine], form), f"forms/list:{form}")
            with node.sandbox(pulled(node, ref)["name"]) as sb:
                equal(node.shell(sb, "cat /arch"), "mine", form)
            ref = reg.push(ImageList([other], form), f"forms/foreign:{form}")
            expect_error(pull(node, ref), 422, "image_unsupported")
        expect_error(pull(node, reg.push(Image([BUSYBOX], arch="riscv64"), "forms/foreign:one")), 422, "image_unsupported")

    @suite.case("manifests that are none of ours are image_unsupported")
    def _():
        image = image_of(10)
        image.manifest = image.manifest.replace(b"tar+gzip", b"tar+gzip+encrypted")
        image.digest = digest(image.manifest)
        expect_error(pull(node, reg.push(image, "forms/encrypted:1")), 422, "image_unsupported")
        image = image_of(10, form="docker")
        image.manifest = json.dumps({"schemaVersion": 1, "name": "x", "tag": "1", "architecture": "amd64", "fsLayers": [], "history": [],
                                     "mediaType": DOCKER + "distribution.manifest.v1+json"}).encode()
        image.digest = digest(image.manifest)
        check(pull(node, reg.push(image, "forms/old:1")).status in (422, 502), "schema 1 was taken")


def sharing(suite, world):
    node, reg, slow = world.node, world.plain, world.slow

    @suite.case("a layer that is here is not fetched again, for any image")
    def _():
        forget_all(node)
        shared = tar_layer({"shared": os.urandom(5000)})
        first = Image([BUSYBOX, shared, tar_layer({"own": b"1"})])
        second = Image([BUSYBOX, shared, tar_layer({"own": b"2"})])
        pulled(node, reg.push(first, "share/first:1"))
        before = len(reg.blob_gets())
        pulled(node, reg.push(second, "share/second:1"))
        equal(reg.blob_gets()[before:], [second.config, second.layers[2]], "fetched for the second")
        before = len(reg.blob_gets())
        pulled(node, f"{reg.host}/share/second@{second.digest}")
        equal(reg.blob_gets()[before:], [second.config], "fetched for the same by its digest")

    @suite.case("pulls at the same time do the work once: same name, tag and digest, shared layers")
    def _():
        pulled(node, reg.push(Image([BUSYBOX]), "together/base:1"))
        shared = tar_layer({"shared": os.urandom(1_500_000)})
        one = Image([BUSYBOX, shared, tar_layer({"own": os.urandom(10)})])
        two = Image([BUSYBOX, shared, tar_layer({"own": os.urandom(10)})])
        names = [reg.push(one, "together/one:1"), reg.push(two, "together/two:1")]
        names = [name.replace(reg.host, slow.host) for name in names]
        names += [names[0], names[0], f"{slow.host}/together/one@{one.digest}"]
        before, results = len(reg.blob_gets()), []
        threads = [threading.Thread(target=lambda n=name: results.append(pull(node, n).status)) for name in names]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        equal(results, [200] * len(names), "answers")
        gets = [b for b in reg.blob_gets()[before:] if b in one.layers + two.layers]
        equal(sorted(gets), sorted({one.layers[1], one.layers[2], two.layers[2]}), "layers fetched")

    @suite.case("Ctrl-C during a pull ends the command at once, and the node is none the worse")
    def _():
        for words in (["image", "pull"], ["run"]):
            big = reg.push(image_of(4_000_000), f"left/{words[0]}:1").replace(reg.host, slow.host)
            slow.after(300_000)
            left = subprocess.Popen([BOTHY, *words, big], env={**os.environ, "BOTHY_SOCKET": node.path}, stderr=subprocess.PIPE)
            slow.wait_reached()
            left.send_signal(signal.SIGINT)
            left.communicate(timeout=3)
            equal(left.returncode, -signal.SIGINT, f"how 'bothy {words[0]}' ended")
            equal(node.ok("GET", "/v1/sandboxes")["sandboxes"], [], "sandboxes")
            pulled(node, big)
        nothing_under_way(node)

    @suite.case("what is here answers at once while pulls are under way")
    def _():
        here = pulled(node, reg.push(image_of(100), "quick/here:1"))["name"]
        big = reg.push(image_of(4_000_000), "quick/big:1").replace(reg.host, slow.host)
        t = threading.Thread(target=lambda: pull(node, big))
        slow.after(300_000)
        t.start()
        with held(slow):
            watch = Watch()
            equal(pull(node, here, pull="missing").status, 200, "status")
            with node.sandbox(here):
                pass
            check(watch.within(3), f"it took {watch}")
            check(t.is_alive(), "the slow pull was over too early to tell")
        t.join()


    @suite.case("unpackers share a cgroup with a limit of memory and processes")
    def _():
        ref = reg.push(image_of(3_000_000), "walls/cgroup:1").replace(reg.host, slow.host)
        t = threading.Thread(target=lambda: pull(node, ref))
        slow.after(300_000)
        t.start()
        with held(slow):
            found = [read_bytes(f"/proc/{pid}/cgroup").decode() for pid in eventually("it unpacks", lambda: helpers(node, "bothy-unpack"))]
        t.join()
        inside = f"/{node.cgroup}/unpack"
        lines = [[line.split(":")[1] for line in text.splitlines() if line.endswith(inside)] for text in found if text]
        check(lines and all({"memory", "pids"} <= set(x) or "" in x for x in lines), f"{found}")


def on_terminal(argv, env, feed=None):
    """Exit status and everything the program wrote to its terminal; feed: (after this text, these bytes)."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(argv[0], argv, env)
    out = b""
    try:
        while select.select([fd], [], [], 30)[0]:
            data = os.read(fd, 65536)
            if not data:
                break
            out += data
            if feed and feed[0] in out:
                os.write(fd, feed[1])
                feed = None
    except OSError:
        pass  # the end, as a pty tells it
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.decode()


def progress(suite, world):
    node, reg, slow = world.node, world.plain, world.slow
    env = {**os.environ, "BOTHY_SOCKET": node.path, "TERM": "xterm"}

    @suite.case("progress as events: bytes rise, a few a second, 100 percent only at the end")
    def _():
        image = image_of(2_000_000, 3_000_000)
        ref = reg.push(image, "progress/events:1").replace(reg.host, slow.host)
        began = time.monotonic()
        events = list(node.events("POST", "/v1/images", {"source": ref}))
        took = time.monotonic() - began
        steps = [data for kind, _, data in events if kind == "progress"]
        equal(events[-1][0], "image", "last event")
        equal([s["percent"] for s in steps], sorted(s["percent"] for s in steps), "percentages")
        equal((steps[-1]["stage"], steps[-1]["percent"], steps[-1]["layers_done"]), ("done", 100, 3), "last step")
        check(all(s["percent"] < 100 for s in steps[:-1]), "100 percent before the end")
        equal(steps[-1]["bytes_done"], image.size, "bytes")
        moving = [s for s in steps if 0 < s["percent"] < 99]
        check(len(moving) >= 2, f"only {len(moving)} steps on the way")
        check(len(steps) <= 4 + took * 5, f"{len(steps)} steps in {took:.1f} s")

    @suite.case("a bar on a terminal, for image pull and for a run of what is missing")
    def _():
        for verb in ("pull", "run"):
            ref = reg.push(image_of(4_000_000), f"progress/bar:{verb}").replace(reg.host, slow.host)
            argv = [BOTHY, "image", "pull", ref] if verb == "pull" else [BOTHY, "run", ref, "--", "echo", "ran"]
            status, out = on_terminal(argv, env)
            equal(status, 0, f"status ({out!r})")
            shown = [int(p) for p in re.findall(r"\[=*>? *\] +(\d+) %", out)]
            check(len(shown) >= 3 and shown == sorted(shown) and shown[-1] == 100, f"percentages {shown} in {out!r}")
            equal(out.split("\x1b[K")[-1].strip(), ref if verb == "pull" else "ran", "what stays")
            check(all(len(line) < 80 for line in out.replace("\x1b[K", "").split("\r")), "a line is too wide")

    @suite.case("percentages in --json; the image alone on stdout")
    def _():
        ref = reg.push(image_of(3_000_000), "progress/json:1").replace(reg.host, slow.host)
        r = node.cli("image", "pull", "--json", ref)
        equal(json.loads(r.stdout)["name"], ref, "name")
        lines = [json.loads(line) for line in r.stderr.splitlines()]
        check(len(lines) >= 3 and lines[-1]["percent"] == 100, f"{r.stderr!r}")
        check(all(a != b for a, b in zip(lines, lines[1:])), "a line came twice")
        equal(node.cli("image", "pull", "-q", "--json", ref).stderr, b"", "stderr with -q")


def policy(suite, world):
    node, reg = world.node, world.plain

    @suite.case("pull never, missing and always; a tag that moved")
    def _():
        old, new = image_of(10), image_of(11)
        ref = reg.push(old, "policy/moves:1")
        expect_error(pull(node, ref, pull="never"), 404, "not_found")
        first = pulled(node, ref, pull="missing")["digest"]
        reg.push(new, "policy/moves:1")
        equal(pulled(node, ref, pull="missing")["digest"], first, "missing")
        equal(pulled(node, ref, pull="never")["digest"], first, "never")
        second = pulled(node, ref, pull="always")["digest"]
        check(second != first, "always did not look")
        equal(node.ok("GET", "/v1/images/" + ref)["digest"], second, "the name now")
        with node.sandbox(ref, pull="always") as sb:
            equal(node.shell(sb, "wc -c </data/0").strip(), "11", "content")

    @suite.case("a create fetches what is missing, and tells why it cannot")
    def _():
        ref = reg.push(image_of(12), "policy/create:1")
        with node.sandbox(ref) as sb:
            equal(node.shell(sb, "wc -c </data/0").strip(), "12", "content")
        expect_error(node.call("POST", "/v1/sandboxes", {"image": f"{reg.host}/policy/none:1"}), 404, "not_found")


def prune(suite, world):
    node, reg = world.node, world.plain

    @suite.case("prune by reference: layers of any image and of any live sandbox stay")
    def _():
        forget_all(node)
        shared = tar_layer({"shared": os.urandom(1000)})
        own = [tar_layer({"own": bytes([n])}) for n in range(3)]
        names = [reg.push(Image([BUSYBOX, shared, own[n]]), f"prune/{n}:1") for n in range(3)]
        for name in names:
            pulled(node, name)
        layer = [digest(x).split(":")[1] for x in (BUSYBOX, shared, *own)]
        with node.sandbox(names[1]) as sb:
            for name in names[:2]:
                node.ok("DELETE", "/v1/images/" + name)
            node.ok("POST", "/v1/images/prune", {})
            equal(layers_on_disk(node), {layer[0], layer[1], layer[3], layer[4]}, "layers: those of 2, and of the sandbox")
            equal(node.shell(sb, "wc -c </own").strip(), "1", "the sandbox's files")
        check(is_here(node, names[2]), "the third image is gone")
        eventually("the sandbox's layer is freed", lambda: node.ok("POST", "/v1/images/prune", {})["freed_bytes"], 10, 0.1)
        equal(layers_on_disk(node), {layer[0], layer[1], layer[4]}, "layers: those of 2")
        nothing_under_way(node)

"""Pulls that break: at every part, at any point; damaged registries; full disks. Defined results, nothing half
visible, and what has come is not fetched again."""
import contextlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading
import time

from common import (forget_all, held, helpers, image_of, is_here, kill_helper, layers_on_disk, noise, nothing_under_way, pull,
                    pulled)
from harness import Node, Watch, check, equal, eventually, expect_error
from registry import Image, Registry, digest, tar_layer


def cases(suite, world):
    kills(suite, world)
    damage(suite, world)


class Under:
    """A pull in a thread of its own."""

    def __init__(self, node, ref):
        self.answer = self.failure = None
        self.thread = threading.Thread(target=self.run, args=(node, ref))
        self.thread.start()

    def run(self, node, ref):
        try:
            self.answer = pull(node, ref)
        except Exception as e:  # noqa: BLE001: a killed daemon ends it in many ways
            self.failure = e

    def end(self, seconds=60):
        self.thread.join(seconds)
        check(not self.thread.is_alive(), "the pull did not end")
        return self.answer


def kills(suite, world):
    node, reg, slow = world.node, world.plain, world.slow

    @contextlib.contextmanager
    def begun(name, *sizes):
        """A pull through the slow line, of layers of these sizes, that stands still in the block: the first is whole and the last is not."""
        forget_all(node)
        image = image_of(*sizes)
        ref = reg.push(image, name).replace(reg.host, slow.host)
        slow.after(sum(sizes) // 2)
        under = Under(node, ref)
        with held(slow):
            eventually("the small layers are unpacked", lambda: len(layers_on_disk(node)) >= len(sizes), 20)
            before = len(reg.blob_gets())
            time.sleep(random.uniform(0, 0.3))
            check(under.thread.is_alive(), "the pull was over too early")
            yield image, ref, under, before

    def resumes(image, ref, before):
        """The same pull goes through, fetches only the last layer, and the content is right."""
        pulled(node, ref)
        gets = [b for b in reg.blob_gets()[before:] if b in image.layers]
        check(gets and set(gets) == {image.layers[-1]}, f"fetched again: {gets}")
        with node.sandbox(ref) as sb:
            big = len(image.layers) - 2
            equal(node.shell(sb, f"sha256sum </data/{big}").split()[0], digest(image.content[big]).split(":")[1], "content")
        nothing_under_way(node)

    @suite.case("bothyd killed in a pull: nothing half visible, and it resumes")
    def _():
        with begun("kill/bothyd:1", 1000, 6_000_000) as (image, ref, under, before):
            node.kill("bothyd")
        under.end()
        check(under.failure is not None, f"an answer came: {under.answer}")
        eventually("skopeo and bothy-unpack end without bothyd", lambda: not helpers(node, "skopeo", "bothy-unpack"), 10)
        eventually("the half layer is gone", lambda: not os.listdir(f"{node.dir}/warden/tmp"), 10)
        node.restart("bothyd")
        check(not is_here(node, ref), "half an image is shown")
        nothing_under_way(node)
        resumes(image, ref, before)

    @suite.case("the warden killed in a pull: the pull goes on when it is back")
    def _():
        with begun("kill/warden:1", 1000, 6_000_000) as (image, ref, under, before):
            node.kill("warden")
        node.restart("warden")
        a = under.end()
        equal(a.status, 200, f"{a!r}")
        gets = [b for b in reg.blob_gets()[before:] if b in image.layers]
        check(set(gets) <= {image.layers[-1]}, f"fetched again: {gets}")
        with node.sandbox(ref) as sb:
            equal(node.shell(sb, "wc -c </data/1").strip(), "6000000", "content")
        nothing_under_way(node)

    for victim in ("skopeo", "bothy-unpack"):
        @suite.case(f"{victim} killed in a pull: the pull goes on")
        def _(victim=victim):
            with begun(f"kill/{victim}:1", 1000, 6_000_000) as (image, ref, under, before):
                kill_helper(node, victim)
            a = under.end()
            equal(a.status, 200, f"{a!r}")
            gets = [b for b in reg.blob_gets()[before:] if b in image.layers]
            equal(set(gets), {image.layers[-1]}, "layers fetched again")
            nothing_under_way(node)

    @suite.case("the registry killed in a pull: image_pull_failed; when it is back the pull resumes")
    def _():
        with begun("kill/registry:1", 1000, 6_000_000) as (image, ref, under, before):
            reg.stop(signal.SIGKILL)
        watch = Watch()
        try:
            e = expect_error(under.end(), 502, "image_pull_failed")
            check(watch.within(30), f"it took too long to tell: {watch}")
        finally:
            reg.start()
        check(e["retryable"] and e["cause"], f"{e}")
        check(not is_here(node, ref), "half an image is shown")
        nothing_under_way(node)
        resumes(image, ref, before)

    @suite.case("the registry away for a moment: the pull goes on by itself")
    def _():
        with begun("kill/blink:1", 1000, 6_000_000) as (image, ref, under, before):
            reg.stop(signal.SIGKILL)
        reg.start()
        a = under.end()
        equal(a.status, 200, f"{a!r}")
        nothing_under_way(node)

    @suite.case("after a pull that failed for good, prune leaves nothing of it")
    def _():
        with begun("kill/forget:1", 1000, 6_000_000) as (image, ref, under, before):
            node.kill("bothyd")
        under.end()
        node.restart("bothyd")
        check(layers_on_disk(node), "nothing had come")
        node.ok("POST", "/v1/images/prune", {})
        equal(layers_on_disk(node), set(), "layers")

    if not suite.args.long:
        return

    @suite.case("killed at random, 40 times: each ends defined, and the last pull has it all")
    def _():
        forget_all(node)
        image = image_of(500_000, 800_000, 1_500_000)
        ref = reg.push(image, "kill/random:1").replace(reg.host, slow.host)
        for _ in range(40):
            under = Under(node, ref)
            time.sleep(random.uniform(0.02, 1.2))
            victim = random.choice(["bothyd", "warden", "skopeo", "bothy-unpack"])
            if victim in ("bothyd", "warden"):
                node.kill(victim)
                node.restart(victim)
            else:
                for pid in helpers(node, victim):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            a = under.end()
            check(a is None or a.status in (200, 502, 503), f"{victim}: {a!r}")
            if a and a.status == 200:
                forget_all(node)
        pulled(node, ref)
        nothing_under_way(node)


def damage(suite, world):
    node, reg = world.node, world.plain

    def broken(name, harm, status, code, words):
        forget_all(node)
        image = image_of(200_000, 300_000)
        ref = reg.push(image, name)
        harm(image)
        e = expect_error(pull(node, ref), status, code)
        check(any(w in (e["message"] + " " + str(e["cause"])) for w in words), f"{e}")
        check(not is_here(node, ref), "half an image is shown")
        nothing_under_way(node)
        left = layers_on_disk(node) - {d.split(":")[1] for d in image.diff_ids}
        equal(left, set(), "layers that are not the image's")
        for d, data in image.blobs.items():  # as it should be: the same name works
            reg.blob_path(d).parent.mkdir(parents=True, exist_ok=True)
            reg.blob_path(d).write_bytes(data)
        reg.push(image, name)
        pulled(node, ref)
        with node.sandbox(ref) as sb:
            got = node.shell(sb, "sha256sum /data/0 /data/1").split()
        equal([got[0], got[2]], [digest(x).split(":")[1] for x in image.content], "content")

    def flip(path, at):
        data = bytearray(path.read_bytes())
        data[at] ^= 0x55
        path.write_bytes(bytes(data))

    @suite.case("a blob with the wrong bytes: in its middle, at its end, of another image")
    def _():
        for n, at in enumerate((100_000, -3, 5, 2)):
            broken(f"damage/flip:{n}", lambda i, at=at: flip(reg.blob_path(i.layers[1]), at), 502, "image_pull_failed", ("digest",))
        other = image_of(200_000).blobs
        whole = next(data for data in other.values() if len(data) > 150_000)
        broken("damage/other:1", lambda i: reg.blob_path(i.layers[1]).write_bytes(whole), 502, "image_pull_failed",
               ("digest", "shorter or longer", "longer than"))

    @suite.case("a truncated blob, a longer one, an empty one, none at all")
    def _():
        harms = (lambda p: p.write_bytes(p.read_bytes()[:50_000]), lambda p: p.write_bytes(p.read_bytes() + b"more"),
                 lambda p: p.write_bytes(b""), lambda p: p.unlink())
        for n, harm in enumerate(harms):
            broken(f"damage/length:{n}", lambda i, harm=harm: harm(reg.blob_path(i.layers[1])), 502, "image_pull_failed",
                   ("shorter or longer", "longer than", "digest", "lacks", "broke", "fault"))

    @suite.case("a config with the wrong bytes, a manifest that is not what its digest says")
    def _():
        broken("damage/config:1", lambda i: flip(reg.blob_path(i.config), 10), 502, "image_pull_failed", ("digest", "config", "fetched"))
        image = image_of(100)
        ref = reg.push(image, "damage/manifest:1")
        flip(reg.blob_path(image.digest), 40)
        a = pull(node, f"{ref.rsplit(':', 1)[0]}@{image.digest}")
        check(a.status in (404, 422, 502), f"{a!r}")
        nothing_under_way(node)

    @suite.case("a layer whose diff id is another, one that is no tar, one that climbs out")
    def _():
        good = tar_layer({"x": b"1"})
        liar = Image([good, tar_layer({"y": b"2"})], blobs=[good, tar_layer({"y": b"3"})])
        e = expect_error(pull(node, reg.push(liar, "damage/diff:1")), 502, "image_pull_failed")
        check("digest" in e["message"], f"{e}")
        rubbish = noise(100_000)
        expect_error(pull(node, reg.push(Image([rubbish], compression="plain"), "damage/rubbish:1")), 422, "image_unsupported")
        evil = tar_layer({"../../evil": b"x"})
        expect_error(pull(node, reg.push(Image([evil]), "damage/evil:1")), 422, "image_unsupported")
        nothing_under_way(node)


def full_disks(suite, scratch):
    scratch = pathlib.Path(scratch)
    if not suite.wants_any(full_disks):
        return
    with Registry(scratch / "fullreg") as reg:
        small_store(suite, reg)
        small_state(suite, reg)


def config_for(reg):
    return f"registries:\n  {reg.host}: {{insecure: true}}"


def small_store(suite, reg):
    node = Node(images="", pool="1:1", config=config_for(reg))
    img = pathlib.Path(node.dir, "warden.img")
    subprocess.run(["truncate", "-s", "320M", img], check=True)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", img], check=True)
    with node:
        @suite.case("a full disk of layers: disk_full, nothing left over, and what fits still comes")
        def _():
            zeros = tar_layer({"big": bytes(400_000_000)})
            big = reg.push(Image([tar_layer({"x": b"1"}), zeros]), "full/big:1")
            del zeros
            e = expect_error(pull(node, big), 507, "disk_full")
            check(e["retryable"] and "prune" in e["remedy"], f"{e}")
            nothing_under_way(node)
            check(not is_here(node, big), "half an image is shown")
            ref = reg.push(image_of(1000), "full/small:1")
            with node.sandbox(pulled(node, ref)["name"]) as sb:
                equal(node.shell(sb, "wc -c </data/0").strip(), "1000", "content")


def small_state(suite, reg):
    node = Node(images="", pool="1:1", config=config_for(reg))
    state = f"{node.dir}/bothyd"
    os.mkdir(state)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m,mode=0700", "bothy-registry", state], check=True)
    try:
        with node:
            @suite.case("a full disk of bothyd: a pull has a defined end, and works when there is room")
            def _():
                ref = reg.push(image_of(1000), "full/state:1")
                filler = pathlib.Path(state, "filler")
                with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as f:
                    while f.write(b"x" * 4096):
                        pass
                a = pull(node, ref)
                check(a.status in (200, 507), f"{a!r}")
                if a.status != 200:
                    expect_error(a, 507, "disk_full")
                filler.unlink()
                pulled(node, ref)
                nothing_under_way(node)
            node.kill("bothyd")
            subprocess.run(["umount", state], check=True)
    finally:
        if os.path.ismount(state):
            subprocess.run(["umount", "-l", state], check=False)
        shutil.rmtree(node.dir, ignore_errors=True)

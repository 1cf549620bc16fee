"""Many at once: two hundred pulls of ten images; a hundred images (short: 30) that share their layers."""
import collections
import os
import random
import subprocess
import threading

from common import BUSYBOX, forget_all, image_of, layers_on_disk, nothing_under_way, pull
from harness import check, equal
from registry import Image, compress, digest, tar_layer

FIGURES = {}


def all_at_once(calls):
    """Runs them in threads that begin together; their results in order."""
    results, gate = [None] * len(calls), threading.Event()

    def run(i):
        gate.wait()
        try:
            results[i] = calls[i]()
        except Exception as e:  # noqa: BLE001: shown by the caller
            results[i] = e
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    gate.set()
    for t in threads:
        t.join()
    return results


def cases(suite, world):
    node, reg = world.node, world.plain

    @suite.case("two hundred pulls of ten images at once: each blob once, every answer right, nothing left over")
    def _():
        forget_all(node)
        shared = tar_layer({"shared": os.urandom(500_000)})
        images = []
        for n in range(10):
            own = [tar_layer({f"own{k}": os.urandom(100_000)}) for k in range(2)]
            images.append(Image([BUSYBOX, shared, *own]))
        names = [reg.push(image, f"many/{n}:1") for n, image in enumerate(images)]
        broken = images[9]  # one of them is damaged
        path = reg.blob_path(broken.layers[3])
        whole = path.read_bytes()
        path.write_bytes(whole[:1000] + bytes([whole[1000] ^ 0x55]) + whole[1001:])
        before = len(reg.blob_gets())
        order = [n % 10 for n in range(200)]
        random.shuffle(order)
        answers = all_at_once([lambda n=n: pull(node, names[n], timeout=120, pull="missing") for n in order])
        for n, a in zip(order, answers):
            check(not isinstance(a, Exception), f"{names[n]}: {a!r}")
            if n == 9:
                equal((a.status, a.error["code"]), (502, "image_pull_failed"), f"{a!r}")
            else:
                equal((a.status, a.json.get("name")), (200, names[n]), f"{a!r}")
        gets = collections.Counter(reg.blob_gets()[before:])
        layers = {d for image in images[:9] for d in image.layers}
        equal({d: c for d, c in gets.items() if d in layers and c != 1}, {}, "layers fetched more than once")
        nothing_under_way(node)
        for name in names[:9]:
            node.ok("DELETE", "/v1/images/" + name)
        node.ok("POST", "/v1/images/prune", {}, timeout=60)
        equal(layers_on_disk(node), set(), "layers after all were forgotten")

    many = 100 if suite.args.long else 30

    @suite.case(f"{many} images that share layers: on disk they are the distinct layers")
    def _():
        forget_all(node)
        common = [tar_layer({f"lib/{n}": random.Random(n).randbytes(2_000_000)}) for n in range(5)]
        own = [tar_layer({f"app/{n}": random.Random(1000 + n).randbytes(50_000)}) for n in range(many)]
        packed = {digest(x): compress(x, "gzip", 1) for x in (BUSYBOX, *common, *own)}
        names = []
        for n in range(many):
            layers = [BUSYBOX, *common[:n % 6], own[n]]
            image = Image(layers, blobs=[packed[digest(x)] for x in layers])
            names.append(reg.push(image, f"shared/{n}:1"))
        base = used(node)
        answers = all_at_once([lambda name=name: pull(node, name, timeout=120) for name in names])
        equal([repr(a) for a in answers if isinstance(a, Exception) or a.status != 200], [], "failed pulls")
        distinct = {digest(x).split(":")[1]: len(x) for x in (BUSYBOX, *common, *own)}
        equal(layers_on_disk(node), set(distinct), "layers")
        size, bound = used(node) - base, sum(distinct.values())
        together = sum(len(x) for n in range(many) for x in (BUSYBOX, *common[:n % 6], own[n]))
        print(f"      {many} images of {together / 1e6:.0f} MB take {size / 1e6:.1f} MB; their {len(distinct)} distinct layers "
              f"are {bound / 1e6:.1f} MB of tar", flush=True)
        FIGURES.update(images=many, images_mb=round(together / 1e6, 1), distinct_mb=round(bound / 1e6, 1), disk_mb=round(size / 1e6, 1))
        check(size < bound * 1.1 + len(distinct) * 32768, f"{size} bytes on disk")
        sb = node.create(names[-1])
        equal(node.shell(sb, f"wc -c </app/{many - 1}").strip(), "50000", "content")
        node.delete(sb)
        forget_all_soon(node)


def used(node):
    """Bytes that the file system of the layers has given away."""
    os.sync()
    out = subprocess.run(["df", "--output=used", "-B1", f"{node.dir}/warden"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(out.split()[1])


def forget_all_soon(node):
    node.ok("POST", "/v1/images/prune", {"all": True}, timeout=60)

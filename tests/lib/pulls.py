"""Images made of noise, pulls of them, and what a pull has under way: its processes and its half-made files."""
import contextlib
import os
import pathlib
import random
import signal

from harness import equal, eventually, pids, read_bytes
from registry import Image, busybox_layer, compress, tar_layer

BUSYBOX = busybox_layer()
BUSYBOX_GZ = compress(BUSYBOX, "gzip")


def noise(size, seed=None):
    return random.Random(seed if seed is not None else os.urandom(8)).randbytes(size)


def image_of(*sizes, **more):
    """busybox and a layer of one file of each size, whose content nobody has seen before."""
    content = [noise(size) for size in sizes]
    layers = [tar_layer({f"data/{n}": data}) for n, data in enumerate(content)]
    image = Image([BUSYBOX, *layers], blobs=[BUSYBOX_GZ, *(compress(layer, "gzip", 1) for layer in layers)], **more)
    image.content = content
    return image


def pull(node, source, timeout=60, **more):
    return node.call("POST", "/v1/images", {"source": source, **more}, timeout=timeout)


def pulled(node, source, **more):
    a = pull(node, source, **more)
    equal(a.status, 200, f"pull of {source}: {a!r}")
    return a.json


def is_here(node, name):
    return node.call("GET", "/v1/images/" + name).status == 200


def layers_on_disk(node):
    return {p.name for p in pathlib.Path(node.dir, "warden/layers").iterdir()}


def forget_all(node):
    """No image, no layer."""
    for image in node.ok("GET", "/v1/images")["images"]:
        node.ok("DELETE", "/v1/images/" + image["name"])

    def pruned():  # a sandbox that was just deleted holds its layers for a moment
        node.ok("POST", "/v1/images/prune", {"all": True}, timeout=60)
        return not layers_on_disk(node)
    eventually("no layer is left", pruned, 20, 0.1)


def helpers(node, *names):
    """Processes that a pull has beside bothyd and the warden, by program: children and grandchildren of the two."""
    parent = {}
    for pid in pids():
        stat = read_bytes(f"/proc/{pid}/stat").decode(errors="replace")
        if stat:
            parent[pid] = int(stat.rsplit(")", 1)[1].split()[1])
    roots = set()
    for program in ("bothyd", "warden"):
        with contextlib.suppress(OSError):
            roots.add(node.pid(program))
    found = []
    for pid in parent:
        above, depth = pid, 0
        while above in parent and above not in roots and depth < 16:
            above, depth = parent[above], depth + 1
        comm = read_bytes(f"/proc/{pid}/comm").decode().strip()
        if above in roots and pid not in roots and comm in names:
            found.append(pid)
    return found


def nothing_under_way(node, seconds=10):
    """No helper, nothing in staging, nothing half made."""
    eventually("a pull's processes end", lambda: not helpers(node, "skopeo", "bothy-unpack"), seconds)
    eventually("staging is empty", lambda: not os.listdir(f"{node.dir}/bothyd/staging"), seconds)
    eventually("nothing is half unpacked", lambda: not os.listdir(f"{node.dir}/warden/tmp"), seconds)


def kill_helper(node, name):
    victims = eventually(f"{name} runs", lambda: helpers(node, name), 10)
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

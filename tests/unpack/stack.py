"""The merged view: layers unpacked, stacked by the warden's layer store, mounted by overlayfs as a
sandbox would see them, and compared with what the OCI specification says."""
import contextlib
import errno
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import resource
import stat
import struct
import subprocess

from evil import DIR, HARD, REFUSED, SYM, Case, entry, tar  # noqa: F401

TOP = pathlib.Path(__file__).resolve().parents[2]
# Version 2, effective, CAP_NET_RAW permitted.
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)


class Failure(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failure(text)


class Store:
    """A layer store in a directory of its own."""

    def __init__(self, root, tool, unpack):
        self.root, self.tool, self.unpack = root, tool, unpack
        root.mkdir(mode=0o700)

    def call(self, *args):
        return subprocess.run([self.tool, self.root, self.unpack, *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)

    def must(self, *args):
        done = self.call(*args)
        check(done.returncode == 0, f"{args[0]}: {done.returncode} {done.stderr.strip()}")
        return done.stdout

    def add(self, raw, form="plain", blob=None):
        digest = hashlib.sha256(raw).hexdigest()
        path = self.root.parent / "blob"
        path.write_bytes(raw if blob is None else blob)
        self.must("unpack", digest, form, path)
        return digest

    def image(self, layers, name="image"):
        """layers: tars, bottom first. Returns the image's digest."""
        image = hashlib.sha256(name.encode()).hexdigest()
        self.must("image", image, *[self.add(raw) for raw in layers])
        return image

    @contextlib.contextmanager
    def mounted(self, image):
        lower = self.must("stack", image).split()
        work = self.root.parent / "mount"
        for name in ("m", "u", "w"):
            (work / name).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o",
                        f"lowerdir={':'.join(lower)},upperdir={work}/u,workdir={work}/w",
                        work / "m"], cwd=self.root, check=True)
        try:
            yield work / "m"
        finally:
            subprocess.run(["umount", work / "m"], check=True)
            subprocess.run(["rm", "-rf", work], check=True)


def listing(top):
    """{path: (type, mode, uid, content)} as a user of the sandbox sees it."""
    out = {}
    for path in sorted(top.rglob("*")):
        st = path.lstat()
        content = (path.read_bytes() if stat.S_ISREG(st.st_mode) else
                   os.readlink(path) if stat.S_ISLNK(st.st_mode) else None)
        out[str(path.relative_to(top))] = (stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode),
                                           st.st_uid, content)
    return out


def seen(top):
    return sorted(listing(top))


def d(name, mode=0o755, uid=0):
    return entry(name, DIR, mode=mode, uid=uid)


def f(name, text="x"):
    return entry(name, data=text.encode())


def whiteouts_hide_what_is_below(store):
    image = store.image([
        tar(d("a"), f("a/one"), f("a/two"), d("a/sub"), f("a/sub/x"), f("gone")),
        tar(entry(".wh.gone"), d("a"), entry("a/.wh.one"), entry("a/.wh.sub")),
        tar(d("a"), f("a/three"))])
    with store.mounted(image) as m:
        check(seen(m) == ["a", "a/three", "a/two"], seen(m))


def opaque_directory_hides_its_lower_self(store):
    image = store.image([tar(d("a"), f("a/old"), d("b"), f("b/kept")),
                         tar(d("a"), entry("a/.wh..wh..opq"), f("a/new"))])
    with store.mounted(image) as m:
        check(seen(m) == ["a", "a/new", "b", "b/kept"], seen(m))


def whiteout_and_directory_in_one_layer_is_opaque(store):
    for order in ((entry(".wh.a"), d("a"), f("a/new")), (d("a"), f("a/new"), entry(".wh.a"))):
        image = store.image([tar(d("a"), f("a/old")), tar(*order)], str(order[0][0].name))
        with store.mounted(image) as m:
            check(seen(m) == ["a", "a/new"], seen(m))


def opaque_root_cuts_the_stack(store):
    image = store.image([tar(f("old"), d("a"), f("a/old")),
                         tar(entry(".wh..wh..opq"), d("a"), f("a/new")), tar(f("top"))])
    with store.mounted(image) as m:
        check(seen(m) == ["a", "a/new", "top"], seen(m))


def implicit_parents_keep_the_metadata_below(store):
    image = store.image([
        tar(d("tmp", 0o1777), d("srv", 0o750, 1000), d("srv/deep", 0o701, 1001)),
        tar(f("tmp/x"), f("srv/deep/y")), tar(f("srv/deep/z"), f("fresh/n"))])
    with store.mounted(image) as m:
        got = {k: v[1:3] for k, v in listing(m).items() if v[0] == stat.S_IFDIR}
        check(got == {"tmp": (0o1777, 0), "srv": (0o750, 1000), "srv/deep": (0o701, 1001),
                      "fresh": (0o755, 0)}, got)


def implicit_parent_does_not_bring_back_the_deleted(store):
    """The lowest tmp is deleted by the middle layer: the implicit one on top is a new directory."""
    image = store.image([tar(d("t", 0o1777), f("t/old")), tar(entry(".wh.t")), tar(f("t/new"))])
    with store.mounted(image) as m:
        check(seen(m) == ["t", "t/new"], seen(m))
        check(listing(m)["t"][1] == 0o755, oct(listing(m)["t"][1]))
    image = store.image([tar(d("t"), f("t/old")), tar(f("t/i")), tar(entry(".wh.t"))], "second")
    with store.mounted(image) as m:
        check(seen(m) == [], seen(m))


def whiteouts_with_nothing_below_are_not_seen(store):
    image = store.image([tar(d("a"), entry("a/.wh.x"), f("a/y"), entry(".wh.z"), d("b"))])
    with store.mounted(image) as m:
        check(seen(m) == ["a", "a/y", "b"], seen(m))
        check(sorted(os.listdir(m / "a")) == ["y"], os.listdir(m / "a"))
    image = store.image([tar(d("b")), tar(d("c", 0o711), entry("c/.wh.x"))], "middle")
    with store.mounted(image) as m:
        check(os.listdir(m / "c") == [], os.listdir(m / "c"))
        check(listing(m)["c"][1] == 0o711, "mode")


def repeated_layer_is_mounted_once(store):
    a, b = tar(d("a"), f("a/1")), tar(entry(".wh.a"), f("b"))
    image = store.image([a, b, a])
    with store.mounted(image) as m:
        check(seen(m) == ["a", "a/1", "b"], seen(m))


def metadata_is_kept(store):
    xattr = "SCHILY.xattr."
    image = store.image([tar(
        entry("suid", data=b"s", mode=0o6755, uid=7),
        entry("cap", data=b"c", mode=0o755,
              pax={xattr + "security.capability": CAPABILITY.decode("latin1")}),
        entry("attr", data=b"a", pax={xattr + "user.k": "v\nw"}),
        entry("time", data=b"t", pax={"mtime": "1234567890.123456789"}),
        entry("owner", data=b"o", uid=4000000000, gid=65534),
        entry("link", SYM, link="/nowhere", uid=5), entry("hard", HARD, link="suid"),
        entry("latin\udcff", data=b"l"), d("setgid", 0o2775, 9))])
    with store.mounted(image) as m:
        check(listing(m)["suid"][1:3] == (0o6755, 7), "set-uid")
        check(os.getxattr(m / "cap", "security.capability") == CAPABILITY, "capability")
        check(os.getxattr(m / "attr", "user.k") == b"v\nw", "user attribute")
        check((m / "time").stat().st_mtime_ns == 1234567890123456789, "time")
        check((m / "owner").stat().st_uid == 4000000000, "owner")
        check((m / "link").lstat().st_uid == 5, "owner of a symbolic link")
        check((m / "hard").stat().st_ino == (m / "suid").stat().st_ino, "hard link")
        check(b"latin\xff" in os.listdir(os.fsencode(m)), "a name that is not UTF-8")
        check(listing(m)["setgid"][1] == 0o2775, "set-gid directory")


def forged_overlay_marks_are_dropped(store):
    xattr = "SCHILY.xattr."
    image = store.image([tar(d("a"), f("a/old"), d("secret"), f("secret/s")), tar(entry(
        "a", DIR, mode=0o755, pax={xattr + "trusted.overlay.opaque": "y",
                                   xattr + "trusted.overlay.redirect": "/secret"}))])
    with store.mounted(image) as m:
        check(sorted(os.listdir(m / "a")) == ["old"], os.listdir(m / "a"))


def forty_layers_merge_as_documented(store):
    path = str(TOP / "tools" / "test-images")
    loader = importlib.machinery.SourceFileLoader("test_images", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("test_images", loader))
    loader.exec_module(module)
    out = store.root.parent / "images"
    out.mkdir()
    module.make_forty(out, out)
    blobs = out / "forty" / "blobs"
    manifest = json.loads((out / "forty" / "index.json").read_text())["manifests"][0]["digest"]
    manifest = json.loads((blobs / manifest.replace(":", "/")).read_text())
    config = json.loads((blobs / manifest["config"]["digest"].replace(":", "/")).read_text())
    ids = [i.removeprefix("sha256:") for i in config["rootfs"]["diff_ids"]]
    for layer, diff_id in zip(manifest["layers"], ids):
        form = {"r": "plain", "p": "gzip", "d": "zstd"}[layer["mediaType"][-1]]
        store.must("unpack", diff_id, form, blobs / layer["digest"].replace(":", "/"))
    image = hashlib.sha256(b"forty").hexdigest()
    store.must("image", image, *ids)
    with store.mounted(image) as m:
        want = dict(line.split("\t") for line in (out / "forty.expect").read_text().splitlines())
        got = {p: v[3].decode().strip() for p, v in listing(m).items()
               if v[0] == stat.S_IFREG and not p.startswith(("bin/", "etc/"))}
        check(got == want, sorted(set(got.items()) ^ set(want.items()))[:5])
        check(listing(m)["tmp"][1] == 0o1777, "the mode of /tmp")


def seconds(*args):
    """Of processor time that the call takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = args[0](*args[1:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def many_implicit_directories_cost_little(store):
    deep = "d/" * 100
    files = [entry(f"{deep}{i:x}/f") for i in range(2000)]
    layers = [store.add(tar(*files, f(f"only-{n}"))) for n in range(4)]
    for n in range(10):  # a processor that is shared is slow at times
        _, took = seconds(store.must, "image", hashlib.sha256(b"many %d" % n).hexdigest(), *layers)
        if took < 2:
            break
    check(took < 2, f"{took} s of processor time")


def too_many_implicit_directories_are_refused(store):
    layers = [store.add(tar(d("d"), f(f"only-{n}"))) for n in range(120)]
    top = store.add(tar(*[entry(f"d/{i:x}/f") for i in range(9000)]))
    image = hashlib.sha256(b"too many").hexdigest()
    done = store.call("image", image, *layers, top)
    check(done.returncode == errno.EBADMSG and "too many directories" in done.stderr, f"{done.returncode} {done.stderr}")
    check(store.call("stack", image).returncode == errno.ENOENT, "it is an image")
    check(os.listdir(store.root / "tmp") == [], "tmp is not empty")


def errors_say_which(store):
    good = tar(f("x"))
    digest = hashlib.sha256(good).hexdigest()
    blob = store.root.parent / "blob"
    blob.write_bytes(tar(entry("../x", data=b"x")))
    done = store.call("unpack", digest, "plain", blob)
    check(done.returncode == errno.EBADMSG, f"refused: {done.returncode} {done.stderr}")
    check("'..' in a name" in done.stderr, done.stderr)
    blob.write_bytes(tar(f("y")))
    done = store.call("unpack", digest, "plain", blob)
    check(done.returncode == errno.EILSEQ, f"diff id: {done.returncode} {done.stderr}")
    done = store.call("image", digest, digest)
    check(done.returncode == errno.ENOENT, f"image: {done.returncode} {done.stderr}")
    done = store.call("stack", digest)
    check(done.returncode == errno.ENOENT, f"stack: {done.returncode} {done.stderr}")
    check(os.listdir(store.root / "tmp") == [], "tmp is not empty")
    check(os.listdir(store.root / "layers") == [], "a refused layer stayed")


def prune_keeps_what_is_used(store):
    shared, one, two = tar(f("shared")), tar(f("one")), tar(f("two"))
    first, second = store.image([shared, one], "first"), store.image([shared, two], "second")
    out = store.must("prune", "1", first, first)  # forgotten, but a slot has it
    check(out.startswith("layers=0 "), out)
    check(store.call("stack", first).returncode == errno.ENOENT, "a forgotten image is claimed")
    with store.mounted(second) as m:
        check(seen(m) == ["shared", "two"], seen(m))
    out = store.must("prune", "0")  # the slot has gone
    check(out == "layers=1 bytes=1\n", out)
    out = store.must("prune", "1", second)
    check(out == "layers=2 bytes=2\n", out)
    for name in ("layers", "images", "fix", "forgotten", "tmp"):
        check(os.listdir(store.root / name) == [], name)


def torn_layers_go_at_the_next_start(store):
    kept = store.image([tar(f("kept"))])
    torn, fresh = store.add(tar(f("torn"))), store.add(tar(f("fresh")))
    (store.root / "layers" / torn / "boot").write_text("another")
    (store.root / "tmp" / "half").mkdir()
    store.must("stack", kept)
    there = os.listdir(store.root / "layers")
    check(torn not in there and fresh in there and len(there) == 2, there)
    check(os.listdir(store.root / "tmp") == [], "tmp is not emptied")
    check("was_there=1" in store.must("unpack", fresh, "plain", "/dev/null"), "was_there")


TESTS = (whiteouts_hide_what_is_below, opaque_directory_hides_its_lower_self,
         whiteout_and_directory_in_one_layer_is_opaque, opaque_root_cuts_the_stack,
         implicit_parents_keep_the_metadata_below,
         implicit_parent_does_not_bring_back_the_deleted,
         whiteouts_with_nothing_below_are_not_seen, repeated_layer_is_mounted_once,
         metadata_is_kept, forged_overlay_marks_are_dropped, forty_layers_merge_as_documented,
         many_implicit_directories_cost_little, too_many_implicit_directories_are_refused,
         errors_say_which, prune_keeps_what_is_used, torn_layers_go_at_the_next_start)


def run(tally, work, tool, unpack):
    for number, test in enumerate(TESTS):
        name = "stack/" + test.__name__
        if not tally.wanted(name):
            continue
        place = work / f"stack{number}"
        place.mkdir()
        try:
            test(Store(place / "store", tool, unpack))
            tally.result(name, None)
        except (Failure, OSError, subprocess.CalledProcessError) as e:
            tally.result(name, str(e) or type(e).__name__)

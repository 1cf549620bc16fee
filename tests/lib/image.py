"""Images made on the spot: of one static program, for suites that need a tool of their own inside, or of any entries.

    with Node(images="") as node:
        image.load(node, "plant")          # tests/images/plant.c at /plant
        image.load(node, "plant", "-two")  # the same as another image, plant-two
        image.load_tree(node, "odd", [image.directory("etc"), image.link("dev", "/etc")])
        image.load_python(node)            # python: busybox and this machine's Python, with what a program over sockets imports"""
import hashlib
import importlib.util
import io
import json
import marshal
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile

from harness import BUILD, TOP

MEDIA = "application/vnd.oci.image."


def _blob(out, data, media):
    digest = hashlib.sha256(data).hexdigest()
    (out / "blobs" / "sha256" / digest).write_bytes(data)
    return {"mediaType": MEDIA + media, "digest": "sha256:" + digest, "size": len(data)}


def _entry(name, kind, mode, data=b"", target=""):
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname = kind, mode, len(data), target
    return info, data


def directory(name, mode=0o755):
    return _entry(name, tarfile.DIRTYPE, mode)


def file(name, data, mode=0o644):
    return _entry(name, tarfile.REGTYPE, mode, data)


def link(name, target):
    return _entry(name, tarfile.SYMTYPE, 0o777, target=target)


def fifo(name):
    return _entry(name, tarfile.FIFOTYPE, 0o666)


def _layer(entries):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return raw.getvalue()


def _write(name, layer, settings):
    """The layout below the build directory, which bothyd of a scratch node sees as /mnt/build."""
    out = BUILD / "tests" / "images" / name
    shutil.rmtree(out, ignore_errors=True)
    (out / "blobs" / "sha256").mkdir(parents=True)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = {"architecture": arch, "os": "linux", "config": settings,
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}
    manifest = {"schemaVersion": 2, "mediaType": MEDIA + "manifest.v1+json",
                "config": _blob(out, json.dumps(config).encode(), "config.v1+json"),
                "layers": [_blob(out, layer, "layer.v1.tar")]}
    entry = _blob(out, json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (out / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (out / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def make(name, variant=""):
    entries = [directory("tmp", 0o1777), directory("var"), directory("var/tmp", 0o1777), directory("etc")]
    with tempfile.TemporaryDirectory() as work:
        made = pathlib.Path(work, name)
        subprocess.run(["gcc", "-O2", "-static", "-s", "-o", made, TOP / "tests" / "images" / f"{name}.c", "-lrt"], check=True)
        entries.append(file(name, made.read_bytes(), 0o755))
        _write(name + variant, _layer(entries), {"Entrypoint": ["/" + name], "Labels": {"variant": variant}})
        shutil.copy(made, program(name))


def program(name):
    """What make() built, for use outside."""
    return (BUILD / "tests" / "images" / name).with_suffix(".program")


def pull(node, name):
    if getattr(node, "engine", None):
        node.engine.bring([name], {name: BUILD / "tests" / "images" / name})
        return subprocess.CompletedProcess([], 0, b"", b"")
    return node.cli("image", "pull", "--as", name, f"oci:/mnt/build/tests/images/{name}:latest")


def load(node, name, variant=""):
    make(name, variant)
    pull(node, name + variant)


def load_tree(node, name, entries, **settings):
    """An image of these entries; settings are those of its configuration (User, WorkingDir, ...). Gives what the pull said."""
    _write(name, _layer(entries), settings)
    return pull(node, name)


PYTHON = "/usr/bin/python3"
LOADED = "import errno, fcntl, select, socket, struct, sys, time, encodings.idna; print(*{m.__file__ for m in sys.modules.values() if getattr(m, '__file__', 0)})"


def _compiled(path):
    """The code of a module by itself, in a file that needs no source: 20 of them are compiled at each start otherwise."""
    code = compile(pathlib.Path(path).read_bytes(), path, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes([1]) + b"\0" * 11 + marshal.dumps(code)


def _python_files():
    """{path: bytes} of what one start of it opens."""
    def said(*words):
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    real = os.path.realpath(PYTHON)
    modules = [m for m in said(PYTHON, "-IS", "-c", LOADED).split() if m.endswith(".py")]
    libraries = re.findall(r"(/\S+) \(0x", said("ldd", real))
    return {PYTHON: pathlib.Path(real).read_bytes(), **{m + "c": _compiled(m) for m in modules},
            **{f: pathlib.Path(f).read_bytes() for f in libraries}}


def load_python(node):
    """An image of 10 MB instead of a distribution's: a guest without KVM takes minutes for that."""
    files = _python_files()
    modules = next(f for f in files if f.endswith("/os.pyc")).removesuffix("/os.pyc")
    files["/bin/busybox"] = pathlib.Path(shutil.which("busybox")).read_bytes()
    places = {str(p) for f in [*files, modules + "/lib-dynload/"] for p in pathlib.PurePath(f).parents} | {modules + "/lib-dynload", "/etc", "/tmp"}
    entries = [directory(d[1:]) for d in sorted(places - {"/"})]
    entries += [file(name[1:], data, 0o755) for name, data in files.items()]
    entries += [link(f"bin/{name}", "busybox") for name in ("sh", "cat", "sleep", "true", "echo")]
    return load_tree(node, "python", entries, Env=["PATH=/usr/bin:/bin", "PYTHONNOUSERSITE=1"])


def derive(base, name, entries):
    """An image of the cache with one more layer; its layout, which bothyd of a scratch node sees, too."""
    layout = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev")) / "images" / base
    out, layer = BUILD / "tests" / "images" / name, _layer(entries)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(layout, out)
    blobs = out / "blobs" / "sha256"
    read = lambda digest: json.loads((blobs / digest.removeprefix("sha256:")).read_text())  # noqa: E731
    manifest = read(json.loads((out / "index.json").read_text())["manifests"][0]["digest"])
    config = read(manifest["config"]["digest"])
    config["rootfs"]["diff_ids"].append("sha256:" + hashlib.sha256(layer).hexdigest())
    config.pop("history", None)
    manifest["config"] = _blob(out, json.dumps(config).encode(), "config.v1+json")
    manifest["layers"].append(_blob(out, layer, "layer.v1.tar"))
    entry = _blob(out, json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (out / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return out

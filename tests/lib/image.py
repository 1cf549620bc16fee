"""An image of one static program, made on the spot: for suites that need a tool of their own inside.

    with Node(images="") as node:
        image.load(node, "plant")          # tests/images/plant.c at /plant
        image.load(node, "plant", "-two")  # the same as another image, plant-two"""
import hashlib
import io
import json
import pathlib
import platform
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


def _layer(program, name):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for directory, mode in (("tmp", 0o1777), ("var", 0o755), ("var/tmp", 0o1777), ("etc", 0o755)):
            info = tarfile.TarInfo(directory)
            info.type, info.mode = tarfile.DIRTYPE, mode
            tar.addfile(info)
        info = tarfile.TarInfo(name)
        info.mode, info.size = 0o755, len(program)
        tar.addfile(info, io.BytesIO(program))
    return raw.getvalue()


def make(name, variant=""):
    """The layout below the build directory, which bothyd of a scratch node sees as /mnt/build."""
    out = BUILD / "tests" / "images" / (name + variant)
    shutil.rmtree(out, ignore_errors=True)
    (out / "blobs" / "sha256").mkdir(parents=True)
    with tempfile.TemporaryDirectory() as work:
        made = pathlib.Path(work, name)
        subprocess.run(["gcc", "-O2", "-static", "-s", "-o", made, TOP / "tests" / "images" / f"{name}.c", "-lrt"], check=True)
        layer = _layer(made.read_bytes(), name)
        shutil.copy(made, program(name))
    arch = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    config = {"architecture": arch, "os": "linux", "config": {"Entrypoint": ["/" + name], "Labels": {"variant": variant}},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}
    manifest = {"schemaVersion": 2, "mediaType": MEDIA + "manifest.v1+json",
                "config": _blob(out, json.dumps(config).encode(), "config.v1+json"),
                "layers": [_blob(out, layer, "layer.v1.tar")]}
    entry = _blob(out, json.dumps(manifest).encode(), "manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (out / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (out / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')


def program(name):
    """What make() built, for use outside."""
    return (BUILD / "tests" / "images" / name).with_suffix(".program")


def load(node, name, variant=""):
    make(name, variant)
    node.cli("image", "pull", "--as", name + variant, f"oci:/mnt/build/tests/images/{name}{variant}:latest")

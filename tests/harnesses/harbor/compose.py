"""Docker's compose plugin, which Harbor's own environment needs and Debian 12 does not have: Debian 13's, unpacked below $BOTHY_CACHE/sdk."""
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

MIRROR = os.environ.get("BOTHY_DEBIAN_MIRROR", "http://deb.debian.org/debian")
PLUGIN = "usr/libexec/docker/cli-plugins/docker-compose"


def fetched(path):
    with urllib.request.urlopen(f"{MIRROR}/{path}", timeout=120) as answer:
        return answer.read()


def plugin(cache):
    """The program's path; made if need be."""
    out = pathlib.Path(cache) / "docker-compose"
    if not out.exists():
        architecture = subprocess.run(["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        listed = lzma.decompress(fetched(f"dists/trixie/main/binary-{architecture}/Packages.xz")).decode()
        entry = next(part for part in listed.split("\n\n") if part.startswith("Package: docker-compose\n"))
        archive = fetched(re.search(r"^Filename: (.*)$", entry, re.M)[1])
        if hashlib.sha256(archive).hexdigest() != re.search(r"^SHA256: (.*)$", entry, re.M)[1]:
            raise RuntimeError("docker-compose is not what the mirror's list says")
        with tempfile.TemporaryDirectory() as scratch:
            pathlib.Path(scratch, "deb").write_bytes(archive)
            subprocess.run(["dpkg-deb", "--extract", f"{scratch}/deb", f"{scratch}/tree"], check=True)
            out.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(f"{scratch}/tree/{PLUGIN}", f"{out}.part")
        os.rename(f"{out}.part", out)
    return out


if __name__ == "__main__":
    print(plugin(sys.argv[1]))

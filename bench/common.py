"""What the benchmarks share: arguments, a crun bundle of the same root, figures."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "lib")]

import harness  # noqa: E402

CLIENT = harness.BUILD / "bench" / "bench-client"
CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev"))


def arguments(name, short, long):
    parser = argparse.ArgumentParser(prog=f"bench {name}")
    parser.add_argument("--json", action="store_true", help="one JSON line a subject, ratios last")
    parser.add_argument("--long", action="store_true", help=f"{long} rounds instead of {short}")
    parser.add_argument("--n", type=int, default=0, help="rounds")
    args = parser.parse_args()
    args.n = args.n or (long if args.long else short)
    return args


def bundle(where, argv):
    """A crun bundle with busybox as its root and crun's own default configuration."""
    layout = CACHE / "images" / "busybox"
    manifest = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    layers = json.loads(blob(layout, manifest).read_text())["layers"]
    root = pathlib.Path(where, "rootfs")
    root.mkdir()
    for layer in layers:
        subprocess.run(["tar", "-xf", blob(layout, layer["digest"]), "-C", root], check=True)
    subprocess.run(["crun", "spec"], cwd=where, check=True)
    path = pathlib.Path(where, "config.json")
    config = json.loads(path.read_text())
    config["process"].update(args=argv, terminal=False)
    config["linux"]["cgroupsPath"] = f"/bothy-bench-{os.getpid()}/c"
    path.write_text(json.dumps(config))
    return where


def blob(layout, digest):
    return layout / "blobs" / "sha256" / digest.split(":")[1]


# crun refuses machines with both cgroup versions mounted; it must not see the second.
ONE_CGROUP = ["unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh"]


def crun(where, *words):
    """The words of a crun call whose state lies beside the bundle."""
    return ["crun", "--root", f"{where}/state", "--cgroup-manager", "cgroupfs", *words]


def measure(*words):
    """{subject: [ns…]} of what bench-client prints."""
    done = subprocess.run([*ONE_CGROUP, CLIENT, *map(str, words)], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit("bench-client failed")
    taken = {}
    for line in done.stdout.splitlines():
        subject, ns = line.split()
        taken.setdefault(subject, []).append(int(ns))
    return taken


def quantile(sorted_values, q):
    return sorted_values[min(len(sorted_values) - 1, int(q * len(sorted_values)))] / 1e6


def figures(bench, taken):
    rows = []
    for subject, values in taken.items():
        values = sorted(values)
        rows.append({"bench": bench, "subject": subject, "n": len(values),
                     **{f"p{int(q * 100)}_ms": round(quantile(values, q), 3) for q in (0.5, 0.95, 0.99)}})
    ours = rows[0]["p50_ms"]
    ratio = {f"{r['subject']}/bothy": round(r["p50_ms"] / ours, 2) for r in rows[1:]}
    return rows, {"bench": bench, "ratio": ratio}


def show(bench, taken, as_json):
    rows, ratio = figures(bench, taken)
    if as_json:
        for line in (*rows, ratio):
            print(json.dumps(line))
        return
    print(f"{bench:<10} {'n':>6} {'p50 ms':>10} {'p95 ms':>10} {'p99 ms':>10}")
    for r in rows:
        print(f"{r['subject']:<10} {r['n']:>6} {r['p50_ms']:>10.3f} {r['p95_ms']:>10.3f} {r['p99_ms']:>10.3f}")
    for name, value in ratio["ratio"].items():
        print(f"{name} = {value} (p50)")


def remove(where):
    shutil.rmtree(where, ignore_errors=True)
    for path in pathlib.Path("/sys/fs/cgroup").glob(f"**/bothy-bench-{os.getpid()}"):
        for part in sorted(path.glob("**/"), reverse=True):
            try:
                part.rmdir()
            except OSError:
                pass

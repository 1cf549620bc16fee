"""What the benchmarks share: arguments, figures, thresholds, records, and the rivals' set-up."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "lib")]

import engines  # noqa: E402
import harness  # noqa: E402

CLIENT = harness.BUILD / "bench" / "bench-client"
CACHE = pathlib.Path(os.environ.get("BOTHY_CACHE", "/var/cache/bothy-dev"))
MEASURED = HERE.parent / "docs" / "measured" / "bench.json"
CGROUP = f"/bothy-bench-{os.getpid()}"
UID_BASE = 0x10000000 + 20000 * 65536  # of rivals; far behind the slots'
VIEWS = ("/proc/meminfo", "/sys/devices/system/cpu/online")  # of a slot (warden/bundle.c)


# ---- arguments and figures ----

def arguments(name, short, long, **more):
    """more: option -> (default, help)."""
    parser = argparse.ArgumentParser(prog=f"bench {name}")
    parser.add_argument("--json", action="store_true", help="one JSON line a subject, ratios last")
    parser.add_argument("--long", action="store_true", help=f"{long} rounds instead of {short}")
    parser.add_argument("--n", type=int, default=0, help="rounds")
    parser.add_argument("--require", nargs="?", type=float, const=1.0, metavar="PART",
                        help="fail unless every required ratio is reached; PART of it (0.8) allows for noise")
    parser.add_argument("--record", action="store_true", help="put the figures into docs/measured/bench.json")
    for option, (default, text) in more.items():
        parser.add_argument(f"--{option}", default=default, help=text)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is taken down
    args.n = args.n or (long if args.long else short)
    return args


def quantile(sorted_values, q):
    return sorted_values[min(len(sorted_values) - 1, int(q * len(sorted_values)))] / 1e6


def figures(bench, taken, rivals):
    """Rows, and the ratio of each rival's median to ours."""
    rows = []
    for subject, values in taken.items():
        values = sorted(values)
        rows.append({"bench": bench, "subject": subject, "n": len(values),
                     **{f"p{int(q * 100)}_ms": round(quantile(values, q), 3) for q in (0.5, 0.95, 0.99)}})
    median = {row["subject"]: row["p50_ms"] for row in rows}
    ratio = {r: round(median[r] / median["bothy"], 2) for r in rivals if r in median}
    return rows, {"bench": bench, "ratio": ratio}


def show(lines, as_json):
    """Every line but those of ratios as a table, or all of them as JSON."""
    if as_json:
        for line in lines:
            print(json.dumps(line), flush=True)
        return
    for line in lines:
        if "p50_ms" in line:
            print(f"{line['bench']:<12}{line['subject']:<14}{line['n']:>6}"
                  f"{line['p50_ms']:>12.3f}{line['p95_ms']:>12.3f}{line['p99_ms']:>12.3f}")
        else:
            print(" ".join(f"{k} {v}" for k, v in line.items()))


def judge(bench, ratio, required, part):
    """Says of each required ratio whether it is met; False if one is not and that was asked for."""
    all_met = True
    for subject, least in required.items():
        got = ratio.get(subject)
        bound = least * (part or 1.0)
        met = got is not None and got >= bound
        all_met = all_met and met
        print(f"{bench}: {subject} {'-' if got is None else got}, required {least}"
              f"{f' (here {bound:.2f})' if part not in (None, 1.0) else ''}: {'met' if met else 'NOT MET'}",
              file=sys.stderr)
    return all_met or part is None


def finish(args, bench, lines, required):
    """Prints, judges, records; the exit status."""
    show(lines, args.json)
    ratio = next((line["ratio"] for line in lines if "ratio" in line and line["bench"] == bench), {})
    met = judge(bench, ratio, required, args.require)
    if args.record:
        record(lines)
    return 0 if met else 1


def record(lines):
    """Replaces the figures of these benchmarks in docs/measured/bench.json; leaves the others."""
    known = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    benches = known.get("benches", {})
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True,
                            check=False).stdout.strip()
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    for bench in {line["bench"] for line in lines}:
        benches[bench] = {"date": stamp, "commit": commit, "machine": machine(),
                          "figures": [{k: v for k, v in line.items() if k != "bench"}
                                      for line in lines if line["bench"] == bench]}
    MEASURED.write_text(json.dumps({"suite": "bench", "benches": dict(sorted(benches.items()))}, indent=2) + "\n")


def machine():
    uname = os.uname()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"kernel": uname.release, "arch": uname.machine, "cores": os.cpu_count(),
            "memory_gib": round(memory / 2**30, 1)}


# ---- the client ----

# crun refuses machines with both cgroup versions mounted; it must not see the second.
ONE_CGROUP = ["unshare", "--mount", "sh", "-c", 'umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"', "sh"]


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


# ---- rivals: crun and runc with the walls of a slot ----

class Rivals:
    """Bundles for crun and runc made from a slot's own: its capabilities, seccomp profile, namespaces
    (the user namespace among them), limits, masked paths. The root is an overlay of the same layers,
    its upper on the file system of the slots' uppers."""

    def __init__(self, node, image):
        self.node, self.image = node, image
        self.where = pathlib.Path(tempfile.mkdtemp(prefix="bothy-bench-"))
        self.where.chmod(0o755)
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="bothy-bench-", dir="/dev/shm"))
        self.scratch = pathlib.Path(node.dir, "warden", "bench")

    def __enter__(self):
        self.scratch.mkdir(mode=0o755)
        (self.where / "empty").mkdir()
        return self

    def __exit__(self, *_):
        for path in (self.where, self.state, self.scratch):
            shutil.rmtree(path, ignore_errors=True)
        remove_cgroups()

    @property
    def digest(self):
        """Of the image's config: what the warden knows it by."""
        return next(i["digest"] for i in self.node.ok("GET", "/v1/images")["images"]
                    if i["name"].split(":")[0].endswith(self.image)).removeprefix("sha256:")

    def layers(self):
        """As the claim stacks them, top first."""
        warden = pathlib.Path(self.node.dir, "warden")
        found = ["skel"]
        for line in (warden / "images" / self.digest).read_text().split("\n")[1:-1]:
            found.append(f"fix/{self.digest}/tree" if line == "fix" else f"layers/{line}/tree")
        return [str(warden / name) for name in found]

    def bundle(self, name, argv, compiled=False):
        """A bundle's directory; its root is rootfs below it. compiled: with the annotation by which the
        warden spares crun the compilation of the seccomp profile; container tools do not write it."""
        slots = pathlib.Path(self.node.dir, "warden", "slots")
        config = json.loads(next(slots.glob("*/config.json")).read_text())
        config["linux"]["resources"]["pids"]["limit"] = 512  # a slot's own is small until it has tried it
        path = self.where / name
        (path / "rootfs").mkdir(parents=True)
        config["process"].update(args=argv, noNewPrivileges=True, env=[
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
        config["root"] = {"path": str(path / "rootfs"), "readonly": False}
        if not compiled:
            config.pop("annotations", None)
        # What a slot is shown of its limits is no wall, and container tools do without: crun is spared it.
        config["mounts"] = [mount for mount in config["mounts"] if mount["destination"] not in VIEWS]
        masks = [mount for mount in config["mounts"] if mount["type"] == "bind"]
        for mount in masks:
            mount["source"] = str(self.where / "empty")
        if name.startswith("runc"):  # it refuses mounts below /proc: the same directories by its own masks
            config["mounts"] = [mount for mount in config["mounts"] if mount not in masks]
            config["linux"]["maskedPaths"] += [mount["destination"] for mount in masks]
        config["linux"]["cgroupsPath"] = f"{CGROUP}/{name}"
        for kind in ("uidMappings", "gidMappings"):
            config["linux"][kind] = [{"containerID": 0, "hostID": UID_BASE, "size": 65536}]
        (path / "config.json").write_text(json.dumps(config))
        return path

    def command(self, runtime, *words):
        """A call of the runtime, whose state lies on a tmpfs as that of the slots' does."""
        options = ["--cgroup-manager", "cgroupfs"] if runtime == "crun" else []
        return [runtime, "--root", str(self.state / runtime), *options, *words]

    def run(self, runtime, subject, compiled=False):
        """The words of bench-client for `RUNTIME run` of true, its root mounted before."""
        bundle = self.bundle(subject, ["true"], compiled)
        return ["--", subject, "root", bundle / "rootfs", self.scratch_of(subject), ":".join(self.layers()), UID_BASE,
                *self.command(runtime, "run", "--no-new-keyring", "--bundle", str(bundle), "{}")]

    @contextlib.contextmanager
    def live(self, runtime):
        """A container that sleeps; gives the words of bench-client for an exec in it."""
        name = f"{runtime}-live"
        bundle, label = self.bundle(name, ["sleep", "100000"]), f"bench-live-{os.getpid()}"
        subprocess.run([*ONE_CGROUP, CLIENT, "root", bundle / "rootfs", self.scratch_of(name), ":".join(self.layers()),
                        str(UID_BASE), *self.command(runtime, "run", "--no-new-keyring", "--detach", "--bundle",
                                                     str(bundle), label)],
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            yield ["--", f"{runtime}-exec", "plain", *self.command(runtime, "exec", label, "true")]
        finally:
            subprocess.run([*ONE_CGROUP, *self.command(runtime, "delete", "--force", label)], check=False)

    def scratch_of(self, name):
        path = self.scratch / name
        path.mkdir()
        return path


def remove_cgroups():
    """A run that was cut off leaves containers: what is in our cgroups is ours to kill."""
    engines.remove_cgroups(CGROUP)


# ---- rivals: docker ----

class Docker(engines.Dockerd):
    """A dockerd of our own (tests/lib/engines.py), by its command line."""

    def __init__(self, *images):
        super().__init__(*images, cgroup=CGROUP)

    @property
    def host(self):
        return f"unix://{self.socket}"

    @staticmethod
    def program():
        """The client that came with the daemon, not one that happens to be first in PATH."""
        return "/usr/bin/docker" if os.access("/usr/bin/docker", os.X_OK) else "docker"

    def command(self, *words):
        return [self.program(), "--host", self.host, *map(str, words)]

    def docker(self, *words, check=True):
        return subprocess.run(self.command(*words), check=check, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=None if check else subprocess.DEVNULL, text=True)

    def run(self, image):
        return ["--", "docker-run", "plain", *self.command("run", "--rm", "--network", "none", image, "true")]

    def exec(self, image, *argv):
        """The words of bench-client for an exec in a container that sleeps. It goes with the daemon."""
        live = self.docker("run", "--detach", "--network", "none", image, "sleep", "100000").stdout.strip()
        return ["--", "docker-exec", "plain", *self.command("exec", live, *argv)]

"""What a node has, again and again, and whether it grows.

Growth is the slope of a least-squares line over the second half of the run, times its length. It is too much when it is more than the
bound of its row and a twentieth of the mean, and cannot be the noise around the line (three standard errors; what is in flight rises and
falls with the machine's speed, so one sample says something of the next, and as many as tell the same count as one). What is kept for a
while after an end follows the speed of the machine: half of the mean is its share, and the suite asks for its end afterwards."""
import math
import os
import pathlib
import statistics
import time

import census

# What is looked at: name, and the growth over half a run that is never held against it.
BOUNDS = {
    "bothyd anonymous kB": 2048, "warden anonymous kB": 512, "bothyd descriptors": 10, "warden descriptors": 10,
    "bothyd threads": 4, "warden threads": 4, "cgroups": 40, "mounts of the warden": 20, "slots": 8, "uppers": 8,
    "inodes of the warden": 500, "spool files": 500, "spool kB": 8192, "store kB": 1024,
}
KEPT = {"spool files", "spool kB"}


def tree(path):
    """(files, kB on disk)."""
    files = blocks = 0
    for top, _, names in os.walk(path):
        for name in names:
            try:
                blocks += os.lstat(f"{top}/{name}").st_blocks
                files += 1
            except OSError:
                pass
    return files, blocks // 2


def store_kb(node):
    return sum(p.stat().st_size for p in pathlib.Path(node.dir, "bothyd").glob("store.db*")) // 1024


def sample(node):
    bothyd, warden = node.pid("bothyd"), node.pid("warden")
    files, kb = tree(f"{node.dir}/bothyd/spool")
    return {"bothyd anonymous kB": census.status(bothyd, "RssAnon"), "warden anonymous kB": census.status(warden, "RssAnon"),
            "bothyd descriptors": census.fds(bothyd), "warden descriptors": census.fds(warden),
            "bothyd threads": census.status(bothyd, "Threads"), "warden threads": census.status(warden, "Threads"),
            "cgroups": census.cgroups(node), "mounts of the warden": census.mounts(warden), "slots": census.slots(node)[1],
            "uppers": len(os.listdir(f"{node.dir}/warden/uppers")), "inodes of the warden": census.inodes(node),
            "spool files": files, "spool kB": kb, "store kB": store_kb(node)}


def line(points):
    """(growth over the points' length, three standard errors of it)."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    mx, my, n = statistics.fmean(xs), statistics.fmean(ys), len(points)
    sxx = sum((x - mx) ** 2 for x in xs)
    slope = sum((x - mx) * (y - my) for x, y in points) / sxx
    off = [y - my - slope * (x - mx) for x, y in points]
    rest = sum(r * r for r in off)
    alike = sum(a * b for a, b in zip(off, off[1:])) / rest if rest else 0  # of neighbours
    same = (1 + alike) / (1 - alike) if alike > 0 else 1  # how many samples tell what one does
    length = xs[-1] - xs[0]
    return slope * length, 3 * length * math.sqrt(rest / max(1, n - 2) / sxx * same)


def verdict(points, bound, share=20):
    """(grows?, figures) of [(seconds, value)], the whole run's."""
    half = points[len(points) // 2:]
    growth, noise = line(half)
    mean = statistics.fmean(y for _, y in half)
    allowed = max(bound, mean / share)
    return growth > allowed and growth > noise, {
        "mean": round(mean, 1), "slope_per_hour": round(growth / (half[-1][0] - half[0][0]) * 3600, 1),
        "growth_in_half": round(growth, 1), "allowed": round(allowed, 1), "noise": round(noise, 1),
        "least": min(y for _, y in half), "most": max(y for _, y in half)}


class Sampler:
    def __init__(self, node, every):
        self.node, self.every, self.rows, self.began = node, every, [], time.monotonic()

    def run(self, going):
        while going():
            at = time.monotonic()
            try:
                self.rows.append((at - self.began, sample(self.node)))
            except OSError:
                pass  # something went while it was looked at
            time.sleep(max(0.0, self.every - (time.monotonic() - at)))

    def verdicts(self):
        return {name: verdict([(t, row[name]) for t, row in self.rows], bound, 2 if name in KEPT else 20) for name, bound in BOUNDS.items()}

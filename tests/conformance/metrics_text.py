"""A checker of the Prometheus text format 0.0.4."""
import re

from harness import check

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"^({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?,?\}})? ([^ ]+)( -?[0-9]+)?$")
TYPES = ("counter", "gauge", "histogram", "summary", "untyped")


def base(name, kinds):
    for suffix in ("_bucket", "_sum", "_count"):
        if name.endswith(suffix) and kinds.get(name[:-len(suffix)]) in ("histogram", "summary"):
            return name[:-len(suffix)]
    return name


def parse(text):
    """{(name, labels): value} of a text that keeps the format's rules."""
    kinds, helped, done, samples, last = {}, set(), set(), {}, None
    check(text.endswith("\n"), "the last line does not end")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            check(name not in helped, f"{name} has two HELP lines")
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            check(kind in TYPES and name not in kinds, f"bad or second TYPE: {line}")
            check(name not in done, f"TYPE of {name} comes after its samples")
            kinds[name] = kind
        elif line and not line.startswith("#"):
            m = SAMPLE.match(line)
            check(m, f"not a sample: {line!r}")
            key, value = (m[1], m[2] or ""), float(m[3])
            check(key not in samples, f"twice: {line!r}")
            samples[key] = value
            family = base(m[1], kinds)
            check(family == last or family not in done, f"samples of {family} are not together")
            done.add(family)
            last = family
    check_histograms(kinds, samples)
    return kinds, samples


def check_histograms(kinds, samples):
    for name in (n for n, k in kinds.items() if k == "histogram"):
        rows = {}
        for (sample, labels), value in samples.items():
            if sample == name + "_bucket":
                rest = re.sub(r',?le="[^"]*"', "", labels).lstrip(",")
                rows.setdefault(rest, []).append((float(re.search(r'le="([^"]*)"', labels)[1]), value))
        for rest, buckets in rows.items():
            values = [v for _, v in sorted(buckets)]
            check(values == sorted(values), f"{name}: buckets fall")
            check(max(b for b, _ in buckets) == float("inf"), f"{name}: no +Inf bucket")
            check(samples[(name + "_count", rest)] == values[-1], f"{name}: _count is not the +Inf bucket")
            check((name + "_sum", rest) in samples, f"{name}: no _sum")

"""The units of systemd against the tables in the source. One table is the source of both: who changes
src/daemon/calls.c or src/warden/privs.c is told here what to write into the unit."""
import pathlib
import re
import shutil
import subprocess
import tempfile

import tables
import unit_like
from harness import TOP, Skip, check, equal

UNITS = TOP / "deploy" / "systemd"
# What systemd-analyze calls exposure, times ten: no more than this. The warden is root with SYS_ADMIN, and most of what it lacks would
# be inherited by sandboxes.
THRESHOLD = {"bothyd.service": 17, "bothy-warden.service": 69}


def unit(name):
    """Every value of every key; a key that comes again adds to it."""
    values = {}
    for line in re.sub(r"\\\n", " ", (UNITS / name).read_text()).splitlines():
        key, _, value = line.partition("=")
        if value is not None and re.fullmatch(r"\w+", key):
            values.setdefault(key, []).extend(value.split())
    return values


def calls_of(name):
    listed = unit(name)["SystemCallFilter"]
    return {w.lstrip("~") for w in listed}, listed[0].startswith("~")


def compare(got, wanted, what):
    check(got == wanted, f"{what}: missing {sorted(wanted - got)}, too much {sorted(got - wanted)}")


def cases(suite):
    @suite.case("units: the warden's bounding set is what the source keeps, and what SECURITY.md tells")
    def _():
        listed = {w.removeprefix("CAP_") for w in unit("bothy-warden.service")["CapabilityBoundingSet"]}
        compare(listed, tables.warden_caps(), "bounding set")
        compare(tables.documented_warden_caps(), tables.warden_caps(), "SECURITY.md")
        compare(tables.documented_sandbox_caps(), tables.sandbox_caps(), "SECURITY.md, a sandbox")

    @suite.case("units: the warden's deny list is the source's")
    def _():
        listed, denies = calls_of("bothy-warden.service")
        check(denies, "it is no deny list")
        compare(listed, tables.calls_in("src/warden/privs.c", "DENIED"), "calls")
        equal(unit("bothy-warden.service")["SystemCallErrorNumber"], ["EPERM"], "answer")

    @suite.case("units: bothyd's allow list is the source's")
    def _():
        listed, denies = calls_of("bothyd.service")
        check(not denies, "it is no allow list")
        conditional = set(re.findall(r"filter_add_if\(&f, SCMP_ACT_ALLOW, SCMP_SYS\((\w+)\)", tables.source("src/daemon/calls.c")))
        compare(listed, tables.calls_in("src/daemon/calls.c", "ALLOWED") | conditional, "calls")
        equal(unit("bothyd.service")["SystemCallErrorNumber"], ["ENOSYS"], "answer")

    @suite.case("units: bothyd's families of sockets are the source's")
    def _():
        body = re.search(r"FAMILIES\[\] = {(.*?)}", tables.source("src/daemon/calls.c"))[1]
        compare(set(unit("bothyd.service")["RestrictAddressFamilies"]), set(re.findall(r"AF_\w+", body)), "families")

    limits(suite)
    tools(suite)
    unit_like.cases(suite, unit)


def limits(suite):
    @suite.case("units: what the programs give up themselves, the units take from them")
    def _():
        daemon, warden = unit("bothyd.service"), unit("bothy-warden.service")
        for values in (daemon, warden):
            equal(values["LimitCORE"], ["0"], "LimitCORE")
            equal(values["AmbientCapabilities"], [], "AmbientCapabilities")
            equal(values["ProtectSystem"], ["strict"], "ProtectSystem")
            equal(values["OOMPolicy"], ["continue"], "OOMPolicy")
            equal(values.get("StartLimitIntervalSec"), ["0"], "StartLimitIntervalSec: a node is never given up")
            check(int(values.get("OOMScoreAdjust", ["0"])[0]) <= -250, "sandboxes (200) run out of the host's memory first")
        for key, value in (("User", "bothy"), ("NoNewPrivileges", "yes"), ("MemoryDenyWriteExecute", "yes"), ("RestrictNamespaces", "yes"),
                           ("SystemCallArchitectures", "native")):
            equal(daemon[key], [value], key)
        equal(daemon["CapabilityBoundingSet"], [], "CapabilityBoundingSet")
        defaults = dict(re.findall(r'CONFIG_ROW\((?:listen|state), (socket|dir), TEXT, "(.*?)"', tables.source("src/daemon/config_table.h")))
        equal(set(daemon["ReadWritePaths"]), {defaults["dir"], str(pathlib.Path(defaults["socket"]).parent)}, "ReadWritePaths")

    @suite.case("units: slots outlive the warden, and inherit nothing that their programs could not live by")
    def _():
        warden = unit("bothy-warden.service")
        for key, value in (("KillMode", "process"), ("TasksMax", "infinity"), ("NoNewPrivileges", "no")):
            equal(warden[key], [value], key)
        inherited = {"MemoryDenyWriteExecute", "RestrictNamespaces", "RestrictSUIDSGID", "RestrictAddressFamilies", "LockPersonality",
                     "RestrictRealtime", "SystemCallArchitectures"}
        covering = {"ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "ProtectControlGroups", "PrivateDevices"}
        equal(sorted((inherited | covering) & set(warden)), [], "set for the warden")


def tools(suite):
    @suite.case("units: systemd-analyze takes them, and calls them no more exposed than is known")
    def _():
        if not shutil.which("systemd-analyze"):
            raise Skip("there is no systemd-analyze")
        with tempfile.TemporaryDirectory(prefix="bothy-units-") as work:
            for name, most in THRESHOLD.items():
                # The programs are not installed here: any that exists takes their place.
                text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", (UNITS / name).read_text(), flags=re.M)
                path = pathlib.Path(work, name)
                path.write_text(text)
                said(["systemd-analyze", "verify", "--man=no", path])
                said(["systemd-analyze", "security", "--offline=true", f"--threshold={most}", path], quiet=False)

    @suite.case("units: systemd takes the users and the directories")
    def _():
        if not shutil.which("systemd-sysusers"):
            raise Skip("there is no systemd-sysusers")
        said(["systemd-sysusers", "--dry-run", UNITS / "bothy.sysusers.conf"], quiet=False)
        with tempfile.TemporaryDirectory(prefix="bothy-units-") as root:
            etc = pathlib.Path(root, "etc")
            etc.mkdir()
            for name in ("passwd", "group"):
                shutil.copy(f"/etc/{name}", etc / name)
            said(["systemd-tmpfiles", "--create", f"--root={root}", UNITS / "bothy.tmpfiles.conf"])
            for path, mode in (("run/bothy", 0o755), ("var/lib/bothy/bothyd", 0o700), ("var/lib/bothy/warden", 0o700)):
                equal(pathlib.Path(root, path).stat().st_mode & 0o777, mode, path)


def said(command, quiet=True):
    r = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=60, check=False)
    text = (r.stdout + r.stderr).strip()
    check(r.returncode == 0 and not (quiet and text), f"{command[:2]}: status {r.returncode}, {text[-600:]}")

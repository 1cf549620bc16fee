"""There is no systemd here to run the warden's unit. This does by hand what the unit asks for and what could break a sandbox: its
bounding set, a read-only root with the unit's exceptions, its limits; and looks whether sandboxes still come and go."""
import os
import pathlib
import subprocess

from harness import BUILD, Node, equal, eventually

SCRIPT = """
set -e
mount --make-rprivate /
for d in "$1/warden" "$1/run"; do mount --rbind "$d" "$d"; done
mount -o remount,bind,ro /
! touch /usr/written-by-the-warden 2>/dev/null
shift
exec "$@"
"""


def start(node, values):
    """The warden of the node again, as its unit would have it."""
    keep = ",".join("+" + c.removeprefix("CAP_").lower() for c in values["CapabilityBoundingSet"])
    limits = [f"--core={values['LimitCORE'][0]}:{values['LimitCORE'][0]}"]
    words = ["--state", f"{node.dir}/warden", "--socket", f"{node.dir}/run/warden.sock", "--user", "bothy", "--cgroup", "/" + node.cgroup,
             "--init", BUILD / "src/init/bothy-init", "--unpack", BUILD / "src/unpack/bothy-unpack",
             "--seccomp", BUILD / "src/warden/seccomp.json", "--pool", node.pool]
    with open(f"{node.dir}/log/warden.log", "ab") as log:
        p = subprocess.Popen(["unshare", "--mount", "sh", "-c", SCRIPT, "sh", node.dir, "prlimit", *limits, "setpriv",
                              f"--bounding-set=-all,{keep}", "--inh-caps=-all", BUILD / "bin/bothy-warden", *words],
                             stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    pathlib.Path(node.dir, "ctl/warden.pid").write_text(f"{p.pid}\n")
    return p


def cases(suite, unit):
    @suite.case("units: with the bounding set, the read-only root and the limits of its unit the warden makes and ends sandboxes")
    def _():
        with Node(pool="1:2") as node:
            old = node.create()
            node.kill("warden")
            os.unlink(f"{node.dir}/run/warden.sock")
            p = start(node, unit("bothy-warden.service"))
            try:
                eventually("it listens", lambda: os.path.exists(f"{node.dir}/run/warden.sock"), 20)
                for _ in range(3):  # more than were ready
                    with node.sandbox() as sb:
                        equal(node.shell(sb, "echo $((6 * 7)) >/tmp/x; cat /tmp/x"), "42\n", "out")
                equal(node.shell(old, "echo still"), "still\n", "out of the one before")
                node.delete(old)
                node.ok("POST", "/v1/images", {"source": "oci:/mnt/images/dash:latest", "name": "dash"})
                with node.sandbox("dash") as sb:
                    equal(node.exec(sb, ["/bin/sh", "-c", "echo dash"])["out"]["text"], "dash\n", "out of what was unpacked")
            finally:
                p.kill()  # at a polite end a sanitizer would count the connection that is open
                p.wait()

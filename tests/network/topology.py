"""Two network namespaces of this test: the node's, and the rest of the world's. The machine's own interfaces, tables and settings
are not touched."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SUBNET = "10.215.0.0/18"
WEB, RESOLVER, ROGUE = "198.51.100.10", "10.77.0.53", "198.51.100.54"
METADATA = "169.254.169.254"
PRIVATE = ("10.77.0.20", "192.168.77.20", "172.16.5.20", "100.64.7.20", "198.18.0.20", "192.0.0.20")
WORLD = (WEB, RESOLVER, ROGUE, METADATA, *PRIVATE)
WORLD6 = ("2001:db8:1::10", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1")
HOST = ("203.0.113.1", "10.77.0.1", "192.168.50.1")  # outside, its private network, one that only lo has
HOST6 = "2001:db8:2::1"
LATER = "203.0.113.77"  # an address the host gets when sandboxes are there already


def run(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True)


class Topology:
    def __init__(self):
        self.node, self.world = f"bothy-n{os.getpid()}", f"bothy-w{os.getpid()}"
        self.dir = tempfile.mkdtemp(prefix="bothy-net-")
        self.servers = []

    @property
    def wrap(self):
        """Words before a command that is to run where the node is. ip netns exec would also change its mounts."""
        return ["nsenter", f"--net=/run/netns/{self.node}"]

    def ip(self, where, *words):
        return run("ip", "-n", where, *words)

    def __enter__(self):
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        for ns in (self.node, self.world):
            run("ip", "netns", "add", ns)
            self.ip(ns, "link", "set", "lo", "up")
        run("ip", "-n", self.node, "link", "add", "up0", "type", "veth", "peer", "name", "down0", "netns", self.world)
        self.plan(self.node, "up0", [HOST[0] + "/24", HOST[1] + "/24", HOST6 + "/64"], [HOST[2] + "/32"])
        self.plan(self.world, "down0", ["203.0.113.2/24", "10.77.0.2/24", "2001:db8:2::2/64"],
                  [a + "/32" for a in WORLD] + [a + "/128" for a in WORLD6])
        self.ip(self.node, "route", "add", "default", "via", "203.0.113.2")
        self.ip(self.node, "route", "add", "10.77.0.53/32", "via", "203.0.113.2")
        self.ip(self.node, "-6", "route", "add", "default", "via", "2001:db8:2::2")
        # A packet with a sandbox's own source would be answered: that it is masked shows in what the world sees.
        self.ip(self.world, "route", "add", "10.215.0.0/18", "via", HOST[0])
        self.serve(self.world, "world", *WORLD, *WORLD6)
        self.serve(self.node, "host", "0.0.0.0", "::")

    def plan(self, ns, dev, own, others):
        for name, addresses in ((dev, own), ("lo", others)):
            for a in addresses:
                self.ip(ns, "addr", "add", a, "dev", name, *(["nodad"] if ":" in a else []))
        self.ip(ns, "link", "set", dev, "up")

    def serve(self, ns, name, *addresses):
        control = f"{self.dir}/{name}"
        only6 = run("nsenter", f"--net=/run/netns/{ns}", "sysctl", "-qw", "net.ipv6.bindv6only=1", check=False)
        assert not only6.returncode, only6.stderr
        log = open(f"{control}.log", "w")
        self.servers.append(subprocess.Popen(["nsenter", f"--net=/run/netns/{ns}", sys.executable, str(HERE / "world.py"), control,
                                              *addresses], stdout=log, stderr=log))
        end = time.monotonic() + 10
        while not os.path.exists(control):
            if time.monotonic() > end:
                raise RuntimeError(pathlib.Path(control + ".log").read_text())
            time.sleep(0.05)

    def seen(self, name="world"):
        """Packets that came there since the last call: (protocol, source, destination)."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(f"{self.dir}/{name}")
            return [tuple(line.split()) for line in s.makefile().read().splitlines()]

    def nft(self, *words):
        return run(*self.wrap, "nft", *words).stdout

    def links(self):
        names = [line.split(":")[1].strip().split("@")[0] for line in run("ip", "-n", self.node, "-o", "link").stdout.splitlines()]
        return [n for n in names if n.startswith("by")]

    def __exit__(self, *_):
        for p in self.servers:
            p.kill()
            p.wait()
        for ns in (self.node, self.world):
            run("ip", "netns", "del", ns, check=False)
        shutil.rmtree(self.dir, ignore_errors=True)

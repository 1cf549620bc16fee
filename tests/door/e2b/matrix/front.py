"""What old SDKs need before bothyd: TLS by HAProxy (deploy/haproxy/haproxy.cfg) with an authority of the test's own, and a name server for
which every name below the domain is this machine. Nothing of the SDK is changed then."""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading

from harness import TOP, eventually

DOMAIN = "sbx.test"


def own_address():
    """A loopback address that no other run and no service has: its ports 53 and 443 are free."""
    return f"127.83.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"


def answer(query, address):
    """The DNS answer: the address for A, nothing for the rest."""
    end = 12
    while query[end]:
        end += query[end] + 1
    question = query[12:end + 5]
    found = question[-4:] == b"\0\1\0\1"
    head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if found else b"\0\0") + b"\0\0\0\0"
    return head + question + (b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(address) if found else b"")


class Names:
    """A name server that has one answer."""

    def __init__(self, address):
        self.address = address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                query, peer = self.socket.recvfrom(4096)
                self.socket.sendto(answer(query, self.address), peer)
            except (IndexError, ValueError):
                continue
            except OSError:
                return


class Front:
    def __init__(self, bothyd_port):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="bothy-front-"))
        self.address = own_address()
        self.bothyd = f"127.0.0.1:{bothyd_port}"

    def openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.dir, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def certify(self):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test authority",
                     "-keyout", "ca.key", "-out", "ca.pem")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={DOMAIN}", "-keyout", "site.key", "-out", "site.csr")
        (self.dir / "names").write_text(f"subjectAltName=DNS:*.{DOMAIN},DNS:{DOMAIN}\n")
        self.openssl("x509", "-req", "-in", "site.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", "site.crt")
        (self.dir / "site.pem").write_text((self.dir / "site.crt").read_text() + (self.dir / "site.key").read_text())

    def __enter__(self):
        self.certify()
        self.names = Names(self.address)
        (self.dir / "resolv.conf").write_text(f"nameserver {self.address}\n")
        settings = {"BOTHY_BIND": f"{self.address}:443", "BOTHY_PEM": str(self.dir / "site.pem"), "BOTHY_NODE": self.bothyd}
        with open(self.dir / "haproxy.log", "wb") as log:
            self.haproxy = subprocess.Popen(["haproxy", "-db", "-f", TOP / "deploy" / "haproxy" / "haproxy.cfg"], env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            eventually("HAProxy listens", self.listens)
        except AssertionError:
            print((self.dir / "haproxy.log").read_text())
            self.__exit__()
            raise
        return self

    def listens(self):
        if self.haproxy.poll() is not None:
            raise AssertionError("HAProxy did not start")
        with socket.socket() as s:
            return s.connect_ex((self.address, 443)) == 0

    def __exit__(self, *_):
        self.haproxy.terminate()
        self.haproxy.wait()
        self.names.socket.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def environment(self):
        """For a client that is to come through here."""
        authority = str(self.dir / "ca.pem")
        return {"SSL_CERT_FILE": authority, "NODE_EXTRA_CA_CERTS": authority}

    def wrap(self, words):
        """The command, where names are asked of our server."""
        return ["unshare", "--mount", "sh", "-c", 'mount --make-rprivate / && mount --bind "$0" /etc/resolv.conf && exec "$@"',
                str(self.dir / "resolv.conf"), *words]

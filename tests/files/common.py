"""What the cases of this suite share: the file verbs of one sandbox, archives as values, a canary on the host."""
import contextlib
import hashlib
import io
import os
import pathlib
import random
import shutil
import tarfile
import tempfile
import time
import urllib.parse

from harness import Answer, ApiError, check, equal

PIECE = 1 << 20


def quote(path):
    """Bytes or text as a query's value."""
    return urllib.parse.quote(path if isinstance(path, bytes) else path.encode(), safe="/")


class Files:
    """The file verbs of one sandbox."""

    def __init__(self, node, sandbox):
        self.node, self.sandbox = node, sandbox

    def url(self, what, path, **query):
        more = "".join(f"&{k}={quote(v if isinstance(v, bytes) else str(v).lower() if isinstance(v, bool) else str(v))}" for k, v in query.items() if v is not None)
        return f"/v1/sandboxes/{self.sandbox}/files{what}?path={quote(path)}{more}"

    def call(self, method, what, path, body=None, headers=None, timeout=60, **query):
        return self.node.call(method, self.url(what, path, **query), body, headers, timeout)

    def ok(self, method, what, path, body=None, timeout=60, **query):
        a = self.call(method, what, path, body, timeout=timeout, **query)
        if a.status >= 300:
            raise ApiError(a)
        return a

    def read(self, path, **query):
        return self.ok("GET", "", path, **query).body

    def write(self, path, data, **query):
        return self.ok("PUT", "", path, data, **query).json

    def stat(self, path, **query):
        return self.ok("GET", "/stat", path, **query).json

    def exists(self, path):
        return self.call("GET", "/stat", path).status == 200

    def list(self, path, **query):
        """All pages."""
        got, cursor = [], None
        while True:
            page = self.ok("GET", "/list", path, cursor=cursor, **query).json
            got += page["entries"]
            cursor = page["next"]
            if not cursor:
                return got

    def remove(self, path, **query):
        return self.call("DELETE", "", path, **query)

    def pack(self, path, timeout=120, **query):
        return self.ok("GET", "/archive", path, timeout=timeout, **query).body

    def unpack(self, path, data, timeout=120, **query):
        return self.call("PUT", "/archive", path, data, timeout=timeout, **query)

    def shell(self, text, **spec):
        return self.node.shell(self.sandbox, text, **spec)

    def stream_down(self, what, path, sink, timeout=600, **query):
        """The body in pieces to sink(bytes); how many bytes."""
        c, r = self.node.open("GET", self.url(what, path, **query), timeout=timeout)
        total = 0
        try:
            if r.status != 200:
                raise ApiError(Answer(r.status, r.headers, r.read()))
            while piece := r.read(PIECE):
                total += len(piece)
                sink(piece)
        finally:
            c.close()
        return total

    def stream_up(self, what, path, pieces, timeout=600, length=None, **query):
        """A body of an iterable of bytes, in chunks or of a known length."""
        c = self.node.connection(timeout)
        headers = {"Content-Length": str(length)} if length is not None else {"Transfer-Encoding": "chunked"}
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                c.request("PUT", self.url(what, path, **query), body=pieces, headers=headers, encode_chunked=length is None)
            r = c.getresponse()
            return Answer(r.status, r.headers, r.read())
        finally:
            c.close()

    @contextlib.contextmanager
    def half_sent(self, what, path, first, **query):
        """An upload under way, of which `first` has been sent."""
        c = self.node.connection(90)
        c.putrequest("PUT", self.url(what, path, **query))
        c.putheader("Transfer-Encoding", "chunked")
        c.endheaders()
        upload = Upload(c)
        upload.send(first)
        try:
            yield upload
        finally:
            c.close()


class Upload:
    def __init__(self, connection):
        self.connection = connection

    def send(self, data):
        if data:
            self.connection.send(b"%x\r\n%s\r\n" % (len(data), data))

    def finish(self):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(b"0\r\n\r\n")
        r = self.connection.getresponse()
        return Answer(r.status, r.headers, r.read())


def noise(size, seed=1):
    """Bytes that are the same every time, in pieces."""
    source = random.Random(seed)
    block = source.randbytes(PIECE)
    n = 0
    while size > 0:
        head = (n.to_bytes(8, "little") + block)[:min(size, PIECE)]
        yield head
        size -= len(head)
        n += 1


def digest(pieces):
    h, size = hashlib.sha256(), 0
    for p in pieces:
        h.update(p)
        size += len(p)
    return h.hexdigest(), size


def tar(*members, form=tarfile.PAX_FORMAT):
    """A tar of (name, {attributes}, content); names may be bytes."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as t:
        for name, attributes, content in members:
            info = tarfile.TarInfo(os.fsdecode(name))
            info.mode, info.mtime, info.size = 0o644, 1_600_000_000, len(content)
            for k, v in attributes.items():
                setattr(info, k, v)
            t.addfile(info, io.BytesIO(content))
    return out.getvalue()


def member(name, content=b"", **attributes):
    return name, attributes, content


def symlink(name, target):
    return name, {"type": tarfile.SYMTYPE, "linkname": target}, b""


def hardlink(name, target):
    return name, {"type": tarfile.LNKTYPE, "linkname": target}, b""


def directory(name, mode=0o755):
    return name, {"type": tarfile.DIRTYPE, "mode": mode}, b""


def tar_of(data):
    return tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape")


def names_of(data):
    with tar_of(data) as t:
        return t.getnames()


@contextlib.contextmanager
def scratch(where=None):
    path = tempfile.mkdtemp(prefix="bothy-files-", dir=where)
    try:
        yield pathlib.Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Canary:
    """A directory of the host with a secret, readable and writable for everybody, that no sandbox may see or change. Its path
    is what attacks aim at."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="bothy-canary-")
        os.chmod(self.dir, 0o777)
        self.secret = os.urandom(16).hex()
        self.path = self.dir + "/secret"
        pathlib.Path(self.path).write_text(self.secret)
        os.chmod(self.path, 0o666)
        self.before = self.state()

    def state(self):
        found = []
        for top, dirs, files in os.walk(self.dir):
            for name in sorted(dirs + files):
                p = os.path.join(top, name)
                st = os.lstat(p)
                found.append((p, st.st_mode, st.st_uid, st.st_nlink, st.st_size, st.st_mtime_ns, st.st_ctime_ns))
        return sorted(found), pathlib.Path(self.path).read_text(), os.stat(self.dir).st_mtime_ns

    def check(self, *answers):
        equal(self.state(), self.before, "the host's canary")
        for a in answers:
            check(self.secret.encode() not in (a if isinstance(a, bytes) else a.body), "the host's secret came out")

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)


def well(node, f):
    """bothyd answers, and the sandbox's files can be used."""
    began = time.monotonic()
    equal(node.call("GET", "/healthz", timeout=10).status, 200, "health")
    f.write("/tmp/well", b"well")
    equal(f.read("/tmp/well"), b"well", "a file after it")
    check(time.monotonic() - began < 20, "bothyd has become slow")


def rss_mib(node):
    for line in pathlib.Path(f"/proc/{node.pid('bothyd')}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0

"""A server that is given by its address: ours or not, here or elsewhere.

    server = Server("http://127.0.0.1:7070", key="e2b_…", images={"busybox": "docker.io/library/busybox:1.36"})

It has what a Node has of the API. What belongs to a node of this machine (its directory, its processes) it has not: a case
that asks for it is skipped."""
import http.client
import urllib.parse

from harness import Api, Skip, UnixConnection

ITS_OWN = {"dir", "pid", "kill", "restart", "log", "exports", "cgroup", "cli", "port", "arm"}


class Server(Api):
    foreign = True

    def __init__(self, url, key=None, images=None, stream_max=None):
        super().__init__(key=key)
        self.url, self.images, self.stream_max = url, images or {}, stream_max
        where = urllib.parse.urlsplit(url)
        if where.scheme not in ("http", "https", "unix"):
            raise SystemExit(f"{url}: http://HOST[:PORT][/PATH], https://… or unix:///PATH is expected")
        self.where = where
        self.prefix = "" if where.scheme == "unix" else where.path.rstrip("/")

    def __getattr__(self, name):
        if name in ITS_OWN:
            raise Skip("it needs the node itself")
        raise AttributeError(name)

    def by_key(self, key):
        other = Server(self.url, key, self.images, self.stream_max)
        other.backend, other.caps = self.backend, self.caps
        return other

    def connection(self, timeout=30):
        if self.where.scheme == "unix":
            made = UnixConnection(self.where.path, timeout)
        else:
            kind = http.client.HTTPSConnection if self.where.scheme == "https" else http.client.HTTPConnection
            made = kind(self.where.hostname, self.where.port, timeout=timeout)
        plain = made.request

        def request(method, path, body=None, headers=None, **more):
            headers = dict(headers or {})
            if self.key:
                headers.setdefault("Authorization", "Bearer " + self.key)
            return plain(method, self.prefix + path, body=body, headers=headers, **more)
        made.request = request
        return made

    def open(self, method, path, body=None, headers=None, timeout=30):
        """Images by the names that this server has for them."""
        if path == "/v1/sandboxes" and isinstance(body, dict) and body.get("image") in self.images:
            body = {**body, "image": self.images[body["image"]]}
        return super().open(method, path, body, headers, timeout)

    def meet(self):
        """What it says of itself."""
        info = self.ok("GET", "/v1/info")
        self.backend, self.caps = info["backend"], info["caps"]
        return info

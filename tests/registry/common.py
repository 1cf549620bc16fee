"""What the cases share: registries, a node that knows them, images to pull, and looking for leftovers."""
import contextlib
import os
import pathlib

from harness import Api, Node
from pulls import (BUSYBOX, BUSYBOX_GZ, forget_all, helpers, image_of, is_here, kill_helper, layers_on_disk, noise,  # noqa: F401
                   nothing_under_way, pull, pulled)
from registry import Registry, Slow, free_port, make_ca


@contextlib.contextmanager
def held(slow):
    """A pull through the slow line stands still in the middle, where after() says, until the end of the block."""
    slow.wait_reached()
    slow.held.clear()
    try:
        yield
    finally:
        slow.held.set()


class World:
    """plain, tls and locked registries, `spare` that is a mirror, `slow` before plain; one node that knows them."""

    def __init__(self, scratch, suite):
        self.scratch, self.suite, self.stack = pathlib.Path(scratch), suite, contextlib.ExitStack()

    def __enter__(self):
        enter = self.stack.enter_context
        ca, cert, key = make_ca(self.scratch)
        self.ca = ca
        os.chmod(ca, 0o644)
        self.plain = enter(Registry(self.scratch / "plain"))
        self.spare = enter(Registry(self.scratch / "spare"))
        self.tls = enter(Registry(self.scratch / "tls", tls=(cert, key)))
        self.locked = enter(Registry(self.scratch / "locked", users={"alice": "correct horse", "bob": "battery staple"}))
        self.slow = enter(Slow(self.plain))
        self.slow_locked = enter(Slow(self.locked))
        self.port = free_port()
        self.node = enter(Node(images="", pool="2:2", env=f"BOTHY_LISTEN_TCP=127.0.0.1:{self.port}", config=f"""
images:
  from: any
registries:
  {self.plain.host}: {{insecure: true}}
  {self.slow.host}: {{insecure: true}}
  {self.slow_locked.host}: {{insecure: true}}
  {self.spare.host}: {{insecure: true}}
  {self.locked.host}:
    insecure: true
  {self.tls.host}:
    ca: {ca}
  registry.invalid:
    mirrors:
      - 127.0.0.1:1/dead
      - {self.spare.host}/mirrored
"""))
        return self

    def __exit__(self, *_):
        self.stack.close()

    def caller(self, owner, role="user"):
        """Somebody else, over TCP."""
        key = self.node.ok("POST", "/v1/keys", {"owner": owner, "role": role})["key"]
        return Api(tcp=f"127.0.0.1:{self.port}", key=key)

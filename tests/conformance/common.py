"""What the cases share."""
from harness import Skip


def needs(node, *caps):
    """Skips the case where the backend lacks one of these."""
    for cap in caps:
        if node.caps.get(cap, "absent") == "absent":
            raise Skip(f"the backend {node.backend} has no {cap}")


def native(node, cap, why):
    """Skips where the backend has it in another way."""
    if node.caps.get(cap, "absent") != "native":
        raise Skip(f"the backend {node.backend} has caps.{cap} {node.caps.get(cap, 'absent')}: {why}")


def told(node):
    """Whether bothyd knows an image's configuration; where images are names only, it is the container's alone."""
    return node.caps.get("images", "absent") != "absent"


OWN_STORE = "images are in the engine's own store, which takes no local source and no other name"
OWN_IDS = "no range of the machine's ids is a sandbox's alone"
OWN_WALLS = "walls are the engine's, and none is tried"


def beside(node):
    """Skips where the node is elsewhere: the case looks at it from outside."""
    if node.foreign:
        raise Skip("it looks at the machine the server runs on")


def walls(node):
    """Skips where commands are not separated from the node at all."""
    if node.backend == "fake":
        raise Skip("the backend fake runs commands without walls")

"""What the cases share."""
from harness import Skip


def needs(node, *caps):
    """Skips the case where the backend lacks one of these."""
    for cap in caps:
        if node.caps.get(cap, "absent") == "absent":
            raise Skip(f"the backend {node.backend} has no {cap}")


def beside(node):
    """Skips where the node is elsewhere: the case looks at it from outside."""
    if node.foreign:
        raise Skip("it looks at the machine the server runs on")


def walls(node):
    """Skips where commands are not separated from the node at all."""
    if node.backend == "fake":
        raise Skip("the backend fake runs commands without walls")

"""What the cases share."""
from harness import eventually


def equal(got, wanted, what=""):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def until(what, condition, seconds=30):
    return eventually(what, condition, seconds)

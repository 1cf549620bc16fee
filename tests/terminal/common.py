"""What the cases share."""
import time


def equal(got, wanted, what=""):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r} instead of {wanted!r}")


def until(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > end:
            raise AssertionError(f"not in {seconds} s: {what}")
        time.sleep(0.02)

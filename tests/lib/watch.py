"""Time that is the tested program's: what the machine's host takes of a processor is left out.

    watch = Watch()
    …
    check(watch.within(2), f"it took {watch}")

    limit = Watch(30)
    while not limit.over(): …"""
import os
import re
import time


def stolen():
    """Seconds that the host has run others on each processor while it was wanted here."""
    with open("/proc/stat") as f:
        return [int(line.split()[8]) / os.sysconf("SC_CLK_TCK") for line in f if re.match(r"cpu\d", line)]


class Watch:
    def __init__(self, limit=None):
        self.limit, self.began, self.lost = limit, time.monotonic(), stolen()

    def seconds(self):
        """All of them: for what must not be too early."""
        return time.monotonic() - self.began

    def taken(self):
        """Of the processor that lost most: whoever waited cannot have lost more by it."""
        return max(now - before for now, before in zip(stolen(), self.lost))

    def within(self, limit):
        return self.seconds() < limit or self.seconds() - self.taken() < limit

    def over(self):
        return not self.within(self.limit)

    def __str__(self):
        return f"{self.seconds():.2f} s, {self.taken():.2f} of them taken by the host"

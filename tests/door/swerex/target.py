"""What the programs that run in a client's own venv share: where the server is, and a loop to call it from."""
import asyncio
import json
import logging
import sys

from swerex.runtime.remote import RemoteRuntime

logging.disable(logging.CRITICAL)


def runtime(where, **more):
    """where: {"host", "port", "token"}"""
    return RemoteRuntime(**{"host": where["host"], "port": where["port"], "auth_token": where["token"], "timeout": 30.0, **more})


def task():
    """What the suite has given us to do."""
    return json.load(sys.stdin)


class Loop:
    """Calls a coroutine from a thread that has no loop."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def __call__(self, coroutine, seconds=120):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, seconds))

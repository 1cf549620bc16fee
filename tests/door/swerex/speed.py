"""How long run_in_session("true") takes, by the client in whose venv this runs. Given {"where", "n"}, prints milliseconds, sorted."""
import asyncio
import json
import sys
import time

import target
from swerex.runtime.abstract import BashAction, CreateBashSessionRequest


async def measure(where, n):
    r, took = target.runtime(where), []
    await r.create_session(CreateBashSessionRequest(session="speed", startup_timeout=30))
    for _ in range(n + 5):
        began = time.perf_counter()
        await r.run_in_session(BashAction(command="true", session="speed", timeout=60))
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took[5:])


given = target.task()
json.dump(asyncio.run(measure(given["where"], given["n"])), sys.stdout)

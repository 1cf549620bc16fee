"""Harbor's environment by itself: results that are told, an end that is tried again. (tests/harnesses/harbor runs whole tasks.)"""
import asyncio
import pathlib
import sys
import tempfile

from between import COMMAND, TOLD, between
from bothy import Client
from bothy.harbor import BothyEnvironment
from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths


async def main(image, here):
    environment = BothyEnvironment(here, "checks", "checks__env", TrialPaths(here), EnvironmentConfig(docker_image=image), network="none")
    await environment.start(force_build=False)
    sandbox, faults = environment.bothy.id, between(environment.bothy)
    done = await environment.exec("echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.return_code) == ("out\n", "err\n", 3), done
    faults.forgets = True
    assert (await environment.exec(COMMAND)).stdout == TOLD, "where output is missing it says so"
    faults.refuses = True
    await environment.stop(delete=True)  # nobody answers: no error
    faults.refuses = False
    await environment.stop(delete=True)
    with Client() as client:
        assert client.get(sandbox).info.state == "gone"

with tempfile.TemporaryDirectory() as scratch:
    asyncio.run(main(sys.argv[1], pathlib.Path(scratch)))

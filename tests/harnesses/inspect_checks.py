"""inspect_ai's own checks of a sandbox provider, as it ships them, and four of ours. The image's user is not root, so that every one of
them means something."""
import os

import pytest
import pytest_asyncio
from between import COMMAND, TOLD, between
from bothy import AsyncClient, BothyError, InvalidRequest
from bothy.inspect_ai import BothySandboxConfig, BothySandboxEnvironment
from inspect_ai.util import SandboxUnavailableError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

pytestmark = pytest.mark.asyncio
CONFIG = BothySandboxConfig(image=os.environ["CHECK_IMAGE"], user=os.environ["CHECK_USER"])


async def test_a_beginning_that_fails_leaves_no_sandbox():
    wrong = CONFIG.model_copy(update={"cwd": "/proc/none"})
    with pytest.raises(BothyError):
        await BothySandboxEnvironment.sample_init("wrong", wrong, {})
    async with AsyncClient() as client:
        assert [one.id async for one in client.list(label=["task=wrong"])] == []


async def test_output_before_a_time_limit_is_told(sandbox_env):
    with pytest.raises(TimeoutError) as caught:
        await sandbox_env.exec(["sh", "-c", "echo begun; sleep 60"], timeout=3, timeout_retry=False)
    assert caught.value.truncated_output == "begun\n"


async def test_only_a_sandbox_that_is_gone_is_unavailable(sandbox_env):
    with pytest.raises(InvalidRequest):
        await sandbox_env.exec(["true"], env={"A=B": "no name"})
    await sandbox_env.bothy.delete()
    with pytest.raises(SandboxUnavailableError):
        await sandbox_env.exec(["true"])


async def test_output_that_is_missing_is_told(sandbox_env):
    between(sandbox_env.bothy).forgets = True
    assert (await sandbox_env.exec(["sh", "-c", COMMAND])).stdout == TOLD
    with pytest.raises(TimeoutError) as caught:
        await sandbox_env.exec(["sh", "-c", f"{COMMAND}; sleep 60"], timeout=3, timeout_retry=False)
    assert caught.value.truncated_output == TOLD


@pytest_asyncio.fixture
async def sandbox_env(request):
    made = await BothySandboxEnvironment.sample_init("checks", CONFIG, {})
    yield made["default"]
    await BothySandboxEnvironment.sample_cleanup("checks", CONFIG, made, False)

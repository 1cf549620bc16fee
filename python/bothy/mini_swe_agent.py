"""mini-swe-agent's environment: each action a command of its own in one sandbox.

    environment:
      environment_class: bothy.mini_swe_agent.BothyEnvironment
      image: python:3.12
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from minisweagent.exceptions import Submitted
from pydantic import BaseModel

from . import BothyError, Client, ExecResult, Sandbox

MARKER = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
UNAME = ("system", "node", "release", "version", "machine")


class BothyEnvironmentConfig(BaseModel):
    image: str | None = None
    template: str | None = None
    """Instead of an image."""
    cwd: str = ""
    """Where commands begin; the image's directory if it is not said."""
    user: str | None = None
    env: dict[str, str] = {}
    forward_env: list[str] = []
    """Variables of this process that the sandbox gets, too; `env` goes before them."""
    timeout: int = 30
    """Seconds of a command."""
    interpreter: list[str] = ["bash", "-lc"]
    ttl: int = 7200
    """Seconds of the sandbox, should nobody end it."""
    limits: dict[str, float] | None = None
    network: str | None = None
    labels: dict[str, str] = {}
    url: str | None = None
    socket: str | None = None
    """Of the node; found as the command line finds it if neither is said."""


class BothyEnvironment:
    """The sandbox begins with the object and ends with `cleanup()`."""

    def __init__(self, *, config_class: type[BothyEnvironmentConfig] = BothyEnvironmentConfig, **kwargs: Any) -> None:
        self.config = config = config_class(**kwargs)
        self._sandbox: Sandbox | None = None
        self._uname: dict[str, str] | None = None
        self._client = Client(config.url, socket=config.socket)
        forwarded = {name: os.environ[name] for name in config.forward_env if name in os.environ}
        self._sandbox = self._client.create(config.image, template=config.template, user=config.user, cwd=config.cwd or None, ttl=config.ttl,
                                            env={**forwarded, **config.env}, limits=config.limits, network=config.network,
                                            labels={"harness": "mini-swe-agent", **config.labels})

    @property
    def sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise BothyError("the sandbox has been ended")
        return self._sandbox

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        seconds = timeout or self.config.timeout
        try:
            result = self.sandbox.exec([*self.config.interpreter, action.get("command", "")], cwd=cwd or None, timeout=seconds, merged=True)
            output = _told(result, seconds)
        except BothyError as e:
            output = _failed("", e)
        self._check_finished(output)
        return output

    def _check_finished(self, output: dict[str, Any]) -> None:
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == MARKER and output["returncode"] == 0:
            submission = "".join(lines[1:])
            raise Submitted({"role": "exit", "content": submission, "extra": {"exit_status": "Submitted", "submission": submission}})

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """What the sandbox says of itself, not this machine. It is asked once: mini-swe-agent calls this with every message."""
        if self._uname is None:
            with contextlib.suppress(BothyError):  # a sandbox that is dead fails its commands, not the run
                told = self.sandbox.exec("uname -s; uname -n; uname -r; uname -v; uname -m", timeout=30)
                self._uname = dict(zip(UNAME, told.text.splitlines()))
        return {**self.config.model_dump(), **dict.fromkeys(UNAME, ""), **(self._uname or {}), **kwargs}

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        environment = {**self.config.model_dump(mode="json"), "sandbox": self._sandbox.id if self._sandbox else None}
        return {"info": {"config": {"environment": environment, "environment_type": kind}}}

    def cleanup(self) -> None:
        """A sandbox that cannot be ended now ends with its time, or with the next call."""
        if self._sandbox is not None:
            with contextlib.suppress(BothyError):
                self._sandbox.delete()
                self._sandbox = None
                self._client.close()

    def __del__(self) -> None:
        if getattr(self, "_sandbox", None) is not None:
            self.cleanup()


def _told(result: ExecResult, seconds: float) -> dict[str, Any]:
    """A number that the command did not give itself is no return code: whoever reads it must not take it for one."""
    if result.timed_out:
        return _failed(result.told, TimeoutError(f"the command was ended after {seconds} seconds"))
    if result.status is None:
        return _failed(result.told, BothyError(f"nobody saw how the command ended ({result.said})"))
    return {"output": result.told, "returncode": result.status, "exception_info": ""}


def _failed(output: str, error: Exception) -> dict[str, Any]:
    return {"output": output, "returncode": -1, "exception_info": f"An error occurred while executing the command: {error}",
            "extra": {"exception_type": type(error).__name__, "exception": str(error)}}

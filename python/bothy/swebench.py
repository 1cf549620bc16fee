"""mini-swe-agent's SWE-bench runner, each instance in a sandbox of its image: `python -m bothy.swebench`, with the options of
`mini-extra swebench`. That one gives an instance's image to the classes that it knows by name only."""

from __future__ import annotations

from typing import Any

from minisweagent import Environment
from minisweagent.run.benchmarks import swebench

ENVIRONMENT = "bothy.mini_swe_agent.BothyEnvironment"
make_environment = swebench.get_sb_environment


def sandbox_of(config: dict[str, Any], instance: dict[str, Any]) -> Environment:
    own = {"environment_class": ENVIRONMENT, "image": swebench.get_swebench_docker_image_name(instance)}
    return make_environment({**config, "environment": {**config.get("environment", {}), **own}}, instance)


def main() -> None:
    swebench.get_sb_environment = sandbox_of
    swebench.app()


if __name__ == "__main__":
    main()

"""mini-swe-agent as published, with its own deterministic model: an agent that fixes a bug in a small repository in a sandbox, to the marker."""
import sys

import yaml
from between import COMMAND, TOLD, between
from bothy import Client
from minisweagent import package_dir
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output

REPOSITORY = """mkdir -p /tmp/repo && cd /tmp/repo && git init -q . && git config user.name a && git config user.email a@example.invalid
cat >roman.py <<'X'
def roman(n):
    out = ""
    for value, digit in ((10, "X"), (5, "V"), (4, "IV"), (1, "I")):
        while n >= value:
            out, n = out + digit, n - value
    return out
X
cat >test_roman.py <<'X'
import unittest
from roman import roman

class T(unittest.TestCase):
    def test_all(self):
        self.assertEqual([roman(n) for n in (3, 4, 9, 14)], ["III", "IV", "IX", "XIV"])
X
git add . && git commit -qm first"""
STEPS = [
    REPOSITORY,
    "cd /tmp/repo && python3 -m unittest -q",  # fails
    "sleep 60; echo never",  # is ended by its time limit
    """cd /tmp/repo && sed -i 's/(10, "X"), /(10, "X"), (9, "IX"), /' roman.py && git diff --stat >&2""",
    "cd /tmp/repo && python3 -m unittest -q && echo ALL PASS",
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; exit 1",  # no submission: it failed
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cd /tmp/repo && git diff",
]

config = yaml.safe_load((package_dir / "config" / "default.yaml").read_text())["agent"]
environment = get_environment({"environment_class": "bothy.mini_swe_agent.BothyEnvironment", "image": sys.argv[1], "env": {"PAGER": "cat"}, "timeout": 20})
sandbox = environment.sandbox.id
model = DeterministicModel(outputs=[make_output(f"step {n}", [{"command": c}]) for n, c in enumerate(STEPS)])
agent = DefaultAgent(model, environment, **{**config, "cost_limit": 100.0, "step_limit": 20})
result = agent.run("the number nine comes out wrong: mend it")
told = "\n".join(str(message.get("content")) for message in agent.messages)

assert result["exit_status"] == "Submitted", result
assert '+    for value, digit in ((10, "X"), (9, "IX"), (5, "V")' in result["submission"], result["submission"]
assert "FAILED (failures=1)" in told and "VIV" in told, told
assert "ALL PASS" in told and "1 file changed" in told, told
assert "<returncode>-1</returncode>" in told and "ended after 20 seconds" in told and "\nnever\n" not in told, told
assert len([message for message in agent.messages if message["role"] == "assistant"]) == len(STEPS), "every step was taken"
assert agent.env.serialize()["info"]["config"]["environment_type"] == "bothy.mini_swe_agent.BothyEnvironment"
commands = len(list(environment.sandbox.processes()))
assert commands == len(STEPS) + 1, f"{commands} commands for {len(STEPS)} steps: the sandbox is asked for its names once"
assert environment.get_template_vars()["system"] == "Linux"
dead = get_environment({"environment_class": "bothy.mini_swe_agent.BothyEnvironment", "image": sys.argv[1]})
dead.sandbox.delete()
assert dead.get_template_vars()["system"] == "", "a dead sandbox fails commands, not the run"
dead.cleanup()
faults = between(environment.sandbox)
faults.forgets = True
assert environment.execute({"command": COMMAND})["output"] == TOLD, "where output is missing it says so"
faults.refuses = True
environment.cleanup()
faults.refuses = False
environment.cleanup()
with Client() as client:
    assert client.get(sandbox).info.state == "gone"
print(f"{len(STEPS)} steps, submitted {len(result['submission'])} characters")

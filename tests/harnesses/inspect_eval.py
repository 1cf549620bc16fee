"""A whole evaluation of inspect_ai with its mock model and its bash tool."""
import sys
import tempfile

from bothy import Client
from bothy.inspect_ai import BothySandboxConfig
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec


def counted(output):
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else a tokenizer is fetched
    return output


model = get_model("mockllm/model", custom_outputs=[
    counted(ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "echo $((6 * 7)) >n; cat n given"})),
    counted(ModelOutput.from_content("mockllm/model", "it is 42"))])
task = Task(dataset=[Sample(input="compute", target="42", files={"given": "a file of the sample"})], solver=[use_tools(bash()), generate()],
            scorer=includes(), sandbox=SandboxEnvironmentSpec("bothy", BothySandboxConfig(image=sys.argv[1])))
log = eval(task, model=model, display="none", log_dir=tempfile.mkdtemp())[0]
assert log.status == "success", log.error
assert [m.text for m in log.samples[0].messages if m.role == "tool"] == ["42\na file of the sample"], log.samples[0].messages
assert log.results.scores[0].metrics["accuracy"].value == 1.0
with Client() as client:
    assert not list(client.list(label=["harness=inspect_ai"])), "a sandbox is left"
print("accuracy 1.0")

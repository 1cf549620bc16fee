"""What a provider sees of uni-agent, as JSON: {name: parameters}. Of its repository or of what stands in for it, by PYTHONPATH. With a file:
whatever stands there is here, too, and the same."""
import inspect
import json
import pathlib
import sys

from uni_agent.sandbox import base, registry


def parameters(function):
    """Names and kinds, without types. Defaults of pydantic's are its own."""
    return [f"{p.kind.name} {p.name}" for p in inspect.signature(function).parameters.values()]


found = {f"Sandbox.{name}": parameters(getattr(base.Sandbox, name)) for name, value in vars(base.Sandbox).items()
         if inspect.isfunction(value) or isinstance(value, classmethod)}
found |= {name: parameters(getattr(base, name)) for name in ("ExecResult", "SandboxConfig")}
found |= {name: parameters(getattr(registry, name)) for name in ("register_sandbox", "build_sandbox")}
found |= {f"Sandbox.{name}": getattr(base.Sandbox, name) for name in ("provider", "supports_shell")}
if len(sys.argv) > 1:
    ours = json.loads(pathlib.Path(sys.argv[1]).read_text())
    wrong = {name: (said, found.get(name)) for name, said in ours.items() if found.get(name) != said}
    assert not wrong, f"(here, there): {wrong}"
print(json.dumps(found))

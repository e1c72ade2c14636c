"""AgentCompile: language models as native engines.

    import agentcompile

    with agentcompile.LLM("Qwen/Qwen3-0.6B") as llm:
        print(llm.chat([{"role": "user", "content": "Hello"}]))

`LLM` runs a model, and compiles it when it is first used. The modules beside it capture PyTorch decoders
for the compiler. Importing this package loads none of them."""

import importlib

_HOMES = {
    "LLM": "llm",
    "Answer": "llm",
    "Stream": "llm",
    "Error": "exceptions",
    "JobFailed": "exceptions",
    "WrongUsage": "exceptions",
    "BadInput": "exceptions",
    "DeviceLost": "exceptions",
    "NotCompiled": "exceptions",
}
__all__ = list(_HOMES)


def __getattr__(name):
    if name == "__version__":
        return importlib.import_module("agentcompile._engine").version()
    if name not in _HOMES:
        raise AttributeError(f"module 'agentcompile' has no attribute {name!r}")
    return getattr(importlib.import_module(f"agentcompile.{_HOMES[name]}"), name)


def __dir__():
    return [*globals(), *__all__, "__version__"]

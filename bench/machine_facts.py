"""What a result file says of the machine and the engine that it was measured on."""

from collections.abc import Mapping
from typing import Any

FACTS = ("vllm", "torch_version", "driver_version", "gpus", "cpu")


def machine_facts(probe: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `probe_engine`'s answer that a reader of the result needs, as far as it is there.

    >>> machine_facts({"vllm": {"version": "0.32.0"}, "plugin": None})
    {'vllm': {'version': '0.32.0'}}
    """
    return {name: probe[name] for name in FACTS if name in probe}

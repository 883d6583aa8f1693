"""Whether a version may be used in this engine: fingerprint, envelope, captured graphs.

Everything is compared and every difference is told, in words. docs/adr/0004 says which
differences keep a version out and which are only noted.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

from tabletune.identity.artifact import ArtifactError
from tabletune.identity.same_content import content_as
from tabletune.records.fingerprint import Fingerprint, ModelFacts
from tabletune.records.table import TableVersion
from tabletune_vllm.observe import GRAPH_NONE
from tabletune_vllm.source.engine_self import EngineSelf

#: Engine settings that are compared: how a fingerprint names them, and what holds where it
#: does not (None: not compared then).
_SETTINGS: Final[dict[str, tuple[tuple[str, ...], str | None]]] = {
    "tensor_parallel_size": (("--tensor-parallel-size", "-tp"), "1"),
    "pipeline_parallel_size": (("--pipeline-parallel-size", "-pp"), "1"),
    "dtype": (("--dtype",), None),
    "quantization": (("--quantization", "-q"), None),
    "kv_cache_dtype": (("--kv-cache-dtype",), None),
}

_SAME: Final = {"half": "float16", "float": "float32", "fp8": "fp8_e4m3"}

#: (wanted content, model, revision) -> the model's content in the same notation.
ContentOf = Callable[[str, str, str | None], str]


@dataclass(frozen=True)
class Findings:
    """problems keep a version out; notes do not."""

    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class FingerprintCheck:
    """Compares fingerprints with one engine; models are identified once and remembered."""

    def __init__(self, engine: EngineSelf, content_of: ContentOf = content_as) -> None:
        self._engine, self._content_of = engine, content_of
        self._contents: dict[tuple[str, str], str] = {}

    def findings(self, fingerprint: Fingerprint) -> Findings:
        """What differs between the version's fingerprint and this engine."""
        problems, notes = list[str](), list[str]()
        for name, measured, here in self._facts(fingerprint):
            if here is None:
                notes.append(f"{name} is not checked: this engine cannot tell its own")
            elif here != measured:
                problems.append(f"{name}: measured {measured}, here {here}")
        for name, measured, here in self._labels(fingerprint):
            if here is not None and here != measured:
                notes.append(f"{name} differs: measured {measured}, here {here}")
        return Findings(tuple(problems), tuple(notes))

    def _facts(self, measured: Fingerprint) -> Iterator[tuple[str, str, str | None]]:
        """Name, value of the fingerprint, own value; the ones that must agree."""
        engine, machine, device = self._engine, self._engine.machine, measured.device
        yield "platform", device.platform, engine.device
        yield "device name", device.name, machine.device_name
        yield "device capability", device.capability, machine.capability
        if device.platform == "cpu" == engine.device:
            cores = machine.cores
            yield "processor cores", str(device.count), None if cores is None else str(cores)
        yield "engine distribution", measured.engine.distribution, machine.distribution
        yield "engine version", measured.engine.version, engine.vllm_version
        yield "model runner", measured.engine.runner, engine.runner
        yield "PyTorch version", measured.engine.torch, machine.torch
        yield "method", _method(measured.method), _method(engine.method)
        yield (
            "model",
            measured.model.content,
            self._content(measured.model, engine.model, engine.model_revision),
        )
        yield from self._drafter(measured)
        sizes = {"max_num_seqs": engine.max_num_seqs, "max_draft_length": engine.max_draft_length}
        for name, value in sizes.items():
            if name in measured.settings:
                yield name, measured.settings[name], str(value)
        for name, (flags, default) in _SETTINGS.items():
            stated = [measured.settings.get(f"engine {flag}") for flag in flags]
            wanted = next((value for value in stated if value is not None), default)
            if wanted is not None and wanted != "auto":
                here = engine.settings.get(name)
                yield name, _plain(wanted), None if here is None else _plain(here)

    def _drafter(self, measured: Fingerprint) -> Iterator[tuple[str, str, str | None]]:
        engine = self._engine
        if measured.drafter is None:
            yield "drafter", "none", engine.drafter or "none"
        else:
            # A drafter that is part of the model is named by the model.
            name = engine.drafter or engine.model
            revision = engine.drafter_revision if engine.drafter else engine.model_revision
            yield (
                "drafter",
                measured.drafter.content,
                self._content(measured.drafter, name, revision),
            )

    def _labels(self, measured: Fingerprint) -> Iterator[tuple[str, str, str | None]]:
        """The ones that may differ a little."""
        machine = self._engine.machine
        memory = machine.memory_bytes
        yield "driver", measured.device.driver, machine.driver
        yield (
            "GPU memory in bytes",
            str(measured.device.memory_bytes),
            None if memory is None else str(memory),
        )

    def _content(self, measured: ModelFacts, name: str, revision: str | None) -> str:
        """The model's content here. One that cannot be identified equals none: what it is
        matters too much to be taken on trust."""
        key = (measured.content.partition(":")[0], f"{name}\0{revision}")
        if key not in self._contents:
            try:
                self._contents[key] = self._content_of(measured.content, name, revision)
            except (ArtifactError, OSError) as error:
                return f"one that cannot be identified ({error})"
        return self._contents[key]


def fit_problems(version: TableVersion, engine: EngineSelf) -> tuple[str, ...]:
    """Why the version's table does not fit what this engine booted with; empty if it does."""
    table, problems = version.table, list[str]()
    if table.max_num_seqs != engine.max_num_seqs:
        problems.append(
            f"the table covers {table.max_num_seqs} requests, this engine runs up to "
            f"{engine.max_num_seqs}: start it with --max-num-seqs {table.max_num_seqs}"
        )
    beyond = [length for length in table.lengths if length > engine.max_draft_length]
    if beyond:
        problems.append(
            f"draft lengths {beyond} are above this engine's maximum {engine.max_draft_length}"
        )
    missing = sorted(set(table.lengths) - set(engine.boot_lengths) - set(beyond))
    if engine.needs_graphs and missing:
        problems.append(
            f"draft lengths {missing} have no graphs here, only {list(engine.boot_lengths)} of "
            "the boot table do: start the engine with a boot table that names them"
        )
    problems += _uncaptured(version, engine.graphs)
    return tuple(problems)


def _uncaptured(version: TableVersion, graphs: Mapping[str, object] | None) -> Iterator[str]:
    """Batch sizes of the table whose steps were promised a graph and have none here."""
    coverage = (graphs or {}).get("coverage")
    if version.plan.graph_mode == "NONE" or not isinstance(coverage, dict):
        return
    rows = cast("dict[str, dict[str, list[int]]]", coverage)
    for part in version.table.ranges:
        modes = rows.get(str(part.draft_length), {}).get("graph_mode")
        if modes is None:
            continue
        bare = [b for b in range(part.first, part.last + 1) if modes[b - 1] == GRAPH_NONE]
        if bare:
            yield (
                f"batch sizes {bare[0]} to {bare[-1]} with draft length {part.draft_length} run "
                f"without a graph here, and were measured with graph mode "
                f"{version.plan.graph_mode}: start the engine with the version's capture plan"
            )


def _plain(value: str) -> str:
    """A setting's value by its one name, where vLLM knows several."""
    return _SAME.get(value, value)


def _method(name: str) -> str:
    """vLLM calls every model's own multi-token predictor `mtp`."""
    return "mtp" if name.endswith("_mtp") else name

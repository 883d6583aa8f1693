"""What a GPU engine is told about CUDA graphs: the settings that decide its captures."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

GraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
"""vLLM's `cudagraph_mode`, by name (config/compilation.py, `CUDAGraphMode`)."""

Runner = Literal["v1", "v2"]
"""vLLM's model runner."""

Platform = Literal["gpu", "cpu"]
"""Where the engine runs; an engine on the CPU captures no graphs whatever it is told."""

GRAPH_MODES: tuple[GraphMode, ...] = (
    "NONE",
    "PIECEWISE",
    "FULL",
    "FULL_DECODE_ONLY",
    "FULL_AND_PIECEWISE",
)
SUPPORTED_RELEASES: tuple[tuple[int, int], ...] = ((0, 32), (0, 33))
"""The vLLM releases whose graph manager the prediction was checked against."""


class UnsupportedEngineError(ValueError):
    """The captures of this vLLM release cannot be predicted. Fields: version, supported."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.supported = tuple(f"{major}.{minor}" for major, minor in SUPPORTED_RELEASES)
        super().__init__(
            f"expected a vLLM release out of {', '.join(self.supported)} to predict CUDA graphs, "
            f"found {version!r}: use one of those, or turn graphs off (graph mode NONE)"
        )


class GraphSettingsError(ValueError):
    """A graph setting that vLLM would refuse or silently change. Fields: field, found."""

    def __init__(self, field: str, expected: str, found: object, advice: str) -> None:
        self.field = field
        self.found = found
        super().__init__(f"{field}: expected {expected}, found {found!r}: {advice}")


@dataclass(frozen=True)
class GraphSettings:
    """All that decides which CUDA graphs an engine captures.

    `capture_sizes` are tokens, as given to `cudagraph_capture_sizes`; an empty tuple means that
    nothing is captured. `lengths` is the set of draft lengths in the dense boot table, 0
    included where the table uses it: vLLM captures graphs for these only. `max_draft_length` is
    what the engine calls `num_speculative_tokens`. `max_num_batched_tokens` cuts the sizes
    off (config/vllm.py, `_set_cudagraph_sizes`); None leaves them alone.

    Not described, because TableTune does not use them: LoRA, microbatches, adaptive
    verification (variable-length decode graphs), data and context parallelism.

    Raises:
        GraphSettingsError: a value that vLLM would refuse, clamp or silently change.
        UnsupportedEngineError: graphs are asked for on a release that was never compared.
    """

    graph_mode: GraphMode
    capture_sizes: tuple[int, ...]
    max_num_seqs: int
    lengths: tuple[int, ...]
    max_draft_length: int
    version: str
    runner: Runner
    method: str
    platform: Platform = "gpu"
    max_num_batched_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.graph_mode not in GRAPH_MODES:
            raise GraphSettingsError(
                "graph_mode", f"one of {GRAPH_MODES}", self.graph_mode, "use one of those names"
            )
        if self.runner not in ("v1", "v2"):
            raise GraphSettingsError("runner", "'v1' or 'v2'", self.runner, "name the model runner")
        if self.max_num_seqs < 1:
            raise GraphSettingsError(
                "max_num_seqs", "at least 1", self.max_num_seqs, "allow at least one request"
            )
        if not self.lengths or min(self.lengths) < 0 or max(self.lengths) > self.max_draft_length:
            raise GraphSettingsError(
                "lengths",
                f"at least one draft length, each from 0 to {self.max_draft_length}",
                self.lengths,
                "raise max_draft_length or leave the longer lengths out (vLLM clamps silently)",
            )
        if any(size < 1 for size in self.capture_sizes):
            raise GraphSettingsError(
                "capture_sizes", "sizes of at least 1 token", self.capture_sizes, "remove them"
            )
        if self.captures_graphs:
            require_supported(self.version)

    @property
    def effective_mode(self) -> GraphMode:
        """The mode the engine really runs: the V1 runner forces PIECEWISE under a table.

        Source: config/vllm.py, `_maybe_override_dynamic_sd_cudagraph_mode`.
        """
        if self.platform == "cpu":
            return "NONE"
        if self.runner == "v1" and self.graph_mode.startswith("FULL"):
            return "PIECEWISE"
        return self.graph_mode

    @property
    def effective_sizes(self) -> tuple[int, ...]:
        """The capture sizes in tokens after vLLM's sorting, de-duplication and cut-off."""
        return effective_capture_sizes(self.capture_sizes, self.max_num_batched_tokens)

    @property
    def captures_graphs(self) -> bool:
        """Whether the engine captures any graph."""
        return self.effective_mode != "NONE" and bool(self.capture_sizes)

    @property
    def query_lengths(self) -> tuple[int, ...]:
        """Tokens per request in a decode step, q = K + 1, for each K of the table, ascending."""
        return tuple(sorted({length + 1 for length in self.lengths}))


def require_supported(version: str) -> None:
    """Raise UnsupportedEngineError unless the release was compared with the prediction."""
    parts = version.split(".")
    try:
        release = (int(parts[0]), int(parts[1]))
    except (IndexError, ValueError):
        raise UnsupportedEngineError(version) from None
    if release not in SUPPORTED_RELEASES:
        raise UnsupportedEngineError(version)


def effective_capture_sizes(
    sizes: Iterable[int], max_num_batched_tokens: int | None = None
) -> tuple[int, ...]:
    """Capture sizes as vLLM keeps them: ascending, distinct, none above the step's token limit.

    Source: config/vllm.py, `_set_cudagraph_sizes`.

    >>> effective_capture_sizes([8, 4, 4, 512], max_num_batched_tokens=256)
    (4, 8)
    """
    limit = max_num_batched_tokens
    return tuple(sorted({size for size in sizes if limit is None or size <= limit}))

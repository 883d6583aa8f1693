"""A capture plan: the graph mode, capture sizes and draft lengths that an engine boots with."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tabletune.core.capture_predict import GraphPrediction
from tabletune.core.capture_search import padding_cost
from tabletune.core.capture_settings import GraphMode, GraphSettings, GraphSettingsError


@dataclass(frozen=True)
class PlanBudget:
    """What a plan may cost.

    `max_graphs`: graphs of the target model; `max_capture_sizes`: entries of the size list;
    `memory_bytes`, `boot_s`: for all graphs, the drafter's included, by `CaptureCosts` (None: no
    limit). `max_padding_cost`: the share of step time that padding may add to any step
    (`padding_cost`).
    """

    max_graphs: int = 448
    max_capture_sizes: int = 256
    memory_bytes: int | None = None
    boot_s: float | None = None
    max_padding_cost: float = 0.15

    def __post_init__(self) -> None:
        for name in ("max_graphs", "max_capture_sizes", "max_padding_cost"):
            if getattr(self, name) < 0:
                raise GraphSettingsError(
                    name, "0 or more", getattr(self, name), "give the largest cost you accept"
                )


@dataclass(frozen=True)
class CaptureCosts:
    """What one graph costs: seconds to capture and bytes kept, target's and drafter's.

    The seconds are of the order seen on one H200 with a 36-layer target and a one-layer
    drafter (8 to 22 s for 118 to 640 target graphs); the bytes are assumed, not measured. Give
    figures of your own engine where they matter.
    """

    target_s: float = 0.03
    draft_s: float = 0.003
    target_bytes: int = 5 * 2**20
    draft_bytes: int = 2**20


@dataclass(frozen=True)
class DroppedLength:
    """A draft length left out of a plan, and why."""

    draft_length: int
    reason: str


@dataclass(frozen=True)
class CapturePlan:
    """Settings for a boot, what they are predicted to capture, and what was given up.

    `wanted`: the (b, K) that the plan was asked to cover. `joining_tok`: the tokens of prompts in
    one step that it was asked to have sizes for (capture_joining). A table may use fewer lengths
    than the plan: its boot table then captures fewer graphs, and every pair of the lengths left
    keeps its graph.
    """

    settings: GraphSettings
    prediction: GraphPrediction
    wanted: frozenset[tuple[int, int]]
    budget: PlanBudget
    costs: CaptureCosts
    joining_tok: int = 0
    dropped: tuple[DroppedLength, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def graph_mode(self) -> GraphMode:
        """The mode to boot with, as vLLM names it."""
        return self.settings.graph_mode

    @property
    def capture_sizes(self) -> tuple[int, ...]:
        """Tokens, ascending; empty when nothing is captured."""
        return self.settings.capture_sizes

    @property
    def decode_sizes(self) -> tuple[int, ...]:
        """The capture sizes that a pure decode step can use, in tokens, ascending."""
        widest = self.max_num_seqs * (max(self.lengths) + 1)
        return tuple(size for size in self.capture_sizes if size <= widest)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The draft lengths that the table may use, ascending."""
        return self.settings.lengths

    @property
    def max_num_seqs(self) -> int:
        """The largest batch size."""
        return self.settings.max_num_seqs

    @property
    def graph_count(self) -> int:
        """Graphs captured for the target model."""
        return self.prediction.graph_count

    @property
    def coverage(self) -> frozenset[tuple[int, int]]:
        """The (b, K) predicted to run without stall or crash."""
        return self.prediction.coverage

    @cached_property
    def padding(self) -> Mapping[tuple[int, int], int]:
        """Tokens that each covered (b, K) is padded to."""
        steps = self.prediction.steps
        return {cell: steps[cell].padded_tokens for cell in sorted(self.coverage)}

    @cached_property
    def max_padding(self) -> float:
        """Largest padding over the wanted pairs: padded over scheduled tokens, minus 1."""
        return max(self._shares, default=0.0)

    @cached_property
    def mean_padding(self) -> float:
        """Mean padding over the wanted pairs: padded over scheduled tokens, minus 1."""
        return sum(self._shares) / len(self._shares) if self._shares else 0.0

    @cached_property
    def _shares(self) -> list[float]:
        steps = self.prediction.steps
        return [steps[c].padding for c in self.wanted & self.coverage]

    @cached_property
    def max_padding_cost(self) -> float:
        """Largest share of step time that padding is expected to add to a wanted pair."""
        steps = (self.prediction.steps[c] for c in self.wanted & self.coverage)
        return max((padding_cost(s.tokens, s.padded_tokens) for s in steps), default=0.0)

    @property
    def capture_s(self) -> float:
        """Estimated seconds that captures add to a boot."""
        drafts = self.prediction.draft_graph_count
        return self.graph_count * self.costs.target_s + drafts * self.costs.draft_s

    @property
    def memory_bytes(self) -> int:
        """Estimated bytes of device memory that the graphs keep."""
        drafts = self.prediction.draft_graph_count
        return self.graph_count * self.costs.target_bytes + drafts * self.costs.draft_bytes

    def over_budget(self) -> str | None:
        """The first limit that the plan breaks, in words; None when it fits."""
        limits: tuple[tuple[str, float, float | None], ...] = (
            ("graphs", self.graph_count, self.budget.max_graphs),
            ("capture sizes", len(self.capture_sizes), self.budget.max_capture_sizes),
            ("bytes of graphs", self.memory_bytes, self.budget.memory_bytes),
            ("seconds of capture", self.capture_s, self.budget.boot_s),
        )
        for what, used, allowed in limits:
            if allowed is not None and used > allowed:
                return f"{used:g} {what}, {allowed:g} allowed"
        return None

    def boot_ranges(self) -> tuple[tuple[int, int, int], ...]:
        """A boot table (first b, last b, K) that names every length, so that all are captured.

        Long lengths come first, one batch size each; the shortest runs to `max_num_seqs`.
        """
        lengths = sorted(self.lengths, reverse=True)
        firsts = range(1, len(lengths) + 1)
        lasts = [*firsts[:-1], self.max_num_seqs]
        return tuple(zip(firsts, lasts, lengths, strict=True))

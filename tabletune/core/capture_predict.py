"""Prediction: for every batch size and draft length, the graphs an engine will use.

Sources, below vLLM's v1/worker/gpu/: model_runner.py (target), spec_decode/target_dependent_ar/
speculator.py (eagle, eagle3, mtp: `init_cudagraph_manager`, `propose`), spec_decode/dflash/
speculator.py (dflash, dspark), spec_decode/ngram and standalone_ar (no graphs). The prediction
is compared with vLLM's own managers in tests/core/test_capture_against_vllm.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tabletune.core.capture_graphs import Graph, GraphManager, captured_graphs
from tabletune.core.capture_settings import GraphMode, GraphSettings

_PARALLEL_METHODS = ("dflash", "dspark")
_UNGRAPHED_METHODS = ("ngram", "ngram_gpu", "draft_model", "suffix", "custom_class")


@dataclass(frozen=True)
class StepGraphs:
    """The graphs of one engine step: b requests, all decoding, K drafts each.

    `target`: the graph that verifies, None is eager. `padded_tokens`, `padded_requests`: what
    the step is padded to (its own size when nothing pads it). `draft_first`: the drafter's
    first pass (its pass over the target's tokens, or its only pass for dflash and dspark).
    `draft_rest`: the drafter's further single-token passes, None also where there are none.
    `covered`: every pass that the mode means to graph has its graph, so the step does not
    stall. `mismatch`: the drafter would replay a graph of another request count than the
    attention metadata describes; such a step reads and writes out of bounds.
    """

    batch_size: int
    draft_length: int
    target: Graph | None
    padded_tokens: int
    padded_requests: int
    draft_first: Graph | None
    draft_rest: Graph | None
    covered: bool
    mismatch: bool

    @property
    def tokens(self) -> int:
        """Tokens really scheduled: b·(K + 1)."""
        return self.batch_size * (self.draft_length + 1)

    @property
    def padding(self) -> float:
        """Share of tokens added by padding: padded over scheduled tokens, minus 1."""
        return self.padded_tokens / self.tokens - 1.0


@dataclass(frozen=True)
class GraphPrediction:
    """Predicted captures of one engine.

    `steps`: by (batch size, draft length). `target`, `draft_first`, `draft_rest`: the graphs of
    the target and of the drafter's first and further passes, None where the engine never
    captures any for that pass.
    """

    settings: GraphSettings
    steps: Mapping[tuple[int, int], StepGraphs]
    target: GraphManager
    draft_first: GraphManager | None
    draft_rest: GraphManager | None

    @property
    def target_graphs(self) -> tuple[Graph, ...]:
        """The graphs of the target model: PIECEWISE, then FULL, each largest first."""
        return self.target.graphs

    @property
    def graph_count(self) -> int:
        """Graphs captured for the target model."""
        return len(self.target.graphs)

    @property
    def draft_graph_count(self) -> int:
        """Graphs captured for the drafter, at most.

        The further passes are captured once per draft length above 1 where the attention
        backend can fuse them, else once: this counts the former.
        """
        fused = max(1, len({k for k in self.settings.lengths if k > 1}))
        first = len(self.draft_first.graphs) if self.draft_first else 0
        rest = len(self.draft_rest.graphs) if self.draft_rest else 0
        return first + fused * rest

    @cached_property
    def mismatches(self) -> tuple[tuple[int, int], ...]:
        """The (b, K) that would crash, ascending."""
        return tuple(cell for cell, step in sorted(self.steps.items()) if step.mismatch)

    @cached_property
    def uncovered(self) -> tuple[tuple[int, int], ...]:
        """The (b, K) that would stall, ascending."""
        return tuple(cell for cell, step in sorted(self.steps.items()) if not step.covered)

    @cached_property
    def coverage(self) -> frozenset[tuple[int, int]]:
        """The (b, K) that neither stall nor crash."""
        return frozenset(c for c, s in self.steps.items() if s.covered and not s.mismatch)

    def padded_tokens(self, batch_size: int, draft_length: int) -> int | None:
        """Tokens that the target step is padded to; None where it stalls or is not captured."""
        step = self.steps.get((batch_size, draft_length))
        return step.padded_tokens if step is not None and step.covered else None

    def boundaries(self, draft_length: int) -> tuple[int, ...]:
        """Each batch size b whose step is padded to another size than that of b + 1, ascending.

        Step time is flat between these and jumps from b to b + 1.
        """
        last = self.settings.max_num_seqs
        padded = [self.padded_tokens(b, draft_length) for b in range(1, last + 1)]
        return tuple(b for b in range(1, last) if padded[b - 1] != padded[b])

    def mixed_step_graph(self, num_tokens: int, num_reqs: int = 1) -> Graph | None:
        """The target's graph for a step in which prefills join decodes; None is eager."""
        return self.target.dispatch(num_reqs, num_tokens, None)


def predict_graphs(settings: GraphSettings) -> GraphPrediction:
    """Predict the captures of an engine and the graph of every (b, K), without vLLM.

    b runs from 1 to `max_num_seqs`, K over the table's lengths.
    """
    target = _manager(settings, settings.effective_mode)
    first, rest = _draft_managers(settings)
    return predict_from_managers(settings, target, first, rest)


def predict_from_managers(
    settings: GraphSettings,
    target: GraphManager,
    draft_first: GraphManager | None,
    draft_rest: GraphManager | None,
) -> GraphPrediction:
    """The graph of every (b, K), given the graphs that the engine captured."""
    steps = {
        (b, k): _step(settings, target, (draft_first, draft_rest), b, k)
        for k in sorted(set(settings.lengths))
        for b in range(1, settings.max_num_seqs + 1)
    }
    return GraphPrediction(settings, steps, target, draft_first, draft_rest)


def _manager(
    settings: GraphSettings,
    mode: GraphMode,
    query_lengths: tuple[int, ...] | None = None,
    decode_query_length: int | None = None,
) -> GraphManager:
    return GraphManager(
        captured_graphs(
            mode if settings.captures_graphs else "NONE",
            settings.effective_sizes,
            settings.max_num_seqs,
            settings.query_lengths if query_lengths is None else query_lengths,
            decode_query_length or settings.max_draft_length + 1,
        )
    )


def _draft_managers(settings: GraphSettings) -> tuple[GraphManager | None, GraphManager | None]:
    """The drafter's managers: of its first pass, and of its further passes."""
    mode = settings.effective_mode
    if settings.method in _UNGRAPHED_METHODS or not settings.captures_graphs:
        return None, None
    if settings.runner == "v1":
        return _manager(settings, mode), _manager(settings, mode)
    full = mode.startswith("FULL")
    if settings.method in _PARALLEL_METHODS:
        if not full:
            return None, None
        # Only a width above max_draft_length makes vLLM capture one level per table length.
        width = _parallel_width(settings)
        per_length = width > settings.max_draft_length
        lengths = settings.query_lengths if per_length else (width,)
        return _manager(settings, "FULL_DECODE_ONLY", lengths, width), None
    first = _manager(settings, mode)
    if settings.max_draft_length == 1 or not full:
        return first, None
    return first, _manager(settings, "FULL_DECODE_ONLY", (1,), 1)


def _parallel_width(settings: GraphSettings) -> int:
    """Query tokens per request of a parallel drafter's only pass."""
    # dspark predicts from the anchor token, so it sends one query token fewer per request.
    return max(1, settings.max_draft_length + (settings.method == "dflash"))


def _step(
    settings: GraphSettings,
    target: GraphManager,
    drafter: tuple[GraphManager | None, GraphManager | None],
    batch_size: int,
    draft_length: int,
) -> StepGraphs:
    first, rest = drafter
    b, k, q = batch_size, draft_length, draft_length + 1
    graph = target.dispatch(b, b * q, q)
    padded_tokens = graph.num_tokens if graph else b * q
    padded_requests = graph.num_reqs if graph and graph.num_reqs else b
    draft_first: Graph | None = None
    draft_rest: Graph | None = None
    drafts_covered, mismatch = True, False
    if settings.method in _PARALLEL_METHODS and settings.runner == "v2":
        # It builds metadata of its own for the graph that it picks: no mismatch.
        width = _parallel_width(settings)
        if first is not None and k > 0:
            draft_first = first.dispatch(b, b * width, width)
            drafts_covered = draft_first is not None
    else:
        # The padded token count with the unpadded query length: vLLM's own mix.
        draft_first = first.dispatch(b, padded_tokens, q) if first else None
        if rest is not None and k > 1:
            draft_rest = rest.dispatch(b, b, 1)
            drafts_covered = draft_rest is not None
        if draft_first is not None and draft_first.mode == "FULL":
            described = graph.num_reqs if graph and graph.mode == "FULL" else b
            mismatch = draft_first.num_reqs != described
    wanted = "PIECEWISE" if settings.effective_mode == "PIECEWISE" else "FULL"
    target_covered = graph is not None and graph.mode == wanted
    return StepGraphs(
        batch_size=b,
        draft_length=k,
        target=graph,
        padded_tokens=padded_tokens,
        padded_requests=padded_requests,
        draft_first=draft_first,
        draft_rest=draft_rest,
        covered=not settings.captures_graphs or (target_covered and drafts_covered),
        mismatch=mismatch,
    )

"""A pure model of vLLM's CUDA graph manager: what it captures and what it picks for a step.

Source: v1/worker/gpu/cudagraph_utils.py, `CudaGraphManager._init_candidates`, `dispatch` and
`_is_compatible`; config/compilation.py, `CUDAGraphMode`. The V1 runner's dispatcher
(v1/cudagraph_dispatcher.py) in PIECEWISE mode does the same as this model does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from tabletune.core.capture_settings import GraphMode

GraphKind = Literal["FULL", "PIECEWISE"]


@dataclass(frozen=True)
class Graph:
    """One captured graph.

    `num_tokens` is the step's size it was captured for. `num_reqs` is the request count, None
    where a graph takes any (PIECEWISE). `uniform_token_count` is the tokens per request, None
    where a graph takes any mix.
    """

    mode: GraphKind
    num_tokens: int
    num_reqs: int | None = None
    uniform_token_count: int | None = None


class GraphManager:
    """The graphs captured for one model, and the choice among them."""

    def __init__(self, graphs: Iterable[Graph]) -> None:
        captured = sorted(set(graphs), key=_largest_first)
        self.full_graphs = tuple(g for g in captured if g.mode == "FULL")
        self.piecewise_graphs = tuple(g for g in captured if g.mode == "PIECEWISE")
        self._candidates: dict[int, list[Graph]] = {}
        for same_kind in (self.full_graphs, self.piecewise_graphs):
            self._add_candidates(same_kind)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs: PIECEWISE, then FULL, each largest first, as they are captured."""
        return self.piecewise_graphs + self.full_graphs

    def _add_candidates(self, graphs: tuple[Graph, ...]) -> None:
        # Each token count sees only the nearest level above it. A level that holds another
        # query length hides the fitting graph behind it: that is the stall.
        start = 0
        for num_tokens, group in groupby(reversed(graphs), lambda graph: graph.num_tokens):
            level = list(group)
            for count in range(start, num_tokens + 1):
                self._candidates.setdefault(count, []).extend(level)
            start = num_tokens + 1

    def dispatch(
        self, num_reqs: int, num_tokens: int, uniform_token_count: int | None
    ) -> Graph | None:
        """The graph for a step of `num_reqs` requests and `num_tokens` tokens; None is eager.

        `uniform_token_count` is the tokens per request of a pure decode step in which all
        requests have the same number, else None.
        """
        if num_tokens <= 0:
            return None
        for graph in self._candidates.get(num_tokens, ()):
            if (
                graph.uniform_token_count in (None, uniform_token_count)
                and (graph.num_reqs is None or graph.num_reqs >= num_reqs)
                and graph.num_tokens >= num_tokens
            ):
                return graph
        return None


def captured_graphs(
    mode: GraphMode,
    capture_sizes: Iterable[int],
    max_num_seqs: int,
    query_lengths: Iterable[int],
    decode_query_length: int,
) -> list[Graph]:
    """The graphs that vLLM captures for one model.

    `capture_sizes` are tokens; `query_lengths` are the tokens per request of the decode steps to
    capture; `decode_query_length` is the longest that the model is configured for.

    >>> [(g.num_tokens, g.num_reqs) for g in captured_graphs("FULL_DECODE_ONLY", [4], 8, [1, 2], 2)]
    [(4, 4), (4, 2)]
    """
    sizes = sorted(set(capture_sizes))
    graphs: list[Graph] = []
    if mode in ("PIECEWISE", "FULL_AND_PIECEWISE"):
        graphs += [Graph("PIECEWISE", size) for size in sizes]
    if mode == "FULL":
        graphs += [Graph("FULL", size, min(size, max_num_seqs)) for size in sizes]
    if mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"):
        limit = min(max_num_seqs * decode_query_length, sizes[-1]) if sizes else 0
        graphs += _decode_graphs(sizes, max_num_seqs, sorted(set(query_lengths)), limit)
    return graphs


def _decode_graphs(
    sizes: list[int], max_num_seqs: int, query_lengths: list[int], max_tokens: int
) -> list[Graph]:
    """FULL graphs of uniform decode steps: each size rounded up to each query length."""
    graphs: dict[Graph, None] = {}
    for size in sizes:
        for query_length in query_lengths:
            num_reqs = -(-size // query_length)
            num_tokens = num_reqs * query_length
            if num_tokens <= max_tokens and num_reqs <= max_num_seqs:
                graphs[Graph("FULL", num_tokens, num_reqs, query_length)] = None
    return list(graphs)


def _largest_first(graph: Graph) -> tuple[int, int]:
    return -graph.num_tokens, graph.uniform_token_count or 0

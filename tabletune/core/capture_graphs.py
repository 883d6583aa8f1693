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
    """The graphs captured for one model, and the choice among them.

    `query_lengths`: tokens per request of the decode steps to capture; `decode_query_length`:
    the longest tokens per request that the model is configured for.
    """

    def __init__(
        self,
        mode: GraphMode,
        capture_sizes: Iterable[int],
        max_num_seqs: int,
        query_lengths: Iterable[int],
        decode_query_length: int,
    ) -> None:
        sizes = sorted(capture_sizes)
        full: list[Graph] = []
        piecewise: list[Graph] = []
        if mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"):
            full = _decode_graphs(sizes, max_num_seqs, sorted(query_lengths), decode_query_length)
        if mode == "FULL":
            full = [Graph("FULL", size, min(size, max_num_seqs)) for size in sizes]
        if mode in ("PIECEWISE", "FULL_AND_PIECEWISE"):
            piecewise = [Graph("PIECEWISE", size) for size in sizes]
        self.full_graphs = tuple(sorted(full, key=lambda g: g.num_tokens, reverse=True))
        self.piecewise_graphs = tuple(sorted(piecewise, key=lambda g: g.num_tokens, reverse=True))
        self._candidates: dict[int, list[Graph]] = {}
        for graphs in (self.full_graphs, self.piecewise_graphs):
            self._add_candidates(graphs)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All graphs, in the order of capture within each kind (largest first)."""
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


def _decode_graphs(
    sizes: list[int], max_num_seqs: int, query_lengths: list[int], decode_query_length: int
) -> list[Graph]:
    """FULL graphs of uniform decode steps: each size rounded up to each query length."""
    graphs: dict[Graph, None] = {}
    largest = sizes[-1] if sizes else 0
    for size in sizes:
        for query_length in query_lengths:
            num_reqs = -(-size // query_length)
            num_tokens = num_reqs * query_length
            if num_tokens > min(max_num_seqs * decode_query_length, largest):
                continue
            if num_reqs > max_num_seqs:
                continue
            graphs[Graph("FULL", num_tokens, num_reqs, query_length)] = None
    return list(graphs)

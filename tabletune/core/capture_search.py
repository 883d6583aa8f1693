"""The fewest capture sizes that give every wanted decode step a graph, at bounded padding.

vLLM rounds each size up to every query length q of the table and shows a step only the nearest
level of tokens above it (capture_graphs). So between two neighbouring levels, every q that is
wanted there must divide the upper one; and a size that some q does not divide makes a further
level at the next multiple of q, which must then be a level of its own. A chain of sizes that
keeps both rules covers everything, and the next size depends only on the last one: the best
chain is a shortest path.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BASE_STEP_TOKENS = 240.0
"""Tokens at which a step takes twice as long as an empty one (about 4 ms + 0.016 ms a token were
measured on one H200 with a 4-billion-parameter model): the unit in which padding is weighed."""


@dataclass(frozen=True)
class Demand:
    """The decode steps to cover.

    `batch_sizes`: for each query length q of the table, the batch sizes that need a graph.
    Every q of the table is a key, with no batch sizes where none is wanted, because vLLM
    captures graphs for it all the same. `drafter_batch_size`: the largest batch in which the
    drafter makes single-token passes; some size from there to `max_num_seqs` is needed (0: none).
    `max_tokens`: the largest size allowed.
    """

    max_num_seqs: int
    batch_sizes: Mapping[int, Sequence[int]]
    drafter_batch_size: int
    max_tokens: int


def padding_cost(tokens: int, padded_tokens: int) -> float:
    """Step time added by padding, as a share of the step: a model, for weighing only.

    >>> padding_cost(60, 90)
    0.1
    """
    return (padded_tokens - tokens) / (tokens + BASE_STEP_TOKENS)


def fewest_sizes(demand: Demand, max_padding_cost: float, size_cost: float = 0.0) -> list[int]:
    """Capture sizes with the fewest graphs that cover the demand; empty if there are none.

    Only lists in which every level is a size are searched (see above): a few graphs fewer are
    possible without that. No step is padded by more than `max_padding_cost` (see
    `padding_cost`); of lists with equally few graphs, one with the least total padding is
    taken. `size_cost`: graphs that each size costs beside its decode graphs (1 for a PIECEWISE
    graph of its own).
    """
    last_wanted = max((b[-1] * q for q, b in demand.batch_sizes.items() if b), default=0)
    last_wanted = max(last_wanted, demand.drafter_batch_size)
    top = demand.max_tokens
    if last_wanted == 0 or last_wanted > top:
        return []
    tables = _Tables(demand, top, max_padding_cost)
    best = np.full(top + 1, np.inf)
    came_from = np.zeros(top + 1, dtype=np.int64)
    best[0] = 0.0
    for size in range(last_wanted):
        if not np.isfinite(best[size]):
            continue
        reach = int(min(tables.reach[size], tables.next_level[size]))
        if size < demand.drafter_batch_size:
            reach = min(reach, demand.max_num_seqs)
        if reach <= size:
            continue
        cost = best[size] + tables.step_costs(size, reach, size_cost)
        span = slice(size + 1, reach + 1)
        better = cost < best[span]
        best[span][better] = cost[better]
        came_from[span][better] = size
    end = last_wanted + int(np.argmin(best[last_wanted:]))
    if not np.isfinite(best[end]):
        return []
    sizes: list[int] = []
    while end > 0:
        sizes.append(end)
        end = int(came_from[end])
    return sizes[::-1]


class _Tables:
    """Arrays over tokens 0…top, float64[top+1] each, that make a step of the search cheap."""

    def __init__(self, demand: Demand, top: int, max_padding_cost: float) -> None:
        tokens = np.arange(top + 1)
        self.tokens = tokens.astype(np.float64)
        self.graphs = np.zeros(top + 1)
        self.next_level = np.full(top + 1, top)
        self.reach = np.full(top + 1, float(top))
        self.count: list[NDArray[np.float64]] = []
        self.wanted_tokens: list[NDArray[np.float64]] = []
        self.has_graph: list[NDArray[np.bool_]] = []
        for q, batch_sizes in demand.batch_sizes.items():
            rounded = -(-tokens // q) * q
            fits = rounded <= q * demand.max_num_seqs
            divides = (rounded == tokens) & fits & (tokens > 0)
            self.graphs += divides
            blocking = fits & (rounded != tokens)
            self.next_level[blocking] = np.minimum(self.next_level, rounded)[blocking]
            wanted = np.zeros(top + 1)
            wanted[np.asarray(batch_sizes, dtype=np.int64) * q] = 1.0
            self.count.append(np.cumsum(wanted))
            self.wanted_tokens.append(np.cumsum(wanted * tokens))
            self.has_graph.append(divides)
            # The first wanted step after each size is padded most: how far it may go.
            allowed = tokens + max_padding_cost * (tokens + BASE_STEP_TOKENS) + 1e-9
            allowed = np.where(wanted > 0, allowed, np.inf)
            after = np.minimum.accumulate(allowed[::-1])[::-1]
            self.reach[:-1] = np.minimum(self.reach[:-1], after[1:])

    def step_costs(self, size: int, reach: int, size_cost: float) -> NDArray[np.float64]:
        """Cost of each next size in size+1…reach: its graphs, and a little for its padding."""
        span = slice(size + 1, reach + 1)
        cost = self.graphs[span] + size_cost + 1e-3
        for count, wanted, has_graph in zip(
            self.count, self.wanted_tokens, self.has_graph, strict=True
        ):
            steps = count[span] - count[size]
            padding = self.tokens[span] * steps - (wanted[span] - wanted[size])
            cost = cost + 1e-9 * padding
            cost[(steps > 0) & ~has_graph[span]] = np.inf
        return cost

"""What an engine really captured, against the prediction: the envelope follows the engine."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tabletune.core.capture_graphs import Graph, GraphManager
from tabletune.core.capture_predict import GraphPrediction, predict_from_managers
from tabletune.core.capture_settings import GraphSettingsError

_SHOWN = 8


@dataclass(frozen=True)
class CaptureComparison:
    """Differences between the predicted and the real captures.

    `missing`, `unexpected`: target graphs only predicted, only found. `actual`: the graph of
    every (b, K) by what was found. `differences`: all of it in words, empty when nothing
    differs.
    """

    missing: tuple[Graph, ...]
    unexpected: tuple[Graph, ...]
    actual: GraphPrediction
    differences: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether the engine captured exactly what was predicted."""
        return not self.differences

    @property
    def coverage(self) -> frozenset[tuple[int, int]]:
        """The (b, K) that the real captures cover without stall or crash: the envelope."""
        return self.actual.coverage


def parse_captured(captured: Iterable[Mapping[str, object]]) -> list[Graph]:
    """Graphs from what the plugin reads back: mode, num_tokens, num_reqs, uniform_token_count.

    Raises:
        GraphSettingsError: an entry without a known mode or with a count that is no integer.
    """
    graphs: list[Graph] = []
    for entry in captured:
        mode = str(entry.get("mode")).removeprefix("CUDAGraphMode.")
        counts: list[int | None] = []
        for name in ("num_tokens", "num_reqs", "uniform_token_count"):
            value = entry.get(name)
            is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if not is_count and (value is not None or name == "num_tokens"):
                raise _unreadable(entry)
            counts.append(value if isinstance(value, int) else None)
        num_tokens, num_reqs, uniform = counts
        if num_tokens is None or mode not in ("FULL", "PIECEWISE"):
            raise _unreadable(entry)
        kind = "FULL" if mode == "FULL" else "PIECEWISE"
        graphs.append(Graph(kind, num_tokens, num_reqs, uniform))
    return graphs


def compare_captured(
    prediction: GraphPrediction, captured: Iterable[Mapping[str, object]]
) -> CaptureComparison:
    """Compare the target graphs that an engine captured with the prediction.

    A drafter that works over the target's step is taken to have captured the same graphs as
    the target, as vLLM does; its further passes are taken as predicted.

    Raises:
        GraphSettingsError: as parse_captured.
    """
    found = set(parse_captured(captured))
    expected = set(prediction.target_graphs)
    target = GraphManager(found)
    shares = prediction.draft_first is not None and (set(prediction.draft_first.graphs) == expected)
    draft_first = target if shares else prediction.draft_first
    actual = predict_from_managers(prediction.settings, target, draft_first, prediction.draft_rest)
    missing = tuple(sorted(expected - found, key=_order))
    unexpected = tuple(sorted(found - expected, key=_order))
    differences: list[str] = []
    if missing:
        differences.append(f"not captured though predicted: {_words(missing)}")
    if unexpected:
        differences.append(f"captured though not predicted: {_words(unexpected)}")
    lost = sorted(prediction.coverage - actual.coverage)
    if lost:
        differences.append(f"pairs (b, K) without a safe graph, against the prediction: {lost}")
    gained = sorted(actual.coverage - prediction.coverage)
    if gained:
        differences.append(f"pairs (b, K) with a graph, against the prediction: {gained}")
    crashing = sorted(set(actual.mismatches) - set(prediction.mismatches))
    if crashing:
        differences.append(f"pairs (b, K) that may crash, against the prediction: {crashing}")
    return CaptureComparison(missing, unexpected, actual, tuple(differences))


def _unreadable(entry: Mapping[str, object]) -> GraphSettingsError:
    return GraphSettingsError(
        "captured",
        "mode FULL or PIECEWISE, num_tokens a positive integer, num_reqs and "
        "uniform_token_count positive integers or null",
        dict(entry),
        "read the graphs back with a plugin of this version",
    )


def _order(graph: Graph) -> tuple[str, int, int]:
    return graph.mode, graph.num_tokens, graph.uniform_token_count or 0


def _words(graphs: tuple[Graph, ...]) -> str:
    shown = [
        f"{g.mode} {g.num_tokens} tokens"
        + (f" ({g.num_reqs} requests)" if g.num_reqs is not None else "")
        for g in graphs[:_SHOWN]
    ]
    more = f" and {len(graphs) - _SHOWN} more" if len(graphs) > _SHOWN else ""
    return ", ".join(shown) + more

"""The client method of profiling: step times of an engine without the plugin (paper §5).

For one (b, K): b requests for 65 output tokens are sent at once, then b requests for 1. The
difference of the two durations, over the decode steps in between, is the step time; the
median of three such differences is used. The engine's counters tell how many steps the 64
tokens took. What this method cannot avoid, and the in-engine one can: requests need unequal
numbers of steps, so the batch thins out before the last one ends, and the mean number of steps
is used for it; connection and scheduling delays differ between the two calls.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tabletune.measure.clock import Clock
from tabletune.measure.driven import MetricsSource, OpenLoad, open_closed_loop
from tabletune.measure.load import LoadRequest
from tabletune.measure.metrics import Counters, parse_counters
from tabletune.measure.profile_in_engine import CellSamples
from tabletune.measure.progress import Progress

LONG_TOK, SHORT_TOK = 65, 1
REPEATS = 3


class ClientProfileError(RuntimeError):
    """Requests did not do what the method needs.

    Attributes: `batch_size`, `draft_length`, `found`.
    """

    def __init__(self, batch_size: int, draft_length: int, found: str) -> None:
        self.batch_size, self.draft_length, self.found = batch_size, draft_length, found
        super().__init__(
            f"batch size {batch_size}, draft length {draft_length}: expected every request to "
            f"give exactly the tokens asked for, found {found}; see the engine's log, and that "
            "nobody else uses the engine"
        )


@dataclass(frozen=True)
class Burst:
    """One call: b requests at once until the last has ended."""

    duration_s: float
    counts: Counters


class ClientProfiler:
    """Measures cells through requests and counters alone.

    Args:
        set_length: makes the engine use one draft length: pins it, or boots an engine with
            it. Called once for each length of each batch size, in the order asked for.
        prompt_tok: mean prompt length, for the record.
        timeout_s: the longest duration of one call.
    """

    def __init__(
        self,
        engine: MetricsSource,
        model: str,
        requests: Sequence[LoadRequest],
        prompt_tok: float,
        set_length: Callable[[int], None],
        *,
        clock: Clock,
        progress: Progress,
        open_load: OpenLoad = open_closed_loop,
        timeout_s: float = 600.0,
    ) -> None:
        self._engine, self._model, self._requests = engine, model, list(requests)
        self._prompt_tok, self._set_length = prompt_tok, set_length
        self._clock, self._progress = clock, progress
        self._open_load, self._timeout_s = open_load, timeout_s

    def measure(
        self,
        batch_size: int,
        lengths: Iterable[int],
        start: Mapping[int, CellSamples] | None = None,
    ) -> dict[int, CellSamples]:
        """Three difference quotients for each length, added to those in `start`.

        Raises:
            ClientProfileError: requests failed, or gave other numbers of tokens.
        """
        cells = {length: CellSamples() for length in lengths}
        for length, kept in (start or {}).items():
            cells[length] = kept
        for length in list(cells):
            self._set_length(length)
            # The first call fills the prefix cache, so that both durations find it filled.
            self._burst(batch_size, length, SHORT_TOK)
            for repeat in range(REPEATS):
                note = f"batch size {batch_size}, draft length {length}, {repeat + 1} of {REPEATS}"
                self._progress.advance(float(repeat), note)
                self._sample(batch_size, length, cells[length])
        return cells

    def _sample(self, batch_size: int, length: int, cell: CellSamples) -> None:
        long = self._burst(batch_size, length, LONG_TOK)
        short = self._burst(batch_size, length, SHORT_TOK)
        steps = decode_steps(long.counts, batch_size) - decode_steps(short.counts, batch_size)
        if steps < 1:
            found = f"{steps:.1f} decode steps for {LONG_TOK - SHORT_TOK} tokens"
            raise ClientProfileError(batch_size, length, found)
        cell.samples_s.append((long.duration_s - short.duration_s) / steps)
        cell.scheduled_tok.append(batch_size + long.counts.draft_tok / steps)
        cell.context_tok.append(self._prompt_tok + LONG_TOK / 2)

    def _burst(self, batch_size: int, length: int, tokens: int) -> Burst:
        count = len(self._requests)
        requests = [
            LoadRequest(
                self._requests[i % count].prompt,
                tokens,
                {**self._requests[i % count].extra, "ignore_eos": True, "min_tokens": tokens},
            )
            for i in range(batch_size)
        ]
        before = parse_counters(self._engine.metrics_text())
        begun_s = self._clock.now_s()
        with self._open_load(self._engine, self._model, requests, batch_size, once=True) as load:
            ended = load.done.wait(self._timeout_s)
            duration_s = self._clock.now_s() - begun_s
        counts = parse_counters(self._engine.metrics_text()) - before
        if not ended or load.counts.completed != batch_size:
            found = f"{load.counts.completed} of {batch_size} requests done"
            found += f", last error: {load.counts.last_error!r}" if load.counts.last_error else ""
            raise ClientProfileError(batch_size, length, found)
        if counts.generation_tok != batch_size * tokens:
            found = f"{counts.generation_tok:.0f} tokens for {batch_size} times {tokens}"
            raise ClientProfileError(batch_size, length, found)
        return Burst(duration_s, counts)


def decode_steps(counts: Counters, batch_size: int) -> float:
    """Mean decode steps per request, from what the counters grew by.

    A decode step of a request emits one token and those accepted, so tokens − accepted − b
    (the first token comes from the prompt's step) counts them; it is too small by the guesses
    accepted beyond a request's end. Drafts count them too, where every step has one. Neither
    is ever too large, so the larger is taken.
    """
    by_tokens = counts.generation_tok - counts.accepted_tok - batch_size
    return max(by_tokens, counts.drafts, 0.0) / batch_size

"""The client method of profiling: step times of an engine without the plugin (paper §5).

For one (b, K): b requests for 65 output tokens are sent at once, then b requests for 1. The
difference of the two durations, over the decode steps in between, is the step time; the
median of three such differences is used. The engine's counters tell how many steps the 64
tokens took (`decode_steps`). What this method cannot avoid, and the in-engine one can: requests
need unequal numbers of steps, so the batch thins out before the last one ends, and the mean
number of steps is used for it; connection and scheduling delays differ between the two calls.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tabletune.measure.api import EngineApiError
from tabletune.measure.clock import Clock
from tabletune.measure.driven import MetricsSource, OpenLoad, open_closed_loop
from tabletune.measure.load import LoadRequest
from tabletune.measure.metrics import Counters, parse_counters
from tabletune.measure.profile_in_engine import CellSamples

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
        set_length: makes the engine use one draft length, such as by a pin. Called once for
            each length of each batch size, in the order asked for, and with None at the end.
        prompt_tok: mean prompt length, for the record.
        timeout_s: the longest duration of one call.
    """

    def __init__(
        self,
        engine: MetricsSource,
        model: str,
        requests: Sequence[LoadRequest],
        prompt_tok: float,
        set_length: Callable[[int | None], None],
        *,
        clock: Clock,
        open_load: OpenLoad = open_closed_loop,
        timeout_s: float = 600.0,
    ) -> None:
        self._engine, self._model, self._requests = engine, model, list(requests)
        self._prompt_tok, self._set_length = prompt_tok, set_length
        self._clock, self._open_load, self._timeout_s = clock, open_load, timeout_s

    def measure(
        self,
        batch_size: int,
        lengths: Iterable[int],
        start: Mapping[int, CellSamples] | None = None,
        slope: Callable[[int], float] | None = None,
    ) -> dict[int, CellSamples]:
        """Three difference quotients for each length, added to those in `start`.

        slope: not used; always of the same context.

        Raises:
            ClientProfileError: requests failed, or gave other numbers of tokens.
            EngineApiError: the engine does not answer.
            MetricsError: its metrics page lacks a counter, or a counter fell.
        """
        cells = {length: CellSamples() for length in lengths}
        for length, kept in (start or {}).items():
            cells[length] = kept
        try:
            for length, cell in cells.items():
                self._set_length(length)
                # The first call fills the prefix cache, so that both durations find it filled.
                self._burst(batch_size, length, SHORT_TOK)
                for _ in range(REPEATS):
                    self._sample(batch_size, length, cell)
        except BaseException:
            with contextlib.suppress(EngineApiError):  # the first error says more
                self._set_length(None)
            raise
        self._set_length(None)
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
    """Mean decode steps per request, from what the counters grew by in one call.

    A request's first token comes from its prompt's step. Each of its n decode steps emits one
    token and the a guesses that were accepted, of which the last step may emit fewer, because
    the request ends: 64 = Σ(1 + a) − o, so n = 64 − A + o. A = Σa is counted, o is not: vLLM
    counts guesses as accepted before it cuts them off (make_spec_decoding_stats in
    vllm/v1/core/sched/scheduler.py). With D drafts counted:

    - where every step has a draft (model drafters), D is n, exactly. The common form
      64 / (1 + A/D) is 64·n/(64 + o), too small by o.
    - where some steps have none (n-gram), D is too small: a step without a proposal is a step
      too. Then o is put at its expectation for a request cut anywhere: with s_i = P(a ≥ i) per
      step, a step of a + 1 tokens is hit in proportion to its length and loses a/2 on average,
      so o = E[a(a+1)/2] / E[a+1] = Σ i·s_i / (1 + Σ s_i).

    Every step had a draft, as far as counters can tell, when D ≥ 64 − A. Without drafts n = 64.

    >>> dense = Counters(4 * 65, 4 * 22, 8 * 22, 4 * 44, (88, 88), 0, True)
    >>> decode_steps(dense, 4)  # all accepted: 21 steps of 3 tokens, and one cut to 1
    22.0
    >>> sparse = Counters(4 * 65, 4 * 10, 80, 4 * 16, (40, 24), 0, True)
    >>> decode_steps(sparse, 4)  # 48 steps and 0.34 for guesses cut off
    48.34375
    """
    by_tokens = (counts.generation_tok - counts.accepted_tok) / batch_size - 1
    by_drafts = counts.drafts / batch_size
    if by_drafts >= by_tokens:
        return by_drafts
    weighted = sum(i * n for i, n in enumerate(counts.accepted_per_pos, start=1))
    return by_tokens + weighted / (counts.generation_tok - batch_size)

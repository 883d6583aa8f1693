"""A deterministic engine in this process under closed-loop load, on a simulated clock.

    clock = LoopClock()
    engine = LoopEngine(clock, Behaviour(survival=(0.8, 0.5)), table=[[1, 8, 2], [9, 64, 0]])
    with engine.open_load("model", requests, concurrency=4):
        clock.sleep_s(1.0)
    engine.steps(since=0)

It fulfils `DrivenEngine`; `open_loop` fulfils `OpenLoad`. Time passes only in `clock.sleep_s`
and `load.done.wait`; meanwhile the engine runs steps. The batch of a step is what the closed
loop keeps open, up to `max_num_seqs`; the draft length follows the table (or pin) by batch
size and is verified one step later, as with vLLM's asynchronous scheduling.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tabletune.measure.load import LoadCounts, LoadRequest
from tabletune.measure.steps import StepBatch


class LoopClock:
    """Seconds that pass only when somebody waits; engines attached to it run meanwhile."""

    def __init__(self) -> None:
        self.time_s = 1000.0
        self.engines: list[LoopEngine] = []

    def now_s(self) -> float:
        return self.time_s

    def sleep_s(self, seconds: float) -> None:
        target_s = self.time_s + seconds
        for engine in self.engines:
            engine.run_until(target_s)
        self.time_s = target_s

    def utc(self) -> str:
        return "2026-01-01T00:00:00+00:00"


STRETCH_TOK = 24
CATCHES_UP_S = 0.1


def default_step_time_s(batch_size: int, draft_length: float) -> float:
    """Cheap drafts at small batches, dear ones at large: the best length falls with b."""
    per_guess_s = 0.0005 + 0.0006 * batch_size
    return 0.02 + 0.0001 * batch_size + per_guess_s * draft_length


@dataclass(frozen=True)
class Behaviour:
    """How a simulated engine behaves.

    Attributes:
        survival: S_1 … S_K.
        step_time_s: T(b, K) in seconds; K is the mean of guesses over the batch.
        noise: relative standard deviation of a step's time.
        drift: relative amplitude of a slow change of speed, period 60 s.
        predictable: above 0 the text decides instead of chance: this share of its stretches
            (24 tokens long, fixed by the request's prompt) is guessed right throughout, the
            others never, so that a request repeats itself exactly under greedy decoding.
        proposal: share of decode request-steps for which the drafter proposes anything.
        prefill_s_per_tok: added to a step for each prompt token (characters / 4).
        max_num_seqs: largest batch.
        ignores_length: a draft length used whatever the table says.
        speculative: False for an engine without a drafter: no drafts, no counters of them.
        fails: every request fails with this message.
        stops_after_s: the load ends by itself after this time, as when the engine dies.
        stall_at_s, stall_s: so long after a load was opened, and for so long, the server answers
            nothing while the engine goes on; a metrics page that was asked for meanwhile shows
            the tokens from before. It then catches up within `CATCHES_UP_S`.
    """

    survival: Sequence[float] = (0.8, 0.6, 0.4, 0.25)
    step_time_s: Callable[[int, float], float] = default_step_time_s
    noise: float = 0.0
    drift: float = 0.0
    predictable: float = 0.0
    proposal: float = 1.0
    prefill_s_per_tok: float = 0.0
    max_num_seqs: int = 64
    ignores_length: int | None = None
    speculative: bool = True
    fails: str = ""
    stops_after_s: float = float("inf")
    stall_at_s: float = float("inf")
    stall_s: float = 0.0


@dataclass
class _Client:
    """One open request."""

    left_tok: int
    prompt: str | list[int]
    emitted_tok: int = 0
    prefilled: bool = False

    @property
    def prompt_tok(self) -> int:
        return len(self.prompt) // 4 if isinstance(self.prompt, str) else len(self.prompt)

    def guessed_right(self, length: int, share: float) -> int:
        """Guesses accepted when the text decides."""
        hits = 0
        while hits < length:
            stretch = (self.emitted_tok + hits) // STRETCH_TOK
            if random.Random(f"{self.prompt}/{stretch}").random() >= share:
                break
            hits += 1
        return hits


class LoopFlag:
    """The load's end; waiting for it lets simulated time pass."""

    def __init__(self, engine: "LoopEngine") -> None:
        self._engine = engine
        self.ended_at_s: float | None = None

    def is_set(self) -> bool:
        return self.ended_at_s is not None

    def wait(self, timeout: float | None = None) -> bool:
        return self._engine.run_until_done(self, 3600.0 if timeout is None else timeout)


@dataclass
class LoopLoad:
    """The closed loop on one engine."""

    source: Iterator[LoadRequest]
    concurrency: int
    done: LoopFlag
    counts: LoadCounts = field(default_factory=LoadCounts)


COLUMNS = (
    "time_s",
    "interval_s",
    "batch_size",
    "draft_length",
    "verified_length",
    "drafted_tok",
    "scheduled_tok",
    "prefill_requests",
    "output_tok",
    "request_steps",
)


class LoopEngine:
    """One engine; see the module. `calls` holds what was asked of it, in order."""

    def __init__(
        self,
        clock: LoopClock,
        behaviour: Behaviour | None = None,
        table: list[list[int]] | None = None,
        seed: int = 0,
    ) -> None:
        self.clock, self.behaviour = clock, behaviour or Behaviour()
        self.max_draft_length = len(self.behaviour.survival)
        self.boot = table or [[1, self.behaviour.max_num_seqs, self.max_draft_length]]
        self.calls: list[tuple[str, object]] = []
        self.lose_at = 0  # the first read from this step on is told that 7 steps were lost
        self.loads_opened = 0
        self._rng = np.random.default_rng(seed)
        self._table, self._pin = self.boot, None
        self._load: LoopLoad | None = None
        self._load_opened_s = 0.0
        self._clients: list[_Client] = []
        self._engine_s = clock.now_s()
        self._last_update_s = float("nan")
        self._last_length = -1
        self._rows: list[tuple[float, ...]] = []
        self._drafted: list[np.ndarray] = []
        self._accepted: list[np.ndarray] = []
        self._generated = self._drafts = self._draft_tok = 0
        self._accepted_sum = np.zeros(self.max_draft_length, dtype=np.int64)
        clock.engines.append(self)

    # What EngineApi offers.

    def steps(self, since: int = 0, limit: int = 20_000) -> StepBatch:
        end = len(self._rows)
        first = min(since, end)
        last = min(first + limit, end)
        table = np.array(self._rows[first:last], dtype=np.float64).reshape(-1, len(COLUMNS))
        columns = {name: table[:, i] for i, name in enumerate(COLUMNS)}
        ints = {k: v.astype(np.int64) for k, v in columns.items() if not k.endswith("_s")}
        floats = {k: v for k, v in columns.items() if k.endswith("_s")}
        shape = (-1, self.max_draft_length)
        lost = 7 if 0 < self.lose_at <= since < last else 0
        self.lose_at = 0 if lost else self.lose_at
        unknown = np.full(last - first, -1, dtype=np.int64)
        return StepBatch(
            seq=np.arange(first, last, dtype=np.int64),
            **floats,
            **ints,
            graph_mode=unknown,
            padded_tok=unknown,
            drafted_through=np.array(self._drafted[first:last], dtype=np.int64).reshape(shape),
            accepted_through=np.array(self._accepted[first:last], dtype=np.int64).reshape(shape),
            next_seq=last,
            lost=lost,
        )

    def pin(self, draft_length: int | None) -> None:
        self.calls.append(("pin", draft_length))
        self._pin = draft_length

    def swap_table(self, ranges: list[list[int]] | None) -> None:
        self.calls.append(("swap_table", ranges))
        self._table, self._pin = ranges or self.boot, None

    def chat_token_ids(self, model: str, messages: list[dict[str, str]]) -> list[int]:
        return list(range(sum(len(m["content"]) for m in messages) // 4))

    def metrics_text(self) -> str:
        labels = '{engine="0",model_name="m"}'
        lines = [
            f"vllm:generation_tokens_total{labels} {self._generated_as_shown()}",
            f"vllm:num_requests_running{labels} {min(len(self._clients), self._cap)}",
        ]
        if self.behaviour.speculative:
            lines += [
                f"vllm:spec_decode_num_drafts_total{labels} {self._drafts}",
                f"vllm:spec_decode_num_draft_tokens_total{labels} {self._draft_tok}",
                f"vllm:spec_decode_num_accepted_tokens_total{labels} {self._accepted_sum.sum()}",
            ]
            lines += [
                "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                f'{{engine="0",model_name="m",position="{i}"}} {count}'
                for i, count in enumerate(self._accepted_sum)
            ]
        return "\n".join(lines) + "\n"

    def _generated_as_shown(self) -> int:
        begin_s = self._load_opened_s + self.behaviour.stall_at_s
        end_s, now_s = begin_s + self.behaviour.stall_s, self.clock.now_s()
        if not begin_s < now_s < end_s + CATCHES_UP_S:
            return self._generated
        counted_s = begin_s if now_s < end_s else now_s - self.behaviour.stall_s / 2
        column = COLUMNS.index("output_tok")
        later = sum(int(row[column]) for row in self._rows if row[0] > counted_s)
        shown = self._generated - later
        self.clock.sleep_s(max(end_s - now_s, 0.0))
        return shown

    # Load and time.

    @property
    def _cap(self) -> int:
        return self.behaviour.max_num_seqs

    @contextmanager
    def open_load(
        self, model: str, requests: Sequence[LoadRequest], concurrency: int, once: bool = False
    ) -> Iterator[LoopLoad]:
        assert all(e._load is None for e in self.clock.engines), "one load at a time"
        source = iter(list(requests)) if once else itertools.cycle(list(requests))
        load = LoopLoad(source, concurrency, LoopFlag(self))
        self._load, self._load_opened_s = load, self.clock.now_s()
        self.loads_opened += 1
        if self.behaviour.fails:
            load.counts.failed, load.counts.last_error = len(requests), self.behaviour.fails
            load.done.ended_at_s = self.clock.now_s()
        self._engine_s, self._last_update_s = self.clock.now_s(), float("nan")
        self._last_length = -1
        try:
            self._refill()
            yield load
        finally:
            self._load, self._clients = None, []

    def run_until(self, target_s: float) -> None:
        """Run the steps that end by `target_s`."""
        while self._clients and self._step(target_s):
            pass

    def run_until_done(self, flag: LoopFlag, timeout_s: float) -> bool:
        """Let time pass until the load has ended."""
        limit_s = self.clock.now_s() + timeout_s
        while not flag.is_set() and self._clients and self._step(limit_s):
            pass
        self.clock.time_s = flag.ended_at_s if flag.ended_at_s is not None else limit_s
        return flag.is_set()

    def _refill(self) -> None:
        load = self._load
        if load is None or load.done.is_set():
            return
        if self._engine_s - self._load_opened_s > self.behaviour.stops_after_s:
            load.counts.last_error = "ConnectError: connection refused"
            self._clients = []
        else:
            while len(self._clients) < load.concurrency:
                request = next(load.source, None)
                if request is None:
                    break
                self._clients.append(_Client(request.max_tokens, request.prompt))
        if not self._clients:
            load.done.ended_at_s = self._engine_s

    def _length(self, batch_size: int) -> int:
        if not self.behaviour.speculative:
            return 0
        if self.behaviour.ignores_length is not None:
            return self.behaviour.ignores_length
        if self._pin is not None:
            return self._pin
        return next(k for first, _, k in reversed(self._table) if first <= batch_size)

    def _step(self, target_s: float) -> bool:
        """Run one step, unless it would end after `target_s`."""
        behaviour, batch = self.behaviour, self._clients[: self._cap]
        state = self._rng.bit_generator.state
        k = max(self._last_length, 0)
        drafting = [
            c.prefilled and k > 0 and self._rng.random() < behaviour.proposal for c in batch
        ]
        time_s = behaviour.step_time_s(len(batch), sum(drafting) * k / len(batch))
        time_s += sum(c.prompt_tok for c in batch if not c.prefilled) * behaviour.prefill_s_per_tok
        time_s *= float(np.exp(behaviour.noise * self._rng.standard_normal()))
        time_s *= 1.0 + behaviour.drift * np.sin(self._engine_s * 2 * np.pi / 60)
        if self._engine_s + time_s > target_s + 1e-12:
            self._rng.bit_generator.state = state  # the step is drawn again when there is time
            return False
        drafted, accepted = (np.zeros(self.max_draft_length, dtype=np.int64) for _ in range(2))
        output, prefills, request_steps = 0, 0, 0
        for client, drafts in zip(batch, drafting, strict=True):
            emitted = 1
            if not client.prefilled:
                client.prefilled = True
                prefills += 1
            else:
                request_steps += k > 0
                if drafts:
                    hits = self._hits(client, k)
                    drafted[:k] += 1
                    accepted[:hits] += 1
                    emitted += hits
            emitted = min(emitted, client.left_tok)
            client.left_tok -= emitted
            client.emitted_tok += emitted
            output += emitted
        self._record(time_s, len(batch), drafted, accepted, (prefills, output, request_steps))
        self._finish()
        return True

    def _hits(self, client: _Client, length: int) -> int:
        if self.behaviour.predictable:
            return client.guessed_right(length, self.behaviour.predictable)
        draw = self._rng.random()
        return int(np.count_nonzero(draw < np.asarray(self.behaviour.survival[:length])))

    def _record(
        self,
        time_s: float,
        batch_size: int,
        drafted: np.ndarray,
        accepted: np.ndarray,
        counts: tuple[int, int, int],
    ) -> None:
        self._engine_s += time_s
        chosen = self._length(batch_size)
        times = (self._engine_s, self._engine_s - self._last_update_s)
        drafted_tok = int(drafted.sum())
        verified = self._last_length if counts[0] < batch_size else -1
        lengths = (chosen, verified, drafted_tok)
        self._rows.append((*times, batch_size, *lengths, batch_size + drafted_tok, *counts))
        self._drafted.append(drafted)
        self._accepted.append(accepted)
        self._generated += counts[1]
        self._drafts += int(drafted[0])
        self._draft_tok += drafted_tok
        self._accepted_sum += accepted
        self._last_update_s, self._last_length = self._engine_s, chosen

    def _finish(self) -> None:
        assert self._load is not None
        open_ = [c for c in self._clients if c.left_tok > 0]
        self._load.counts.completed += len(self._clients) - len(open_)
        self._clients = open_
        self._refill()


@contextmanager
def open_loop(
    engine: LoopEngine,
    model: str,
    requests: Sequence[LoadRequest],
    concurrency: int,
    once: bool = False,
) -> Iterator[LoopLoad]:
    """`OpenLoad` for these engines."""
    with engine.open_load(model, requests, concurrency, once) as load:
        yield load

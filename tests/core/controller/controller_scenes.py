"""A small promoted table, observations of a made-up engine, and a loop around a controller."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import (
    BatchTotals,
    CellTimes,
    LiveObservation,
    Stall,
    StepColumns,
)
from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.counts import SurvivalCounts

SIZE, LONGEST = 32, 3
GOOD, BAD = (0.8, 0.64, 0.5), (0.05, 0.0, 0.0)


def step_time_s(batch_size: int, draft_length: int) -> float:
    """5 ms, and 30 us per token: on 32 requests K=3 costs 1.6 times K=0."""
    return 0.005 + 0.00003 * batch_size * (draft_length + 1)


@dataclass(frozen=True)
class Times:
    """Step times of a formula, as `Promoted.surface`."""

    draft_lengths: tuple[int, ...] = (0, 1, 2, 3)

    def covered(self, batch_size: int, draft_length: int) -> bool:
        return 1 <= batch_size <= SIZE and draft_length in self.draft_lengths

    def step_time_s(self, batch_size: int, draft_length: int) -> float:
        return step_time_s(batch_size, draft_length)


def counts(survival: Sequence[float], drafts: float = 1000.0) -> SurvivalCounts:
    return SurvivalCounts([drafts] * len(survival), np.multiply(survival, drafts), drafts)


def promoted(
    lengths: Sequence[int] | int = 3,
    survival: Sequence[float] = GOOD,
    envelope: Callable[[int, int], bool] | None = None,
    usable: tuple[int, ...] = (0, 1, 2, 3),
    forbidden: tuple[tuple[int, int], ...] = (),
    max_tpot_s: float | None = None,
    version: str = "first",
) -> Promoted:
    dense = (lengths,) * SIZE if isinstance(lengths, int) else tuple(lengths)
    return Promoted(
        lengths=dense,
        usable=usable,
        surface=Times(usable),
        prior=counts(survival),
        envelope=envelope or (lambda b, k: k in usable),
        max_num_seqs=SIZE,
        max_draft_length=LONGEST,
        forbidden_transitions=forbidden,
        version=version,
        max_tpot_s=max_tpot_s,
    )


def controller(
    from_: Promoted | None = None,
    settings: ControllerSettings | None = None,
    boot: tuple[int, ...] = (0,) * SIZE,
    seed: int = 1,
) -> Controller:
    rng = np.random.default_rng(seed)
    return Controller(settings or ControllerSettings(), from_ or promoted(), boot, rng)


def columns(rows: Sequence[dict[str, int | float]], longest: int = LONGEST) -> StepColumns:
    """Engine steps; what a row does not say is a steady step of its batch size and lengths.

    A row's `accepted` is accepted_through, a list; drafted_through follows from
    drafted_requests.
    """
    full: list[dict[str, object]] = []
    for row in rows:
        b, k = int(row["batch_size"]), int(row["verified_length"])
        requests = b - int(row.get("prefill_requests", 0))
        drafted = int(row.get("drafted_requests", requests if k > 0 else 0))
        base: dict[str, object] = {
            "draft_length": k,
            "prefill_requests": 0,
            "request_steps": requests if k > 0 else 0,
            "drafted_requests": drafted,
            "output_tok": b,
            "waiting_requests": 0,
            "undisturbed": True,
            "step_time_s": step_time_s(b, max(k, 0)),
            "drafted_through": [drafted] * max(k, 0) + [0] * (longest - max(k, 0)),
            "accepted_through": [0] * longest,
        }
        full.append(base | row)
    made = {name: np.array([r[name] for r in full]) for name in full[0]}
    ends = np.cumsum(made["step_time_s"].astype(float))
    return StepColumns(time_s=ends, **made)


@dataclass
class FakeEngine:
    """Answers a table with what a steady engine at one batch size would show in a tick."""

    survival: Sequence[float] = GOOD
    batch_size: int = 16
    slower: Callable[[int, int], float] = lambda b, k: 1.0
    stalls: int = 0
    tokens: float = 1.0
    seed: int = 3

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def observe(self, table: Sequence[int], decision: Decision, from_s: float) -> LiveObservation:
        """One second; a probe runs at its beginning."""
        b = self.batch_size
        parts = [(k, n - 1) for k, n in decision.probe]
        own = table[b - 1]
        used_s = sum(n * step_time_s(b, k) for k, n in parts)
        parts.append((own, max(1, int((1.0 - used_s) / step_time_s(b, own)))))
        steps: dict[int, int] = {}
        for k, n in parts:
            steps[k] = steps.get(k, 0) + n
        return self._observation(steps, from_s, own)

    def _observation(self, steps: dict[int, int], from_s: float, own: int) -> LiveObservation:
        b, rng = self.batch_size, self.rng
        offered, accepted = np.zeros(LONGEST, dtype=int), np.zeros(LONGEST, dtype=int)
        cells: list[CellTimes] = []
        seconds = tokens = 0.0
        for k, n in sorted(steps.items()):
            usual_s = step_time_s(b, k) * self.slower(b, k)
            seconds += n * usual_s
            mean_s = usual_s * (1 + rng.normal() * 0.02 / np.sqrt(n))
            cells.append(CellTimes(b, k, n, float(mean_s), 0.02))
            offered[:k] += n * b
            level = rng.random(n * b)
            for i in range(k):
                accepted[i] += int((level < self.survival[i]).sum())
        tokens = (sum(steps.values()) * b + accepted.sum()) * self.tokens
        total = BatchTotals(
            b, sum(steps.values()), seconds, int(tokens), sum(steps.values()), seconds, int(tokens)
        )
        return LiveObservation(
            from_s=from_s,
            to_s=from_s + 1.0,
            steps=sum(steps.values()),
            last_batch_size=b,
            waiting_requests=0,
            cells=tuple(cells),
            batches=(total,),
            request_steps=int(offered[0]),
            offered_through=tuple(offered.tolist()),
            drafted_through=tuple(offered.tolist()),
            accepted_through=tuple(accepted.tolist()),
            stalls=(Stall(b, own, 0.2),) * self.stalls,
        )


def drive(
    control: Controller, engine: FakeEngine, ticks: int, from_s: float = 0.0
) -> list[tuple[float, LiveObservation, Decision]]:
    """So many ticks of a second; what was seen and decided."""
    log: list[tuple[float, LiveObservation, Decision]] = []
    decision = control.last_decision
    for i in range(ticks):
        seen = engine.observe(control.table, decision, from_s + i)
        decision = control.tick(seen, from_s + i + 1.0)
        log.append((from_s + i + 1.0, seen, decision))
    return log

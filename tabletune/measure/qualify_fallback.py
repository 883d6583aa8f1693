"""Qualify one capture plan after another until one is safe."""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from tabletune.measure.engine_errors import EngineError, NoRoomForLog
from tabletune.measure.progress import Progress
from tabletune.measure.qualify_result import QualificationResult
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.qualification import Attempt, Qualification

E = TypeVar("E")

#: A plan under which at most this share of the cells stalls is not worth another boot: the
#: envelope excludes them, and a table keeps every batch size.
TOLERATED_STALLS = 0.03


@dataclass(frozen=True)
class QualifiedPlan:
    """The plan that was chosen, its result, and all attempts in the order they were made."""

    plan: CapturePlan
    result: QualificationResult
    attempts: tuple[Attempt, ...]

    def record(self, fingerprint: str, qualified_at: str) -> Qualification:
        """The record to store; `qualified_at` is ISO 8601 in UTC."""
        return Qualification(
            fingerprint=fingerprint,
            plan=self.plan.content_hash,
            checks=self.result.checks,
            attempts=self.attempts,
            envelope=self.result.envelope,
            excluded=self.result.excluded,
            wall_time_s=self.result.wall_time_s,
            qualified_at=qualified_at,
        )


class NothingQualified(RuntimeError):
    """No plan that was tried can be trusted.

    Attributes:
        attempts: each setting tried and how it ended.
        last: the last plan that booted, with its result; None when none booted.
    """

    def __init__(self, attempts: tuple[Attempt, ...], last: QualifiedPlan | None) -> None:
        self.attempts, self.last = attempts, last
        tried = "\n".join(f"  {i}. {a.description}: {a.reason}" for i, a in enumerate(attempts, 1))
        super().__init__(
            f"no setting of this engine passed qualification; {len(attempts)} tried:\n{tried}\n"
            "Serve without speculation or with one fixed length, or try another engine version "
            "or drafter; what failed above says where to look."
        )

    def record(self, fingerprint: str, qualified_at: str) -> Qualification | None:
        """What to keep of it: the last booted plan's checks with an empty envelope."""
        if self.last is None:
            return None
        record = self.last.record(fingerprint, qualified_at)
        return record.model_copy(update={"envelope": Envelope(allowed={})})


class NothingBooted(NothingQualified, EngineError):
    """No plan that was tried gave an engine that serves."""


def describe_plan(plan: CapturePlan) -> str:
    """One line: graph mode, lengths, how many capture sizes."""
    lengths = ", ".join(map(str, plan.lengths))
    sizes = len(plan.capture_sizes)
    captured = f", {sizes} capture sizes" if sizes else ""
    return f"graph mode {plan.graph_mode}, draft lengths {lengths}{captured}"


def qualify_with_fallback(
    plans: Iterable[CapturePlan],
    boot: Callable[[CapturePlan], AbstractContextManager[E]],
    qualify_plan: Callable[[E, CapturePlan], QualificationResult],
    progress: Progress,
) -> QualifiedPlan:
    """The fastest plan that is safe.

    A plan that crashes, hangs or is refused is left for the next. The first that passes with
    hardly a stall ends the search; those before it that passed with more, which their envelopes
    exclude, are compared with it by measured step times. Faults that another plan cannot cure
    (a length that the engine ignores, changed output) do not ask for another.

    Args:
        plans: in the order of expected speed; may be a generator that makes safer plans.
        boot: an engine under a plan, stopped on leaving; may raise EngineError.
        qualify_plan: runs qualify() on it.

    Raises:
        NothingQualified: no plan passed; the message lists each attempt. NothingBooted: none
            even started. NoRoomForLog: no plan can be tried, none of them is at fault.
    """
    attempts, kept = list[Attempt](), list[tuple[CapturePlan, QualificationResult]]()
    last: tuple[CapturePlan, QualificationResult] | None = None
    for plan in plans:
        description = describe_plan(plan)
        progress.say(f"qualifying {description}")
        try:
            with boot(plan) as engine:
                result = qualify_plan(engine, plan)
        except NoRoomForLog:
            raise
        except EngineError as error:
            attempts.append(_attempt(plan, False, f"it did not start or died: {error}"))
            progress.say(f"{description} failed: {error}")
            continue
        last = (plan, result)
        attempts.append(_attempt(plan, result.passed, result.reason))
        if result.passed:
            kept.append(last)
        if result.reason:
            progress.say(f"{description}: {result.reason}")
        if result.passed and result.stalled_share <= TOLERATED_STALLS:
            break
    if not kept:
        made = tuple(attempts)
        if last is None and made:
            raise NothingBooted(made, None)
        raise NothingQualified(made, QualifiedPlan(*last, made) if last else None)
    plan, result = kept[fastest([result for _, result in kept])]
    return QualifiedPlan(plan, result, tuple(attempts))


def fastest(results: Sequence[QualificationResult]) -> int:
    """Which result has the smallest step times; the first of equals.

    By the geometric mean over the cells that all of them measured. A stalled cell counts with
    the time it took: a table avoids it, but at the price of a worse draft length there.
    """
    times = [{(c.batch_size, c.draft_length): c.median_s for c in r.cells} for r in results]
    shared = set(times[0]).intersection(*times[1:])
    means = [sum(math.log(of_cell[key]) for key in shared) for of_cell in times]
    return means.index(min(means))


def _attempt(plan: CapturePlan, passed: bool, reason: str) -> Attempt:
    return Attempt(
        plan=plan.content_hash, description=describe_plan(plan), passed=passed, reason=reason
    )

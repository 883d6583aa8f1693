"""Reading recorded steps: what is not known yet is waited for without a warning."""

import warnings

import numpy as np

from tabletune.measure.steps import StepBatch, StepReader, parse_steps

COLUMNS = (
    "batch_size", "draft_length", "draft_length_verified", "draft_tokens", "scheduled_tokens",
    "prefill_requests", "output_tokens", "request_steps", "graph_mode", "padded_tokens",
)  # fmt: skip


def answer(first: int, after_idle: list[int], interval_s: list[float]) -> dict[str, object]:
    count = len(after_idle)
    columns: dict[str, list[object]] = {name: [1] * count for name in COLUMNS}
    columns |= {
        "time_s": [float(first + i) for i in range(count)],
        "step_time_s": list(interval_s),
        "after_idle": list(after_idle),
        "drafted_through": [[1, 1]] * count,
        "accepted_through": [[1, 0]] * count,
    }
    return {"first": first, "next": first + count, "lost": 0, "columns": columns}


class Recording:
    """Hands out prepared batches, one a read."""

    def __init__(self, *answers: dict[str, object]) -> None:
        self._answers = list(answers)

    def steps(self, since: int = 0, limit: int = 16_384) -> StepBatch:
        if since == 2**53:
            return parse_steps(answer(0, [], []))
        return parse_steps(self._answers.pop(0))


class Waits:
    """A clock that notes how long it was to sleep."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    def now_s(self) -> float:
        return sum(self.slept_s)

    def sleep_s(self, seconds: float) -> None:
        self.slept_s.append(seconds)

    def utc(self) -> str:
        return "2026-01-01T00:00:00+00:00"


def test_a_first_step_after_idle_has_no_interval_to_wait_by() -> None:
    source = Recording(
        answer(0, [1], [9.0]),  # the first step of an engine that was idle
        answer(1, [0, 0], [0.1, 0.1]),
        answer(3, [0], [0.1]),
    )
    clock = Waits()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = StepReader(source).read_steps(4, clock, 60.0)
    assert len(batch) == 4
    assert np.isnan(batch.interval_s[0])
    assert clock.slept_s == [0.02, 0.1]

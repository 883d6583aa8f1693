"""Step times that drift within a tick."""

import numpy as np
import pytest

from tabletune.core.controller.summarise import summarise
from tests.core.controller.controller_scenes import columns, step_time_s


def contrast(drift_per_s: float, noise: float, seed: int) -> float:
    """How far a probe of K=1 at the start of a tick of K=2 makes K=1 seem too slow, in logs."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, int | float]] = []
    at_s = 0.0
    while at_s < 1.0:
        length = 1 if at_s < 0.1 else 2
        seconds = step_time_s(8, length) * float(np.exp(drift_per_s * at_s + noise * rng.normal()))
        rows.append({"batch_size": 8, "verified_length": length, "step_time_s": seconds})
        at_s += seconds
    seen = summarise(columns(rows), 0.0, 1.0, expected_step_time_s=step_time_s)
    times = {
        c.draft_length: float(np.log(c.step_time_s / step_time_s(8, c.draft_length)))
        for c in seen.cells
    }
    return times[1] - times[2]


def test_a_probe_is_not_charged_for_the_drift_of_the_tick() -> None:
    assert contrast(-0.2, 0.0, 1) == pytest.approx(0.0, abs=0.003)
    errors = [contrast(-0.2, 0.02, seed) for seed in range(20)]
    assert abs(float(np.mean(errors))) < 0.02  # without the correction 0.1


def test_noise_alone_adds_hardly_any_error() -> None:
    errors = np.array([contrast(0.0, 0.02, seed) for seed in range(40)])
    assert abs(float(errors.mean())) < 0.004
    assert float(errors.std()) < 0.012

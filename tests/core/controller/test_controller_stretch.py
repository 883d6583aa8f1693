"""Stretches of steps that lie apart by more than their steps say, and what probes then tell."""

import numpy as np
import pytest

from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.pace import Pace
from tabletune.core.controller.residuals import StepTimeResiduals
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.controller.summarise import summarise
from tabletune.core.errors import CoreError
from tests.core.controller.controller_scenes import columns, step_time_s


def tick(
    stretch: float, step: float, seed: int, steps: int = 200, alike: int = 10
) -> LiveObservation:
    """Steps of K=2 at 8 requests. stretch, step: noise of every `alike` steps and of each."""
    rng = np.random.default_rng(seed)
    noise = np.repeat(stretch * rng.normal(size=-(-steps // alike)), alike)[:steps]
    times = step_time_s(8, 2) * np.exp(noise + step * rng.normal(size=steps))
    rows = [{"batch_size": 8, "verified_length": 2, "step_time_s": t} for t in times.tolist()]
    return summarise(columns(rows), 0.0, 1.0, expected_step_time_s=step_time_s)


def test_what_stretches_differ_by_is_found() -> None:
    found = [tick(0.06, 0.03, seed).stretch_sd or 0.0 for seed in range(40)]
    assert float(np.sqrt(np.mean(np.square(found)))) == pytest.approx(0.06, rel=0.2)


def test_independent_steps_have_none() -> None:
    found = [tick(0.0, 0.05, seed).stretch_sd or 0.0 for seed in range(40)]
    assert float(np.sqrt(np.mean(np.square(found)))) < 0.01


def test_a_few_steps_do_not_tell() -> None:
    assert tick(0.06, 0.03, 0, steps=29).stretch_sd is None
    assert LiveObservation.nothing(0.0, 1.0, 3).stretch_sd is None


def test_it_is_recorded_and_older_records_can_still_be_read() -> None:
    seen = tick(0.06, 0.03, 0)
    values = seen.to_dict()
    assert LiveObservation.from_dict(values) == seen
    del values["stretch_sd"]
    assert LiveObservation.from_dict(values).stretch_sd is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, "0.1", [0.1]])
def test_a_damaged_record_is_refused(value: object) -> None:
    with pytest.raises(CoreError):
        LiveObservation.from_dict({**tick(0.06, 0.03, 0).to_dict(), "stretch_sd": value})


def residuals(stretch_sd: float) -> StepTimeResiduals:
    """After some ticks of K=2 at 16 requests, and one probe of ten steps of K=3."""
    found = StepTimeResiduals(64, (0, 1, 2, 3), ControllerSettings())
    for _ in range(20):
        found.update([((16, 2), 100, 0.0, 0.02)], 1.0, stretch_sd)
    found.update([((16, 2), 100, 0.0, 0.02), ((16, 3), 10, -0.08, 0.02)], 1.0, stretch_sd)
    return found


def test_one_probe_proves_little_where_stretches_lie_apart() -> None:
    quiet, unquiet = residuals(0.0), residuals(0.06)
    rows, own = np.array([15]), np.array([2])
    assert quiet.contrast_variance(rows, own)[0, 3] < 0.02**2
    assert unquiet.contrast_variance(rows, own)[0, 3] > 0.04**2
    assert quiet.factor(16, 3) < unquiet.factor(16, 3) < 1.0
    assert unquiet.probe_variance(10) == pytest.approx(0.06**2, rel=0.3)
    # More steps in one go help: they are several stretches.
    assert unquiet.probe_variance(40) < 0.4 * unquiet.probe_variance(10)


def test_a_tick_that_does_not_tell_changes_nothing() -> None:
    found = residuals(0.06)
    before = found.probe_variance(10)
    found.update([], 1.0)
    assert found.probe_variance(10) == before


def test_doubt_counts_for_more_once_settled() -> None:
    settings = ControllerSettings()
    pace = Pace(settings, 0.0)
    late = settings.settle_s - 0.1
    assert pace.most_doubt(late) == settings.settling_gain
    assert pace.most_doubt(settings.settle_s + 1.0) == settings.steady_doubt

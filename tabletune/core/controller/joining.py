"""Steps right before a prefill: what taking requests in adds to them, and what they tell then.

Taking requests in and launching their prefill fall into the interval of the step before: on an
H200 steps of 63 requests lasted 14 ms instead of 7 whenever a closed loop of 64 filled its gap
again. That much is added at every draft length; as a ratio it would speak for the longest. So
these steps are no steady ones. But a busy engine has few others, and where the addition hardly
varies they tell nearly as much: it is measured on the length in force, taken off the others,
and each such step counts as the part of a steady one that its noise leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tabletune.core.controller.in_force import InForce
from tabletune.core.controller.observation import Bools, CellTimes, StepColumns
from tabletune.core.words import FloatArray

_FAR_SPREADS = 4.0  # a step is pulled in to the middle +- so many robust standard deviations,
_FAR_SHARE = 0.10  # and at least this share of the middle
_LEAST_STEPS = 4  # of either sort, before the addition is believed
_LEAST_SD = 0.01  # of a steady step's time, as a share, whatever a sample says


def pulled_in(times_s: FloatArray) -> FloatArray:
    """Samples with far ones brought nearer, float64[n], n >= 1."""
    middle = float(np.median(times_s))
    spread = 1.4826 * float(np.median(np.abs(times_s - middle)))
    reach = max(_FAR_SPREADS * spread, _FAR_SHARE * abs(middle))
    return np.clip(times_s, middle - reach, middle + reach)


@dataclass(frozen=True)
class JoiningPrice:
    """added_s: seconds more than a steady step of its cell. length: measured on that one.
    variance_s2: of the mean of added_s; of one step before a prefill; of one steady step."""

    added_s: float
    length: int
    mean_variance_s2: float
    joining_variance_s2: float
    steady_variance_s2: float

    def added(self, calm: CellTimes, joining_s: FloatArray) -> CellTimes:
        """A cell's steady steps together with what its steps before prefills tell."""
        if calm.draft_length == self.length or joining_s.size == 0:
            return calm
        mean_s = float(pulled_in(joining_s).mean()) - self.added_s
        variance_s2 = self.joining_variance_s2 / joining_s.size + self.mean_variance_s2
        worth = int(self.steady_variance_s2 / variance_s2)  # in steady steps
        count = calm.count + worth
        if worth == 0 or mean_s <= 0:
            return calm
        whole_s = (calm.count * calm.step_time_s + worth * mean_s) / count
        usual_sd = float(np.sqrt(self.steady_variance_s2)) / whole_s
        log_sd = (calm.count * calm.log_sd + worth * usual_sd) / count
        return CellTimes(calm.batch_size, calm.draft_length, count, whole_s, log_sd)


def joining_price(
    columns: StepColumns, steady: Bools, joining: Bools, in_force: InForce
) -> JoiningPrice | None:
    """Measured on the length in force; None where too few steps tell it.

    steady, joining: bool[n], steps that tell their cell's time, and such right before a prefill.
    """
    over_s = columns.step_time_s - in_force.usual_s
    known = np.isfinite(over_s)
    calm_s, before_s = over_s[steady & known], over_s[joining & known]
    if min(calm_s.size, before_s.size) < _LEAST_STEPS:
        return None
    calm_s, before_s = pulled_in(calm_s), pulled_in(before_s)
    least_s2 = (_LEAST_SD * float(np.mean(in_force.usual_s[known]))) ** 2
    steady_s2 = max(float(calm_s.var()), least_s2)
    joining_s2 = max(float(before_s.var()), least_s2)
    return JoiningPrice(
        added_s=float(before_s.mean() - calm_s.mean()),
        length=in_force.length,
        mean_variance_s2=joining_s2 / before_s.size + steady_s2 / calm_s.size,
        joining_variance_s2=joining_s2,
        steady_variance_s2=steady_s2,
    )

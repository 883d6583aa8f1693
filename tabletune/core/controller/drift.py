"""Step times that drift within a tick, brought to one moment.

Contexts grow, and requests that began together end together: step times of all lengths rise by
percents within seconds. A probe runs at one moment of a tick and the length in force at all
others, so that the drift would be booked on the probed length. The length in force shows it.
"""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.in_force import InForce
from tabletune.core.controller.joining import pulled_in
from tabletune.core.controller.observation import Bools, StepColumns
from tabletune.core.words import FloatArray

_LEAST_STEPS = 12  # of the length in force, before a slope is believed
_LEAST_SPAN_S = 0.25


def level_times_s(columns: StepColumns, steady: Bools, in_force: InForce) -> FloatArray:
    """step_time_s, float64[n], each brought to the mean moment of the length in force.

    The slope of log time over expected time, by least squares, shrunk by its own uncertainty
    (positive part of James and Stein 1961), so that mere noise corrects nothing.
    """
    slope, middle_s = _slope(columns, steady, in_force)
    if slope == 0.0:
        return columns.step_time_s
    levelled: FloatArray = columns.step_time_s * np.exp(-slope * (columns.time_s - middle_s))
    return levelled


def _slope(columns: StepColumns, steady: Bools, in_force: InForce) -> tuple[float, float]:
    """Log step time per second, and the moment to bring all to; slope 0 where nothing tells."""
    own = steady & np.isfinite(in_force.usual_s)
    at_s = columns.time_s[own]
    if at_s.size < _LEAST_STEPS or float(at_s[-1] - at_s[0]) < _LEAST_SPAN_S:
        return 0.0, 0.0
    log_ratio = np.log(columns.step_time_s[own] / in_force.usual_s[own])
    log_ratio = pulled_in(log_ratio)
    from_middle = at_s - at_s.mean()
    spread = float(from_middle @ from_middle)
    slope = float(from_middle @ log_ratio) / spread
    left = log_ratio - log_ratio.mean() - slope * from_middle
    variance = float(left @ left) / (at_s.size - 2) / spread
    if slope**2 <= variance:
        return 0.0, 0.0
    return slope * (1 - variance / slope**2), float(at_s.mean())

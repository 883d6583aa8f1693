"""How far stretches of consecutive steps lie apart beside what their own steps say.

Steps that follow one another are alike: on an H200 the means of 12 steps of one cell, seconds
apart, differed by 4 to 10 % where the steps of each differed by 2 to 6 %. A probe is one such
stretch, so its mean is off by as much, however many steps it has. The length in force has many
stretches in a tick and shows it.
"""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.in_force import InForce
from tabletune.core.controller.joining import pulled_in
from tabletune.core.controller.observation import Bools
from tabletune.core.words import FloatArray

STRETCH_STEPS = 10
_LEAST_STRETCHES = 3  # in a tick, before it tells anything


def stretch_sd(times_s: FloatArray, steady: Bools, in_force: InForce) -> float | None:
    """Standard deviation of log step time between stretches of the length in force, beyond what
    the spread within them gives; None where a tick has too few of them.

    times_s: float64[n], of all steps of the tick, levelled (see drift.py). steady: bool[n].
    """
    own = steady & np.isfinite(in_force.usual_s)
    stretches = int(own.sum()) // STRETCH_STEPS
    if stretches < _LEAST_STRETCHES:
        return None
    log_ratio = pulled_in(np.log(times_s[own] / in_force.usual_s[own]))
    rows = log_ratio[: stretches * STRETCH_STEPS].reshape(stretches, STRETCH_STEPS)
    within = float(rows.var(axis=1, ddof=1).mean()) / STRETCH_STEPS
    between = float(rows.mean(axis=1).var(ddof=1))
    return float(np.sqrt(max(between - within, 0.0)))

"""The length that most steady steps of a tick have, against which the others are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tabletune.core.controller.observation import Bools, StepColumns
from tabletune.core.words import FloatArray

ExpectedStepTime = Callable[[int, int], float | None]
"""(batch size, verified length) -> expected seconds of a steady step; None: not known."""


@dataclass(frozen=True, eq=False)
class InForce:
    """usual_s: float64[n], expected seconds of the steps of `length`; NaN for other steps, and
    where nothing is expected."""

    length: int
    usual_s: FloatArray


def length_in_force(
    columns: StepColumns, steady: Bools, expected: ExpectedStepTime | None
) -> InForce | None:
    """None without an expectation or a steady step. steady: bool[n]."""
    if expected is None or not steady.any():
        return None
    lengths, uses = np.unique(columns.verified_length[steady], return_counts=True)
    length = int(lengths[np.argmax(uses)])
    own = columns.verified_length == length
    sizes, places = np.unique(columns.batch_size[own], return_inverse=True)
    usual_s = np.full(len(columns), np.nan)
    usual_s[own] = np.array([expected(b, length) or np.nan for b in sizes.tolist()])[places]
    return InForce(length, usual_s)

"""Random numbers of the steps, drawn many steps ahead.

Step number i always takes row i, whether steps are run one by one or in blocks: both give the
same simulation to the last bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tabletune.core.words import FloatArray
from tabletune.simulate.step_cost import Noise

_ROWS = 256


class StepDraws:
    """accept, propose: float32[rows, slots], uniform in [0, 1), one number per step and slot.
    noise: float64[rows], factors of the step time; noise_list: the same as floats. drift:
    float64[rows], the host's, log factors; None without. row: the next step's."""

    def __init__(self, slots: int, noise: Noise, proposals: bool, rng: np.random.Generator) -> None:
        self._slots, self._noise = slots, noise
        self._accept_rng, self._propose_rng, self._noise_rng = rng.spawn(3)
        self._drift_rng = rng.spawn(1)[0] if noise.host_sd else None
        self.drift: FloatArray | None = None
        self.accept: npt.NDArray[np.float32]
        self.propose: npt.NDArray[np.float32] | None = None
        self._proposals = proposals
        self.noise: FloatArray
        self.noise_list: list[float]
        self.refill()

    def refill(self) -> None:
        """Draw the next rows."""
        shape = (_ROWS, self._slots)
        self.accept = self._accept_rng.random(shape, dtype=np.float32)
        if self._proposals:
            self.propose = self._propose_rng.random(shape, dtype=np.float32)
        self.noise = self._noise.draw(self._noise_rng, _ROWS)
        self.noise_list = self.noise.tolist()
        if self._drift_rng is not None:
            before = 0.0 if self.drift is None else float(self.drift[-1])
            self.drift = self._noise.drift(self._drift_rng, before, _ROWS)
        self.row = 0

    def factor(self, draft_length: int) -> float:
        """Of the next step's time, if it verifies `draft_length` guesses."""
        factor = self.noise_list[self.row]
        if self.drift is None:
            return factor
        return factor * float(np.exp(self._log_drift(draft_length, self.drift[self.row])))

    def factors(self, draft_length: int, steps: int) -> FloatArray:
        """Of the times of the next `steps` steps, float64[steps], within `rows_left`."""
        rows = slice(self.row, self.row + steps)
        if self.drift is None:
            return self.noise[rows]
        return self.noise[rows] * np.exp(self._log_drift(draft_length, self.drift[rows]))

    def _log_drift(self, draft_length: int, drift: FloatArray) -> FloatArray:
        noise = self._noise
        return noise.felt(draft_length) * drift + noise.mean_one(draft_length)

    @property
    def rows_left(self) -> int:
        return _ROWS - self.row

    def advance(self, steps: int) -> None:
        """Rows used; at most `rows_left`."""
        self.row += steps
        if self.row == _ROWS:
            self.refill()

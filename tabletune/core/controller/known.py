"""All that was learned, together."""

from __future__ import annotations

from dataclasses import dataclass

from tabletune.core.controller.live_batches import LiveBatches
from tabletune.core.controller.plane import Plane
from tabletune.core.controller.residuals import StepTimeResiduals
from tabletune.core.controller.survival import LiveSurvival


@dataclass(frozen=True)
class Known:
    """plane: what was promoted. survival, residuals, live: learned on top of it."""

    plane: Plane
    survival: LiveSurvival
    residuals: StepTimeResiduals
    live: LiveBatches

"""How long a probe is, and what it loses."""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.live_batches import LiveBatches
from tabletune.core.controller.outlook import Outlook
from tabletune.core.controller.settings import ControllerSettings

_LEAST_LOSS = 0.01  # a probe step is thought to lose at least this share: switching is not free
_REQUEST_STEPS = 48  # request-steps wanted of a probe, for survival


def probe_steps(settings: ControllerSettings, live: LiveBatches | None, batch_size: int) -> int:
    """Steps until request-steps enough, and (unless live is None) steady ones, have come."""
    steps = int(np.ceil(_REQUEST_STEPS / batch_size))
    if live is not None:
        wanted = settings.probe_clean_steps / max(live.steady_share, 0.05)
        steps = max(steps, int(np.ceil(wanted)))
    return int(np.clip(1 + steps, settings.least_probe_steps, settings.most_probe_steps))


def probe_cost_s(outlook: Outlook, column: int, batch_size: int, steps: int) -> float:
    """Seconds of throughput lost by `steps` steps of the column's length at a batch size."""
    row = batch_size - 1
    gain = float(outlook.log_goodput[row, column] - outlook.current[row])
    loss = 1.0 if not np.isfinite(gain) else max(1.0 - float(np.exp(gain)), _LEAST_LOSS)
    return steps * float(np.exp(outlook.log_time[row, column])) * loss

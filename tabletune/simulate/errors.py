"""The error that the simulator raises."""

from __future__ import annotations

from tabletune.core.errors import CoreError


class SimulationError(CoreError):
    """A setting or a decision that cannot be simulated. Fields as `CoreError`."""

"""What the stages of one run share."""

import pathlib
from dataclasses import dataclass

from tabletune.measure.clock import Clock
from tabletune.measure.progress import Progress
from tabletune.pipeline.identify import Target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.reuse import ANY_AGE, Reuse
from tabletune.pipeline.session import EngineSession
from tabletune.pipeline.workspace import Workspace


@dataclass(frozen=True)
class RunContext:
    """One run: what is tuned, where it is kept, which engines it has.

    `fresh` measures again what is still valid; `reuse` says for how long something is.
    """

    request: RunRequest
    target: Target
    workspace: Workspace
    session: EngineSession
    clock: Clock
    progress: Progress
    fresh: bool = False
    reuse: Reuse = ANY_AGE

    @property
    def identity(self) -> str:
        """The fingerprint's identity: what records are kept under."""
        return self.target.fingerprint.identity

    @property
    def python(self) -> pathlib.Path:
        return self.target.python

    def may_use(self, measured_at: str) -> bool:
        """Whether evidence of that moment (ISO 8601) is used again."""
        return not self.fresh and self.reuse.evidence(measured_at, self.clock.utc())

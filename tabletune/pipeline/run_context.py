"""What the stages of one run share."""

import pathlib
from dataclasses import dataclass

from tabletune.measure.clock import Clock
from tabletune.measure.progress import Progress
from tabletune.pipeline.identify import Target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import EngineSession
from tabletune.pipeline.workspace import Workspace


@dataclass(frozen=True)
class RunContext:
    """One run: what is tuned, where it is kept, which engines it has.

    `fresh` measures again what is still valid.
    """

    request: RunRequest
    target: Target
    workspace: Workspace
    session: EngineSession
    clock: Clock
    progress: Progress
    fresh: bool = False

    @property
    def identity(self) -> str:
        """The fingerprint's identity: what records are kept under."""
        return self.target.fingerprint.identity

    @property
    def python(self) -> pathlib.Path:
        return self.target.python

"""What a watch remembers from one time to the next. Losing it costs time and nothing else."""

import contextlib
import pathlib
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tabletune.durable_file import write_durably
from tabletune.records.fingerprint import ModelFacts

FORMAT: Final = 1
#: A larger file is not ours; 10,000 deployments take about 10 MB.
MAX_BYTES: Final = 256 * 2**20


class Known(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class KnownEngine(Known):
    """What an engine environment said, and the signature of its files then."""

    signature: str
    facts: dict[str, Any]


class KnownModel(Known):
    """A model's facts, and the signature of its files then."""

    signature: str
    facts: ModelFacts
    dtype: str | None


class KnownVersion(Known):
    """What a watch needs of a table version, which never changes."""

    created_at: str
    objective: str
    max_tpot_s: float | None
    acceptance_prior: str


class LastLook(Known):
    """What the last look at a deployment said, for metrics; times in Unix seconds.

    Attributes:
        due_since: when a look first found that it must be tuned, since when no table that fits
            came in force; None while nothing is due.
        problem: whether it could not be looked at.
        right_at: when its table was last found right, None where that is not known.
    """

    at: float
    due_since: float | None
    problem: bool
    right_at: float | None


class WatchState(BaseModel):
    """Engines by their Python, models by name, versions by hash, and by deployment the last
    look, when its snapshots were looked at last (Unix seconds) and what that said. Changed in
    place."""

    model_config = ConfigDict(extra="forbid")

    format: int = FORMAT
    engines: dict[str, KnownEngine] = Field(default_factory=dict[str, KnownEngine])
    models: dict[str, KnownModel] = Field(default_factory=dict[str, KnownModel])
    versions: dict[str, KnownVersion] = Field(default_factory=dict[str, KnownVersion])
    drift_at: dict[str, float] = Field(default_factory=dict[str, float])
    drift: dict[str, tuple[str, ...]] = Field(default_factory=dict[str, tuple[str, ...]])
    looks: dict[str, LastLook] = Field(default_factory=dict[str, LastLook])

    def note(self, name: str, at: float, due: bool, problem: bool, age_s: float | None) -> None:
        """Keep what a look at a deployment said. While it has a problem, what was due stays so.

        Args:
            at: Unix seconds. age_s: since its table was last found right.
        """
        before = self.looks.get(name)
        since = before.due_since if before is not None else None
        if problem:
            due = since is not None
        self.looks[name] = LastLook(
            at=at,
            due_since=(at if since is None else since) if due else None,
            problem=problem,
            right_at=None if age_s is None else at - age_s,
        )

    def keep_only(self, deployments: set[str], versions: set[str]) -> None:
        """Forget what belongs to no deployment any more, so that it does not grow for ever."""
        self.drift_at = {k: v for k, v in self.drift_at.items() if k in deployments}
        self.drift = {k: v for k, v in self.drift.items() if k in deployments}
        self.looks = {k: v for k, v in self.looks.items() if k in deployments}
        self.versions = {k: v for k, v in self.versions.items() if k in versions}


def load_state(path: pathlib.Path) -> WatchState:
    """The state of a file; an empty one where there is none, or none that can be read."""
    with contextlib.suppress(OSError, ValidationError, ValueError):
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        state = WatchState.model_validate_json(data)
        if len(data) <= MAX_BYTES and state.format == FORMAT:
            return state
    return WatchState()


def save_state(state: WatchState, path: pathlib.Path) -> None:
    """Write the state whole or not at all; of two writers at once the later one wins.

    Raises:
        OSError: it cannot be written; what was there before is untouched.
    """
    write_durably(path, state.model_dump_json().encode(), mode=0o600)

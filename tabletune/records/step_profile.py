"""A profile: measured step times T(b, K), with the raw samples kept."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from tabletune.core.context import CellKey, brought_to
from tabletune.core.words import FloatArray
from tabletune.records.base import Facts, Record

#: How step times are measured: inside the engine, or by requests from outside (paper §5).
ProfileMethod = Literal["in_engine", "client"]


class Cell(Facts):
    """Step times of one (batch size, draft length) pair.

    `samples_s` are the raw intervals between engine steps in seconds, in the order they
    were measured; for the client method each is a difference quotient over many steps.
    `sample_context_tok` is each sample's mean context length in tokens, empty where it is not
    known. `scheduled_tok` is the mean number of tokens scheduled per step (b·(K+1) when every
    request carries a full draft; fewer where the drafter proposes nothing).
    `status` is ``measured`` or why the cell is not used; `problem` says it in words.
    """

    batch_size: int = Field(ge=1)
    draft_length: int = Field(ge=0)
    samples_s: tuple[float, ...]
    scheduled_tok: float = Field(ge=0)
    context_tok: float = Field(ge=0)
    sample_context_tok: tuple[float, ...] = ()
    status: Literal["measured", "not_measured", "rejected"] = "measured"
    problem: str = ""

    @model_validator(mode="after")
    def _measured_has_samples(self) -> "Cell":
        if self.status == "measured" and not self.samples_s:
            raise ValueError(f"cell b={self.batch_size} K={self.draft_length} has no samples")
        contexts = len(self.sample_context_tok)
        if contexts not in (0, len(self.samples_s)):
            raise ValueError(f"{contexts} contexts for {len(self.samples_s)} samples")
        if self.status != "measured" and not self.problem:
            raise ValueError(
                f"cell b={self.batch_size} K={self.draft_length} is {self.status} without a problem"
            )
        return self


class Profile(Record):
    """Step times of one engine under one fingerprint and one capture plan.

    `step_kind` is ``constant`` where every step of a cell does the same work (model
    drafters) and ``mixed`` where it does not (n-gram and suffix drafters propose for some
    requests only). The client method's samples are means over many steps, and so
    ``constant`` with any drafter. Step times are stated at `context_tok` tokens of context.
    """

    KIND: ClassVar[str] = "profile"

    fingerprint: str
    plan: str
    method: ProfileMethod
    step_kind: Literal["constant", "mixed"]
    prompt_tok: int = Field(ge=1)
    context_tok: int = Field(ge=1)
    cells: tuple[Cell, ...]
    wall_time_s: float = Field(ge=0)
    measured_at: str

    @model_validator(mode="after")
    def _cells_are_unique(self) -> "Profile":
        keys = [(cell.batch_size, cell.draft_length) for cell in self.cells]
        if len(set(keys)) != len(keys):
            raise ValueError("the same (batch size, draft length) appears twice")
        return self

    def samples_at_context(self) -> dict[CellKey, FloatArray]:
        """By (batch size, draft length), the samples at `context_tok` of context, in seconds.

        Of the measured cells; as measured where the samples' contexts are not known.
        """
        measured = {(c.batch_size, c.draft_length): c for c in self.cells if c.status == "measured"}
        found = {
            key: np.asarray(cell.samples_s, dtype=np.float64) for key, cell in measured.items()
        }
        contexts = {key: c.sample_context_tok for key, c in measured.items()}
        known = {key: (found[key], tok) for key, tok in contexts.items() if tok}
        return found | brought_to(known, self.context_tok)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The measured batch sizes, in rising order."""
        return tuple(sorted({c.batch_size for c in self.cells if c.status == "measured"}))

    @property
    def lengths(self) -> tuple[int, ...]:
        """The measured draft lengths, in rising order."""
        return tuple(sorted({c.draft_length for c in self.cells if c.status == "measured"}))

"""The acceptance prior: survival counts on sample prompts."""

import itertools
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, model_validator

from tabletune.records.base import Facts, Record

#: A batch size as a key of a JSON object.
BatchSizeKey = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}$")]

#: How `prompts_hash` begins where the counts are of live traffic; snapshots' hash follows.
LIVE: Final = "live:"


class PositionCounts(Facts):
    """Counts per draft position i = 1 … K (index i−1).

    `drafted_through[i−1]`: request-steps whose verified draft had at least i guesses;
    `accepted_through[i−1]`: those whose guesses 1 … i were all accepted;
    `request_steps`: decode request-steps that could have carried a draft, including those
    where the drafter proposed nothing.
    """

    drafted_through: tuple[int, ...]
    accepted_through: tuple[int, ...]
    request_steps: int = Field(ge=0)

    @model_validator(mode="after")
    def _counts_agree(self) -> "PositionCounts":
        drafted, accepted = self.drafted_through, self.accepted_through
        if len(drafted) != len(accepted):
            raise ValueError(f"{len(drafted)} drafted but {len(accepted)} accepted positions")
        if any(a > d or a < 0 for a, d in zip(accepted, drafted, strict=True)):
            raise ValueError(f"accepted {accepted} exceeds drafted {drafted} at some position")
        if any(later > earlier for earlier, later in itertools.pairwise(drafted)):
            raise ValueError(f"drafted_through {drafted} must not rise with the position")
        if any(later > earlier for earlier, later in itertools.pairwise(accepted)):
            raise ValueError(f"accepted_through {accepted} must not rise with the position")
        if drafted and drafted[0] > self.request_steps:
            raise ValueError(f"{drafted[0]} drafted in only {self.request_steps} request-steps")
        return self


class AcceptancePrior(Record):
    """Survival counts from sample prompts at one draft length (paper §4.2).

    `source` is ``measured`` or ``synthetic`` (an engine told to accept at given rates).
    Harvested from live traffic, `prompt_count` is that of engines (`from_live_traffic`).
    `by_group` splits the counts by the prompts' group, such as ``code`` or ``chat``.
    """

    KIND: ClassVar[str] = "acceptance_prior"

    fingerprint: str
    draft_length: int = Field(ge=1)
    source: Literal["measured", "synthetic"]
    prompt_count: int = Field(ge=1)
    prompts_hash: str
    counts: PositionCounts
    by_group: dict[str, PositionCounts] = Field(default_factory=dict)
    by_batch_size: dict[BatchSizeKey, PositionCounts] = Field(default_factory=dict)
    wall_time_s: float = Field(ge=0)
    measured_at: str

    @property
    def from_live_traffic(self) -> bool:
        """Whether it was harvested from serving engines, not measured on sample prompts."""
        return self.prompts_hash.startswith(LIVE)

    @model_validator(mode="after")
    def _positions_fit_the_draft(self) -> "AcceptancePrior":
        for counts in (self.counts, *self.by_group.values(), *self.by_batch_size.values()):
            positions = len(counts.drafted_through)
            if positions > self.draft_length:
                raise ValueError(
                    f"counts of {positions} positions from drafts of {self.draft_length}"
                )
        return self

"""What a report is made from, and what it becomes."""

import pathlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.plan import CapturePlan
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import Table, TableVersion
from tabletune.records.verdict import Verdict

FloatArray = npt.NDArray[np.float64]


class ReportInputError(ValueError):
    """The parts of a report do not fit together.

    Attributes:
        field: the field of `ReportInput`.
        expected: what it must be.
        found: what it is.
    """

    def __init__(self, field: str, expected: str, found: object) -> None:
        self.field = field
        self.expected = expected
        self.found = found
        super().__init__(f"{field}: expected {expected}, found {found!r}; pass the matching array")


@dataclass(frozen=True, eq=False)
class ReportInput:
    """Everything that a report shows; a part that is None is said to be missing, in words.

    `predicted_goodput_tok_s`: float64[B, K_max + 1] at `batch_sizes` (B of them, rising), NaN
    where unknown. `padded_tok`: float64[max_num_seqs, K_max + 1], row b − 1, the tokens that a
    step is padded to, NaN where no graph fits. `engine_args` is the command (and environment)
    that serves with this table, shown as it is. `generated_at` is shown as it is. `remarks` are
    sentences about this run that a reader must know, such as dummy weights.

    Raises:
        ReportInputError: an array does not have these shapes.
    """

    title: str
    generated_at: str
    fingerprint: Fingerprint
    plan: CapturePlan | None = None
    qualification: Qualification | None = None
    profile: Profile | None = None
    prior: AcceptancePrior | None = None
    version: TableVersion | None = None
    incumbent: Table | None = None
    verdict: Verdict | None = None
    batch_sizes: tuple[int, ...] = ()
    predicted_goodput_tok_s: FloatArray | None = None
    padded_tok: FloatArray | None = None
    engine_args: str = ""
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        grid = self.predicted_goodput_tok_s
        if grid is not None:
            if grid.ndim != 2 or grid.shape[0] != len(self.batch_sizes):
                expected = f"one row for each of {len(self.batch_sizes)} batch sizes"
                raise ReportInputError("predicted_goodput_tok_s", expected, grid.shape)
            if list(self.batch_sizes) != sorted(set(self.batch_sizes)):
                raise ReportInputError("batch_sizes", "rising batch sizes", self.batch_sizes)
        padded = self.padded_tok
        if padded is not None and (padded.ndim != 2 or 0 in padded.shape):
            raise ReportInputError("padded_tok", "float64[max_num_seqs, K + 1]", padded.shape)

    @property
    def max_draft_length(self) -> int:
        """The longest draft length that any part names; colours are spread up to it."""
        longest = [1]
        if self.plan is not None:
            longest.append(self.plan.max_draft_length)
        for table in (self.table, self.incumbent):
            if table is not None:
                longest.append(max(table.lengths))
        if self.profile is not None:
            longest += [cell.draft_length for cell in self.profile.cells]
        if self.predicted_goodput_tok_s is not None:
            longest.append(self.predicted_goodput_tok_s.shape[1] - 1)
        return max(longest)

    @property
    def table(self) -> Table | None:
        """The table of the version."""
        return None if self.version is None else self.version.table


@dataclass(frozen=True)
class ReportFiles:
    """The files written: one HTML page, and the plots that could be drawn, by name."""

    html: pathlib.Path
    pngs: tuple[pathlib.Path, ...]

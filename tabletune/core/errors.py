"""The errors that the core raises.

    CoreError (ValueError)
    ├── NotCoveredError      a step time was asked for where nothing was measured
    └── NoTableError         the constraints leave no table

Each carries its facts as fields; the message says what was expected, what was found and
what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence


class CoreError(ValueError):
    """A value that the core cannot use.

    Fields: `subject` (what the value is), `expected`, `found`, `next_step` (what to do).

    >>> str(CoreError("confidence", "a number between 0 and 1", 95, "pass 0.95 for 95 %"))
    'confidence: expected a number between 0 and 1, found 95; pass 0.95 for 95 %'
    """

    def __init__(self, subject: str, expected: str, found: object, next_step: str) -> None:
        super().__init__(subject, expected, found, next_step)
        self.subject = subject
        self.expected = expected
        self.found = found
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.subject}: expected {self.expected}, found {self.found!r}; {self.next_step}"


class NotCoveredError(CoreError):
    """A step time was asked for at a cell that no measurement or no graph covers.

    Fields: `batch_size`, `draft_length`, `reason`.
    """

    def __init__(self, batch_size: int, draft_length: int, reason: str) -> None:
        super().__init__(
            "step time",
            "a covered cell",
            (batch_size, draft_length),
            f"{reason}; measure there, or ask `covered` first",
        )
        self.args = (batch_size, draft_length, reason)
        self.batch_size = batch_size
        self.draft_length = draft_length
        self.reason = reason


class NoTableError(CoreError):
    """No table satisfies the constraints.

    Fields: `reason`, `batch_sizes` (where it fails, at most a few of them).
    """

    def __init__(self, reason: str, batch_sizes: Sequence[int], next_step: str) -> None:
        shown = tuple(batch_sizes)
        super().__init__("table", "at least one usable draft length everywhere", shown, next_step)
        self.args = (reason, shown, next_step)
        self.reason = reason
        self.batch_sizes = shown

    def __str__(self) -> str:
        return f"no table: {self.reason} (batch sizes {list(self.batch_sizes)}); {self.next_step}"

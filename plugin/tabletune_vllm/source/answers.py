"""What a poll of the source comes to."""

from dataclasses import dataclass

from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.pointer import Pointer
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.records.table import TableVersion


@dataclass(frozen=True)
class NewVersion:
    """A version that passed every check, to be followed from now on.

    name: its content hash. profile, prior, qualification: None where the version has none, or
    where it is lost or damaged, which the notes say: such a version is followed but not
    adapted, and is given again once they are there. notes: what was odd or not checked, in
    words. from_cache: the source could not be used; this is the last good version of before.
    """

    name: str
    version: TableVersion
    pointer: Pointer
    fingerprint: Fingerprint
    profile: Profile | None
    prior: AcceptancePrior | None
    qualification: Qualification | None
    notes: tuple[str, ...] = ()
    from_cache: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Unchanged:
    """Nothing new: what is in force stays so."""

    reason: str = ""


@dataclass(frozen=True)
class Refused:
    """The source has something that this engine must not use; what is in force stays so.

    lasting: it stays refused for as long as the source does not change.
    """

    reason: str
    lasting: bool = False


@dataclass(frozen=True)
class Unreachable:
    """The source cannot be read just now; what is in force stays so."""

    reason: str


@dataclass(frozen=True)
class SwitchedOff:
    """The source's switch says off: the boot table, until it says something else."""

    reason: str


Answer = NewVersion | Unchanged | Refused | Unreachable | SwitchedOff

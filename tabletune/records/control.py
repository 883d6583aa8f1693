"""The kill switch: what the engines that follow a channel are told to do."""

from typing import ClassVar, Final, Literal, get_args

from pydantic import Field

from tabletune.records.base import Record
from tabletune.records.pointer import CHANNEL_PATTERN

#: Larger objects are refused before they are parsed.
MAX_CONTROL_BYTES: Final = 16 * 1024

#: What an engine does, from nothing to everything. `off`: the boot table is in force.
#: `shadow`: decides and reports, swaps nothing. `follow`: swaps promoted tables in. `adapt`:
#: corrects them live as well.
Mode = Literal["off", "shadow", "follow", "adapt"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)


class Control(Record):
    """The most that any engine of a channel may do, beside the channel's pointer.

    It is not content-addressed: there is one a channel, and the last writer wins. An engine's
    own setting is its ceiling; this can lower what it does but never raise it above that.
    """

    KIND: ClassVar[str] = "control"

    channel: str = Field(pattern=CHANNEL_PATTERN)
    mode: Mode
    set_at: str
    set_by: str
    reason: str


def lowest(first: Mode, second: Mode) -> Mode:
    """The mode that does less."""
    return first if MODES.index(first) <= MODES.index(second) else second

"""The kill switch: what the source says that engines of a channel may do at most."""

from tabletune.records.base import RecordError
from tabletune.records.control import MAX_CONTROL_BYTES, Control, Mode, lowest
from tabletune.store.errors import StoreUnwritable
from tabletune.store.layout import control_key
from tabletune.store.source import Source


class Switch:
    """The last known state of a channel's switch, under the engine's own ceiling.

    It is not signed: whoever can write to the source can make engines do less, which is safe,
    and never more than their ceiling. A switch that cannot be read as one is taken as off if
    none was ever read: it was written to stop something.
    """

    def __init__(self, channel: str, ceiling: Mode) -> None:
        self._channel = channel
        self._ceiling: Mode = ceiling
        self._tag = ""
        self._control: Control | None = None
        self._known = False
        self.problem = ""
        self.data: bytes | None = None

    @property
    def known(self) -> bool:
        """Whether it was ever read, if only to find that nobody set it."""
        return self._known

    @property
    def mode(self) -> Mode:
        """What this engine may do."""
        if self._control is not None:
            return lowest(self._ceiling, self._control.mode)
        return "off" if self.problem and not self._known else self._ceiling

    @property
    def words(self) -> str:
        """Who set it, when and why; or what is wrong with it."""
        if self._control is None:
            return self.problem or "nobody set it"
        control = self._control
        return (
            f"{control.mode} since {control.set_at}, set by {control.set_by}: {control.reason}"
            + (f" ({self.problem})" if self.problem else "")
        )

    def read(self, source: Source) -> None:
        """Ask the source.

        Raises:
            StoreError: it does not answer; the last known state stays.
        """
        try:
            blob = source.read(control_key(self._channel), MAX_CONTROL_BYTES, self._tag)
        except StoreUnwritable as error:
            # Some servers forbid what is not there. The pointer's read tells the two apart.
            self.problem = "" if self._control is None else f"it cannot be read now: {error}"
            return
        if blob is None:
            self._control, self._known, self.problem = None, True, ""
            self._tag, self.data = "", None
            return
        if blob.unchanged:
            return
        self.take(blob.data)
        self._tag = blob.tag if not self.problem else ""

    def take(self, data: bytes) -> None:
        """The switch's bytes, from the source or from the cache of before."""
        try:
            control = Control.from_json(data)
            if control.channel != self._channel:
                raise RecordError(Control.KIND, f"it is of channel {control.channel!r}")
        except RecordError as error:
            self.problem = f"control.json of {self._channel} is damaged: {error.reason}"
            return
        self._control, self._known, self.problem, self.data = control, True, "", data

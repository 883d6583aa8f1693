"""A pin schedule: a lookup list that changes its own answer after so many steps."""

from collections.abc import Callable
from typing import SupportsIndex, overload


class ScriptedLookup(list[int]):
    """Looks like a dense table to vLLM's scheduler, which reads it once per non-empty step.

    Every read counts one step of the script, so each length is chosen for exactly the steps
    asked for, with synchronous and asynchronous scheduling alike. When the script is over,
    or fails in any way, `finish` is called once and the table given is answered from.
    """

    def __init__(
        self,
        table: list[int],
        entries: list[tuple[int, int]],
        repeat: int,
        finish: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(table)
        self.entries = entries
        self.repeat = repeat
        self.round = 0
        self.entry = 0
        self.steps_left = entries[0][1]
        self.done = False
        self._finish = finish

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[int]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> int | list[int]:
        if self.done or not isinstance(index, int):
            return super().__getitem__(index)
        try:
            return self._advance()
        except Exception as error:
            self._end(error)
            return super().__getitem__(index)

    def _advance(self) -> int:
        length = self.entries[self.entry][0]
        self.steps_left -= 1
        if self.steps_left == 0:
            self.entry += 1
            if self.entry == len(self.entries):
                self.entry = 0
                self.round += 1
            self.steps_left = self.entries[self.entry][1]
            if self.round == self.repeat:
                self._end(None)
        return length

    def _end(self, error: BaseException | None) -> None:
        self.done = True
        self._finish(error)

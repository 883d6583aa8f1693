"""The list that vLLM's scheduler reads, once per non-empty step, while the plugin is active.

It is put in place once. The engine's thread reads it, any other thread may change what it
answers: everything that must change together is one immutable Plan, and swapping it is one
reference assignment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, overload

from tabletune.core.controller.routes import Routes


@dataclass(frozen=True, slots=True)
class Plan:
    """What the lookup answers: a dense table of the engine's max_num_seqs + 1 entries.

    routes: keeps forbidden transitions and lengths outside the envelope out of every step;
    None where neither exists. script: a Script that goes before the table, or None.
    """

    table: Sequence[int]
    routes: Routes | None = None
    script: "Script | None" = None


class Script:
    """Lengths for exactly so many steps each, a number of times over; then it is `done`.

    Only the engine's thread advances it. guarded: its lengths keep to the plan's routes (a
    probe of the controller); otherwise they are what an operator asked for.
    """

    def __init__(
        self, entries: Sequence[tuple[int, int]], repeat: int = 1, *, guarded: bool = False
    ) -> None:
        self.entries = tuple(entries)
        self.repeat = repeat
        self.guarded = guarded
        self.round = 0
        self.entry = 0
        self.steps_left = self.entries[0][1]
        self.done = False

    def advance(self) -> int:
        """The length of the step that begins now; counts the step."""
        length = self.entries[self.entry][0]
        self.steps_left -= 1
        if self.steps_left == 0:
            self.entry += 1
            if self.entry == len(self.entries):
                self.entry = 0
                self.round += 1
                self.done = self.round == self.repeat
            self.steps_left = self.entries[self.entry][1]
        return length


class LiveLookup(list[int]):
    """Looks like the boot table to vLLM; answers from its plan.

    After an exception inside, the boot table answers, here and from then on: `failed` is
    called with the error and has to take this object out of the scheduler.
    """

    def __init__(self, boot: Sequence[int], failed: Callable[[BaseException], None]) -> None:
        super().__init__(boot)
        self.plan = Plan(tuple(boot))
        self._failed = failed
        self._broken = False
        # The length of the last step; None before the first.
        self._last: int | None = None

    @property
    def last(self) -> int | None:
        """The length chosen last: drafted, or about to be, at the end of that step."""
        return self._last

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[int]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> int | list[int]:
        try:
            if self._broken or type(index) is not int:
                return super().__getitem__(index)
            plan = self.plan
            script, routes = plan.script, plan.routes
            length = plan.table[index]
            if script is not None and not script.done:
                scripted = script.advance()
                if not script.guarded:
                    self._last = scripted
                    return scripted
                if routes is None or routes.allows(index, scripted):
                    length = scripted
            if routes is not None:
                length = routes.next_length(index, self._last, length)
            self._last = length
            return length
        except Exception as error:
            self._broken = True
            self._failed(error)
            return super().__getitem__(index)

"""Progress of long steps, told to whoever shows it (the terminal, a flow, a test)."""

from typing import Protocol


class Progress(Protocol):
    """What a long step tells: that it starts, how far it is, and plain sentences."""

    def start(self, name: str, total: float | None = None) -> None:
        """A stage begins; `total` is in the stage's own units, None when unknown."""
        ...

    def advance(self, done: float, note: str = "") -> None:
        """The stage is `done` of its total; `note` says what is being measured."""
        ...

    def say(self, text: str) -> None:
        """A sentence worth keeping, such as what was reused."""
        ...


class Silent:
    """Shows nothing."""

    def start(self, name: str, total: float | None = None) -> None:
        pass

    def advance(self, done: float, note: str = "") -> None:
        pass

    def say(self, text: str) -> None:
        pass

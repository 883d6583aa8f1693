"""What a client asks for over the endpoints: pins, schedules and tables, checked strictly."""

from dataclasses import dataclass
from typing import cast

from tabletune_vllm.errors import RequestError
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.tables import checked_length, dense_from_ranges, short

SCRIPT_ENTRIES_MAX = 1024
SCRIPT_STEPS_MAX = 1_000_000


@dataclass(frozen=True)
class PinCommand:
    """A pinned length, a schedule, or neither: the pin is lifted."""

    length: int | None = None
    entries: tuple[tuple[int, int], ...] = ()
    repeat: int = 1


class Commands:
    """Reads request bodies for one engine; boot_lengths: the lengths of its boot table."""

    def __init__(self, facts: EngineFacts, boot_lengths: list[int]) -> None:
        self.facts = facts
        self.boot_lengths = boot_lengths

    def pin(self, body: dict[str, object]) -> PinCommand:
        """{"draft_length": K | null} or {"schedule": [[K, steps], …], "repeat": n}, with
        "allow_uncaptured": true to force a length that has no captured graph.

        Raises:
            RequestError: for any other form, and for a length that the engine cannot run.
        """
        force = _flag(body, "allow_uncaptured")
        keys = set(body) - {"allow_uncaptured"}
        if keys == {"draft_length"}:
            length = body["draft_length"]
            return PinCommand(None if length is None else self._usable_length(length, force))
        if keys in ({"schedule"}, {"schedule", "repeat"}):
            entries = self._entries(body["schedule"], force)
            return PinCommand(None, entries, _count(body.get("repeat", 1), "repeat"))
        expected = '{"draft_length": K or null} or {"schedule": [[K, steps], …], "repeat": n}'
        raise RequestError(expected, f"keys {sorted(body)}", "send one of the two forms")

    def table(self, body: dict[str, object]) -> list[int] | None:
        """{"ranges": [[first, last, K], …] | null}, optionally "allow_uncaptured"; a dense table
        or None.

        Raises:
            RequestError: as for a pin.
        """
        force = _flag(body, "allow_uncaptured")
        if set(body) - {"allow_uncaptured"} != {"ranges"}:
            expected = '{"ranges": [[first, last, K], …] or null}'
            raise RequestError(expected, f"keys {sorted(body)}", "send that form")
        if body["ranges"] is None:
            return None
        facts = self.facts
        table = dense_from_ranges(body["ranges"], facts.max_num_seqs, facts.max_draft_length)
        for length in sorted(set(table[1:])):
            self._usable_length(length, force)
        return table

    def _usable_length(self, value: object, force: bool) -> int:
        length = checked_length(value, self.facts.max_draft_length)
        if self.facts.needs_graphs and length not in self.boot_lengths and not force:
            raise RequestError(
                f"a draft length of the boot table {self.boot_lengths}: only those have graphs",
                repr(length),
                "boot with a table that contains it, or send allow_uncaptured: true",
            )
        return length

    def _entries(self, value: object, force: bool) -> tuple[tuple[int, int], ...]:
        expected = f"schedule as 1 to {SCRIPT_ENTRIES_MAX} entries [K, steps]"
        items = cast(list[object], value) if isinstance(value, list) else []
        if not 1 <= len(items) <= SCRIPT_ENTRIES_MAX:
            raise RequestError(expected, short(cast(object, value)), "send such a list")
        entries: list[tuple[int, int]] = []
        for item in items:
            pair = cast(list[object], item) if isinstance(item, list) else []
            if len(pair) != 2:
                raise RequestError(expected, short(cast(object, item)), "correct the entry")
            entries.append((self._usable_length(pair[0], force), _count(pair[1], "steps")))
        return tuple(entries)


def _count(value: object, name: str) -> int:
    if type(value) is not int or not 1 <= value <= SCRIPT_STEPS_MAX:
        expected = f"{name} as a whole number from 1 to {SCRIPT_STEPS_MAX}"
        raise RequestError(expected, short(value), "correct it")
    return value


def _flag(body: dict[str, object], name: str) -> bool:
    value = body.get(name, False)
    if type(value) is not bool:
        raise RequestError(f"{name} to be true or false", short(value), "correct it")
    return value

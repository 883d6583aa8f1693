"""What the history of a channel says: what to return to, and what happened, in words."""

from collections.abc import Iterable

from tabletune.records.pointer import Pointer
from tabletune.store.base import Store

_WORDS = {"promote": "promoted", "rollback": "rolled back to", "force": "forced"}


def version_before(history: Iterable[Pointer]) -> str:
    """The version that a roll-back without a target returns to, empty if there is none.

    `history` runs from the state in force backwards and is read only as far as needed, so
    damage further back does not stand in the way. Promotions stack up and a roll-back takes
    from the stack: below a version that was rolled back to lies what lay below it when it was
    promoted.
    """
    states = iter(history)
    state = next(states, None)
    while state is not None and state.action == "rollback":
        target = state.table_version
        state = next((older for older in states if older.table_version == target), None)
    # A version that was put in force once more, to be signed, has itself before it.
    while state is not None and state.previous_version == state.table_version:
        state = next(states, None)
    return state.previous_version if state is not None else ""


def describe_history(store: Store, channel: str) -> list[str]:
    """The channel's history in words, one move a line, the one in force first."""
    lines: list[str] = []
    for state in store.history(channel):
        came_from = f", before it {state.previous_version[:12]}" if state.previous_version else ""
        verdict = f", verdict {state.verdict[:12]}" if state.verdict else ""
        lines.append(
            f"{state.sequence}. {state.moved_at}  {_WORDS[state.action]} "
            f"{state.table_version[:12]} by {state.moved_by}: {state.reason}"
            f"{verdict}{came_from}{'' if lines else '  ← in force'}"
        )
    return lines or [f"channel {channel!r} never had a version"]

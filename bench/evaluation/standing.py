"""Whether a claim's figures reach what is to be reached, by their means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

NOT_RUN = "not run"
REACHED = "reached"

#: Shares come from divisions.
_EXACT = 1e-9

#: A figure and where it was found, in words.
Found = tuple[str, float]


def at_least(found: Sequence[Found], least: float) -> str:
    """Reached, or which of the shares are below."""
    return _standing(
        found, lambda value: value >= least - _EXACT, lambda value: f"{100 * value:.1f} %"
    )


def at_most(found: Sequence[Found], most: float) -> str:
    """Reached, or which of the shares are above."""
    return _standing(
        found, lambda value: value <= most + _EXACT, lambda value: f"{100 * value:.1f} %"
    )


def within_s(found: Sequence[Found], most_s: float) -> str:
    """Reached, or which of the times took longer."""
    return _standing(found, lambda value: value <= most_s, lambda value: f"{value:.1f} s")


def _standing(
    found: Sequence[Found], reaches: Callable[[float], bool], words: Callable[[float], str]
) -> str:
    if not found:
        return NOT_RUN
    missed = [f"{words(value)} ({where})" for where, value in found if not reaches(value)]
    if not missed:
        return REACHED
    of = "" if len(found) == 1 else f" in {len(missed)} of {len(found)}"
    return f"not reached{of}: {'; '.join(missed)}"

"""The marker of a store: what says that a place is one, and of which format."""

import json
from typing import cast

from tabletune.store.errors import NotAStore
from tabletune.store.layout import FORMAT_VERSION, MARKER


def check_marker(marker: bytes, place: str) -> None:
    """Do nothing if `marker` is that of a store which this version can read.

    Args:
        place: where the marker was found, for messages.

    Raises:
        NotAStore: it is no marker, or one of a newer format.
    """
    version = marked_version(marker[:4096])
    if version is None:
        raise NotAStore(
            f"the marker {MARKER.decode().strip()} in {place}",
            repr(marker[:80]),
            "name another place, or restore the marker if this is a store",
        )
    if version > FORMAT_VERSION:
        raise NotAStore(
            f"a store of format {FORMAT_VERSION} or older at {place}",
            f"format {version}",
            "upgrade tabletune to use it",
        )


def foreign_content(place: str, foreign: list[str]) -> NotAStore:
    """The refusal of a place without a marker that holds `foreign` things."""
    if {"objects", "channels"} & set(foreign):
        advice = f"if this is a store, put {MARKER.decode().strip()} into its store.json"
    else:
        advice = "name an empty or a new folder for the store"
    return NotAStore(
        f"a store or an empty folder at {place}",
        f"no store.json, but {', '.join(foreign[:5])}{' …' if len(foreign) > 5 else ''}",
        advice,
    )


def marked_version(marker: bytes) -> int | None:
    """The format version that a marker names, None where it is no marker."""
    try:
        fields: object = json.loads(marker)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    found = cast("dict[str, object]", fields)
    version = found.get("format_version")
    if found.get("store") != "tabletune" or type(version) is not int or version < 1:
        return None
    return version

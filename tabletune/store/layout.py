"""Where things are in a store, whatever it is kept in.

store.json                          the marker: this is a store, of this format
objects/<kind>/<sha256>.json        immutable records
channels/<channel>/pointer.json     the state in force, the same bytes as its object
channels/<channel>/control.json     the kill switch of the engines that follow the channel
live/<channel>/<engine>.json        what engines tell back, one object each, overwritten
probe/                              short-lived objects that test how the store behaves
"""

import json
import re
from typing import Final

from tabletune.records.base import HASH_PATTERN, Record
from tabletune.records.pointer import CHANNEL_PATTERN
from tabletune.store.errors import BadName

FORMAT_VERSION: Final = 1
MARKER_KEY: Final = "store.json"
MARKER: Final = (
    json.dumps({"store": "tabletune", "format_version": FORMAT_VERSION}).encode() + b"\n"
)
_ENGINE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def object_key(kind: type[Record], name: str) -> str:
    """The key of an immutable record.

    Raises:
        BadName: `name` is no content hash.
    """
    return f"objects/{kind.KIND}/{check_hash(name)}.json"


def pointer_key(channel: str) -> str:
    """The key of a channel's pointer.

    Raises:
        BadName: `channel` is no channel name.
    """
    return f"channels/{check_channel(channel)}/pointer.json"


def control_key(channel: str) -> str:
    """The key of a channel's kill switch.

    Raises:
        BadName: `channel` is no channel name.
    """
    return f"channels/{check_channel(channel)}/control.json"


def live_key(channel: str, engine: str) -> str:
    """The key of what one engine tells back.

    Raises:
        BadName: `channel` is no channel name, or `engine` no plain name.
    """
    if not _ENGINE_NAME.fullmatch(engine):
        raise BadName(
            "an engine's name of up to 100 letters, digits, '.', '-' or '_'",
            repr(engine),
            "choose such a name",
        )
    return f"live/{check_channel(channel)}/{engine}.json"


def check_hash(name: str) -> str:
    """The name itself.

    Raises:
        BadName: it is not 64 lower-case hexadecimal digits.
    """
    if not re.fullmatch(HASH_PATTERN[1:-1], name):
        raise BadName(
            "a content hash of 64 lower-case hexadecimal digits", repr(name), "copy it from `show`"
        )
    return name


def check_channel(channel: str) -> str:
    """The channel itself.

    Raises:
        BadName: it is not a channel name.
    """
    if not re.fullmatch(CHANNEL_PATTERN[1:-1], channel):
        raise BadName(
            "a channel name such as 'live': a lower-case letter, then up to 62 lower-case "
            "letters, digits, '-' or '_'",
            repr(channel),
            "choose such a name",
        )
    return channel

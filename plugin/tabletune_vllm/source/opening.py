"""Opens the follower of an engine; what is wrong with its settings it says when it is polled."""

import pathlib
import random
from typing import NoReturn

from tabletune.records.control import MODES, Mode
from tabletune.store.errors import BadName, StoreError
from tabletune.store.layout import check_channel
from tabletune.store.opening import open_source
from tabletune.store.source import Source
from tabletune_vllm.source.cache import VersionCache
from tabletune_vllm.source.engine_self import EngineSelf
from tabletune_vllm.source.follower import Follower
from tabletune_vllm.source.loading import Loader
from tabletune_vllm.source.signature import trusted_keys


class _Broken:
    """A source that cannot even be tried."""

    def __init__(self, error: StoreError) -> None:
        self._error = error
        self.url = ""

    def read(self, key: str, limit_bytes: int, known_tag: str = "") -> NoReturn:
        raise self._error

    def write(self, key: str, data: bytes) -> NoReturn:
        raise self._error


def open_follower(
    url: str,
    channel: str,
    ceiling: str,
    engine: EngineSelf,
    cache: pathlib.Path | None = None,
    public_key: pathlib.Path | None = None,
    poll_s: float = 10.0,
    seed: int | None = None,
) -> Follower:
    """The follower of a channel. Never raises, and asks nothing of the source yet.

    ceiling: the most that this engine does. cache: the folder for the last good version, None
    for none. public_key: of whom pointers must be signed, None where they need not be.
    """
    source: Source
    keys, kept = None, None
    try:
        check_channel(channel)
        keys = trusted_keys(public_key)
        source = open_source(url)
        if cache is not None:
            kept = VersionCache(cache, source.url, channel, engine)
    except StoreError as error:
        source = _Broken(error)
        channel = "live" if isinstance(error, BadName) else channel
    loader = Loader(channel, engine, keys)
    return Follower(source, loader, kept, _mode(ceiling), poll_s, random.Random(seed))


def _mode(text: str) -> Mode:
    known: dict[str, Mode] = dict(zip(MODES, MODES, strict=True))
    return known.get(text, "off")

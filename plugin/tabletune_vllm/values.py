"""Strict parsers of single environment variables; nothing is coerced or guessed."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from tabletune_vllm.errors import SettingsError

SCHEMES = ("file", "s3", "http", "https")
TOKEN_MIN_LENGTH = 16
# The records' own pattern (tabletune/records/pointer.py), which this module must not import:
# register() runs in every process of vLLM.
_CHANNEL = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_CORRECT = "correct it or unset it; TableTune stays off until then"

Default = TypeVar("Default", float, None)


def read_switch(environ: Mapping[str, str], name: str) -> bool:
    """0 or 1; unset is 0."""
    return read_choice(environ, name, "0", ("0", "1")) == "1"


def read_choice(
    environ: Mapping[str, str], name: str, default: str, choices: tuple[str, ...]
) -> str:
    """One of the words given."""
    value = environ.get(name, default)
    if value not in choices:
        raise SettingsError(f"{name} to be one of {', '.join(choices)}", repr(value), _CORRECT)
    return value


def read_token(environ: Mapping[str, str], name: str) -> str | None:
    """A secret of 16 or more printable characters; its value is in no message."""
    value = environ.get(name)
    if value is None:
        return None
    if len(value) < TOKEN_MIN_LENGTH or not value.isascii() or not value.isprintable():
        raise SettingsError(
            f"{name} to be at least {TOKEN_MIN_LENGTH} printable ASCII characters",
            f"{len(value)} characters",
            "set a longer random token or unset it",
        )
    return value


def read_whole(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    """A whole number in plain digits, from low to high."""
    value = environ.get(name, str(default))
    plain = value.isascii() and value.isdigit() and len(value) <= 16
    if not plain or not low <= int(value) <= high:
        raise SettingsError(f"{name} as a whole number {low} to {high}", repr(value), _CORRECT)
    return int(value)


def read_number(
    environ: Mapping[str, str], name: str, default: Default, low: float, high: float
) -> float | Default:
    """A decimal number without sign or exponent, from low to high."""
    value = environ.get(name)
    if value is None:
        return default
    number = float(value) if _NUMBER.fullmatch(value) else math.nan
    if not low <= number <= high:
        raise SettingsError(f"{name} as a number from {low:g} to {high:g}", repr(value), _CORRECT)
    return number


def read_path(environ: Mapping[str, str], name: str) -> Path | None:
    """An absolute path, for vLLM's processes need not share a working folder."""
    value = environ.get(name)
    if value is None:
        return None
    if not Path(value).is_absolute() or not value.isprintable():
        raise SettingsError(f"{name} to be an absolute path", repr(value), _CORRECT)
    return Path(value)


def read_channel(environ: Mapping[str, str], name: str, default: str) -> str:
    """A channel's name."""
    value = environ.get(name, default)
    if not _CHANNEL.fullmatch(value):
        expected = f"{name}: a lower-case letter, then up to 62 of a-z 0-9 _ -"
        raise SettingsError(expected, repr(value), _CORRECT)
    return value


def _names_a_store(url: str) -> bool:
    """Whether an S3 URL's options are those of a store (endpoint, region, …), without secrets."""
    from tabletune.store.errors import BadName
    from tabletune.store.s3_url import parse_s3_url

    try:
        parse_s3_url(url)
    except BadName:
        return False
    return True


def read_source(environ: Mapping[str, str], name: str) -> str:
    """A source's URL without credentials; unset is the empty text.

    A URL may hold a secret where none belongs: only the scheme is told.
    """
    value = environ.get(name)
    if value is None:
        return ""
    expected = f"{name} as file:///folder, s3://bucket/prefix or http(s)://host/path"
    try:
        parts = urlsplit(value)
        credentials = parts.username is not None or parts.password is not None
        parts.port  # noqa: B018 - raises for a bad port
    except ValueError:
        raise SettingsError(expected, "another form", _CORRECT) from None
    if parts.scheme not in SCHEMES or not value.isprintable() or " " in value:
        raise SettingsError(expected, f"scheme {parts.scheme!r}", _CORRECT)
    query = bool(parts.query) and not (parts.scheme == "s3" and _names_a_store(value))
    if credentials or query or parts.fragment:
        found = "a URL with credentials, a query or a fragment"
        raise SettingsError(f"{name} without them", found, "give credentials as boto3 reads them")
    if parts.scheme == "file":
        well_formed = parts.netloc in ("", "localhost") and len(parts.path) > 1
    else:
        well_formed = bool(parts.hostname) if parts.scheme != "s3" else bool(parts.netloc)
    if not well_formed:
        raise SettingsError(expected, f"a {parts.scheme} URL of another form", _CORRECT)
    return value

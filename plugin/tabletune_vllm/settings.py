"""The plugin's settings: parsed once from a mapping of environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from tabletune_vllm.errors import SettingsError

PREFIX = "TABLETUNE_"
# They belong to the controller that follows a channel; named here so that an operator who
# sets them early is told, not refused.
LATER_NAMES = ("TABLETUNE_SOURCE", "TABLETUNE_CHANNEL", "TABLETUNE_MODE")
KNOWN_NAMES = ("TABLETUNE_MEASURE", "TABLETUNE_TOKEN", "TABLETUNE_RING_STEPS", *LATER_NAMES)
RING_STEPS_MIN, RING_STEPS_MAX, RING_STEPS_DEFAULT = 256, 1_048_576, 65_536
TOKEN_MIN_LENGTH = 16


@dataclass(frozen=True)
class Settings:
    """What the operator asked for.

    measure: record steps and accept control. token: the bearer token that every client
    must then present, None for loopback clients only. ring_steps: engine steps kept.
    later: names that were set but belong to a later version.
    """

    measure: bool = False
    token: str | None = None
    ring_steps: int = RING_STEPS_DEFAULT
    later: tuple[str, ...] = ()


def read_settings(environ: Mapping[str, str]) -> Settings | None:
    """Parse every TABLETUNE_* variable; None when there is none.

    Raises:
        SettingsError: for an unknown name or a value that is not exactly what is documented.
    """
    names = sorted(name for name in environ if name.startswith(PREFIX))
    if not names:
        return None
    for name in names:
        if name not in KNOWN_NAMES:
            raise SettingsError(
                f"only {', '.join(KNOWN_NAMES)}",
                name,
                "unset it or correct its spelling; TableTune stays off until then",
            )
    return Settings(
        measure=_read_switch(environ, "TABLETUNE_MEASURE"),
        token=_read_token(environ, "TABLETUNE_TOKEN"),
        ring_steps=_read_steps(environ, "TABLETUNE_RING_STEPS"),
        later=tuple(name for name in names if name in LATER_NAMES),
    )


def _read_switch(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "0")
    if value not in ("0", "1"):
        raise SettingsError(f"{name} to be 0 or 1", repr(value), "set it to 1 to measure")
    return value == "1"


def _read_token(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name)
    if value is None:
        return None
    if len(value) < TOKEN_MIN_LENGTH or not value.isascii() or not value.isprintable():
        # The value is a secret: only its length is told.
        raise SettingsError(
            f"{name} to be at least {TOKEN_MIN_LENGTH} printable ASCII characters",
            f"{len(value)} characters",
            "set a longer random token or unset it",
        )
    return value


def _read_steps(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, str(RING_STEPS_DEFAULT))
    if not (value.isascii() and value.isdigit() and len(value) <= 7):
        raise SettingsError(f"{name} to be a whole number", repr(value), "correct it")
    if not RING_STEPS_MIN <= int(value) <= RING_STEPS_MAX:
        raise SettingsError(
            f"{name} from {RING_STEPS_MIN} to {RING_STEPS_MAX}", repr(value), "correct it"
        )
    return int(value)

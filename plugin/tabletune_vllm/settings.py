"""The plugin's settings: parsed once from a mapping of environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tabletune_vllm.errors import SettingsError
from tabletune_vllm.values import (
    read_channel,
    read_choice,
    read_number,
    read_path,
    read_source,
    read_switch,
    read_token,
    read_whole,
)

PREFIX = "TABLETUNE_"
MODES = ("off", "shadow", "follow", "adapt")
FOLLOW_NAMES = (
    "TABLETUNE_CHANNEL",
    "TABLETUNE_MODE",
    "TABLETUNE_POLL_S",
    "TABLETUNE_TICK_S",
    "TABLETUNE_SNAPSHOT_S",
    "TABLETUNE_CACHE",
    "TABLETUNE_MAX_TPOT_MS",
    "TABLETUNE_PUBLIC_KEY",
    "TABLETUNE_TRACE",
    "TABLETUNE_SEED",
)
KNOWN_NAMES = (
    "TABLETUNE_MEASURE",
    "TABLETUNE_TOKEN",
    "TABLETUNE_RING_STEPS",
    "TABLETUNE_SOURCE",
    *FOLLOW_NAMES,
)
#: What the command line and the flows read. A shell that has them may start an engine too.
OTHERS_NAMES = (
    "TABLETUNE_DEPLOYMENTS",
    "TABLETUNE_ENGINE_ROOT",
    "TABLETUNE_METRICS",
    "TABLETUNE_SIGNING_KEY",
    "TABLETUNE_STATE",
)
RING_STEPS_MIN, RING_STEPS_MAX, RING_STEPS_DEFAULT = 256, 1_048_576, 65_536


@dataclass(frozen=True)
class FollowSettings:
    """How the engine follows a source.

    Each attribute is the variable of the same name (docs/configuration.md is made from this).

    Attributes:
        source: URL of the store to follow, without credentials; without it all others here
            have no effect.
        channel: whose pointer is followed.
        mode: the most that this engine does, whatever the source's switch says.
        poll_s: seconds between polls of the source.
        tick_s: seconds between looks at the steps.
        snapshot_s: seconds between snapshots told to the source.
        cache: folder of the last good version, with which an engine starts when the source is
            down; none where the user has no home.
        max_tpot_s: limit on the mean time per output token of a request, in place of the
            version's own; the variable is in milliseconds.
        public_key: file of the Ed25519 keys, one of which must have signed the pointer.
        trace: file of the decision log; four files of 16 MiB are kept.
        seed: of the controller's random numbers; unset draws one, which the status tells.
    """

    source: str
    channel: str = "live"
    mode: str = "follow"
    poll_s: float = 10.0
    tick_s: float = 1.0
    snapshot_s: float = 300.0
    cache: Path | None = None
    max_tpot_s: float | None = None
    public_key: Path | None = None
    trace: Path | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Settings:
    """What the operator asked for.

    Attributes:
        measure: 1 opens the measuring endpoints, which pin lengths and swap tables.
        token: the bearer token that every client of the endpoints must then present, local
            ones too; unset lets in loopback clients only, and no browser's scripts. Set it
            behind a reverse proxy.
        ring_steps: engine steps kept, about 140 bytes each.
        follow: None when no source is set.
        ignored: names that have no effect without a source.
    """

    measure: bool = False
    token: str | None = None
    ring_steps: int = RING_STEPS_DEFAULT
    follow: FollowSettings | None = None
    ignored: tuple[str, ...] = ()

    @property
    def inert(self) -> str | None:
        """Why nothing is hooked although variables are set; None when something is."""
        if self.measure or (self.follow is not None and self.follow.mode != "off"):
            return None
        if self.follow is not None:
            return "TABLETUNE_MODE is off"
        return "TABLETUNE_MEASURE is not 1 and there is no TABLETUNE_SOURCE"


def read_settings(environ: Mapping[str, str]) -> Settings | None:
    """Parse every TABLETUNE_* variable of the plugin; None when there is none.

    Raises:
        SettingsError: for an unknown name or a value that is not exactly what is documented.
    """
    names = sorted(n for n in environ if n.startswith(PREFIX) and n not in OTHERS_NAMES)
    if not names:
        return None
    for name in names:
        if name not in KNOWN_NAMES:
            raise SettingsError(
                f"only {', '.join(KNOWN_NAMES)}",
                name,
                "unset it or correct its spelling; TableTune stays off until then",
            )
    follow = _read_follow(environ)
    has_source = "TABLETUNE_SOURCE" in environ
    return Settings(
        measure=read_switch(environ, "TABLETUNE_MEASURE"),
        token=read_token(environ, "TABLETUNE_TOKEN"),
        ring_steps=read_whole(
            environ, "TABLETUNE_RING_STEPS", RING_STEPS_DEFAULT, RING_STEPS_MIN, RING_STEPS_MAX
        ),
        follow=follow if has_source else None,
        ignored=() if has_source else tuple(n for n in names if n in FOLLOW_NAMES),
    )


def _read_follow(environ: Mapping[str, str]) -> FollowSettings:
    """Read also without a source, so that a bad value is told before a source is set."""
    limit_ms = read_number(environ, "TABLETUNE_MAX_TPOT_MS", None, 0.01, 600_000.0)
    seed = environ.get("TABLETUNE_SEED")
    return FollowSettings(
        source=read_source(environ, "TABLETUNE_SOURCE"),
        channel=read_channel(environ, "TABLETUNE_CHANNEL", "live"),
        mode=read_choice(environ, "TABLETUNE_MODE", "follow", MODES),
        poll_s=read_number(environ, "TABLETUNE_POLL_S", 10.0, 0.2, 86_400.0),
        tick_s=read_number(environ, "TABLETUNE_TICK_S", 1.0, 0.05, 60.0),
        snapshot_s=read_number(environ, "TABLETUNE_SNAPSHOT_S", 300.0, 1.0, 86_400.0),
        cache=read_path(environ, "TABLETUNE_CACHE") or _default_cache(environ),
        max_tpot_s=None if limit_ms is None else limit_ms / 1000.0,
        public_key=read_path(environ, "TABLETUNE_PUBLIC_KEY"),
        trace=read_path(environ, "TABLETUNE_TRACE"),
        seed=None if seed is None else read_whole(environ, "TABLETUNE_SEED", 0, 0, 2**53),
    )


def _default_cache(environ: Mapping[str, str]) -> Path | None:
    """The user's cache folder; None where the environment names no home."""
    base = environ.get("XDG_CACHE_HOME") or ""
    if Path(base).is_absolute():
        return Path(base) / "tabletune"
    home = environ.get("HOME") or ""
    return Path(home) / ".cache" / "tabletune" if Path(home).is_absolute() else None

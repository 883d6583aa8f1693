"""control: the kill switch of the engines that follow a channel."""

import sys
from typing import Annotated, cast

import typer

from tabletune.commands.console import print_json
from tabletune.commands.options import DEFAULT_OUT, Channel, Json, Out, StoreUrl, Who, store_url
from tabletune.commands.who import user_name
from tabletune.measure.clock import SystemClock
from tabletune.pipeline.request import RequestError
from tabletune.records.base import RecordError
from tabletune.records.control import MODES, Control, Mode
from tabletune.store.base import Store
from tabletune.store.errors import NoSuchChannel
from tabletune.store.layout import check_channel
from tabletune.store.opening import open_existing

ModeName = Annotated[
    str | None,
    typer.Argument(metavar="[MODE]", help=f"{', '.join(MODES)}; left out: say what is set."),
]
Reason = Annotated[str, typer.Option(help="Why; engines say it in their status.")]


def control(
    mode: ModeName = None,
    channel: Channel = "live",
    reason: Reason = "set by hand",
    out: Out = DEFAULT_OUT,
    store: StoreUrl = None,
    by: Who = None,
    as_json: Json = False,
) -> None:
    """Say what the engines of a channel may do at most; they obey at their next poll.

    An engine's own TABLETUNE_MODE stays its ceiling: `adapt` here lifts every restriction and
    raises no engine above what it was started with.
    """
    if mode is not None and mode not in MODES:
        raise RequestError("MODE", f"one of {', '.join(MODES)}", mode, "choose one of them")
    opened = open_existing(store_url(out, store))
    check_channel(channel)
    there = opened.channels()
    if there and channel not in there and not _was_set(opened, channel):
        raise NoSuchChannel(opened.url, channel, there)
    if mode is not None:
        opened.write_control(
            Control(
                channel=channel,
                mode=cast(Mode, mode),
                set_at=SystemClock().utc(),
                set_by=user_name(by),
                reason=reason,
            )
        )
    found = opened.read_control(channel)
    if as_json:
        print_json({"channel": channel, "control": found and found.model_dump(mode="json")})
    elif found is None:
        print(f"nobody set anything: engines of channel {channel} do what they were started with")
    else:
        print(
            f"engines of channel {channel} do at most: {found.mode} "
            f"(set by {found.set_by} at {found.set_at}: {found.reason})"
        )
    if channel not in there:
        print(
            f"note: channel {channel} of {opened.url} never had a table; channels there: "
            f"{', '.join(there) or 'none'}. If engines follow another one, name it with --store "
            "and --channel",
            file=sys.stderr,
        )


def _was_set(store: Store, channel: str) -> bool:
    try:
        return store.read_control(channel) is not None
    except RecordError:  # damaged: to be written anew
        return True

"""top: the live view of one serving engine."""

import signal
import sys
import time
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from tabletune.commands.console import print_json, terminal
from tabletune.commands.endings import Terminated
from tabletune.commands.options import Json
from tabletune.commands.top_view import Seen, view
from tabletune.measure.api import EngineAddress, EngineApiError
from tabletune.measure.clock import Clock, SystemClock
from tabletune.measure.status import StatusClient, engine_url
from tabletune.pipeline.request import RequestError

#: Every answer disturbs one step's record (docs/plugin.md): a second apart costs nothing.
EVERY_S = 1.0


def top(
    url: Annotated[str, typer.Argument(help="The engine's address, such as localhost:8000.")],
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    token: Annotated[
        str, typer.Option(envvar="TABLETUNE_TOKEN", help="The engine's TABLETUNE_TOKEN.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Watch an engine's table, live survival, step times, exploration and decisions.

    Without a terminal it shows them once. Ctrl-C ends it.
    """
    base_url = engine_url(url)
    if base_url is None:
        expected, advice = "an engine's address", "write it as host:port or http://host:port"
        raise RequestError("URL", expected, url, advice)
    with StatusClient(EngineAddress(base_url, token)) as client:
        status = client.read()
        if as_json:
            print_json(status)
            return
        console = terminal()
        first = Seen(base_url, status, time.time())
        if once or not sys.stdout.isatty():
            console.print(view(first))
            return
        try:
            _watch(client, first, console, SystemClock())
        except KeyboardInterrupt:
            return
        except Terminated as end:
            if end.signal_number != signal.SIGINT:
                raise
            end.settled = True


def _watch(client: StatusClient, seen: Seen, console: Console, clock: Clock) -> None:
    with Live(view(seen), console=console, screen=True, auto_refresh=False) as live:
        good_s = clock.now_s()
        while True:
            clock.sleep_s(EVERY_S)
            seen, good_s = read_again(client, seen, good_s, clock.now_s(), time.time())
            live.update(view(seen), refresh=True)


def read_again(
    client: StatusClient, before: Seen, good_s: float, now_s: float, unix_s: float
) -> tuple[Seen, float]:
    """The next view, and when the engine last answered; without an answer the last one stays."""
    try:
        status = client.read()
    except EngineApiError as error:
        return replace(before, trouble=error.found, since_s=now_s - good_s), good_s
    return Seen(before.url, status, unix_s, _steps_s(before, status, unix_s)), now_s


def _steps_s(before: Seen, status: dict[str, object], unix_s: float) -> float | None:
    """Steps a second since the read before; None across a restart."""
    old, new = before.status.get("steps"), status.get("steps")
    same = before.status.get("run_id") == status.get("run_id")
    elapsed_s = unix_s - before.read_unix_s
    if not (same and isinstance(old, int) and isinstance(new, int) and elapsed_s > 0):
        return None
    return max(0, new - old) / elapsed_s

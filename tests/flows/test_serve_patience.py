"""Who serves goes on while the Prefect server is away. No server is needed; the drill has one."""

import asyncio
import http.server
import importlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import pytest

from tabletune.maintain.outage import Outage
from tests.flows.conftest import free_ports
from tests.maintain.scenes import FixedClock

settings = pytest.importorskip("prefect.settings")

REQUEST = httpx.Request("GET", "http://nobody/api")


class Stop(BaseException):
    """Ends a loop that would go on for ever."""


def polls(module: str, failing: int) -> int:
    """How many polls the loop of a module makes, of which the first `failing` fail."""
    loop = getattr(importlib.import_module(module), "critical_service_loop")  # noqa: B009
    made = 0

    async def poll() -> None:
        nonlocal made
        made += 1
        if made <= failing:
            raise httpx.ConnectError("away", request=REQUEST)
        raise Stop

    try:
        asyncio.run(loop(workload=poll, interval=0, jitter_range=0.3, printer=lambda *_: None))
    except (Stop, RuntimeError):
        return made
    raise AssertionError("it ended by itself")


def test_prefect_s_own_loops_give_up_and_patient_ones_do_not() -> None:
    """Where Prefect moves or renames its loop, this fails: look whether it still gives up."""
    from tabletune_flows.patience import CANCELLING, POLLING, patient_loop

    failed: list[str] = []

    async def worked() -> None:
        pytest.fail("no poll went well")

    for module in (POLLING, CANCELLING):
        assert polls(module, failing=50) == 3
        with patient_loop(module, lambda error: failed.append(str(error)), worked):
            assert polls(module, failing=50) == 51
        assert polls(module, failing=50) == 3, "as it was before"
    assert failed == ["away"] * 100


def test_what_follows_a_poll_that_went_well_may_fail_too() -> None:
    """As registering again may, with a server that goes away once more."""
    from tabletune_flows.patience import POLLING, patient_loop

    failed: list[str] = []

    async def worked() -> None:
        if len(failed) == 5:
            raise Stop
        raise RuntimeError("refused")

    async def poll() -> None:
        return

    with patient_loop(POLLING, lambda error: failed.append(str(error)), worked):
        loop = importlib.import_module(POLLING).critical_service_loop
        with pytest.raises(Stop):
            asyncio.run(loop(workload=poll, interval=0))
    assert failed == ["refused"] * 5


def answer(status: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("no", request=REQUEST, response=httpx.Response(status))


def caused(error: Exception, by: Exception) -> Exception:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (httpx.ConnectError("refused", request=REQUEST), True),
        (caused(RuntimeError("Runner failed to start"), httpx.ReadTimeout("slow")), True),
        (ExceptionGroup("tasks", [ValueError(), ExceptionGroup("", [answer(503)])]), True),
        (caused(RuntimeError("Error while applying"), answer(422)), False),
        (ValueError("a fault of ours"), False),
    ],
)
def test_an_end_of_serving_is_an_outage_or_told(error: Exception, away: bool) -> None:
    from tabletune_flows.server import went_away

    with settings.temporary_settings(updates={settings.PREFECT_API_URL: None}):
        assert went_away(error) is away
    with settings.temporary_settings(updates={settings.PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert went_away(error), "whatever it was, the server does not answer now"


class Greeting(http.server.BaseHTTPRequestHandler):
    """A server that greets, in the place of one that is back."""

    def do_GET(self) -> None:
        body = b'"hello"'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@dataclass
class ComesUp(FixedClock):
    """A clock on which a server starts at the fourth pause."""

    port: int = 0
    servers: list[http.server.HTTPServer] = field(default_factory=list[http.server.HTTPServer])

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(seconds)
        if len(self.slept_s) == 4:
            server = http.server.HTTPServer(("127.0.0.1", self.port), Greeting)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.servers.append(server)


@pytest.fixture
def clock() -> Iterator[ComesUp]:
    made = ComesUp(port=free_ports().prefect)
    yield made
    for server in made.servers:
        server.shutdown()
        server.server_close()


def test_a_server_that_comes_up_later_is_waited_for(clock: ComesUp) -> None:
    from tabletune_flows.server import wait_for_server

    said: list[str] = []
    url = f"http://127.0.0.1:{clock.port}/api"
    with settings.temporary_settings(updates={settings.PREFECT_API_URL: url}):
        wait_for_server(Outage("the server", clock, said.append))
    assert clock.slept_s == [2.0, 4.0, 8.0, 16.0]
    assert len(said) == 1
    assert url in said[0]


def test_a_url_that_is_none_is_not_waited_for() -> None:
    from tabletune_flows.server import ServerUnusable, wait_for_server

    outage = Outage("the server", FixedClock(), lambda text: None)
    with (
        settings.temporary_settings(updates={settings.PREFECT_API_URL: "ftp://127.0.0.1/api"}),
        pytest.raises(ServerUnusable, match="PREFECT_API_URL"),
    ):
        wait_for_server(outage)

"""Whether the Prefect server can be used, before anything is begun on it."""

from collections.abc import Iterator
from typing import Any

import httpx
from prefect.client.orchestration import get_client
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    temporary_settings,
)

from tabletune.maintain.outage import Outage
from tabletune.pipeline.request import RequestError

#: A server that answers at all answers its greeting sooner.
ANSWER_S = 15.0
#: Statuses of a server that does not know who asks.
STRANGER = (401, 403)


class ServerUnusable(RequestError):
    """The Prefect server does not answer, or not us. Attributes: url."""

    def __init__(self, name: str, url: str, expected: str, found: str, advice: str) -> None:
        self.url = url
        super().__init__(name, expected, found, advice)


class ServerSilent(ServerUnusable):
    """It does not answer, or not as a Prefect server does; it may only be away."""


def check_server() -> None:
    """Do nothing where the server of PREFECT_API_URL answers, or where none is named.

    Raises:
        ServerUnusable: it does not answer, or refuses the credentials.
    """
    url = PREFECT_API_URL.value()
    if not url:
        return  # Prefect starts one for this process
    once: dict[Any, Any] = {PREFECT_CLIENT_MAX_RETRIES: 0}
    try:
        with (
            temporary_settings(updates=once),
            get_client(httpx_settings={"timeout": ANSWER_S}, sync_client=True) as client,
        ):
            client.hello()
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status in STRANGER:
            given = "credentials" if PREFECT_API_AUTH_STRING.value() else "no credentials"
            raise ServerUnusable(
                "PREFECT_API_AUTH_STRING",
                url,
                f"the credentials of the Prefect server at {url}",
                f"{given} that it refuses (HTTP {status})",
                "set it to USER:PASSWORD",
            ) from error
        raise _unusable(ServerSilent, url, f"HTTP {status}") from error
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise _unusable(ServerUnusable, url, f"{type(error).__name__}: {error}") from error
    except (httpx.HTTPError, OSError) as error:
        raise _unusable(ServerSilent, url, f"{type(error).__name__}: {error}") from error


def wait_for_server(outage: Outage) -> None:
    """Return once the server answers, however long that takes.

    Raises:
        ServerUnusable: it answers and refuses the credentials, or its URL is none.
    """
    while True:
        try:
            check_server()
            return
        except ServerSilent as error:
            outage.failed(error)
            outage.pause()


def went_away(error: BaseException) -> bool:
    """Whether what ended serving is that the server does not answer, or did not."""
    if any(isinstance(one, httpx.TransportError) or _failed(one) for one in _causes(error)):
        return True
    try:
        check_server()
    except ServerSilent:
        return True
    except ServerUnusable:
        pass
    return False


def _failed(error: BaseException) -> bool:
    return isinstance(error, httpx.HTTPStatusError) and error.response.status_code >= 500


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it groups, and what each came from."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        waiting += [before for before in (one.__cause__, one.__context__) if before is not None]


def _unusable(kind: type[ServerUnusable], url: str, found: str) -> ServerUnusable:
    advice = "start it, or name another; without PREFECT_API_URL one is started for the run"
    return kind("PREFECT_API_URL", url, "a Prefect server's API", f"{url}, {found}", advice)

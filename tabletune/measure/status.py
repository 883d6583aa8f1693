"""Reads the plugin's status from a serving engine, for people who look on from outside."""

from typing import Any, Self, cast
from urllib.parse import urlsplit

import httpx

from tabletune.measure.api import EngineAddress, EngineApiError

PATH = "/tabletune/status"
#: A status has a few kilobytes; far more is no status.
MAX_STATUS_BYTES = 4 * 2**20


class StatusClient:
    """Asks one engine for its status; one try each, so that a watcher goes on.

    Args:
        address: where the engine listens, and its token, if any.
        timeout_s: for one answer.
        transport: for tests.
    """

    def __init__(
        self,
        address: EngineAddress,
        timeout_s: float = 3.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        self.url = f"{address.base_url}{PATH}"
        self._token = bool(address.token)
        self._http = httpx.Client(
            timeout=timeout_s, headers=headers, transport=transport, trust_env=False
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def read(self) -> dict[str, Any]:
        """The status.

        Raises:
            EngineApiError: no engine there, no plugin in it, a token is needed, or the answer
                is none.
        """
        what = f"GET {self.url}"
        try:
            answer = self._http.get(self.url)
        # The last two: a host that no name server could know.
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            found = f"no answer ({type(error).__name__}: {error})"
            advice = "see whether the engine runs, and give its host and port"
            raise EngineApiError(what, found, advice) from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            advice = (
                "start the engine with the plugin: VLLM_PLUGINS=tabletune and TABLETUNE_SOURCE "
                "or TABLETUNE_MEASURE=1 (see docs/plugin.md)"
            )
            raise EngineApiError(what, "there is no plugin in this engine", advice)
        if answer.status_code in (httpx.codes.FORBIDDEN, httpx.codes.UNAUTHORIZED):
            if self._token:
                found, advice = "the token is refused", "give the engine's TABLETUNE_TOKEN"
            else:
                found = "this client is not allowed without a token"
                advice = "give the engine's token with --token or in TABLETUNE_TOKEN"
            raise EngineApiError(what, f"{found} (HTTP {answer.status_code})", advice)
        if answer.is_error:
            found = f"HTTP {answer.status_code}: {answer.text[:200]}"
            raise EngineApiError(what, found, "see the engine's log")
        try:
            status: object = answer.json() if len(answer.content) <= MAX_STATUS_BYTES else None
        except ValueError:
            status = None
        if not isinstance(status, dict) or "plugin_version" not in status:
            found = f"not a status: {answer.text[:80]!r}"
            raise EngineApiError(what, found, "see whether this is a vLLM engine")
        return cast(dict[str, Any], status)


def engine_url(text: str) -> str | None:
    """The base URL of an engine, from what a person types; None where it is no address.

    >>> engine_url("localhost:8000"), engine_url("http://gpu-1:8000/v1/"), engine_url("ftp://x")
    ('http://localhost:8000', 'http://gpu-1:8000', None)
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or " " in text:
        return None
    path = parts.path.rstrip("/").removesuffix("/v1")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{path}"

"""The endpoint plugin: HTTP routes of the API server that reach the engine core.

vLLM loads it only when VLLM_PLUGINS names it. The web framework is vLLM's own, imported when
routes are attached; every decision about a request is made in access.py and tested there.
"""

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from tabletune_vllm import __version__
from tabletune_vllm.access import check_client, parse_body, parse_range
from tabletune_vllm.errors import EngineUnavailableError, PluginError, SettingsError
from tabletune_vllm.logs import logger, warn_once
from tabletune_vllm.metrics import inactive
from tabletune_vllm.metrics_page import Figures, MetricsPage
from tabletune_vllm.ring import StepBatch, decode_steps
from tabletune_vllm.settings import Settings, read_settings

BODY_LIMIT_BYTES = 262_144
CALL_TIMEOUT_S = 60.0

Handler = Callable[[Any], Awaitable[dict[str, object]]]


def make_endpoint_plugin() -> "TabletuneEndpoints":
    """The factory that the entry point names."""
    return TabletuneEndpoints(os.environ)


class TabletuneEndpoints:
    """vLLM's EndpointPlugin protocol (vllm/plugins/endpoint_plugins/interface.py).

    Without a TABLETUNE_* variable it attaches nothing. With bad ones it attaches the status
    route alone, which tells the reason.
    """

    name = "tabletune"
    required_tasks = ("generate",)

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._engine_client: Any = None
        self._settings: Settings | None = None
        self._reason: str | None = None
        try:
            self._settings = read_settings(environ)
        except SettingsError as error:
            self._reason = str(error)
            warn_once(f"TableTune stays off: {error}")
        if self._settings is not None:
            self._reason = self._settings.inert

    def attach_router(self, app: Any) -> None:
        """Add the routes to the application. Never raises."""
        try:
            if self._settings is not None or self._reason is not None:
                self._attach(app)
        except Exception as error:
            warn_once(f"TableTune: no routes: {error!r}")

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Keep the engine client: the way to the engine core."""
        self._engine_client = engine_client

    def _attach(self, app: Any) -> None:
        route = importlib.import_module("starlette.routing").Route
        response = importlib.import_module("starlette.responses").JSONResponse
        routes: list[tuple[str, str, Handler]] = [("GET", "status", self._status)]
        if self._settings is not None and self._settings.measure:
            routes += [
                ("GET", "steps", self._steps),
                ("GET", "graphs", self._graphs),
                ("POST", "pin", self._pin),
                ("POST", "table", self._table),
            ]
        for method, name, handler in routes:
            endpoint = self._guarded(handler, response)
            app.router.routes.append(route(f"/tabletune/{name}", endpoint, methods=[method]))
        figures = Figures(self._metrics)
        app.add_middleware(MetricsPage, figures=figures)

    def _guarded(self, handler: Handler, response: Any) -> Callable[[Any], Awaitable[Any]]:
        async def endpoint(request: Any) -> Any:
            try:
                token = None if self._settings is None else self._settings.token
                host = None if request.client is None else request.client.host
                check_client(host, request.headers, token)
                reply = await handler(request)
            except PluginError as error:
                reply = error.as_reply()
            except Exception as error:
                logger.exception("TableTune: an endpoint failed")
                reply = EngineUnavailableError("the call to work", repr(error), "see the log")
                reply = reply.as_reply()
            status = 200
            if "error" in reply:
                status = cast(int, reply["status"])
                reply = {"error": reply["error"]}
            return response(reply, status_code=status)

        return endpoint

    async def _status(self, request: Any) -> dict[str, object]:
        if self._reason is not None:
            return {"plugin_version": __version__, "active": False, "reason": self._reason}
        return await self._call("tabletune_status")

    async def _metrics(self) -> dict[str, object]:
        if self._reason is not None:
            return inactive(__version__, self._reason)
        return await self._call("tabletune_metrics")

    async def _steps(self, request: Any) -> dict[str, object]:
        since, limit = parse_range(request.query_params)
        reply = await self._call("tabletune_steps", since, limit)
        return reply if "error" in reply else decode_steps(cast(StepBatch, reply))

    async def _graphs(self, request: Any) -> dict[str, object]:
        return await self._call("tabletune_graphs")

    async def _pin(self, request: Any) -> dict[str, object]:
        return await self._call("tabletune_pin", await self._body(request))

    async def _table(self, request: Any) -> dict[str, object]:
        return await self._call("tabletune_table", await self._body(request))

    async def _body(self, request: Any) -> dict[str, object]:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_LIMIT_BYTES:
                break
        return parse_body(bytes(body), request.headers.get("content-type", ""), BODY_LIMIT_BYTES)

    async def _call(self, method: str, *args: object) -> dict[str, object]:
        core: Any = getattr(self._engine_client, "engine_core", None)
        call = getattr(core, "call_utility_async", None)
        if call is None:
            raise EngineUnavailableError(
                "an engine client with call_utility_async", type(core).__name__, "see the log"
            )
        try:
            return await asyncio.wait_for(call(method, *args), CALL_TIMEOUT_S)
        except TimeoutError:
            found = f"no answer in {CALL_TIMEOUT_S:.0f} s"
            raise EngineUnavailableError("an answer of the engine", found, "try again") from None

"""The tabletune_* methods of vLLM's engine core, which utility calls reach by name.

vLLM runs them on the engine core's thread between two steps (vllm/v1/engine/core.py,
_handle_client_request). Their replies are msgpack: plain dicts, lists, text, numbers, bytes.
"""

from collections.abc import Callable
from typing import Any

from tabletune_vllm import __version__
from tabletune_vllm.errors import InactiveError, PluginError
from tabletune_vllm.logs import warn_once
from tabletune_vllm.metrics import figures, inactive
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.core import captured_graphs
from tabletune_vllm.seam.hooks import MARK


def add_utilities(engine_core_class: Any, version: str, problem: str | None) -> None:
    """Add the tabletune_* methods that vLLM's utility calls reach; they never raise."""

    def runtime_of(core: Any) -> Runtime:
        found = core.scheduler.__dict__.get(MARK, problem or "no scheduler was hooked")
        if isinstance(found, Runtime):
            return found
        raise InactiveError("an active plugin", str(found), "see the engine's log")

    def guarded(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except PluginError as error:
            return error.as_reply()
        except Exception as error:
            found = repr(error)
            warn_once(f"TableTune: an endpoint's call failed in the engine core: {found}")
            return InactiveError("the call to work", found, "see the log").as_reply()

    def status_of(core: Any) -> dict[str, object]:
        try:
            runtime = runtime_of(core)
        except InactiveError as error:
            base = {"plugin_version": __version__, "vllm_version": version}
            return {**base, "active": False, "reason": error.found}
        long = ("graphs", "coverage")
        summary = {key: value for key, value in all_graphs(core).items() if key not in long}
        return {**runtime.status(), "captured_graphs": summary}

    def figures_of(core: Any) -> dict[str, object]:
        try:
            return figures(runtime_of(core))
        except InactiveError as error:
            return inactive(__version__, error.found)

    def all_graphs(self: Any) -> dict[str, object]:
        runtime = runtime_of(self)
        runtime.observer.disturbed = True
        return captured_graphs(self, runtime)

    def tabletune_status(self: Any) -> Any:
        return guarded(lambda: status_of(self))

    def tabletune_metrics(self: Any) -> Any:
        return guarded(lambda: figures_of(self))

    def tabletune_graphs(self: Any) -> Any:
        return guarded(lambda: all_graphs(self))

    def tabletune_steps(self: Any, since: int, limit: int) -> Any:
        return guarded(lambda: runtime_of(self).steps(since, limit))

    def tabletune_pin(self: Any, body: dict[str, object]) -> Any:
        return guarded(lambda: runtime_of(self).pin(body))

    def tabletune_table(self: Any, body: dict[str, object]) -> Any:
        return guarded(lambda: runtime_of(self).swap_table(body))

    for function in (
        tabletune_status,
        tabletune_metrics,
        tabletune_graphs,
        tabletune_steps,
        tabletune_pin,
        tabletune_table,
    ):
        setattr(engine_core_class, function.__name__, function)

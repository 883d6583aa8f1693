"""The end of an engine core's start, where following begins (vllm/v1/engine/core.py)."""

import functools
from typing import Any

from tabletune_vllm.live.start import start_following
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.graphs import read_graphs
from tabletune_vllm.seam.hooks import MARK
from tabletune_vllm.settings import Settings


def wrap_core(engine_core_class: Any, process_class: Any, settings: Settings) -> None:
    """Make every engine core follow the source once it has started; once per class.

    By then the graphs are captured and the workers have been forked, so that no thread of ours
    is in their way. vLLM loads plugins either before it makes an engine core (in one process,
    class EngineCore) or while it makes one (in a process of its own, class EngineCoreProc),
    so the end of the constructor and the beginning of the loop are both watched.
    """
    _then_begin(engine_core_class, "__init__", settings, after=True)
    _then_begin(process_class, "run_busy_loop", settings, after=False)


def _then_begin(owner: Any, name: str, settings: Settings, *, after: bool) -> None:
    original = getattr(owner, name)
    if getattr(original, MARK, False):
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not after:
            try_to_begin(self, settings)
        result = original(self, *args, **kwargs)
        if after:
            try_to_begin(self, settings)
        return result

    setattr(method, MARK, True)
    setattr(owner, name, method)


def try_to_begin(core: Any, settings: Settings) -> None:
    """Begin, or turn off and say why. Never raises."""
    try:
        begin(core, settings)
    except Exception as error:
        found: object = core.scheduler.__dict__.get(MARK)
        if isinstance(found, Runtime):
            found.turn_off(f"starting to follow failed: {error!r}")


def begin(core: Any, settings: Settings) -> None:
    """Start the threads of one engine core, once, if its settings name a source."""
    scheduler, follow = core.scheduler, settings.follow
    runtime: object = scheduler.__dict__.get(MARK)
    if not isinstance(runtime, Runtime) or follow is None or runtime.live_status is not None:
        return
    if follow.mode == "off":
        off = {"mode": "off", "ceiling": "off", "running": False}
        runtime.live_status = lambda: {**off, "source": follow.source, "channel": follow.channel}
        return
    graphs = captured_graphs(core, runtime)

    def engine_self() -> Any:
        from tabletune_vllm.seam.identity import engine_self as read

        return read(scheduler, runtime.facts, list(runtime.boot), graphs)

    start_following(runtime, follow, engine_self)


def captured_graphs(core: Any, runtime: Runtime) -> dict[str, object]:
    """What the engine captured at boot: read once, so that a status stays cheap for it."""
    if runtime.graphs is None:
        lengths = sorted({0, *runtime.boot_lengths, runtime.facts.max_draft_length})
        size = runtime.facts.max_num_seqs
        runtime.graphs = read_graphs(core.model_executor, lengths, size)
    return runtime.graphs

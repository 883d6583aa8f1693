"""Takes the plugin out of a running engine and puts it back, for bench.overhead only.

With BENCH_TAKE_OUT in the environment one more body is understood by POST /tabletune/table:

    {"plugin": "out"}   the scheduler has vLLM's own methods again, and the table in force as a
                        plain list; the background threads wake and do nothing
    {"plugin": "in"}    as before

So one process serves with and without the plugin in turn, and what two engines differ by anyway
(memory, cores, luck) is no part of the comparison. Both happen between two steps: the call runs
on the engine's own thread.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from tabletune_vllm.register import when_imported

if TYPE_CHECKING:
    from tabletune_vllm.runtime import Runtime

VARIABLE = "BENCH_TAKE_OUT"
_MARK = "_bench_taken_out"


def install_when_imported() -> None:
    """Install in this process, if it ever makes a runtime."""
    if os.environ.get(VARIABLE):
        when_imported("tabletune_vllm.seam.hooks", install)


def install() -> None:
    """Let every runtime that is hooked from now on be taken out; once."""
    from tabletune_vllm.live.follow import Following
    from tabletune_vllm.runtime import Runtime
    from tabletune_vllm.seam import hooks as hooks_module

    hooks: Any = hooks_module
    if hasattr(Runtime, _MARK):
        return
    setattr(Runtime, _MARK, None)
    hook, swap = hooks.hook, Runtime.swap_table
    turn, talk = Following.turn, Following.talk
    out: set[str] = set()

    @functools.wraps(hook)
    def hook_and_keep(scheduler: Any, *args: Any, **kwargs: Any) -> Runtime:
        runtime = hook(scheduler, *args, **kwargs)
        setattr(runtime, _MARK, TakenOut(scheduler, runtime, out))
        return runtime

    @functools.wraps(swap)
    def swap_or_take_out(self: Runtime, body: dict[str, object]) -> dict[str, object]:
        if "plugin" not in body:
            return swap(self, body)
        taken: TakenOut = getattr(self, _MARK)
        taken.put(str(body["plugin"]))
        return {"plugin": body["plugin"], "active": self.active}

    @functools.wraps(turn)
    def turn_or_rest(self: Any, *args: Any, **kwargs: Any) -> Any:
        return None if out else turn(self, *args, **kwargs)

    @functools.wraps(talk)
    def talk_or_rest(self: Any, *args: Any, **kwargs: Any) -> Any:
        return False if out else talk(self, *args, **kwargs)

    hooks.hook = hook_and_keep
    Runtime.swap_table = swap_or_take_out
    Following.turn, Following.talk = turn_or_rest, talk_or_rest


class TakenOut:
    """The plugin's things on one scheduler, there or taken off.

    out: not empty while they are off, for the background threads.
    """

    def __init__(self, scheduler: Any, runtime: Any, out: set[str]) -> None:
        self._scheduler, self._runtime, self._out = scheduler, runtime, out
        self._hooks: dict[str, Any] = {}

    def put(self, where: str) -> None:
        """`out` or `in`; nothing happens where it is so already.

        Raises:
            RequestError: neither.
        """
        from tabletune_vllm.errors import RequestError
        from tabletune_vllm.seam.step_hooks import METHODS

        if where not in ("in", "out"):
            raise RequestError("a plugin that is in or out", repr(where), "name one")
        on, scheduler = vars(self._scheduler), self._scheduler
        if where == "out" and not self._out:
            self._hooks = {name: on[name] for name in METHODS if name in on}
            for name in self._hooks:
                delattr(scheduler, name)
            self._hooks["dynamic_sd_lookup"] = lookup = scheduler.dynamic_sd_lookup
            scheduler.dynamic_sd_lookup = [lookup[b] for b in range(len(self._runtime.boot))]
            self._out.add(where)
        elif where == "in" and self._out:
            for name, ours in self._hooks.items():
                setattr(scheduler, name, ours)
            # Steps were missed: the next one is no successor of the last that was seen.
            self._runtime.observer.disturbed = True
            self._out.clear()

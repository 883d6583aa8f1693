"""A small deployment on a stand-in engine, and the command line run on it."""

import pathlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from command_process import CommandProcess
from fake_environment import FakeEnvironment, make_environment, write_model

from tabletune.commands.exit_codes import ExitCode

#: A wide margin: on a busy host two windows of a tenth of a second differ by some per cent.
VALIDATION = ("--concurrency", "2", "--margin", "0.3")
OPTIONS = (
    *("--method", "ngram", "--max-num-seqs", "4", "--max-draft-length", "2", "--lengths", "0,2"),
    *("--prompt-count", "8"),
)
#: How often a sound table may be judged.
JUDGEMENTS = 4


@dataclass(frozen=True)
class Deployment:
    """One deployment: its folder, engine environment, model, and where its runs are kept."""

    folder: pathlib.Path
    engine: FakeEnvironment
    model: pathlib.Path
    out: pathlib.Path

    def start(
        self, name: str, *options: str, environment: Mapping[str, str | None] | None = None
    ) -> CommandProcess:
        """`tabletune NAME` with everything a measuring command needs."""
        what = ("--model", str(self.model), "--engine", str(self.engine.python), *OPTIONS)
        validation = () if name == "profile" else VALIDATION
        return self.command(name, *what, *validation, *options, environment=environment)

    def command(
        self, *arguments: str, environment: Mapping[str, str | None] | None = None
    ) -> CommandProcess:
        """Any command on this deployment's folder."""
        return CommandProcess([*arguments, "--out", str(self.out)], self.folder, environment)

    def run(
        self, name: str, *options: str, environment: Mapping[str, str | None] | None = None
    ) -> CommandProcess:
        """`start` and wait for the end.

        On a busy host the stand-in's throughputs scatter, and its sound table fails now and
        then: it is judged again, unless the environment asks for a fault.
        """
        for _ in range(JUDGEMENTS):
            with self.start(name, *options, environment=environment) as process:
                process.finish()
            if process.process.returncode != ExitCode.VERDICT_FAILED or environment:
                break
        return process

    def ask(
        self, *arguments: str, environment: Mapping[str, str | None] | None = None
    ) -> CommandProcess:
        """`command` and wait for the end."""
        with self.command(*arguments, environment=environment) as process:
            process.finish()
        return process

    def copy(self, folder: pathlib.Path, without: tuple[str, ...] = ()) -> "Deployment":
        """The same deployment with a copy of its records and store, without some records."""
        out = folder / "out"
        shutil.copytree(self.out, out)
        for kind in without:
            for path in out.glob(f"records/*/{kind}*.json"):
                path.unlink()
        (self.engine.folder / "boots.jsonl").unlink(missing_ok=True)
        return replace(self, folder=folder, out=out)

    def record(self, name: str) -> pathlib.Path:
        """The one record of that name."""
        (path,) = self.out.glob(f"records/*/{name}.json")
        return path

    def pointer(self) -> Any:
        """The channel's state as `show --json` would need it: the pointer file's bytes."""
        return (self.out / "store" / "channels" / "live" / "pointer.json").read_bytes()


def new_deployment(folder: pathlib.Path) -> Deployment:
    """A fresh one in `folder`."""
    engine = make_environment(folder / "engine")
    return Deployment(folder, engine, write_model(folder / "model"), folder / "out")


def wait_until(reached: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Return once other processes have made it so.

    Raises:
        AssertionError: they did not.
    """
    end_s = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.02)

"""Runs the command line as a process of its own, watching what it says meanwhile."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 120.0


class CommandProcess:
    """A running `tabletune` command. Leaving its `with` block ends it.

    Args:
        environment: added to this process's; None as a value removes a variable.
        cwd: where it runs.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: pathlib.Path,
        environment: Mapping[str, str | None] | None = None,
    ) -> None:
        added = {"PYTHONPATH": str(REPOSITORY), **(environment or {})}
        everything = {**os.environ, **added}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tabletune.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={name: value for name, value in everything.items() if value is not None},
            start_new_session=True,
        )
        self.errors = ""
        self.output = ""
        self._said = threading.Condition()
        self._ended = False
        self._threads = [
            threading.Thread(target=self._follow_errors, daemon=True),
            threading.Thread(target=self._read_output, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "CommandProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def wait_for(self, text: str) -> None:
        """Return when standard error has shown `text`.

        Raises:
            AssertionError: it ended, or took too long, without.
        """
        with self._said:
            self._said.wait_for(lambda: text in self.errors or self._ended, LIMIT_S)
        assert text in self.errors, f"never said {text!r}:\n{self.errors}"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self) -> int:
        """Wait for the end; the exit status."""
        status = self.process.wait(LIMIT_S)
        for thread in self._threads:
            thread.join(LIMIT_S)
        return status

    @property
    def json(self) -> Any:
        """Standard output as the one JSON value that it must be."""
        return json.loads(self.output)

    def _follow_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.errors += line.decode("utf-8", "backslashreplace")
                self._said.notify_all()
        with self._said:
            self._ended = True
            self._said.notify_all()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        self.output = self.process.stdout.read().decode("utf-8", "backslashreplace")


def command(
    arguments: Sequence[str],
    cwd: pathlib.Path,
    environment: Mapping[str, str | None] | None = None,
) -> CommandProcess:
    """Run a command to its end."""
    with CommandProcess(arguments, cwd, environment) as process:
        process.finish()
        return process

"""The command line, called in this process."""

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

import pytest

from tabletune.commands.app import run_command


@dataclass(frozen=True)
class Called:
    """How a command ended."""

    status: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.output)


def call(*arguments: str) -> Called:
    """Run `tabletune ARGUMENTS` and wait for its end."""
    output, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        pytest.raises(SystemExit) as ended,
    ):
        run_command(list(arguments))
    code = ended.value.code
    return Called(code if isinstance(code, int) else 0, output.getvalue(), errors.getvalue())

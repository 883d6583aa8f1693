"""docs/cli.md names every command and every exit status."""

import pathlib
import re

from typer.main import get_command

from tabletune.commands.app import app
from tabletune.commands.exit_codes import ExitCode

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")


def test_every_command_is_in_the_list() -> None:
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    commands = getattr(get_command(app), "commands")  # noqa: B009
    assert len(commands) > 10
    missing = [name for name in commands if not re.search(rf"`{name}\b", table)]
    assert missing == []


def test_every_exit_status_is_explained() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| \d", line)]
    told = {int(number) for row in rows for number in re.findall(r"\d+", row.split("|")[1])}
    assert told >= {int(code) for code in ExitCode}

"""docs/cli.md names every command and every exit status."""

import pathlib
import re

from typer.main import get_command

from tabletune.commands.app import app
from tabletune.commands.exit_codes import ExitCode
from tabletune_vllm.settings import KNOWN_NAMES, PREFIX, read_settings

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


def test_an_engine_leaves_the_command_line_s_variables_alone() -> None:
    """A shell, a worker or a flow that has them may start engines."""
    names = re.findall(rf"^\| `({PREFIX}\w+)`", PAGE, re.MULTILINE)
    assert len(names) > 4
    others = [name for name in names if name not in KNOWN_NAMES]
    assert read_settings(dict.fromkeys(others, "/anything")) is None


def test_every_variable_that_is_read_is_explained() -> None:
    root = pathlib.Path(__file__).parents[2]
    files = [p for part in ("tabletune", "flows", "tasks") for p in (root / part).rglob("*.py")]
    read = {
        name
        for path in files
        for name in re.findall(rf'"({PREFIX}[A-Z_]+)"', path.read_text("utf-8"))
    }
    known = {*re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE), *KNOWN_NAMES, PREFIX}
    assert read - known == set()

"""docs/options.md, made from the commands themselves."""

import pathlib
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tabletune.commands.app import app

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "options.md"
HEAD = """# Options of the commands

What `--help` says of each command, made from the commands; a test keeps it so. What they do
together, their exit statuses and their environment variables: [cli.md](cli.md).
"""


def render() -> str:
    """The whole page."""
    return "".join([HEAD, *(part for name, one in commands() for part in section(name, one))])


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those of a group after one another."""
    for name, one in sorted(get_command(app).commands.items()):  # pyright: ignore
        inner = getattr(one, "commands", None)
        if inner is None:
            yield name, one
        else:
            yield from ((f"{name} {sub}", each) for sub, each in sorted(inner.items()))


def section(name: str, command: Any) -> Iterator[str]:
    """A command's summary and its options."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    called = " ".join(["tabletune", name, *(argument_words(p) for p in arguments)])
    text = " ".join(str(command.help).split())
    yield f"\n## {name}\n\n`{called}`\n\n{text}\n\n"
    yield "| option | default | meaning |\n|---|---|---|\n"
    for option in [*arguments, *options]:
        yield f"| {name_words(option)} | {default_words(option)} | {meaning(option)} |\n"


def argument_words(argument: Any) -> str:
    """An argument as it stands in a command's line."""
    name = shown_name(argument)
    return name if argument.required else f"[{name}]"


def shown_name(argument: Any) -> str:
    """An argument's name."""
    return str(argument.metavar or argument.name).strip("[]").upper()


def name_words(parameter: Any) -> str:
    """How an option is written, or an argument named."""
    if parameter.param_type_name == "argument":
        return f"`{shown_name(parameter)}`"
    names = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{name}`" for name in names)


def default_words(parameter: Any) -> str:
    """What counts where it is left out."""
    if parameter.required:
        return "**required**"
    if getattr(parameter, "is_flag", False):
        return f"`{parameter.opts[0]}`" if parameter.default else ""
    return "" if parameter.default in (None, "", ()) else f"`{parameter.default}`"


def meaning(parameter: Any) -> str:
    """Its help text, and the variable that may stand in its place."""
    text = str(parameter.help or "").strip().rstrip(".").replace("|", r"\|")
    if parameter.envvar and parameter.param_type_name == "option":
        text += f" (`{parameter.envvar}`)"
    return text

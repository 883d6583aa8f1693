"""Options that several commands share."""

import json
import pathlib
from typing import Annotated, Any

import platformdirs
import typer

from tabletune.pipeline.request import RequestError

DEFAULT_OUT = pathlib.Path("tabletune-out")

Out = Annotated[
    pathlib.Path,
    typer.Option("--out", help="The run's folder: records, logs, reports and the table store."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="The table store: a folder, file:///… or s3://bucket/prefix (default: OUT/store).",
    ),
]
Channel = Annotated[str, typer.Option(help="The channel, such as live or canary.")]
Who = Annotated[str | None, typer.Option("--by", help="Who does it (default: the user's name).")]
EngineRoot = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--root",
        envvar="TABLETUNE_ENGINE_ROOT",
        help="Where engine environments live (default: the user's data folder).",
    ),
]


def engine_root(root: pathlib.Path | None) -> pathlib.Path:
    """Where engine environments live."""
    return root or pathlib.Path(platformdirs.user_data_dir("tabletune")) / "engines"


def store_url(out: pathlib.Path, store: str | None) -> str:
    """Where the table store is: `--store`, else in the run's folder."""
    return store or str(out / "store")


def numbers(option: str, text: str) -> tuple[int, ...]:
    """A comma-separated list of whole numbers; empty text is an empty tuple.

    Raises:
        RequestError: something else is in it.
    """
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise RequestError(option, "numbers such as 0,1,3", text, "separate them by ,") from error


def _refuse(token: str) -> None:
    raise ValueError(f"{token} is not a JSON number")


def json_object(option: str, text: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        RequestError: not one.
    """
    try:
        value = json.loads(text, parse_constant=_refuse) if text else {}
    except (ValueError, RecursionError) as error:
        raise RequestError(option, "a JSON object", text, str(error)) from error
    if not isinstance(value, dict):
        raise RequestError(option, "a JSON object", text, 'write it as {"name": value}')
    return value

"""key new: keys for signed channels."""

import pathlib
from typing import Annotated

import typer

from tabletune.commands.console import print_json
from tabletune.commands.options import Json
from tabletune.store.signing import PUBLIC_KEY_VARIABLE, SIGNING_KEY_VARIABLE, make_key, public_path

app = typer.Typer(help="Keys for channels whose pointers are signed.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def new(
    path: Annotated[pathlib.Path, typer.Argument(help="The private key's file, not there yet.")],
    as_json: Json = False,
) -> None:
    """Make an Ed25519 key: the private one at PATH, the public one at PATH.pub."""
    name = make_key(path)
    if as_json:
        print_json({"key": name, "private": str(path), "public": str(public_path(path))})
        return
    print(f"key {name}")
    print(f"  to sign, where tables are promoted: {SIGNING_KEY_VARIABLE}={path.absolute()}")
    print(f"  to check, in engines: {PUBLIC_KEY_VARIABLE}=… (a copy of {public_path(path)})")

"""JSON files that a benchmark is given by name: of a folder in the repository, or by their path."""

import pathlib
from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel, ValidationError

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def load_named(
    name: str,
    folder: pathlib.Path,
    kind: type[AnyModel],
    refuse: Callable[[pathlib.Path, str], Exception],
) -> AnyModel:
    """The file NAME.json of the folder, or the one at a path that ends in .json.

    refuse: makes the error from the path and what was found instead.
    """
    path = pathlib.Path(name)
    if path.suffix != ".json":
        path = folder / f"{name}.json"
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError as error:
        known = sorted(file.stem for file in folder.glob("*.json"))
        raise refuse(path, f"no such file; known are {known}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise refuse(path, f"{where}: {first['msg']}") from error

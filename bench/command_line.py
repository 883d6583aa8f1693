"""How a result file names the command that made it: without the paths of one machine."""

import pathlib
import shlex
import sys
from collections.abc import Mapping, Sequence

PLACES = {
    "--engine": "PYTHON",
    "--model": "MODEL",
    "--drafter": "DRAFTER",
    "--work": "FOLDER",
    "--out": "FILE",
    "--logs": "FOLDER",
    "--rows": "FILE",
}
"""Options whose values are paths, and what stands for them."""


def told(module: str, arguments: Sequence[str], places: Mapping[str, str] = PLACES) -> str:
    """The command line of a benchmark, for its result file.

    >>> told("bench.run", ["qwen3", "--engine", "bin/python3", "--out=a.json"])
    'python -m bench.run qwen3 --engine PYTHON --out=FILE'
    """
    words: list[str] = []
    option = ""
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if option in places:
            words.append(places[option])
        elif equals and name in places:
            words.append(f"{name}={places[name]}")
        else:
            words.append(argument)
        option = argument
    return f"python -m {module} {shlex.join(words)}"


def told_of_this() -> str:
    """The command line of this process: the benchmark may have been called by another one."""
    return told(f"bench.{pathlib.Path(sys.argv[0]).stem}", sys.argv[1:])


def placeless(text: str, work: pathlib.Path) -> str:
    """A result's text without the paths of one machine: of the work folder, and of home."""
    return text.replace(str(work), "FOLDER").replace(str(pathlib.Path.home()), "HOME")

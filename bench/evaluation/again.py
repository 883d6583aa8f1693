"""Makes a result file's figures anew from the windows that it keeps.

    python -m bench.evaluation.again FILE.json …

For when the figures change and the engine is gone.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from bench.evaluation.cells import Cell
from bench.evaluation.result_file import READING
from bench.evaluation.shares import summarise_load

OPEN_LOADS = ("poisson", "trace")


def rounds_of(windows: list[Cell]) -> list[dict[str, Cell]]:
    """Windows by round and policy."""
    numbers = sorted({window["round"] for window in windows})
    return [{w["policy"]: w for w in windows if w["round"] == number} for number in numbers]


def summarised(load: dict[str, Any]) -> dict[str, Any]:
    """One load with new figures; what is not a figure stays."""
    rounds = rounds_of(load["windows"])
    open_load = str(load["load"]).startswith(OPEN_LOADS)
    return load | summarise_load(rounds, list(rounds[0]), open_load)


def main() -> None:
    """Rewrite the files."""
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        content = json.loads(path.read_text())
        content["loads"] = [summarised(load) for load in content["loads"]]
        if not content.get("simulated"):
            content["reading"] = READING
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

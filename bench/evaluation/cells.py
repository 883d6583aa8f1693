"""Checkpoints: one file for each (load, round, policy), so that a run can stop and go on."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

Cell = dict[str, Any]


class Cells:
    """The finished windows of one scenario.

    A round counts only whole, and from one boot: ratios within a round are then between
    windows of the same engine, seconds apart.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder

    def save(self, load: str, number: int, policy: str, cell: Cell) -> None:
        """Write one window's figures, whole or not at all."""
        path = self._path(load, number, policy)
        path.parent.mkdir(parents=True, exist_ok=True)
        writing = path.with_suffix(".writing")
        writing.write_text(json.dumps({"policy": policy, **cell}, default=float))
        writing.replace(path)

    def round(self, load: str, number: int) -> dict[str, Cell]:
        """The cells of one round by policy, finished or not."""
        folder = self._folder / _slug(load) / str(number)
        found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        return {cell["policy"]: cell for cell in found}

    def missing(self, load: str, number: int, policies: list[str], boot: str) -> list[str]:
        """What is still to be measured of a round in this boot: nothing of a whole round, the
        rest of one that this boot began, all of one that another boot left unfinished."""
        cells = self.round(load, number)
        boots = {cells[policy]["boot"] for policy in policies if policy in cells}
        if len(boots) == 1 and all(policy in cells for policy in policies):
            return []
        return [p for p in policies if p not in cells or cells[p]["boot"] != boot]

    def whole_rounds(self, load: str, rounds: int, policies: list[str]) -> list[dict[str, Cell]]:
        """The finished rounds, in order."""
        numbers = [n for n in range(rounds) if not self.missing(load, n, policies, "")]
        return [self.round(load, number) for number in numbers]

    def _path(self, load: str, number: int, policy: str) -> pathlib.Path:
        return self._folder / _slug(load) / str(number) / f"{_slug(policy)}.json"


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")

"""A result file of several parts, each measured by a run of its own."""

import json
import pathlib
from typing import Any

from tabletune.durable_file import write_durably

#: Ends the name of a part that is not whole yet.
SO_FAR = "_so_far"


class PartsFile:
    """The parts that lie in the file, and those found since.

    Raises:
        json.JSONDecodeError: the file is there, and is no JSON.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._parts: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    @property
    def text(self) -> str:
        """All parts as JSON."""
        return json.dumps(self._parts, indent=1)

    def keep(self, part: str, found: dict[str, Any]) -> None:
        """Write a part that is whole; others stay as they are."""
        self._parts.pop(part + SO_FAR, None)
        self._write(part, found)

    def keep_so_far(self, part: str, found: dict[str, Any]) -> None:
        """Write what there is of a part under a name of its own: a whole one of before stays."""
        self._write(part + SO_FAR, found)

    def _write(self, name: str, found: dict[str, Any]) -> None:
        self._parts[name] = found
        write_durably(self._path, (self.text + "\n").encode())

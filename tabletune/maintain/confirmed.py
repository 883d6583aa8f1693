"""When a deployment's table was last found right, beside its measurements.

A retune that ends with the same table makes no new version, so the version's own date would
call for another retune every night.
"""

import json
import pathlib
from datetime import UTC, datetime

from pydantic import ValidationError

from tabletune.maintain.watch_state import Known
from tabletune.pipeline.workspace import Workspace

FILE = "confirmed.json"


class Confirmed(Known):
    """`table_version` was still the right one for `fingerprint` at `at` (ISO 8601, UTC)."""

    table_version: str
    fingerprint: str
    at: str


def read_confirmed(out: pathlib.Path) -> Confirmed | None:
    """The last confirmation; None where there is none that can be read."""
    try:
        return Confirmed.model_validate_json((out / FILE).read_bytes()[:4096])
    except (OSError, ValidationError):
        return None


def confirm(out: pathlib.Path, table_version: str, fingerprint: str, at: datetime) -> None:
    """Note that the version is still right.

    Raises:
        WorkspaceError: the folder cannot be written.
    """
    values = {
        "table_version": table_version,
        "fingerprint": fingerprint,
        "at": at.astimezone(UTC).isoformat(timespec="seconds"),
    }
    workspace = Workspace(out)
    workspace.write(workspace.root / FILE, json.dumps(values).encode())

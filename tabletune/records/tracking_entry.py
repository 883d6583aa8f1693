"""What a finished run tells an experiment tracker: plain data, so that it can wait in a folder."""

from typing import Any, ClassVar

from pydantic import Field

from tabletune.records.base import HASH_PATTERN, Facts, Record


class Metric(Facts):
    """One value; `step` is a batch size or a concurrency where the metric has one, else 0."""

    name: str = Field(min_length=1, max_length=250)
    value: float
    step: int = Field(default=0, ge=0)


class TrackedTable(Facts):
    """A table of plain values, `rows` by `columns`."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | bool | None, ...], ...]


class TrackedRun(Facts):
    """A run or one of its stages.

    `files` maps a name in the tracker's artifacts to a file's path here; a file that is gone
    when the entry is sent is left out. `documents` are JSON artifacts, `tables` are tables.
    """

    name: str
    params: dict[str, str] = Field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    tags: dict[str, str] = Field(default_factory=dict)
    tables: dict[str, TrackedTable] = Field(default_factory=dict)
    documents: dict[str, Any] = Field(default_factory=dict)
    files: dict[str, str] = Field(default_factory=dict)


class TrackedVersion(Facts):
    """A table version for the tracker's registry, under the name `model`."""

    model: str
    table_version: str = Field(pattern=HASH_PATTERN)
    tags: dict[str, str] = Field(default_factory=dict)


class TrackingEntry(Record):
    """Everything about one run. Sending it twice leaves what sending it once leaves: `key`
    names it, and each stage is found by its own name below it."""

    KIND: ClassVar[str] = "tracking_entry"

    key: str = Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")
    experiment: str
    run: TrackedRun
    stages: tuple[TrackedRun, ...] = ()
    version: TrackedVersion | None = None
    made_at: str

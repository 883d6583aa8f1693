"""Throughput windows by policy and concurrency, as they are collected."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tabletune.measure.windows import EngineKind
from tabletune.records.verdict import Measured


class Key(NamedTuple):
    """Whose windows these are."""

    policy: str
    concurrency: int


@dataclass
class Series:
    """The windows of one policy at one concurrency.

    Attributes:
        windows: throughput in tokens per second, by round. Rounds with the same number of
            one boot ran next to each other.
        boot: which boot they come from; only windows of one boot are paired.
        kind: which engine of the verdict.
        lengths: the draft lengths that all its steps used, where steps were read.
    """

    boot: str
    kind: EngineKind
    windows: dict[int, float] = field(default_factory=dict[int, float])
    lengths: set[int] = field(default_factory=set[int])

    def values(self) -> list[float]:
        """The windows in the order of their rounds."""
        return [self.windows[number] for number in sorted(self.windows)]


class Paired(NamedTuple):
    """Windows of two policies; `paired` when entry i of both ran next to each other."""

    first: list[float]
    second: list[float]
    paired: bool


@dataclass
class Measurements:
    """All windows of a validation, those of later boots too."""

    series: dict[Key, Series] = field(default_factory=dict[Key, Series])

    def add(
        self, key: Key, round_number: int, rate_tok_s: float, boot: str, kind: EngineKind
    ) -> Series:
        """Note one window; the series it belongs to."""
        series = self.series.setdefault(key, Series(boot, kind))
        series.windows[round_number] = rate_tok_s
        return series

    def same_lengths(self, first: str, second: str, concurrency: int) -> bool:
        """Whether every step of both used one and the same draft length."""
        top = self.series[Key(first, concurrency)].lengths
        return len(top) == 1 and top == self.series[Key(second, concurrency)].lengths

    def concurrencies(self) -> list[int]:
        """The concurrencies measured, in rising order."""
        return sorted({key.concurrency for key in self.series})

    def policies(self, concurrency: int) -> list[str]:
        """The policies measured at one concurrency, in the order they were first measured."""
        return [key.policy for key in self.series if key.concurrency == concurrency]

    def pair(self, first: str, second: str, concurrency: int) -> Paired:
        """The windows of two policies, matched by round where they come from one boot."""
        top = self.series[Key(first, concurrency)]
        bottom = self.series[Key(second, concurrency)]
        if top.boot != bottom.boot:
            return Paired(top.values(), bottom.values(), False)
        common = sorted(top.windows.keys() & bottom.windows.keys())
        return Paired([top.windows[r] for r in common], [bottom.windows[r] for r in common], True)

    def records(self) -> tuple[Measured, ...]:
        """For the verdict."""
        return tuple(
            Measured(
                policy=key.policy,
                concurrency=key.concurrency,
                windows_tok_s=tuple(series.values()),
                engine=series.kind,
            )
            for key, series in self.series.items()
        )

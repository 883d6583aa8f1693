"""Throughput windows by policy and concurrency, as they are collected."""

from collections.abc import Iterable, Mapping
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
        steps: how many steps were read, by batch size.
    """

    boot: str
    kind: EngineKind
    windows: dict[int, float] = field(default_factory=dict[int, float])
    lengths: set[int] = field(default_factory=set[int])
    steps: dict[int, int] = field(default_factory=dict[int, int])

    def values(self) -> list[float]:
        """The windows in the order of their rounds."""
        return [self.windows[number] for number in sorted(self.windows)]

    def note_steps(self, lengths: Iterable[int], steps: Mapping[int, int]) -> None:
        """Note the steps of one more window."""
        self.lengths |= set(lengths)
        for batch_size, count in steps.items():
            self.steps[batch_size] = self.steps.get(batch_size, 0) + count

    def copy(self) -> "Series":
        """One that grows by itself."""
        return Series(self.boot, self.kind, dict(self.windows), set(self.lengths), dict(self.steps))


class Paired(NamedTuple):
    """Windows of two policies; `paired` when entry i of both ran next to each other."""

    first: list[float]
    second: list[float]
    paired: bool


@dataclass
class Measurements:
    """All windows of a validation, those of later boots too.

    Attributes:
        series: what was measured.
        same: policies that were not measured at a concurrency, and the one whose windows are
            theirs: both use the same draft length at every batch size that can occur there.
    """

    series: dict[Key, Series] = field(default_factory=dict[Key, Series])
    same: dict[Key, str] = field(default_factory=dict[Key, str])

    def add(
        self, key: Key, round_number: int, rate_tok_s: float, boot: str, kind: EngineKind
    ) -> Series:
        """Note one window; the series it belongs to."""
        series = self.series.setdefault(key, Series(boot, kind))
        series.windows[round_number] = rate_tok_s
        return series

    def measured_as(self, policy: str, concurrency: int) -> str:
        """The policy whose windows are those of `policy`: mostly itself."""
        return self.same.get(Key(policy, concurrency), policy)

    def of(self, policy: str, concurrency: int) -> Series | None:
        """The windows of a policy; None where there are none."""
        return self.series.get(Key(self.measured_as(policy, concurrency), concurrency))

    def same_lengths(self, first: str, second: str, concurrency: int) -> bool:
        """Whether every step of both used one and the same draft length."""
        top, bottom = self.of(first, concurrency), self.of(second, concurrency)
        if top is None or bottom is None:
            return False
        return len(top.lengths) == 1 and top.lengths == bottom.lengths

    def concurrencies(self) -> list[int]:
        """The concurrencies measured, in rising order."""
        return sorted({key.concurrency for key in self.series})

    def policies(self, concurrency: int) -> list[str]:
        """The policies that have windows at one concurrency, their own or another's."""
        keys = dict.fromkeys([*self.same, *self.series])
        return [
            key.policy
            for key in keys
            if key.concurrency == concurrency and self.of(*key) is not None
        ]

    def steps_by_size(self) -> dict[int, dict[int, int]]:
        """How many steps each batch size had, by concurrency, over all policies."""
        found: dict[int, dict[int, int]] = {}
        for key, series in self.series.items():
            here = found.setdefault(key.concurrency, {})
            for batch_size, count in series.steps.items():
                here[batch_size] = here.get(batch_size, 0) + count
        return found

    def next_round(self, concurrency: int) -> int:
        """The number of the first round that nobody has played there."""
        rounds = [
            n for k, s in self.series.items() if k.concurrency == concurrency for n in s.windows
        ]
        return max(rounds, default=-1) + 1

    def since(self, first_round: int, concurrency: int) -> "Measurements":
        """Only the windows from that round on, of policies that have two of them or more."""
        later = Measurements(same=dict(self.same))
        for key, series in self.series.items():
            kept = {n: rate for n, rate in series.windows.items() if n >= first_round}
            if key.concurrency == concurrency and len(kept) >= 2:
                one = Series(series.boot, series.kind, kept, set(series.lengths))
                later.series[key] = one
        return later

    def pair(self, first: str, second: str, concurrency: int) -> Paired:
        """The windows of two policies, matched by round where they come from one boot.

        Raises:
            KeyError: one of them has none.
        """
        top = self.series[Key(self.measured_as(first, concurrency), concurrency)]
        bottom = self.series[Key(self.measured_as(second, concurrency), concurrency)]
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

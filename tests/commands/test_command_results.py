"""What a run's end shows fits a terminal."""

import pytest
from rich.console import Console

from tabletune.commands.console import TerminalProgress
from tabletune.commands.results import show_verdict
from tabletune.records.policy import CANDIDATE_BY_METRICS, INCUMBENT, NO_SPECULATION, fixed_policy
from tabletune.records.verdict import Margins, Ratio, Verdict

CONCURRENCIES = (1, 8, 32, 64, 128)
POLICIES = (INCUMBENT, NO_SPECULATION, CANDIDATE_BY_METRICS, fixed_policy(0), fixed_policy(12))


def verdict() -> Verdict:
    ratios = [
        Ratio(policy=policy, concurrency=c, ratio=1.0 + i / 1000, low=0.981, high=1.013 + c)
        for i, policy in enumerate(POLICIES)
        for c in CONCURRENCIES
    ]
    return Verdict(
        table_version="", fingerprint="", passed=True, reasons=("it is not worse",), measured=(),
        margins=Margins(), ratios=tuple(ratios), stock=None, wall_time_s=0.0, validated_at="",
    )  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_ratios_fit_and_are_all_there(width: int) -> None:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        show_verdict(verdict(), console)
    lines = captured.get().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= max(width, 60)
    text = "\n".join(lines)
    assert all(f" {c} open" in text for c in CONCURRENCIES)
    if width >= 80:
        for i, _ in enumerate(POLICIES):
            assert text.count(f"1.00{i} [0.981, ") == len(CONCURRENCIES)
    assert text.count("throughput of the table over") == 1


def test_progress_without_a_terminal_never_shows_more_than_the_whole() -> None:
    console = Console(width=80, force_terminal=False, highlight=False)
    with console.capture() as captured, TerminalProgress(console) as progress:
        progress.start("profile", total=10)
        progress.advance(25.0, "more work than foreseen")
    assert "%" not in captured.get()
    assert "more work than foreseen" in captured.get()

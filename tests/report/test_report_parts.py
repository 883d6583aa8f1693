"""Colours, labels, policies, differences and words."""

import itertools
from dataclasses import replace

import pytest
import report_sample
from hypothesis import given
from hypothesis import strategies as st

from tabletune.records.diff import diff_rows
from tabletune.records.table import table_from_dense
from tabletune.records.verdict import Margins, Ratio, Verdict
from tabletune.report.batch_axis import powers_up_to
from tabletune.report.policies import best_fixed, in_order, limit, read_policy, standing
from tabletune.report.spread import spread
from tabletune.report.text import duration, number, percent, plural, verdict_sentence
from tabletune.report.theme import Theme, VariablePalette, contrast


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("longest", [1, 4, 16])
def test_colours_read_well_and_follow_the_draft_length(longest: int, dark: bool) -> None:
    colours = {name: pair[dark] for name, pair in Theme(longest).colours.items()}
    paper = colours["paper"]
    assert contrast(colours["ink"], paper) > 12
    assert contrast(colours["muted"], paper) > 4.5
    strengths = [contrast(colours[f"k{k}"], paper) for k in range(1, longest + 1)]
    assert strengths == sorted(strengths)
    assert min(strengths) > 2.4
    for name, colour in colours.items():
        if name.endswith("-on"):
            assert contrast(colour, colours[name.removesuffix("-on")]) > 4.2, name


def test_placeholders_are_distinct_and_replaced() -> None:
    palette = VariablePalette(Theme(200))
    names = list(Theme(200).colours)
    assert len({palette[name] for name in names}) == len(names)
    assert palette.to_variables(f"fill: {palette['k7']}; stroke: #123456") == (
        "fill: var(--k7); stroke: #123456"
    )


@given(st.lists(st.floats(-100, 100), max_size=20), st.floats(0.01, 5))
def test_spread_keeps_order_and_gap(positions: list[float], gap: float) -> None:
    placed = spread(positions, gap)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    for left, right in itertools.pairwise(order):
        assert placed[right] - placed[left] >= gap - 1e-9


@given(st.lists(st.floats(0, 10), max_size=10), st.floats(0.01, 1))
def test_spread_stays_within_its_bounds(positions: list[float], gap: float) -> None:
    placed = spread(positions, gap, 0, 10)
    assert all(-1e-9 <= place <= 10 + 1e-9 for place in placed)
    ordered = sorted(placed)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(ordered))


def test_spread_leaves_distant_positions_alone() -> None:
    assert spread([3.0, 1.0, 9.0], 0.5) == [3.0, 1.0, 9.0]


@pytest.mark.parametrize(
    ("name", "kind", "length"),
    [
        ("candidate", "candidate", None),
        ("fixed-3", "fixed", 3),
        ("fixed-0", "fixed", 0),
        ("fixed-12", "fixed", 12),
        ("fixed", "other", None),
        ("fixed-x", "other", None),
        ("no_speculation", "no_speculation", None),
        ("incumbent", "incumbent", None),
        ("stock", "stock", None),
        ("candidate_by_metrics", "candidate_by_metrics", None),
        ("off_by_metrics", "off_by_metrics", None),
        ("rival 7b", "other", None),
    ],
)
def test_policies_are_read_from_their_names(name: str, kind: str, length: int | None) -> None:
    policy = read_policy(name)
    assert (policy.kind, policy.draft_length) == (kind, length)


def test_policies_have_an_order() -> None:
    names = ["no_speculation", "fixed-0", "fixed-4", "incumbent", "candidate"]
    ordered = [policy.name for policy in in_order(names)]
    assert ordered == ["candidate", "incumbent", "fixed-4", "fixed-0", "no_speculation"]


def verdict_of(ratios: tuple[Ratio, ...], passed: bool, *reasons: str) -> Verdict:
    return Verdict(table_version="", fingerprint="", passed=passed, reasons=reasons, measured=(),
                   margins=Margins(best_fixed=0.02, no_speculation=0.06), ratios=ratios,
                   stock=None, wall_time_s=0.0, validated_at="")  # fmt: skip


def ratio_of(policy: str, value: float, half: float = 0.0) -> Ratio:
    return Ratio(policy=policy, concurrency=8, ratio=value, low=value - half, high=value + half)


def test_the_best_fixed_length_has_the_lowest_ratio() -> None:
    ratios = (ratio_of("fixed-1", 1.2), ratio_of("fixed-3", 0.99), ratio_of("incumbent", 0.9))
    verdict = verdict_of(ratios, True)
    best = best_fixed(verdict, 8)
    assert best is not None
    assert best.policy == "fixed-3"
    assert best_fixed(verdict, 9) is None


def test_limits_and_standings_follow_the_margins() -> None:
    margins = verdict_of((), True).margins
    cases = [
        (ratio_of("fixed-1", 1.0, 0.01), 0.98, "holds"),
        (ratio_of("fixed-1", 0.98, 0.01), 0.98, "unclear"),
        (ratio_of("fixed-1", 0.95, 0.01), 0.98, "fails"),
        (ratio_of("incumbent", 0.95, 0.01), 0.97, "fails"),
        (ratio_of("no_speculation", 0.95, 0.01), 0.94, "holds"),
    ]
    for ratio, least, expected in cases:
        assert limit(margins, ratio) == pytest.approx(least)
        assert standing(margins, ratio) == expected
    assert limit(margins, ratio_of("stock", 0.5)) is None


def test_a_failed_verdict_in_one_sentence() -> None:
    full = report_sample.full_report()

    def sentence(*ratios: Ratio) -> str:
        return verdict_sentence(replace(full, verdict=verdict_of(ratios, False, "reason.")))

    short = sentence(ratio_of("fixed-1", 0.9), ratio_of("fixed-2", 0.95), ratio_of("fixed-3", 1.1))
    assert "at concurrency 8 it reaches 90.0% of the throughput of fixed K = 1" in short
    assert "98% are required. It falls short in 1 other comparison." in short
    noisy = sentence(ratio_of("fixed-1", 0.99, 0.05), ratio_of("fixed-2", 1.0, 0.13))
    assert noisy.endswith("too noisy to exclude a loss beyond 12%.")  # margin 2 %, slack 10 %
    within_slack = sentence(ratio_of("fixed-1", 0.99, 0.05))
    assert within_slack.endswith("promoted: reason.")
    assert sentence(ratio_of("fixed-1", 1.2)).endswith("promoted: reason.")


def test_changes_between_tables_of_different_sizes() -> None:
    old = table_from_dense([0, 3, 3, 1, 1], 3)
    new = table_from_dense([0, 3, 2, 2, 1, 0], 3)
    found = [(c.first, c.last, c.old_length, c.new_length) for c in diff_rows(old, new)]
    assert found == [(2, 2, 3, 2), (3, 3, 1, 2), (5, 5, None, 0)]
    assert list(diff_rows(old, old)) == []


def test_axis_ticks_end_at_the_largest_without_crowding() -> None:
    assert powers_up_to(1) == [1]
    assert powers_up_to(16) == [1, 2, 4, 8, 16]
    assert powers_up_to(80) == [1, 2, 4, 8, 16, 32, 80]
    assert powers_up_to(100) == [1, 2, 4, 8, 16, 32, 64, 100]


def test_numbers_in_words() -> None:
    assert [number(x) for x in (18_943.0, 42.14, 0.3118, 0.0, 999.6, float("nan"))] == [
        "18,900", "42.1", "0.312", "0", "1,000", "unknown",
    ]  # fmt: skip
    assert [duration(x) for x in (0.2, 57.3, 412.0, 3900.0)] == [
        "0.2 s", "57 s", "6 min 52 s", "1 h 5 min",
    ]  # fmt: skip
    assert [percent(x) for x in (1.034, 0.99, 1.0)] == ["+3.4%", "−1.0%", "±0.0%"]
    assert [plural(n, "policy", "policies") for n in (1, 2)] == ["1 policy", "2 policies"]

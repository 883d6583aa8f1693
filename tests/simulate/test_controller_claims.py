"""What the controller is meant to reach, in simulation: a small part of bench.controller_sim.

Shares are of the tuned table's throughput, by what each step takes on average (see
scenarios/score.py), from 20 s after the start or the switch. All of bench.controller_sim's
seeds and loads take minutes; here a few of each keep the claims from being lost unnoticed.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from bench.controller_cases import Case, run

Row = dict[str, Any]


@cache
def ran(group: str, load: str, seed: int, policy: str = "controller") -> Row:
    return run(Case(group, load, seed, policy))


def shares(row: Row) -> list[float]:
    return [window["share"] for window in row["windows"].values()]


def recovered(group: str, cases: Iterable[tuple[str, int]]) -> float:
    """(controller - stale) / (tuned - stale) over all windows; the tuned table's share is 1."""
    lost = won = 0.0
    for load, seed in cases:
        stale, ours = (shares(ran(group, load, seed, p)) for p in ("stale", "controller"))
        lost += sum(1 - share for share in stale)
        won += sum(ours) - sum(stale)
    return won / lost


@pytest.mark.parametrize("load", ["closed 4", "closed 32", "closed 64", "closed 128"])
@pytest.mark.parametrize("seed", [2, 7, 11])
def test_from_a_mistuned_table_at_least_98_percent_within_20_seconds(load: str, seed: int) -> None:
    assert min(shares(ran("mistuned", load, seed))) >= 0.98


def test_a_length_whose_first_probe_was_unlucky_gets_its_turn() -> None:
    """K = 2 is best here and its first probe says it is 5 % slower than it is; K = 1, a near tie
    that costs next to nothing to probe, must not take every turn after that."""
    assert min(shares(ran("mistuned", "closed 128", 43))) >= 0.985


@pytest.mark.parametrize("load", ["closed 64", "closed 128"])
def test_on_an_unquiet_host_a_nearly_right_table_is_hardly_left(load: str) -> None:
    assert min(shares(ran("unquiet host", load, 2))) >= 0.975


def test_the_mistuned_tables_tried_here_were_worth_leaving() -> None:
    stale = [
        shares(ran("mistuned", load, seed, "stale"))[0]
        for load in ("closed 4", "closed 32", "closed 64", "closed 128")
        for seed in (2, 7, 11)
    ]
    assert min(stale) < 0.75
    assert sum(share < 0.95 for share in stale) >= 4


def test_after_a_switch_of_traffic_most_of_the_loss_is_recovered() -> None:
    cases = [("closed 16", 1), ("closed 128", 1)]
    assert recovered("switch", cases) >= 0.93
    for load, seed in cases:
        assert min(shares(ran("switch", load, seed))) >= 0.99


def test_a_drafter_that_becomes_useless_is_left_and_taken_up_again() -> None:
    cases = [("closed 16", 1), ("closed 64", 1)]
    assert recovered("useless drafter", cases) >= 0.98


def test_most_of_what_a_wrong_profile_costs_is_recovered() -> None:
    cases = [("closed 4", 6), ("closed 16", 1), ("closed 32", 7), ("closed 64", 1)]
    assert recovered("mis-profiled", cases) >= 0.9


def test_steady_traffic_is_left_alone() -> None:
    row = ran("steady", "closed 16", 0)
    assert min(shares(row)) >= 0.99
    assert sum(at_s > 20 for at_s in row["swaps_at_s"]) <= 1
    _, lost = row["probing"]["steady"]
    assert lost <= 0.01


def test_a_run_repeats_exactly() -> None:
    case = Case("mis-profiled", "closed 64", 3, "controller")
    first, again = run(case), run(case)
    assert {k: v for k, v in first.items() if k != "cpu_s"} == {
        k: v for k, v in again.items() if k != "cpu_s"
    }

"""The gate: every rule, and what no evidence whatever may get past it."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabletune.maintain.edge_moves import edge_moves, largest_length_change
from tabletune.maintain.gates import (
    Candidate,
    GateDecision,
    Incumbent,
    gate,
    measured_gain,
    parse_moment,
)
from tabletune.maintain.policies import GatePolicy
from tabletune.records.table import Table, TableVersion, table_from_dense
from tabletune.records.verdict import Margins, StockCheck, Verdict
from tests.maintain.scenes import NOW, at, dense, pointer, verdict, version
from tests.store.world import FINGERPRINT, upgraded

OLD = version(3, 4, 1, 8, 0, 16)
NEW = version(3, 5, 1, 9, 0, 16)
FAR = version(3, 12, 0, 16)


def incumbent(of: TableVersion = OLD, **changes: Any) -> Incumbent:
    return Incumbent(pointer(of, **changes), of)


def decide(
    new: TableVersion = NEW,
    old: Incumbent | None = None,
    policy: GatePolicy | None = None,
    seen: Verdict | None = None,
    margins: Margins | None = None,
    **changes: Any,
) -> GateDecision:
    in_force = old.pointer.table_version if old else ""
    seen = seen or verdict(new, in_force, **changes)
    candidate = Candidate(new.content_hash, new, seen)
    return gate(policy or GatePolicy(), margins or Margins(), candidate, old, NOW)


def test_a_passing_verdict_promotes_the_first_table() -> None:
    assert decide().outcome == "promote"


def test_a_better_table_replaces_the_one_in_force() -> None:
    decision = decide(old=incumbent())
    assert decision.outcome == "promote"
    assert "+5.0%" in decision.reasons[0]
    assert dict(decision.numbers)["measured_gain"] == pytest.approx(0.05)


def test_a_gain_that_is_too_small_changes_nothing() -> None:
    decision = decide(old=incumbent(), gain=0.004)
    assert decision.outcome == "nothing_to_do"
    assert "+0.4%" in decision.reasons[0]


def test_the_same_lengths_under_the_same_fingerprint_change_nothing() -> None:
    again = version(3, 4, 1, 8, 0, 16, by="measured again")
    assert again.content_hash != OLD.content_hash
    assert decide(again, incumbent()).outcome == "nothing_to_do"


def test_an_upgrade_needs_no_gain() -> None:
    new = version(3, 4, 1, 8, 0, 16, fingerprint=upgraded())
    assert decide(new, incumbent(), gain=0.0).outcome == "promote"


def test_what_is_in_force_already_is_left_even_without_any_verdict() -> None:
    candidate = Candidate(OLD.content_hash, OLD, None)
    decision = gate(GatePolicy(), Margins(), candidate, incumbent(), NOW)
    assert decision.outcome == "nothing_to_do"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"passed": False, "reasons": ("5 % below K=1",)}, "the verdict failed: 5 % below"),
        ({"table_version": "a" * 64}, "the verdict is for table version aaaa"),
        ({"fingerprint": "b" * 64}, "measured under fingerprint bbbb"),
        ({"incumbent_version": "c" * 64}, "compared it with cccc"),
        ({"stock": None}, "no stock engine"),
        ({"margins": Margins(best_fixed=0.2)}, "allowed a margin best_fixed of 0.2"),
        ({"margins": Margins(slack=0.5)}, "allowed a margin slack"),
        ({"margins": Margins(confidence=0.8)}, "a confidence of 0.8"),
        ({"validated_at": at(-25)}, "25.0 h old"),
        ({"validated_at": at(+1)}, "in the future"),
        ({"validated_at": "yesterday"}, "no readable date"),
        ({"validated_at": "2026-06-01T02:00:00"}, "no readable date"),
    ],
)
def test_what_does_not_prove_it_is_refused(changes: dict[str, Any], reason: str) -> None:
    seen = (
        verdict(NEW, OLD.content_hash, **changes)
        if "incumbent_version" not in changes
        else (verdict(NEW, OLD.content_hash).model_copy(update=changes))
    )
    decision = decide(old=incumbent(), seen=seen)
    assert decision.outcome == "refuse"
    assert any(reason in found for found in decision.reasons), decision.reasons


def test_a_clock_that_is_a_little_ahead_is_forgiven() -> None:
    assert decide(old=incumbent(), hours=0.05).outcome == "promote"


def test_old_evidence_is_refused_however_fresh_the_verdict() -> None:
    old = version(3, 5, 1, 9, 0, 16, hours=-24 * 31)
    assert decide(old, incumbent()).outcome == "refuse"


def test_a_deployment_that_changed_meanwhile_is_refused() -> None:
    candidate = Candidate(NEW.content_hash, NEW, verdict(NEW))
    decision = gate(GatePolicy(), Margins(), candidate, None, NOW, upgraded().identity)
    assert decision.outcome == "refuse"
    assert FINGERPRINT.identity[:12] in decision.reasons[0]


def test_large_movements_ask_a_person() -> None:
    decision = decide(FAR, incumbent())
    assert decision.outcome == "ask"
    assert "batch sizes 5 and 13 (×2.6)" in decision.reasons[0]
    wide = GatePolicy(largest_edge_factor=3, largest_length_change=3)
    assert decide(FAR, incumbent(), wide).outcome == "promote"


def test_without_persons_to_ask_it_is_promoted_and_says_so() -> None:
    decision = decide(FAR, incumbent(), GatePolicy(approval="never"))
    assert decision.outcome == "promote"
    assert any("no person is asked" in reason for reason in decision.reasons)


@pytest.mark.parametrize("policy", [{"approval": "always"}, {"ask_first": True}])
def test_a_policy_may_always_ask(policy: dict[str, Any]) -> None:
    assert decide(policy=GatePolicy(**policy)).outcome == "ask"


def test_what_was_rolled_back_or_forced_by_hand_is_not_undone_unseen() -> None:
    back = {"action": "rollback", "sequence": 3, "verdict": "", "previous_pointer": "1" * 64}
    old = incumbent(**back, previous_version=NEW.content_hash)
    assert decide(old=old).outcome == "ask"
    assert decide(old=old, policy=GatePolicy(approval="never")).outcome == "refuse"
    assert decide(old=incumbent(action="force")).outcome == "ask"


def test_a_new_objective_needs_no_gain() -> None:
    limited = NEW.model_copy(
        update={"objective": "throughput_under_tpot_limit", "max_tpot_s": 0.03}
    )
    assert decide(limited, incumbent(), gain=-0.02).outcome == "promote"


# What holds for any evidence whatever.

tables = st.lists(st.sampled_from([0, 1, 3]), min_size=16, max_size=16).map(
    lambda lengths: version(*(part for b, k in enumerate(lengths, 1) for part in (k, b)))
)
hours = st.floats(-100, 5)
policies = st.builds(
    GatePolicy,
    least_gain=st.floats(0, 0.2),
    verdict_max_age_h=st.floats(0.1, 100),
    largest_edge_factor=st.floats(1, 20),
    largest_length_change=st.integers(0, 3),
    approval=st.sampled_from(["never", "when_large", "always"]),
    ask_first=st.booleans(),
    require_stock_check=st.booleans(),
)
all_margins = st.builds(
    Margins, best_fixed=st.floats(0, 0.1), incumbent=st.floats(0, 0.1), slack=st.floats(0, 0.2)
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Candidate, Incumbent | None, GatePolicy, Margins]:
    new = draw(tables)
    old = draw(st.none() | tables)
    action = draw(st.sampled_from(["promote", "force"]))
    known = Incumbent(pointer(old, action=action), old) if old else None
    compared = draw(st.sampled_from([old.content_hash if old else "", "d" * 64, ""]))
    passed = draw(st.booleans())
    about = draw(st.sampled_from([new.content_hash, new.content_hash, "e" * 64]))
    seen = draw(
        st.none()
        | st.builds(
            verdict,
            st.just(new),
            st.just(compared),
            gain=st.floats(-0.5, 0.5),
            hours=hours,
            table_version=st.just(about),
            passed=st.just(passed),
            reasons=st.just(() if passed else ("it lost",)),
            margins=all_margins,
            stock=st.none() | st.just(StockCheck(passed=True, evidence="")),
        )
    )
    return Candidate(new.content_hash, new, seen), known, draw(policies), draw(all_margins)


@settings(max_examples=300, deadline=None)
@given(situations())
def test_only_proof_gets_through(
    case: tuple[Candidate, Incumbent | None, GatePolicy, Margins],
) -> None:
    candidate, old, policy, margins = case
    decision = gate(policy, margins, candidate, old, NOW)
    assert decision.reasons
    in_force = old.pointer.table_version if old else ""
    if decision.outcome in ("promote", "ask"):
        seen = candidate.verdict
        assert seen is not None
        assert seen.passed
        assert seen.table_version == candidate.name != in_force
        assert seen.incumbent_version == in_force
        validated = parse_moment(seen.validated_at)
        assert validated is not None
        age = NOW - validated
        assert -timedelta(seconds=301) <= age <= timedelta(hours=policy.verdict_max_age_h)
        assert seen.stock is not None or not policy.require_stock_check
        assert seen.margins.best_fixed <= margins.best_fixed
        gain = measured_gain(candidate, old)
        assert gain is None or gain >= policy.least_gain
    if decision.outcome == "promote" and policy.approval != "never":
        assert policy.approval != "always"
        assert old is None or all(
            move.factor <= policy.largest_edge_factor
            for move in edge_moves(old.version.table, candidate.version.table)
        )
    if in_force == candidate.name:
        assert decision.outcome == "nothing_to_do"


@settings(max_examples=200, deadline=None)
@given(situations())
def test_a_stricter_policy_never_lets_more_through(
    case: tuple[Candidate, Incumbent | None, GatePolicy, Margins],
) -> None:
    candidate, old, policy, margins = case
    strict = policy.model_copy(
        update={
            "least_gain": policy.least_gain + 0.05,
            "verdict_max_age_h": policy.verdict_max_age_h / 2,
            "largest_edge_factor": max(1.0, policy.largest_edge_factor / 2),
            "largest_length_change": max(0, policy.largest_length_change - 1),
            "require_stock_check": True,
            "ask_first": True,
        }
    )
    openness = {"promote": 2, "ask": 1, "refuse": 0, "nothing_to_do": 0}
    before = gate(policy, margins, candidate, old, NOW).outcome
    after = gate(strict, margins, candidate, old, NOW).outcome
    assert openness[after] <= openness[before]


@settings(max_examples=200, deadline=None)
@given(situations(), st.floats(0, 1000))
def test_time_alone_never_makes_a_refused_table_pass(
    case: tuple[Candidate, Incumbent | None, GatePolicy, Margins], later_h: float
) -> None:
    candidate, old, policy, margins = case
    seen = candidate.verdict
    if seen is not None and seen.validated_at > at(0):
        return  # dated in the future: there waiting is the cure
    before = gate(policy, margins, candidate, old, NOW)
    after = gate(policy, margins, candidate, old, NOW + timedelta(hours=later_h))
    if before.outcome == "refuse":
        assert after.outcome == "refuse"


def table(*lengths_and_ends: int) -> Table:
    return table_from_dense(dense(*lengths_and_ends), 3)


def test_edges_of_falling_tables_move_exactly() -> None:
    (move,) = edge_moves(table(3, 4, 1, 8, 0, 16), table(3, 4, 1, 15, 0, 16))
    assert (move.draft_length, move.from_batch_size, move.to_batch_size) == (1, 9, 16)


@settings(max_examples=200, deadline=None)
@given(tables, tables)
def test_edge_movements_are_the_same_both_ways_and_none_between_equals(
    left: TableVersion, right: TableVersion
) -> None:
    old, new = left.table, right.table
    assert edge_moves(old, new) == edge_moves(new, old)
    assert all(move.factor > 1 for move in edge_moves(old, new))
    assert (edge_moves(old, new) == ()) == (old.dense() == new.dense())
    assert (largest_length_change(old, new) == 0) == (old.dense() == new.dense())

"""Counts, profiles, qualifications, verdicts and pointers refuse what contradicts itself."""

import json
from typing import Any

import pytest

from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.base import RecordError
from tabletune.records.pointer import Pointer
from tabletune.records.qualification import Check
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.verdict import Margins, Measured, Ratio, StockCheck, Verdict

AT = "2026-01-01T00:00:00+00:00"
A, B, C = ("a" * 64, "b" * 64, "c" * 64)


@pytest.mark.parametrize(
    ("drafted", "accepted", "steps", "reason"),
    [
        ((5, 4), (5,), 9, "2 drafted but 1 accepted"),
        ((5, 4), (3, 5), 9, "exceeds drafted"),
        ((5, 4), (3, -1), 9, "exceeds drafted"),
        ((4, 5), (3, 3), 9, "drafted_through .* must not rise"),
        ((5, 5), (3, 4), 9, "accepted_through .* must not rise"),
        ((5, 4), (3, 2), 4, "5 drafted in only 4 request-steps"),
        ((), (), -1, "greater than or equal to 0"),
    ],
)
def test_counts_that_cannot_be_are_refused(
    drafted: tuple[int, ...], accepted: tuple[int, ...], steps: int, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        PositionCounts(drafted_through=drafted, accepted_through=accepted, request_steps=steps)


def test_all_lengths_zero_leaves_counts_of_nothing() -> None:
    PositionCounts(drafted_through=(0, 0), accepted_through=(0, 0), request_steps=7)
    PositionCounts(drafted_through=(), accepted_through=(), request_steps=0)


def test_a_prior_has_no_positions_beyond_its_draft() -> None:
    counts = PositionCounts(drafted_through=(5, 4), accepted_through=(3, 2), request_steps=5)
    fields: dict[str, Any] = {
        "fingerprint": A,
        "draft_length": 1,
        "source": "measured",
        "prompt_count": 1,
        "prompts_hash": B,
        "wall_time_s": 1.0,
        "measured_at": AT,
    }
    with pytest.raises(ValueError, match="2 positions from drafts of 1"):
        AcceptancePrior(counts=counts, **fields)
    fields["draft_length"] = 2
    AcceptancePrior(counts=counts, **fields)
    with pytest.raises(ValueError, match="by_batch_size"):
        AcceptancePrior(counts=counts, by_batch_size={"eight": counts}, **fields)


def cell(**changes: Any) -> Cell:
    fields: dict[str, Any] = {
        "batch_size": 4,
        "draft_length": 2,
        "samples_s": (0.01,),
        "scheduled_tok": 12.0,
        "context_tok": 100.0,
    }
    return Cell(**(fields | changes))


def test_a_cell_has_samples_or_says_why_not() -> None:
    with pytest.raises(ValueError, match="b=4 K=2 has no samples"):
        cell(samples_s=())
    with pytest.raises(ValueError, match="rejected without a problem"):
        cell(status="rejected")
    assert cell(status="rejected", samples_s=(-0.1,), problem="negative").samples_s == (-0.1,)


def test_a_profile_has_each_cell_once_and_lists_what_was_measured() -> None:
    fields: dict[str, Any] = {
        "fingerprint": A,
        "plan": B,
        "method": "in_engine",
        "step_kind": "constant",
        "prompt_tok": 8,
        "context_tok": 384,
        "wall_time_s": 1.0,
        "measured_at": AT,
    }
    with pytest.raises(ValueError, match="appears twice"):
        Profile(cells=(cell(), cell()), **fields)
    rejected = cell(batch_size=64, draft_length=4, status="rejected", problem="noisy")
    profile = Profile(cells=(cell(batch_size=8), cell(), rejected), **fields)
    assert profile.batch_sizes == (4, 8)
    assert profile.lengths == (2,)


def test_a_check_that_failed_says_how() -> None:
    with pytest.raises(ValueError, match="passed and yet has the fault 'stall'"):
        Check(name="x", batch_size=1, draft_length=1, passed=True, fault="stall")
    with pytest.raises(ValueError, match="failed without a fault or evidence"):
        Check(name="x", batch_size=1, draft_length=1, passed=False)


def verdict(**changes: Any) -> Verdict:
    fields: dict[str, Any] = {
        "table_version": A,
        "fingerprint": B,
        "passed": True,
        "reasons": (),
        "margins": Margins(),
        "measured": (),
        "ratios": (),
        "stock": None,
        "wall_time_s": 1.0,
        "validated_at": AT,
    }
    return Verdict(**(fields | changes))


def test_a_verdict_does_not_contradict_itself() -> None:
    broken = StockCheck(passed=False, evidence="K stayed 3")
    with pytest.raises(ValueError, match="stock engine did not follow"):
        verdict(stock=broken)
    with pytest.raises(ValueError, match="fails without a reason"):
        verdict(passed=False)
    assert not verdict(passed=False, stock=broken, reasons=("stock",)).passed


def test_a_ratio_and_a_throughput_are_plausible() -> None:
    with pytest.raises(ValueError, match="upside down"):
        Ratio(policy="x", concurrency=1, ratio=1.0, low=1.1, high=0.9)
    with pytest.raises(ValueError, match="windows_tok_s"):
        Measured(policy="x", concurrency=1, windows_tok_s=(1.0, -1.0))


@pytest.mark.parametrize("margin", [-0.1, 1.0, float("nan")])
def test_margins_are_fractions(margin: float) -> None:
    with pytest.raises(ValueError, match="best_fixed"):
        Margins(best_fixed=margin)


def test_a_verdict_without_its_slack_had_that_of_its_time() -> None:
    """Format 1 did not name it; every verdict was judged with 0.10."""
    fields = json.loads(verdict(margins=Margins(slack=0.05)).to_json())
    assert fields["margins"].pop("slack") == 0.05
    old = json.dumps(fields | {"format_version": 1}).encode()
    assert Verdict.from_json(old).margins == Margins(slack=0.10)
    with pytest.raises(RecordError, match="no valid format_version 1"):
        Verdict.from_json(json.dumps(fields | {"format_version": 1, "margins": 3}).encode())


def pointer(**changes: Any) -> Pointer:
    fields: dict[str, Any] = {
        "channel": "live",
        "sequence": 2,
        "table_version": A,
        "fingerprint": B,
        "verdict": C,
        "action": "promote",
        "previous_version": B,
        "previous_pointer": C,
        "moved_at": AT,
        "moved_by": "test",
        "reason": "a test",
    }
    return Pointer(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"verdict": ""}, "needs the hash of its passing verdict"),
        ({"action": "rollback"}, "has no verdict"),
        ({"sequence": 1}, "state 1 has neither"),
        ({"previous_pointer": ""}, "every later one both"),
        ({"signed_by": "0" * 16}, "a signed pointer has both"),
        ({"signature": "A" * 86 + "=="}, "a signed pointer has both"),
        ({"previous_version": ""}, "every later one both"),
        ({"table_version": "latest"}, "table_version"),
        ({"verdict": "yes"}, "verdict"),
        ({"table_version": A.upper()}, "table_version"),
        ({"table_version": A + "\n"}, "table_version"),
        ({"sequence": 0}, "sequence"),
    ],
)
def test_a_pointer_that_contradicts_itself_is_refused(changes: dict[str, Any], reason: str) -> None:
    pointer()
    with pytest.raises(ValueError, match=reason):
        pointer(**changes)


@pytest.mark.parametrize(
    "channel", ["", "Live", "../x", "a/b", "a.b", "1st", "-x", "a" * 64, "live\n", "é", "a\0"]
)
def test_a_channel_name_is_never_a_path(channel: str) -> None:
    with pytest.raises(ValueError, match="channel"):
        pointer(channel=channel)

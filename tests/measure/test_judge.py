import numpy as np
import pytest

from tabletune.measure.judge import Comparison, compare, judge, undisturbed
from tabletune.measure.measurements import Key, Measurements, Paired
from tabletune.records.policy import (
    CANDIDATE,
    CANDIDATE_BY_METRICS,
    INCUMBENT,
    NO_SPECULATION,
    OFF_BY_METRICS,
    fixed_length,
    fixed_policy,
)
from tabletune.records.verdict import Margins

SLACK = 0.10


def comparison(ratio, low, high, policy="fixed-2", **fields):
    return Comparison(policy, 8, ratio, low, high, 0.97, 12, **fields)


@pytest.mark.parametrize(
    ("ratio", "low", "high", "standing", "passes"),
    [
        (1.00, 0.98, 1.02, "holds", True),
        (0.98, 0.97, 0.99, "holds", True),
        (0.98, 0.96, 1.00, "unclear", True),
        (0.96, 0.94, 0.98, "unclear", False),
        (0.95, 0.93, 0.969, "fails", False),
        (1.00, 0.86, 1.16, "unclear", False),  # may be 14 % worse: too noisy to pass
        (0.97, 0.87, 1.07, "unclear", True),
    ],
)
def test_what_passes(ratio, low, high, standing, passes):
    found = comparison(ratio, low, high)
    assert found.standing == standing
    assert found.passes(SLACK) is passes
    assert judge([found], SLACK).passed is passes


def test_one_failure_anywhere_fails_the_whole():
    good = [comparison(1.0, 0.99, 1.01, policy=f"fixed-{k}") for k in range(4)]
    assert judge(good, SLACK).passed
    bad = judge([*good, comparison(0.9, 0.88, 0.92, policy="fixed-4")], SLACK)
    assert not bad.passed
    assert bad.reasons == (
        "concurrency 8: 90.0%, 88.0% to 92.0% of the throughput of fixed draft length 4, below "
        "the 97% asked for",
    )
    with pytest.raises(ValueError, match="at least one comparison"):
        judge([], SLACK)


def test_reasons_say_what_was_unclear_and_what_too_noisy():
    unclear = judge([comparison(0.98, 0.96, 1.0, policy=fixed_policy(0))], SLACK)
    assert "draft off (K = 0) stayed unclear after 12 windows" in unclear.reasons[1]
    noisy = judge([comparison(1.0, 0.86, 1.16)], SLACK)
    assert "too noisy to exclude a loss beyond 13%" in noisy.reasons[0]
    lucky = judge([comparison(0.96, 0.94, 0.98, same_lengths=True)], SLACK)
    assert lucky.passed
    assert "decided by both using the same draft lengths" in lucky.reasons[1]
    near = judge([comparison(0.96, 0.94, 0.98, policy=INCUMBENT)], SLACK)
    assert "the incumbent table, below the 97% asked for, though not clearly" in near.reasons[0]
    same = judge([comparison(0.9, 0.89, 0.91, same_lengths=True)], SLACK)
    assert "with the same draft lengths: something else differs" in same.reasons[0]


def test_names():
    assert [fixed_length(p) for p in (fixed_policy(3), "fixed-x", CANDIDATE)] == [3, None, None]


def added(found: Measurements, policy: str, rates, boot="a", kind="measured") -> None:
    for number, rate in enumerate(rates):
        found.add(Key(policy, 4), number, rate, boot, kind)


def test_each_policy_has_its_margin_and_its_instrument():
    found = Measurements()
    rng = np.random.default_rng(1)
    means = {CANDIDATE: 100, INCUMBENT: 100, "fixed-0": 80, "fixed-1": 50, "fixed-2": 200}
    for policy, mean in means.items():
        added(found, policy, mean * (1 + 0.01 * rng.standard_normal(8)))
    added(found, CANDIDATE_BY_METRICS, 90 + np.arange(4) / 10)
    added(found, OFF_BY_METRICS, 63 + np.arange(4) / 10, "both")
    added(found, NO_SPECULATION, 60 + np.arange(4) / 10, "both", "no_speculation")
    by_policy = {c.policy: c for c in compare(found, 4, Margins(), rng)}
    assert list(by_policy) == ["fixed-0", "fixed-1", "fixed-2", INCUMBENT, NO_SPECULATION]
    assert by_policy["fixed-1"].ratio == pytest.approx(2.0, rel=0.02)
    assert by_policy["fixed-2"].standing == "fails"
    plain = by_policy[NO_SPECULATION]
    assert plain.ratio == pytest.approx(by_policy["fixed-0"].ratio * 63.15 / 60.15)
    assert [f.ratio for f in plain.factors] == [
        pytest.approx(by_policy["fixed-0"].ratio),
        pytest.approx(63.15 / 60.15),
    ]
    assert plain.bound == 0.95


def test_stalls_of_the_machine_tell_nothing_of_policies_that_never_draft():
    off, plain = [2.6, 58.9, 63.2, 77.2, 69.3], [81.4, 71.2, 68.4, 76.3, 30.0]
    kept = undisturbed(Paired(off, plain, True))
    assert kept == Paired([58.9, 63.2, 77.2], [71.2, 68.4, 76.3], True)
    kept = undisturbed(Paired(off, plain, False))
    assert kept == Paired([58.9, 63.2, 77.2, 69.3], [81.4, 71.2, 68.4, 76.3], False)
    for few in (Paired([1.0, 70.0], [70.0, 70.0], True), Paired([5.0, 70.0, 5.0], [7.0] * 3, True)):
        assert len(undisturbed(few).first) >= 2
    quiet = Paired([70.0, 71.0, 69.0], [70.0, 72.0, 71.0], True)
    assert undisturbed(quiet) == quiet


def test_without_off_by_metrics_nothing_leads_to_no_speculation():
    found, rng = Measurements(), np.random.default_rng(1)
    for policy in (CANDIDATE, "fixed-0", CANDIDATE_BY_METRICS, NO_SPECULATION):
        added(found, policy, [50.0, 51.0, 52.0])
    assert [c.policy for c in compare(found, 4, Margins(), rng)] == ["fixed-0"]


def test_the_reasons_say_how_a_ratio_was_obtained():
    found, rng = Measurements(), np.random.default_rng(1)
    added(found, CANDIDATE, [100.0, 100.0, 100.0])
    added(found, "fixed-0", [80.0, 80.0, 80.0])
    added(found, OFF_BY_METRICS, [81.0, 81.0, 81.0], "b")
    added(found, NO_SPECULATION, [90.0, 90.0, 90.0], "b", "no_speculation")
    found.same[Key("fixed-2", 4)] = CANDIDATE
    found.same[Key(INCUMBENT, 4)] = "fixed-0"
    reasons = judge(compare(found, 4, Margins(), rng), SLACK).reasons
    assert reasons == (
        "concurrency 4: the table is not worse than any policy beyond its margin; the closest is "
        "fixed draft length 2: 100.0%, 100.0% to 100.0% of its throughput; here the table is fixed "
        "draft length 2 itself: a ratio of 1, not measured",
        "concurrency 4: the ratio to an engine without speculation is the table over K = 0 by "
        "steps, 125.0% (125.0% to 125.0%), times K = 0 over it by metrics, 90.0% (90.0% to 90.0%)",
    )


def test_what_is_identical_holds_without_windows():
    found, rng = Measurements(), np.random.default_rng(1)
    added(found, CANDIDATE, [100.0, 50.0])
    found.same[Key("fixed-3", 4)] = CANDIDATE
    (only,) = compare(found, 4, Margins(), rng)
    assert (only.ratio, only.low, only.high, only.windows) == (1, 1, 1, 0)
    assert only.identical
    assert only.standing == "holds"
    assert compare(found, 5, Margins(), rng) == []


def test_pairing_by_round_cancels_drift_and_boots_are_not_paired():
    found, rng = Measurements(), np.random.default_rng(2)
    for i in range(8):
        speed = 100 * (1 + 0.3 * np.sin(i))
        found.add(Key(CANDIDATE, 4), i, speed, "a", "measured")
        found.add(
            Key("fixed-1", 4), i, speed * (1 + 0.002 * rng.standard_normal()), "a", "measured"
        )
        found.add(Key("fixed-2", 4), i, speed, "b", "measured")
    by_policy = {c.policy: c for c in compare(found, 4, Margins(), rng)}
    assert by_policy["fixed-1"].high - by_policy["fixed-1"].low < 0.01
    assert by_policy["fixed-2"].high - by_policy["fixed-2"].low > 0.2
    found.add(Key(CANDIDATE, 4), 8, 1.0, "a", "measured")  # a round that the other lacks
    assert (
        found.pair(CANDIDATE, "fixed-1", 4).first == found.pair(CANDIDATE, "fixed-2", 4).first[:8]
    )

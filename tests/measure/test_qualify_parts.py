"""The pure parts of qualification: walks, envelopes, divergence, the choice between plans."""

import itertools
import pathlib
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.measure.engine_errors import EngineNotStarted, NoRoomForLog
from tabletune.measure.progress import Silent
from tabletune.measure.qualify_cells import CellStatistics
from tabletune.measure.qualify_envelope import build_envelope, passed_sizes, ranges_of
from tabletune.measure.qualify_fallback import NothingQualified, qualify_with_fallback
from tabletune.measure.qualify_findings import Finding
from tabletune.measure.qualify_options import QualifyOptions, spread
from tabletune.measure.qualify_output import Divergence, compare_outputs, differs_too_much
from tabletune.measure.qualify_result import QualificationResult
from tabletune.measure.qualify_walk import all_switches, back_and_forth, rotated, schedule
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.qualification import Check, Qualification

lengths_sets = st.sets(st.integers(0, 16), min_size=1, max_size=9)


@given(lengths_sets)
def test_the_walk_takes_each_ordered_pair_once(lengths):
    walk = all_switches(list(lengths))
    pairs = list(itertools.pairwise(walk))
    assert sorted(pairs) == sorted(itertools.permutations(lengths, 2))
    assert walk[0] == walk[-1]


def test_a_walk_needs_a_length():
    with pytest.raises(ValueError, match="at least one draft length"):
        all_switches([])


@given(lengths_sets, st.integers(0, 40))
def test_rotation_keeps_the_lengths(lengths, turn):
    assert sorted(rotated(list(lengths), turn)) == sorted(lengths)


def test_schedules_merge_repeats_and_walk_pairs_back_and_forth():
    walk = back_and_forth([(2, 1), (1, 4)], 2)
    assert walk == [2, 1, 2, 1, 1, 4, 1, 4]
    assert schedule(walk, 3) == [(2, 3), (1, 3), (2, 3), (1, 6), (4, 3), (1, 3), (4, 3)]


@given(st.sets(st.integers(1, 60)))
def test_ranges_hold_exactly_the_sizes(sizes):
    ranges = ranges_of(sizes)
    assert {b for first, last in ranges for b in range(first, last + 1)} == sizes
    assert all(b + 1 < c for (_, b), (c, _) in itertools.pairwise(ranges))


@given(st.sets(st.integers(1, 40), min_size=1), st.data())
def test_untried_sizes_pass_only_between_sizes_that_passed(tried, data):
    stalled = data.draw(st.sets(st.sampled_from(sorted(tried))))
    passed = passed_sizes(tried, stalled, 40)
    assert passed & tried == tried - stalled
    for size in set(range(1, 41)) - tried:
        lower = max((b for b in tried if b < size), default=None)
        upper = min((b for b in tried if b > size), default=None)
        known = [b for b in (lower, upper) if b is not None]
        assert (size in passed) == (not set(known) & stalled)


def test_every_fault_is_left_out_and_named():
    cells = {(b, k) for b in range(1, 9) for k in (0, 1, 2, 3)}
    switches = {pair: {4} for pair in itertools.permutations((0, 1, 2, 3), 2) if pair != (3, 1)}
    findings = [
        Finding("stall", 5, 1, "slow"),
        Finding("stall", 8, 0, "slow switch", previous_length=2),
        Finding("output", 4, 3, "other text"),
    ]
    envelope, words = build_envelope(findings, cells, switches, (0, 1, 2, 3), 8)
    assert envelope.allowed == {
        "0": ((1, 8),),
        "1": ((1, 4), (6, 8)),
        "2": ((1, 8),),
        "3": (),
    }
    assert envelope.forbidden_transitions == ((2, 0),)
    assert len(words) == 3


def test_a_switch_never_seen_is_forbidden():
    cells = {(b, k) for b in range(1, 9) for k in (0, 2)}
    envelope, _ = build_envelope([], cells, {(0, 2): {1}}, (0, 2), 8)
    assert envelope.forbidden_transitions == ((2, 0),)


def test_a_length_never_seen_is_not_trusted():
    envelope, words = build_envelope([], {(1, 0), (8, 0)}, {}, (0, 2), 8)
    assert envelope.allowed == {"0": ((1, 8),), "2": ()}
    assert "draft length 2" in words[0]


def test_divergence_counts_equal_tokens_up_to_the_first_other_one():
    found = compare_outputs([[1, 2, 3, 4], [1, 2]], [[1, 2, 9, 4], [1, 2, 7]])
    assert found == Divergence(prompts=2, diverged=1, matched_tok=4)


def test_late_divergence_as_from_near_ties_is_tolerated():
    own = Divergence(12, 1, 400)
    assert not differs_too_much(own, Divergence(8, 4, 220))
    assert not differs_too_much(own, Divergence(8, 1, 2))
    assert differs_too_much(own, Divergence(8, 8, 20))
    # Where length 0 itself is that unstable, nothing can be held against another length.
    assert not differs_too_much(Divergence(12, 12, 60), Divergence(8, 8, 20))


@pytest.mark.parametrize(("largest", "most"), [(16, 6), (128, 200), (1024, 60), (1, 6)])
def test_spread_reaches_from_one_to_the_largest(largest, most):
    sizes = spread(largest, most, (1, largest // 2 or 1, largest))
    assert sizes[0] == 1
    assert sizes[-1] == largest
    assert len(sizes) <= min(most + 3, largest)
    assert largest // 2 in sizes or largest == 1


def test_options_follow_the_pace():
    fast = QualifyOptions.for_step_time(0.014, 128, (0, 1, 2, 3, 4), "constant")
    slow = QualifyOptions.for_step_time(0.2, 16, (0, 1, 2, 3, 4), "mixed")
    assert fast.sweep_batch_sizes == tuple(range(1, 129))
    assert fast.walk_batch_sizes == (1, 64, 128)
    assert len(slow.sweep_batch_sizes) <= 9
    assert slow.walk_repeats == 1


def plan(mode: str) -> CapturePlan:
    return CapturePlan(
        graph_mode=mode,
        capture_sizes=(1, 2, 4),
        lengths=(0, 1),
        max_draft_length=1,
        max_num_seqs=2,
        graph_count=6,
    )


def result_of(fault: str | None, step_s: float = 0.01) -> QualificationResult:
    fatal = fault in ("crash", "hang")
    check = Check(
        name="draft length 1 at batch size 2",
        batch_size=2,
        draft_length=1,
        passed=fault is None,
        fault=fault,
        evidence="as seen",
    )
    last = ((1, 1),) if fault == "stall" else ((1, 2),)
    return QualificationResult(
        checks=(check,),
        envelope=Envelope(allowed={} if fatal else {"0": ((1, 2),), "1": last}),
        excluded=() if fault is None else ("draft length 1 at batch size 2",),
        cells=(CellStatistics(1, 0, step_s, 9), CellStatistics(2, 1, 1.5 * step_s, 9)),
        slowest=(),
        max_num_seqs=2,
        wall_time_s=1.0,
    )


class Boots:
    """Hands out a result per graph mode; remembers which engines were started and stopped."""

    def __init__(self, results):
        self.results, self.events = results, []

    @contextmanager
    def boot(self, tried):
        self.events.append(f"start {tried.graph_mode}")
        if self.results[tried.graph_mode] is None:
            raise EngineNotStarted("no such GPU")
        try:
            yield tried.graph_mode
        finally:
            self.events.append(f"stop {tried.graph_mode}")

    def choose(self):
        plans = [plan(mode) for mode in self.results]
        return qualify_with_fallback(plans, self.boot, lambda e, p: self.results[e], Silent())


def test_the_first_clean_plan_ends_the_search():
    boots = Boots({"FULL": result_of(None), "PIECEWISE": result_of(None)})
    chosen = boots.choose()
    assert chosen.plan.graph_mode == "FULL"
    assert boots.events == ["start FULL", "stop FULL"]
    record = chosen.record("f" * 64, "2030-01-01T00:00:00+00:00")
    assert Qualification.from_json(record.to_json()) == record


def test_a_crash_leads_to_the_next_safer_plan():
    boots = Boots({"FULL_AND_PIECEWISE": result_of("crash"), "FULL": result_of(None)})
    chosen = boots.choose()
    assert chosen.plan.graph_mode == "FULL"
    assert [a.passed for a in chosen.attempts] == [False, True]
    assert "crash: as seen" in chosen.attempts[0].reason


@pytest.mark.parametrize(("safer_step_s", "chosen_mode"), [(0.02, "FULL"), (0.005, "PIECEWISE")])
def test_a_stall_asks_for_another_plan_and_the_faster_is_taken(safer_step_s, chosen_mode):
    boots = Boots({"FULL": result_of("stall"), "PIECEWISE": result_of(None, safer_step_s)})
    chosen = boots.choose()
    assert chosen.plan.graph_mode == chosen_mode
    assert len(chosen.attempts) == 2


def test_changed_output_is_not_cured_by_another_plan():
    boots = Boots({"FULL": result_of("output"), "PIECEWISE": result_of(None)})
    assert boots.choose().plan.graph_mode == "FULL"
    assert len(boots.events) == 2


def test_nothing_qualified_says_what_was_tried():
    boots = Boots({"FULL": None, "PIECEWISE": result_of("hang")})
    with pytest.raises(NothingQualified) as caught:
        boots.choose()
    text = str(caught.value)
    assert "graph mode FULL, draft lengths 0, 1, 3 capture sizes" in text
    assert "no such GPU" in text
    assert "hang: as seen" in text
    record = caught.value.record("f" * 64, "2030-01-01T00:00:00+00:00")
    assert record is not None
    assert record.envelope.allowed == {}
    assert len(record.attempts) == 2


def test_no_shared_cell_keeps_the_plan_expected_to_be_faster():
    bare = result_of("stall")
    other = QualificationResult(**{**bare.__dict__, "cells": ()})
    boots = Boots({"FULL": other, "PIECEWISE": result_of(None)})
    assert boots.choose().plan.graph_mode == "FULL"


def test_a_full_disk_is_no_plans_fault():
    class FullDisk(Boots):
        @contextmanager
        def boot(self, tried):
            self.events.append(f"start {tried.graph_mode}")
            raise NoRoomForLog(pathlib.Path("engine.log"), "No space left on device")
            yield

    boots = FullDisk({"FULL": result_of(None), "PIECEWISE": result_of(None)})
    with pytest.raises(NoRoomForLog):
        boots.choose()
    assert boots.events == ["start FULL"]

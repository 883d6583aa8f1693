"""The table builder: the paper's rules, limits, forbidden lengths and transitions."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.errors import CoreError, NoTableError
from tabletune.core.goodput import expected_tokens
from tabletune.core.surface import StepTimeSurface
from tabletune.core.table import BuildOptions, BuiltTable, build_table, predicted_loss

from .strategies import exact, surfaces, survivals


def _tokens(values: np.ndarray) -> np.ndarray:
    return expected_tokens(values)


def _size(surface: StepTimeSurface) -> int:
    return surface.measured(surface.draft_lengths[0])[-1]


def _flat(times: dict[int, float], size: int) -> StepTimeSurface:
    """A surface whose step time depends on the draft length only."""
    return StepTimeSurface.from_cells(
        {(b, k): exact(t) for k, t in times.items() for b in (1, size)}
    )


def _check_tiling(table: BuiltTable, size: int) -> None:
    rows = table.as_rows()
    assert rows[0][0] == 1
    assert rows[-1][1] == size == table.max_batch_size
    assert all(first <= last for first, last, _ in rows)
    for (_, last, k), (first, _, k2) in pairwise(rows):
        assert first == last + 1
        assert k != k2
    assert len(table.draft_lengths) == size


@given(surfaces(), survivals(size=5))
def test_tables_cover_every_batch_size_once(surface: StepTimeSurface, s: np.ndarray) -> None:
    size = _size(surface)
    _check_tiling(build_table(surface, _tokens(s), size), size)


@given(surfaces(), survivals(size=5), st.sampled_from([0.5, 2.0, 4.0, 1024.0]))
def test_scaling_every_step_time_changes_nothing(surface, s, factor: float) -> None:
    size = _size(surface)
    scaled = StepTimeSurface.from_cells(
        {
            (b, k): exact(surface.step_time_s(b, k) * factor)
            for k in surface.draft_lengths
            for b in range(1, size + 1)
        }
    )
    one, other = (build_table(x, _tokens(s), size) for x in (surface, scaled))
    assert one.as_rows() == other.as_rows()
    assert one.merges == other.merges


@given(surfaces(), survivals(size=5), st.floats(0, 0.1))
def test_without_merging_the_loss_is_at_most_a_near_tie(surface, s, near_tie: float) -> None:
    options = BuildOptions(near_tie=near_tie, narrow_share=0.0)
    table = build_table(surface, _tokens(s), _size(surface), options)
    assert table.merges == ()
    assert predicted_loss(table, surface, _tokens(s)).max() <= near_tie + 1e-12


@given(surfaces(), survivals(size=5))
def test_merging_costs_no_more_than_it_says(surface, s) -> None:
    table = build_table(surface, _tokens(s), _size(surface))
    loss = predicted_loss(table, surface, _tokens(s))
    bound = np.full(loss.size, 0.01)
    for merge in table.merges:
        part = slice(merge.first - 1, merge.last)
        bound[part] = np.maximum(bound[part], merge.worst_loss)
    assert np.all(loss <= bound + 1e-12)


@given(surfaces(), survivals(size=5))
def test_no_narrow_range_is_left(surface, s) -> None:
    table = build_table(surface, _tokens(s), _size(surface))
    assert len(table.ranges) == 1 or all(
        r.last - r.first + 1 >= 0.25 * r.first for r in table.ranges
    )


@given(surfaces(), survivals(size=5))
def test_each_edge_gains_more_than_a_near_tie_where_it_lies(surface, s) -> None:
    """Without merging: just above an edge the length left behind loses over 1 %."""
    table = build_table(surface, _tokens(s), _size(surface), BuildOptions(narrow_share=0.0))
    for before, after in pairwise(table.ranges):
        stayed = [before.draft_length] * after.first
        assert predicted_loss(stayed, surface, _tokens(s))[-1] > 0.01


@given(surfaces(), survivals(size=5), st.sets(st.integers(0, 5)), st.integers(0, 2**32 - 1))
def test_it_never_leaves_what_is_allowed(surface, s, allowed, seed) -> None:
    size = _size(surface)
    mask = np.random.default_rng(seed).random((size + 1, 6)) < 0.8
    options = BuildOptions(allowed=allowed, envelope=lambda b, k: bool(mask[b, k]))
    try:
        table = build_table(surface, _tokens(s), size, options)
    except NoTableError as refused:
        b = refused.batch_sizes[0]
        assert not any(mask[b, k] for k in allowed & set(surface.draft_lengths))
        return
    _check_tiling(table, size)
    for b, k in enumerate(table.draft_lengths, start=1):
        assert k in allowed
        assert mask[b, k]


@given(
    surfaces(),
    survivals(size=5),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8),
)
def test_forbidden_transitions_are_never_neighbours(surface, s, forbidden) -> None:
    """Everything is usable everywhere, so a constant table always remains possible."""
    size = _size(surface)
    table = build_table(surface, _tokens(s), size, BuildOptions(forbidden_transitions=forbidden))
    _check_tiling(table, size)
    for before, after in pairwise(table.ranges):
        assert (before.draft_length, after.draft_length) not in forbidden
        assert (after.draft_length, before.draft_length) not in forbidden


@given(surfaces(), survivals(size=5), st.floats(1e-3, 1e-2))
def test_a_limit_on_the_time_per_token_holds_where_it_can(surface, s, limit: float) -> None:
    size, tokens = _size(surface), _tokens(s)
    table = build_table(surface, tokens, size, BuildOptions(max_tpot_s=limit))
    holds_to = table.max_batch_size_within_tpot
    assert holds_to is not None
    unmet = 0
    for b, k in enumerate(table.draft_lengths, start=1):
        tpot = {x: surface.step_time_s(b, x) / tokens[x] for x in surface.draft_lengths}
        if min(tpot.values()) <= limit * (1 - 1e-9):
            assert tpot[k] <= limit * (1 + 1e-9)
        else:
            unmet += 1
            assert b > holds_to or tpot[k] <= limit * (1 + 1e-9)
    assert bool(table.notes) >= bool(unmet and holds_to < size)


def test_better_survival_can_shorten_drafts() -> None:
    """S = (.5, .4, .35) picks 3; raising only S_1 to 1 picks 1."""
    surface = StepTimeSurface.from_cells(
        {(1, 0): exact(1.0), (1, 1): exact(1.2), (1, 3): exact(1.7)}
    )
    assert build_table(surface, expected_tokens([0.5, 0.4, 0.35]), 1).draft_lengths == (3,)
    assert build_table(surface, expected_tokens([1.0, 0.4, 0.35]), 1).draft_lengths == (1,)


def _steps(changes: dict[int, int], size: int, gain: float = 0.2) -> StepTimeSurface:
    """A surface on which length changes[b] is best from b on, by `gain`, with E = 1."""
    cells = {}
    for k in set(changes.values()):
        for b in range(1, size + 1):
            best = changes[max(f for f in changes if f <= b)]
            cells[b, k] = exact(1.0 if k == best else 1.0 + gain)
    return StepTimeSurface.from_cells(cells)


ONE = np.ones(6)  # E = 1 at every length: the step time alone decides


def test_argmax_edges_come_out_where_they_are() -> None:
    surface = _steps({1: 3, 10: 2, 30: 0}, 60)
    table = build_table(surface, ONE, 60)
    assert table.as_rows() == [(1, 9, 3), (10, 29, 2), (30, 60, 0)]


def test_near_ties_do_not_make_edges() -> None:
    surface = _steps({1: 3, 10: 2, 30: 3}, 60, gain=0.009)
    assert build_table(surface, ONE, 60).as_rows() == [(1, 60, 3)]


@given(surfaces(), survivals(size=5), st.floats(0, 0.1), st.floats(0, 0.05))
def test_what_was_not_seen_for_sure_earns_no_edge(surface, s, unsure: float, cap: float) -> None:
    """With the same uncertainty everywhere it is a near tie of that size, up to the cap."""
    size = _size(surface)
    options = BuildOptions(uncertainty=lambda _b, _k: unsure, max_tie=cap)
    found = build_table(surface, _tokens(s), size, options)
    plain = BuildOptions(near_tie=max(0.01, min(unsure, cap)))
    assert found.as_rows() == build_table(surface, _tokens(s), size, plain).as_rows()


def test_in_noise_one_cell_makes_no_edge_and_many_that_agree_do() -> None:
    noisy = BuildOptions(noise=0.08)
    assert build_table(_steps({1: 3, 3: 0, 4: 3}, 16, gain=0.06), ONE, 16).as_rows() != [(1, 16, 3)]
    once = build_table(_steps({1: 3, 3: 0, 4: 3}, 16, gain=0.06), ONE, 16, noisy)
    assert once.as_rows() == [(1, 16, 3)]
    assert "scatter by ±8%" in once.notes[0]
    often = build_table(_steps({1: 3, 6: 0}, 16, gain=0.06), ONE, 16, noisy)
    assert often.as_rows() == [(1, 5, 3), (6, 16, 0)]


@given(
    surfaces(),
    survivals(size=5),
    st.floats(0.001, 0.3),
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8),
)
def test_in_noise_the_table_is_whole_and_allowed(surface, s, noise: float, forbidden) -> None:
    size = _size(surface)
    options = BuildOptions(noise=noise, forbidden_transitions=forbidden)
    table = build_table(surface, _tokens(s), size, options)
    _check_tiling(table, size)
    for before, after in pairwise(table.ranges):
        assert (before.draft_length, after.draft_length) not in forbidden
        assert (after.draft_length, before.draft_length) not in forbidden


def test_a_narrow_range_goes_to_the_better_neighbour() -> None:
    """20..23 spans 4, below a quarter of 20; length 1 is the second best there."""
    cells = {}
    for b in range(1, 61):
        for k in (0, 1, 2):
            best = 2 if b < 20 else 0 if b < 24 else 1
            cells[b, k] = exact(1.0 if k == best else 1.05 if k == 1 else 1.2)
    table = build_table(StepTimeSurface.from_cells(cells), ONE, 60)
    assert table.as_rows() == [(1, 19, 2), (20, 60, 1)]
    (merge,) = table.merges
    assert (merge.first, merge.last, merge.from_draft_length, merge.to_draft_length) == (
        20, 23, 0, 1,
    )  # fmt: skip
    assert merge.worst_loss == pytest.approx(1 - 1 / 1.05)


@pytest.mark.parametrize(("last", "rows"), [(24, 3), (23, 2)])
def test_a_range_of_a_quarter_of_its_first_is_wide_enough(last: int, rows: int) -> None:
    surface = _steps({1: 2, 20: 0, last + 1: 1}, 60)
    assert len(build_table(surface, ONE, 60).ranges) == rows


def test_a_dear_merge_can_be_declined() -> None:
    """The last range, narrow only because the table ends there."""
    surface = _steps({1: 2, 90: 1}, 96)
    assert build_table(surface, ONE, 96).as_rows() == [(1, 96, 2)]
    table = build_table(surface, ONE, 96, BuildOptions(max_merge_loss=0.02))
    assert table.as_rows() == [(1, 89, 2), (90, 96, 1)]
    assert "90 to 96" in table.notes[0]


def test_a_narrow_range_stays_where_the_envelope_leaves_no_neighbour() -> None:
    surface = _steps({1: 2, 90: 1, 95: 2}, 128)
    options = BuildOptions(envelope=lambda b, k: k == 1 if 90 <= b < 95 else True)
    table = build_table(surface, ONE, 128, options)
    assert table.as_rows() == [(1, 89, 2), (90, 94, 1), (95, 128, 2)]
    assert "90 to 94" in table.notes[0]


def test_a_forbidden_transition_is_avoided_at_the_least_cost() -> None:
    """2 -> 1 forbidden; 0 in between would have to be wide, so the cheaper end gives way."""
    surface = _steps({1: 2, 50: 1}, 64)
    table = build_table(surface, ONE, 64, BuildOptions(forbidden_transitions=[(2, 1)]))
    assert table.as_rows() == [(1, 64, 2)]
    assert "forbidden transitions" in table.notes[0]


def test_a_third_length_may_bridge_a_forbidden_transition() -> None:
    cells = {}
    for b in range(1, 129):
        for k in (0, 1, 2):
            best = 2 if b < 32 else 0
            cells[b, k] = exact(1.0 if k == best else 1.02 if k == 1 else 1.5)
    surface = StepTimeSurface.from_cells(cells)
    assert build_table(surface, ONE, 128).as_rows() == [(1, 31, 2), (32, 128, 0)]
    table = build_table(surface, ONE, 128, BuildOptions(forbidden_transitions=[(0, 2)]))
    assert [k for _, _, k in table.as_rows()] == [2, 1, 0]
    assert predicted_loss(table, surface, ONE).max() == pytest.approx(1 - 1 / 1.02)


def test_an_impossible_combination_is_refused() -> None:
    options = BuildOptions(
        forbidden_transitions=[(2, 1)], envelope=lambda b, k: k == (2 if b < 5 else 1)
    )
    with pytest.raises(NoTableError, match="forbidden transition") as refused:
        build_table(_steps({1: 2, 5: 1}, 8), ONE, 8, options)
    assert refused.value.batch_sizes == (5,)


def test_batch_sizes_beyond_the_measurements_are_refused() -> None:
    with pytest.raises(NoTableError) as refused:
        build_table(_flat({0: 1.0}, 8), ONE, 10)
    assert refused.value.batch_sizes == (9, 10)


def test_a_length_without_expected_tokens_is_left_out_and_noted() -> None:
    table = build_table(_flat({0: 1.0, 3: 0.1}, 8), [1.0, 1.5], 8)
    assert table.as_rows() == [(1, 8, 0)]
    assert "[3]" in table.notes[0]


def test_expected_tokens_may_depend_on_the_batch_size() -> None:
    """N-gram: proposals dry up as the batch grows."""

    def tokens(b: int, k: int) -> float:
        return 1.0 + k * (0.5 if b <= 10 else 0.05)

    table = build_table(_flat({0: 1.0, 2: 1.3}, 40), tokens, 40)
    assert table.as_rows() == [(1, 10, 2), (11, 40, 0)]


def test_each_range_states_its_predicted_goodput() -> None:
    (only,) = build_table(_flat({1: 0.01}, 4), [1.0, 2.0], 4).ranges
    assert only.predicted_goodput_first_tok_s == pytest.approx(200)
    assert only.predicted_goodput_last_tok_s == pytest.approx(800)
    assert only.predicted_goodput_tok_s == pytest.approx(500)


def test_the_note_says_where_the_limit_cannot_be_met() -> None:
    surface = StepTimeSurface.from_cells({(1, 0): exact(0.01), (11, 0): exact(0.02)})
    table = build_table(surface, ONE, 11, BuildOptions(max_tpot_s=0.0155))
    assert table.max_batch_size_within_tpot == 6
    assert "15.5 ms per output token at batch sizes 7 to 11" in table.notes[0]


def test_the_limit_keeps_a_near_tie_from_breaking_it() -> None:
    """Length 2 wins at b = 1 and stays within 1 % after it, but over the limit."""
    cells = {(1, 0): exact(0.02), (2, 0): exact(0.0200), (1, 2): exact(0.019)}
    cells[2, 2] = exact(0.0201)
    surface = StepTimeSurface.from_cells(cells)
    assert build_table(surface, ONE, 2).as_rows() == [(1, 2, 2)]
    limited = build_table(surface, ONE, 2, BuildOptions(max_tpot_s=0.02005))
    assert limited.as_rows() == [(1, 1, 2), (2, 2, 0)]
    assert limited.notes == ()


def test_predicted_loss_of_lengths_that_are_not_covered_is_unknown() -> None:
    loss = predicted_loss([0, 5, 2], _flat({0: 1.0, 2: 1.25}, 3), ONE)
    assert loss[0] == 0
    assert np.isnan(loss[1])
    assert loss[2] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "options",
    [
        {"near_tie": -0.1},
        {"near_tie": 1.0},
        {"narrow_share": 2.0},
        {"max_tpot_s": 0.0},
        {"max_merge_loss": -1.0},
    ],
)
def test_senseless_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(CoreError):
        BuildOptions(**options)


@pytest.mark.parametrize("tokens", [[], [2.0, 2.5], [[1.0]], [1.0, float("nan")]])
def test_senseless_expected_tokens_are_refused(tokens) -> None:
    with pytest.raises(CoreError, match="expected_tokens"):
        build_table(_flat({0: 1.0}, 2), tokens, 2)

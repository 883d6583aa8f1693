"""A table is corrected where a fixed length measured better, and nowhere else."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.measure.correct import Usual, beats, correct, territories, usual
from tabletune.measure.judge import Comparison
from tabletune.records.plan import Envelope

BOUND = 0.97
#: As seen at 1 and at 8 open requests of a closed loop.
STEPS = {1: {1: 60}, 8: {5: 3, 6: 10, 7: 20, 8: 40}}


def against(length: int, concurrency: int, ratio: float, **fields: object) -> Comparison:
    spread = 0.03
    one = (f"fixed-{length}", concurrency, ratio, ratio - spread, ratio + spread, BOUND, 3)
    return Comparison(*one, **fields)  # type: ignore[arg-type]


def everywhere(seqs: int, *forbidden: tuple[int, int], lengths=(0, 1, 2, 3)) -> Envelope:
    allowed = {str(k): ((1, seqs),) for k in lengths}
    return Envelope(allowed=allowed, forbidden_transitions=forbidden)


def corrected(lookup: list[int], *found: Comparison, envelope: Envelope | None = None, steps=STEPS):
    made = correct([0, *lookup], found, steps, envelope or everywhere(len(lookup)))
    return None if made is None else list(made.lookup[1:])


def test_the_best_fixed_length_takes_the_batch_sizes_of_its_load() -> None:
    flat = [2] * 8
    assert corrected(flat, against(3, 1, 0.94)) == [3, 3, 2, 2, 2, 2, 2, 2]
    assert corrected(flat, against(1, 8, 0.94)) == [2, 2, 1, 1, 1, 1, 1, 1]
    both = (against(3, 1, 0.94), against(1, 8, 0.9))
    assert corrected(flat, *both) == [3, 3, 1, 1, 1, 1, 1, 1]
    assert corrected(flat, against(1, 1, 0.95), against(3, 1, 0.94)) == [3, 3, 2, 2, 2, 2, 2, 2]


def test_nothing_is_corrected_without_a_better_length() -> None:
    flat = [2] * 8
    assert corrected(flat, against(3, 1, 0.98), against(1, 8, 1.2)) is None
    assert corrected(flat, against(2, 1, 0.9, same_lengths=True)) is None
    assert not beats(Comparison("incumbent", 1, 0.9, 0.8, 0.95, BOUND, 4))
    assert not beats(Comparison("no_speculation", 1, 0.9, 0.8, 0.94, BOUND, 4))
    assert corrected(flat, against(3, 1, 0.94), steps={8: {8: 10}}) is None  # no steps of it


def test_an_edge_that_no_window_shows_to_be_wrong_stays() -> None:
    assert corrected([3, 2, 2, 2, 2, 2, 2, 2], against(1, 1, 0.9)) == [1, 2, 2, 2, 2, 2, 2, 2]
    table = [3, 3, 3, 3, 1, 1, 0, 0]
    assert corrected(table, against(2, 8, 0.9)) == [3, 3, 3, 3, 2, 2, 2, 2]
    assert corrected(table, against(2, 1, 0.9)) == [2, 2, 3, 3, 1, 1, 0, 0]


def test_a_change_says_what_it_comes_from() -> None:
    made = correct([0, 2, 2, 1, 1, 1, 1, 1, 1], [against(3, 8, 0.9)], STEPS, everywhere(8))
    assert made is not None
    (change,) = made.changes
    assert (change.first, change.last, change.draft_length, change.before) == (3, 8, 3, (1,))
    assert change.words() == (
        "batch sizes 3–8: draft length 3 in place of 1, which at concurrency 8 had 90.0% (87.0% "
        "to 93.0%) of its throughput in 3 windows"
    )


def test_a_length_outside_the_envelope_gives_way_to_the_next_best() -> None:
    flat, found = [2] * 8, (against(3, 8, 0.8), against(1, 8, 0.9), against(0, 8, 0.96))
    assert corrected(flat, *found) == [2, 2, 3, 3, 3, 3, 3, 3]
    partly = Envelope(allowed={"0": ((1, 8),), "1": ((1, 8),), "2": ((1, 8),), "3": ((1, 6),)})
    assert corrected(flat, *found, envelope=partly) == [2, 2, 1, 1, 1, 1, 1, 1]
    nothing = Envelope(allowed={"2": ((1, 8),), "3": ((4, 8),)})
    assert corrected(flat, *found, envelope=nothing) is None


@pytest.mark.parametrize("forbidden", [(2, 3), (3, 2)])
def test_a_forbidden_transition_is_never_made(forbidden: tuple[int, int]) -> None:
    flat, found = [2] * 8, (against(3, 8, 0.8), against(1, 8, 0.9))
    envelope = everywhere(8, forbidden)
    assert corrected(flat, *found, envelope=envelope) == [2, 2, 1, 1, 1, 1, 1, 1]
    # A second change may make what the first alone would not.
    both = (against(3, 8, 0.9), against(0, 1, 0.95))
    assert corrected([3, 3, 2, 2, 2, 2, 2, 2], *both, envelope=everywhere(8, (0, 3))) == [
        *(3, 3, 3, 3, 3, 3, 3, 3)
    ]


def test_usual_sizes_leave_out_the_rarest_steps() -> None:
    assert usual({8: 98, 1: 1, 7: 1}) == Usual(8, 8, 8)
    assert usual({5: 10, 6: 20, 8: 70}) == Usual(5, 8, 8)
    assert usual({3: 1}) == Usual(3, 3, 3)


def test_borders_lie_at_the_geometric_middle() -> None:
    loads = {1: Usual(1, 1, 1), 8: Usual(3, 4, 8), 128: Usual(60, 100, 128)}
    placed = {c: place[1:] for c, place in territories(loads).items()}
    assert placed == {1: (1, 2), 8: (3, 20), 128: (21, 2**31)}


LOOKUPS = st.lists(st.integers(0, 3), min_size=2, max_size=40)
LOADS = st.dictionaries(
    st.integers(1, 40),
    st.dictionaries(st.integers(1, 40), st.integers(1, 50), min_size=1, max_size=5),
    min_size=1,
    max_size=4,
)
RATIOS = st.lists(st.tuples(st.integers(0, 3), st.floats(0.5, 1.1)), max_size=6)
FORBIDDEN = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda p: p[0] != p[1]), max_size=2
)


@given(LOOKUPS, LOADS, st.data())
def test_a_correction_keeps_to_what_is_allowed_and_changes_only_its_loads(lookup, loads, data):
    seqs = len(lookup)
    steps = {c: {min(b, seqs): n for b, n in counts.items()} for c, counts in loads.items()}
    holes = data.draw(st.dictionaries(st.integers(0, 3), st.integers(1, seqs), max_size=3))
    envelope = Envelope(
        allowed={str(k): ((1, holes.get(k, seqs)),) for k in range(4)},
        forbidden_transitions=tuple(data.draw(FORBIDDEN)),
    )
    forbidden = {frozenset(pair) for pair in envelope.forbidden_transitions}
    if any(frozenset(pair) in forbidden for pair in itertools.pairwise(lookup)):
        return  # such a table is no candidate
    found = [
        against(k, c, ratio) for c in loads for k, ratio in data.draw(RATIOS) if k not in lookup
    ]
    made = correct([0, *lookup], found, steps, envelope)
    if made is None:
        return
    assert made.lookup[0] == 0
    assert len(made.lookup) == seqs + 1
    changed = {b for b in range(1, seqs + 1) if made.lookup[b] != lookup[b - 1]}
    said = {b for change in made.changes for b in range(change.first, change.last + 1)}
    assert changed == said
    assert all(envelope.contains(b, made.lookup[b]) for b in changed)
    pairs = itertools.pairwise(made.lookup[1:])
    assert not any(frozenset(pair) in forbidden for pair in pairs)
    assert len({change.because.concurrency for change in made.changes}) == len(made.changes)
    for change in made.changes:
        assert change.because.ratio < BOUND
        better = [c for c in found if c.concurrency == change.because.concurrency]
        assert min(c.ratio for c in better) <= change.because.ratio

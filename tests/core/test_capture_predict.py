"""Predicted graphs: figures seen on a real engine, hazards, and settings that are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabletune.core.capture import (
    Graph,
    GraphSettings,
    GraphSettingsError,
    UnsupportedEngineError,
    predict_graphs,
)
from tabletune.core.capture_defaults import default_capture_sizes
from tabletune.core.capture_settings import GRAPH_MODES, GraphMode

MEASURED_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
COARSE = tuple(sorted({b * q for b in MEASURED_BATCHES for q in range(1, 6)}))
EXHAUSTIVE = tuple(sorted({b * q for b in range(1, 129) for q in range(1, 6)}))
STRIDED = (1, 2, 4, *range(8, 513, 8))


def settings(
    mode: GraphMode = "FULL_DECODE_ONLY",
    sizes: tuple[int, ...] = COARSE,
    lengths: tuple[int, ...] = (0, 1, 2, 3, 4),
    max_num_seqs: int = 128,
    method: str = "eagle3",
    **changes: object,
) -> GraphSettings:
    fields: dict[str, object] = {
        "graph_mode": mode,
        "capture_sizes": sizes,
        "max_num_seqs": max_num_seqs,
        "lengths": lengths,
        "max_draft_length": max([1, *lengths]),
        "version": "0.32.0",
        "runner": "v2",
        "method": method,
    }
    return GraphSettings(**(fields | changes))  # type: ignore[arg-type]


def test_batch_sizes_without_a_graph_as_measured() -> None:
    prediction = predict_graphs(settings())
    missing = [sum(cell[1] == k for cell in prediction.uncovered) for k in range(5)]
    assert missing == [25, 12, 36, 2, 43]
    # b = 50 stalled at every K but 3, and b = 48 and 64 at none.
    assert [k for k in range(5) if (50, k) in prediction.coverage] == [3]
    assert all((b, k) in prediction.coverage for b in (48, 64) for k in range(5))


def test_listing_every_product_covers_all() -> None:
    prediction = predict_graphs(settings(sizes=EXHAUSTIVE))
    assert len(EXHAUSTIVE) == 376
    assert prediction.graph_count == 640
    assert prediction.uncovered == ()
    assert all(step.padding == 0 for step in prediction.steps.values())


def test_default_mode_mismatches_where_the_engine_crashed() -> None:
    prediction = predict_graphs(settings("FULL_AND_PIECEWISE"))
    assert [b for b, _ in prediction.mismatches if b >= 32]
    b, k = next(cell for cell in prediction.mismatches if cell[0] >= 32)
    step = prediction.steps[b, k]
    assert step.target is not None
    assert step.target.mode == "PIECEWISE"
    assert step.draft_first is not None
    assert step.draft_first.mode == "FULL"
    assert (step.draft_first.num_reqs or 0) > b
    assert (b, k) not in prediction.coverage


@pytest.mark.parametrize("mode", ["FULL_DECODE_ONLY", "PIECEWISE", "FULL", "NONE"])
def test_other_modes_never_mismatch(mode: GraphMode) -> None:
    assert predict_graphs(settings(mode)).mismatches == ()


@pytest.mark.parametrize("mode", GRAPH_MODES)
def test_nested_query_lengths_are_safe_in_any_mode(mode: GraphMode) -> None:
    prediction = predict_graphs(settings(mode, STRIDED, (0, 1, 3)))
    assert prediction.mismatches == ()
    assert prediction.uncovered == ()
    if mode == "FULL_DECODE_ONLY":
        assert (len(STRIDED), prediction.graph_count) == (67, 118)


def test_vllms_default_sizes_stall_or_crash_with_five_lengths() -> None:
    sizes = default_capture_sizes(128, 8192, 4, {4: 8, 3: 32, 2: 64, 1: 96, 0: 128})
    assert predict_graphs(settings("FULL_AND_PIECEWISE", sizes)).mismatches
    assert predict_graphs(settings("FULL_DECODE_ONLY", sizes)).uncovered


def test_a_static_length_never_mismatches() -> None:
    for sizes in (COARSE, STRIDED):
        prediction = predict_graphs(settings("FULL_AND_PIECEWISE", sizes, (4,)))
        assert prediction.mismatches == ()


def test_padding_of_one_step() -> None:
    prediction = predict_graphs(settings(sizes=(4, 8), lengths=(0, 1), max_num_seqs=4))
    step = prediction.steps[3, 1]
    assert step.target == Graph("FULL", 8, 4, 2)
    assert (step.tokens, step.padded_tokens, step.padded_requests) == (6, 8, 4)
    assert step.padding == pytest.approx(1 / 3)
    assert prediction.padded_tokens(3, 1) == 8
    assert prediction.padded_tokens(3, 2) is None


def test_boundaries_are_where_the_padded_size_changes() -> None:
    prediction = predict_graphs(settings(sizes=(2, 4, 16), lengths=(1,), max_num_seqs=8))
    assert [prediction.padded_tokens(b, 1) for b in range(1, 9)] == [2, 4, *[16] * 6]
    assert prediction.boundaries(1) == (1, 2)
    assert predict_graphs(settings("NONE", max_num_seqs=4)).boundaries(2) == (1, 2, 3)


def test_no_padded_size_for_a_step_that_stalls() -> None:
    prediction = predict_graphs(settings())
    assert prediction.padded_tokens(50, 0) is None
    assert prediction.padded_tokens(50, 3) == 240


def test_the_longest_sizes_must_reach_every_request() -> None:
    sizes = tuple(size for size in STRIDED if size <= 256)
    prediction = predict_graphs(settings(sizes=sizes, lengths=(0, 3)))
    assert (64, 3) in prediction.coverage
    assert (65, 3) not in prediction.coverage


def test_single_token_passes_of_the_drafter_need_a_size_of_their_own() -> None:
    # Every size is above max_num_seqs: the target has its graph, the drafter's steps do not.
    prediction = predict_graphs(settings(sizes=(12,), lengths=(2,), max_num_seqs=4))
    step = prediction.steps[4, 2]
    assert step.target is not None
    assert step.draft_rest is None
    assert not step.covered
    without_drafter = predict_graphs(
        settings(sizes=(12,), lengths=(2,), max_num_seqs=4, method="ngram")
    )
    assert without_drafter.steps[4, 2].covered


def test_dflash_drafts_at_the_longest_length() -> None:
    shorter = predict_graphs(
        settings(sizes=STRIDED, lengths=(0, 1), method="dflash", max_draft_length=3)
    )
    assert (8, 0) in shorter.coverage
    assert (8, 1) not in shorter.coverage
    assert (
        predict_graphs(settings(sizes=STRIDED, lengths=(0, 1, 3), method="dflash")).uncovered == ()
    )


def test_steps_with_a_prefill() -> None:
    default = predict_graphs(settings("FULL_AND_PIECEWISE", STRIDED, (0, 1, 3)))
    assert default.mixed_step_graph(100) == Graph("PIECEWISE", 104)
    assert default.mixed_step_graph(513) is None
    decode_only = predict_graphs(settings("FULL_DECODE_ONLY", STRIDED, (0, 1, 3)))
    assert decode_only.mixed_step_graph(100) is None


def test_the_v1_runner_is_forced_to_piecewise() -> None:
    prediction = predict_graphs(settings("FULL_AND_PIECEWISE", STRIDED, runner="v1"))
    assert {g.mode for g in prediction.target_graphs} == {"PIECEWISE"}
    assert prediction.padded_tokens(50, 1) == 104
    assert prediction.padded_tokens(128, 4) is None
    assert prediction.mismatches == ()


@pytest.mark.parametrize("version", ["0.31.0", "0.32.0"])
def test_an_engine_on_the_cpu_captures_nothing(version: str) -> None:
    prediction = predict_graphs(settings(method="ngram", platform="cpu", version=version))
    assert prediction.graph_count == 0
    assert prediction.uncovered == ()
    assert prediction.padded_tokens(50, 3) == 200


def test_the_token_limit_of_a_step_cuts_sizes_off() -> None:
    prediction = predict_graphs(settings(sizes=STRIDED, lengths=(0, 3), max_num_batched_tokens=100))
    assert max(g.num_tokens for g in prediction.target_graphs) == 96
    assert (25, 3) not in prediction.coverage


@pytest.mark.parametrize("version", ["0.31.0", "0.34.0", "main", "1"])
def test_an_unknown_release_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedEngineError) as caught:
        settings(version=version)
    assert caught.value.version == version
    assert repr(version) in str(caught.value)
    settings("NONE", version=version)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("graph_mode", "FULL_AND_PIECEMEAL"),
        ("runner", "v3"),
        ("max_num_seqs", 0),
        ("lengths", ()),
        ("lengths", (-1,)),
        ("lengths", (5,)),
        ("capture_sizes", (0, 8)),
    ],
)
def test_settings_that_vllm_would_refuse_or_change(field: str, value: object) -> None:
    with pytest.raises(GraphSettingsError) as caught:
        settings(**({"max_draft_length": 4} | {field: value}))  # type: ignore[arg-type]
    assert caught.value.field == field
    assert caught.value.found == value


sizes_strategy = st.lists(st.integers(1, 200), min_size=1, max_size=25).map(tuple)
lengths_strategy = st.sets(st.integers(0, 6), min_size=1).map(lambda k: tuple(sorted(k)))


@given(st.sampled_from(GRAPH_MODES), sizes_strategy, lengths_strategy, st.integers(1, 30))
def test_a_mismatch_is_always_a_step_without_its_own_graph(
    mode: GraphMode, sizes: tuple[int, ...], lengths: tuple[int, ...], max_num_seqs: int
) -> None:
    prediction = predict_graphs(settings(mode, sizes, lengths, max_num_seqs))
    for cell, step in prediction.steps.items():
        assert not (step.mismatch and step.covered)
        assert (cell in prediction.coverage) == step.covered
        assert step.padded_tokens >= step.tokens
        assert step.padded_requests >= step.batch_size
        if step.mismatch:
            assert mode == "FULL_AND_PIECEWISE"


@given(sizes_strategy, lengths_strategy, st.integers(1, 30), st.data())
def test_fewer_lengths_keep_the_graphs_of_those_left(
    sizes: tuple[int, ...], lengths: tuple[int, ...], max_num_seqs: int, data: st.DataObject
) -> None:
    kept = data.draw(st.sets(st.sampled_from(lengths), min_size=1))
    all_lengths = predict_graphs(settings("FULL_DECODE_ONLY", sizes, lengths, max_num_seqs))
    fewer = predict_graphs(settings("FULL_DECODE_ONLY", sizes, tuple(sorted(kept)), max_num_seqs))
    for cell, step in all_lengths.steps.items():
        if step.covered and cell[1] in kept:
            assert fewer.steps[cell].target == step.target
            assert fewer.steps[cell].covered

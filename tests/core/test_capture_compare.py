"""What an engine really captured, against what was predicted."""

import pytest

from tabletune.core.capture import (
    GraphPrediction,
    GraphSettings,
    GraphSettingsError,
    compare_captured,
    predict_graphs,
)
from tabletune.core.capture_settings import GraphMode


def prediction(mode: GraphMode = "FULL_DECODE_ONLY") -> GraphPrediction:
    sizes = (1, 2, 4, 8, 16, 24, 32)
    return predict_graphs(GraphSettings(mode, sizes, 8, (0, 1, 3), 3, "0.32.0", "v2", "eagle3"))


def read_back(predicted: GraphPrediction) -> list[dict[str, object]]:
    return [
        {
            "mode": f"CUDAGraphMode.{g.mode}",
            "num_tokens": g.num_tokens,
            "num_reqs": g.num_reqs,
            "uniform_token_count": g.uniform_token_count,
        }
        for g in predicted.target_graphs
    ]


@pytest.mark.parametrize("mode", ["FULL_DECODE_ONLY", "FULL_AND_PIECEWISE", "PIECEWISE", "FULL"])
def test_what_was_predicted_agrees(mode: GraphMode) -> None:
    predicted = prediction(mode)
    comparison = compare_captured(predicted, read_back(predicted))
    assert comparison.agrees
    assert comparison.coverage == predicted.coverage


def test_a_missing_graph_shrinks_the_envelope() -> None:
    predicted = prediction()
    captured = [g for g in read_back(predicted) if g["num_tokens"] != 32]
    comparison = compare_captured(predicted, captured)
    assert [g.num_tokens for g in comparison.missing] == [32]
    assert predicted.coverage - comparison.coverage == {(7, 3), (8, 3)}
    assert any("FULL 32 tokens (8 requests)" in words for words in comparison.differences)
    assert any("[(7, 3), (8, 3)]" in words for words in comparison.differences)


def test_an_engine_that_fell_back_to_the_default_mode_may_crash() -> None:
    # Three requests of one token: the level at 3 tokens is another length's, so the target
    # falls back to the PIECEWISE graph of 4 tokens, at which the drafter finds 4 requests.
    decode_only, default = (
        predict_graphs(GraphSettings(mode, (1, 2, 4, 8, 12), 4, (0, 2), 2, "0.32.0", "v2", "mtp"))
        for mode in ("FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    )
    assert default.mismatches == ((3, 0),)
    comparison = compare_captured(decode_only, read_back(default))
    assert {g.mode for g in comparison.unexpected} == {"PIECEWISE"}
    assert any("may crash" in words for words in comparison.differences)
    assert not comparison.coverage & set(default.mismatches)


def test_an_engine_that_captured_nothing_covers_nothing() -> None:
    comparison = compare_captured(prediction(), [])
    assert comparison.coverage == frozenset()
    assert len(comparison.missing) == prediction().graph_count
    assert "more" in comparison.differences[0]


def test_more_than_predicted_is_used() -> None:
    predicted = predict_graphs(
        GraphSettings("FULL_DECODE_ONLY", (4,), 8, (0,), 1, "0.32.0", "v2", "eagle3")
    )
    extra: dict[str, object] = {
        "mode": "FULL",
        "num_tokens": 8,
        "num_reqs": 8,
        "uniform_token_count": 1,
    }
    comparison = compare_captured(predicted, [*read_back(predicted), extra])
    assert {(5, 0), (8, 0)} <= comparison.coverage
    assert [g.num_tokens for g in comparison.unexpected] == [8]


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"mode": "NONE", "num_tokens": 4},
        {"mode": "FULL"},
        {"mode": "FULL", "num_tokens": True},
        {"mode": "FULL", "num_tokens": 4.0},
        {"mode": "FULL", "num_tokens": 4, "num_reqs": "4"},
        {"mode": "FULL", "num_tokens": 0},
    ],
)
def test_an_unreadable_entry_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(GraphSettingsError) as caught:
        compare_captured(prediction(), [entry])
    assert caught.value.found == entry

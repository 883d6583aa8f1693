"""Live snapshots: bounded, strict, and true sums of what was observed."""

import json
import pathlib
from typing import Any

import pytest

from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import CellTimes, LiveObservation
from tabletune.core.survival import proposal_rate, survival
from tabletune.records.base import RecordError
from tabletune.records.live_totals import LiveTotals
from tabletune.records.snapshot import (
    MAX_BATCH_SIZES,
    MAX_CELLS,
    MAX_DECISIONS,
    MAX_SNAPSHOT_BYTES,
    EngineRun,
    LiveSnapshot,
)
from tests.records.live import GOOD, MAX_NUM_SEQS, observed, step_time_s

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "live_snapshot.v1.json"
ENGINE = EngineRun(
    run_id="3f2a-1",
    started_unix_s=1_773_285_000.0,
    plugin_version="0.1.0",
    vllm_version="0.32.0",
    runner="V2",
    device="cuda",
    method="eagle3",
)


def snapshot_of(totals: LiveTotals, **changes: Any) -> LiveSnapshot:
    facts: dict[str, Any] = {
        "channel": "live",
        "mode": "adapt",
        "fingerprint": "f" * 64,
        "engine": ENGINE,
        "table_version": "a" * 64,
        "table": (4,) * MAX_NUM_SEQS,
        "to_unix_s": 1_773_285_300.0,
        "profiled": lambda b, k: step_time_s(b, k) if b < 12 else None,
    }
    return totals.snapshot(**(facts | changes))


def some_totals() -> LiveTotals:
    totals = LiveTotals(4, 1_773_285_000.0)
    for second in range(30):
        totals.add(observed(second, 8, 4 if second < 20 else 2, GOOD))
    totals.add(observed(30, 12, 0, GOOD))
    totals.note(Decision("hold", "no table is clearly better"), 1_773_285_010.0)
    totals.note(Decision("swap", "a better table", (4,) * 8 + (2,) * 8, (), 0.031), 1_773_285_020.0)
    totals.note(Decision("explore", "probe", None, ((1, 7),)), 1_773_285_025.0)
    return totals


def sample() -> LiveSnapshot:
    return snapshot_of(some_totals(), survival=(0.9, 0.8, 0.7, 0.6), exploration_spent_s=0.12)


def test_it_is_read_back_and_its_bytes_are_stable(request: pytest.FixtureRequest) -> None:
    found = sample()
    assert LiveSnapshot.from_json(found.to_json()) == found
    if request.config.getoption("--update-golden", default=False):
        GOLDEN.write_bytes(found.to_json())
    data = GOLDEN.read_bytes()
    assert LiveSnapshot.from_json(data).to_json() == data
    assert json.loads(data)["format_version"] == 1
    assert found.to_json() == data


def test_sums_are_those_of_the_observations() -> None:
    every = [observed(second, 8, 4 if second < 20 else 2, GOOD) for second in range(30)]
    found = sample()
    assert found.counts.request_steps == sum(seen.request_steps for seen in every)
    assert found.counts.accepted_through[0] == sum(seen.accepted_through[0] for seen in every)
    cells = {(cell.batch_size, cell.draft_length): cell for cell in found.cells}
    assert set(cells) == {(8, 4), (8, 2), (12, 0)}
    assert cells[8, 4].steps == sum(seen.cells[0].count for seen in every[:20])
    assert cells[8, 4].residual == pytest.approx(1.0, abs=0.01)
    assert cells[12, 0].residual is None
    used = {use.batch_size: use for use in found.batch_sizes}
    assert used[8].output_tok == sum(seen.batches[0].output_tok for seen in every)
    assert found.decisions.counts == {"hold": 1, "swap": 1, "explore": 1}
    assert [note.kind for note in found.decisions.last] == ["swap", "explore"]
    assert found.decisions.last[0].ranges == ((1, 8, 4), (9, 16, 2))


def test_its_counts_are_a_prior_with_the_right_denominators() -> None:
    counts = sample().survival_counts()
    assert survival(counts) == pytest.approx(GOOD, abs=0.03)
    # Positions 3 and 4 were offered for 20 of 30 seconds only: no rejection, no missing proposal.
    assert proposal_rate(counts) == pytest.approx([1.0] * 4)
    empty = snapshot_of(LiveTotals(0, 0.0), table=(0,) * 4)
    with pytest.raises(RecordError, match="no draft positions"):
        empty.survival_counts()


def test_the_largest_engine_s_snapshot_is_bounded() -> None:
    totals = LiveTotals(8, 0.0)
    for b in range(1, 1025):
        seen = observed(b, 8, 4, GOOD)
        zeros = (0,) * 8
        totals.add(
            LiveObservation(
                0.0, 1.0, seen.steps, b, 0,
                tuple(CellTimes(b, k, 100 + b, 0.0123456789123, 0.01) for k in range(9)),
                tuple(type(seen.batches[0])(b, 10 + b, 0.123456789123, 4567, 1, 0.1, 1)
                      for _ in "x"),
                0, zeros, zeros, zeros,
            )
        )  # fmt: skip
    odd = tuple(b % 2 for b in range(1024))
    for second in range(100):
        totals.note(Decision("swap", "ä" * 1000, odd, (), 0.1), float(second))
    found = snapshot_of(totals, table=odd, profiled=lambda b, k: 0.0123456789123)
    assert len(found.cells) == MAX_CELLS
    assert found.left_out_steps > 0
    assert len(found.batch_sizes) == MAX_BATCH_SIZES
    assert found.batch_sizes[-1].batch_size == 1024
    assert len(found.decisions.last) == MAX_DECISIONS
    assert found.decisions.counts == {"swap": 100}
    assert found.decisions.last[0].ranges is None
    assert len(found.to_json()) <= MAX_SNAPSHOT_BYTES


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"to_unix_s": 1.0}, "before it began"),
        ({"offered_through": [1, 1]}, "offered positions"),
        ({"offered_through": [1, 1, 1, 1]}, "exceeds offered"),
        ({"survival": [1.5]}, "less than or equal to 1"),
        ({"channel": "Live!"}, "channel"),
        ({"novelty": 1}, "novelty"),
    ],
)
def test_what_does_not_fit_together_is_refused(change: dict[str, Any], reason: str) -> None:
    fields = json.loads(sample().to_json()) | change
    with pytest.raises(RecordError, match=reason):
        LiveSnapshot.from_json(json.dumps(fields).encode())


def test_cells_appear_once_and_names_are_plain() -> None:
    fields = json.loads(sample().to_json())
    fields["cells"].append(fields["cells"][0])
    with pytest.raises(RecordError, match="the same cell appears twice"):
        LiveSnapshot.from_json(json.dumps(fields).encode())
    fields = json.loads(sample().to_json())
    fields["engine"]["run_id"] = "../../etc"
    with pytest.raises(RecordError, match="run_id"):
        LiveSnapshot.from_json(json.dumps(fields).encode())


def test_too_much_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(RecordError, match="more than 262144"):
        LiveSnapshot.from_json(b" " * (MAX_SNAPSHOT_BYTES + 1))

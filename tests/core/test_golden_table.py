"""A recorded profile and a known survival give one exact table.

The step times were recorded on an H200 (see `what` and `engine` in the file). The expected
tables change only with `--update-golden` and a line in the changelog.
"""

import json
import pathlib

import pytest

from tabletune.core.goodput import expected_tokens
from tabletune.core.step_time import StepTimeEstimate, estimate_step_time
from tabletune.core.surface import StepTimeSurface
from tabletune.core.table import BuildOptions, BuiltTable, build_table, predicted_loss

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
PROFILE = GOLDEN / "h200_vllm0.32.0_qwen3-4b_eagle3_step_times.json"
TABLES = GOLDEN / "h200_vllm0.32.0_qwen3-4b_eagle3_tables.json"
SURVIVAL = [0.72, 0.50, 0.34, 0.23]

CASES = {
    "paper rules, draft lengths 0 2 3 4, up to batch size 128": BuildOptions(),
    "2 next to 3 forbidden": BuildOptions(forbidden_transitions=[(2, 3)]),
    "only 0 and 3": BuildOptions(allowed=(0, 3)),
    "at most 2.5 ms per output token": BuildOptions(max_tpot_s=0.0025),
    "no near ties, no merging": BuildOptions(near_tie=0.0, narrow_share=0.0),
}


def _recorded_cells() -> dict[tuple[int, int], StepTimeEstimate]:
    """The default graph mode up to 96, and batch size 128 from the other graph mode.

    facts: both modes took the same time where both were recorded.
    """
    recorded = json.loads(PROFILE.read_text("utf-8"))
    largest = [c for c in recorded["full_decode_only"]["raw"] if c["batch_size"] == 128]
    return {
        (c["batch_size"], c["draft_length"]): estimate_step_time(c["step_times_s"])
        for c in recorded["raw"] + [c for c in largest if c["draft_length"] != 1]
    }


def _as_json(table: BuiltTable) -> dict[str, object]:
    return {
        "rows": [list(row) for row in table.as_rows()],
        "predicted_goodput_tok_s": [round(r.predicted_goodput_tok_s, 1) for r in table.ranges],
        "merges": [[m.first, m.last, m.from_draft_length, m.to_draft_length] for m in table.merges],
        "notes": list(table.notes),
    }


@pytest.fixture(scope="module")
def surface() -> StepTimeSurface:
    return StepTimeSurface.from_cells(_recorded_cells())


@pytest.mark.parametrize("name", CASES)
def test_recorded_profile_gives_the_recorded_table(
    name: str, surface: StepTimeSurface, request: pytest.FixtureRequest
) -> None:
    table = _as_json(build_table(surface, expected_tokens(SURVIVAL), 128, CASES[name]))
    if request.config.getoption("--update-golden", default=False):
        stored = json.loads(TABLES.read_text("utf-8")) if TABLES.exists() else {}
        stored[name] = table
        TABLES.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", "utf-8")
    assert table == json.loads(TABLES.read_text("utf-8"))[name]


def test_the_recorded_table_loses_little_to_argmax(surface: StepTimeSurface) -> None:
    tokens = expected_tokens(SURVIVAL)
    table = build_table(surface, tokens, 128)
    assert predicted_loss(table, surface, tokens).max() <= 0.01
    for k in surface.draft_lengths:  # no fixed length does as well everywhere
        assert predicted_loss([k] * 128, surface, tokens).max() > 0.02

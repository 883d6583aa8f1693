"""A profile recorded on an H200, as the in-engine method wrote it, still gives its table.

625 captured graphs, dummy weights, synthetic acceptance; see bench/results/h200_*_run.json.
"""

import dataclasses
import pathlib

import pytest

from tabletune.core.goodput import expected_tokens
from tabletune.core.table import BuildOptions, build_table
from tabletune.pipeline.build import MAX_MERGE_LOSS
from tabletune.pipeline.plans import choose_plans
from tabletune.records.evidence import padded_tokens, surface_of
from tabletune.records.fingerprint import DeviceFacts, EngineFacts
from tabletune.records.step_profile import Profile
from tests.pipeline.evidence import h200_request

RECORDED = (
    pathlib.Path(__file__).parents[1] / "golden" / "h200_vllm0.32.0_qwen3-4b_eagle3_profile.v1.json"
)
SURVIVAL = [0.72, 0.50, 0.34, 0.23]
DEVICE = DeviceFacts(
    platform="cuda",
    name="NVIDIA H200",
    count=1,
    capability="9.0",
    memory_bytes=150754820096,
    driver="580.159.04",
)
ENGINE = EngineFacts(
    distribution="vllm", version="0.32.0", runner="V2", torch="2.13.0", python="3.12.3"
)


@pytest.fixture(scope="module")
def recorded() -> Profile:
    return Profile.from_json(RECORDED.read_bytes())


def test_the_planner_still_chooses_the_plan_that_was_measured(recorded: Profile) -> None:
    """Measured before a plan had sizes for joining prompts; these come on top."""
    request = h200_request(max_num_seqs=128)
    plan = choose_plans(request, DEVICE, ENGINE, request.all_lengths, prompts_tok=0)[0]
    assert plan.graph_mode == "FULL_AND_PIECEWISE"
    assert plan.content_hash == recorded.plan
    assert plan.joining_sizes == ()
    now = choose_plans(request, DEVICE, ENGINE, request.all_lengths)[0]
    assert now.joining_sizes == (725, 818, 921, 1033, 1156, 1292)
    assert now.capture_sizes == plan.capture_sizes + now.joining_sizes
    assert now.graph_count == plan.graph_count + len(now.joining_sizes)


def test_the_recorded_profile_gives_the_recorded_table(recorded: Profile) -> None:
    request = h200_request(max_num_seqs=128)
    plan = choose_plans(request, DEVICE, ENGINE, request.all_lengths)[0]
    surface = surface_of(recorded, padded_tokens(plan, ENGINE, DEVICE, "eagle3"))
    tokens = expected_tokens(SURVIVAL)
    options = BuildOptions(uncertainty=surface.relative_uncertainty, max_merge_loss=MAX_MERGE_LOSS)
    table = build_table(surface, tokens, 128, options)
    assert table.as_rows() == [(1, 29, 4), (30, 45, 3), (46, 49, 4), (50, 64, 3), (65, 128, 2)]
    for b, length in enumerate(table.draft_lengths, start=1):
        goodput = [tokens[k] / surface.step_time_s(b, k) for k in range(5)]
        assert goodput[length] >= 0.98 * max(goodput)
    # Merged at any price, as in the paper, it loses more where graphs make a stair.
    merged = build_table(surface, tokens, 128, dataclasses.replace(options, max_merge_loss=None))
    assert merged.as_rows() == [(1, 29, 4), (30, 64, 3), (65, 128, 2)]


def test_every_cell_of_the_recorded_profile_is_used(recorded: Profile) -> None:
    assert len(recorded.cells) == 105
    assert {cell.status for cell in recorded.cells} == {"measured"}
    assert recorded.wall_time_s < 60

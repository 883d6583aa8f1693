"""An n-gram profile recorded on a CPU engine, and what that engine then did at every length.

SmolLM2-135M-Instruct, real prompts, real acceptance; measured in one workspace with
bench/results/cpu_vllm-cpu0.32.0_smollm2_ngram_first_policies.json. The profile was driven with
longer outputs than the acceptance was counted over: its steps held about half a guess of each
request and position, those of the prior 0.3.
"""

import json
import pathlib

import numpy as np
import pytest

from tabletune.core.table import BuildOptions, build_table
from tabletune.core.words import FloatArray
from tabletune.pipeline.build import MAX_MERGE_LOSS
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.evidence import expected_tokens_of, surface_and_scatter
from tabletune.records.step_profile import Profile

ROOT = pathlib.Path(__file__).parents[2]
NAME = "cpu_vllm-cpu0.32.0_smollm2_ngram"
LENGTHS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def profile() -> Profile:
    path = ROOT / "tests" / "golden" / f"{NAME}_profile.v1.json"
    return Profile.from_json(path.read_bytes())


@pytest.fixture(scope="module")
def prior() -> AcceptancePrior:
    path = ROOT / "tests" / "golden" / f"{NAME}_prior.v1.json"
    return AcceptancePrior.from_json(path.read_bytes())


def predicted(profile: Profile, prior: AcceptancePrior, *, long_run: bool, b: int) -> FloatArray:
    """Goodput of each length over the best one's."""
    surface, _ = surface_and_scatter(profile, None, prior if long_run else None)
    tokens = expected_tokens_of(prior)
    goodput = np.array([tokens[k] / surface.step_time_s(b, k) for k in LENGTHS])
    return goodput / goodput.max()


def measured(b: int) -> FloatArray:
    """Throughput of each length over the best one's, of all windows that ran it."""
    result = json.loads((ROOT / "bench" / "results" / f"{NAME}_first_policies.json").read_text())
    load = next(load for load in result["loads"] if load["load"] == f"closed {b}")
    return np.array([load["by_length"][str(k)]["of_best"][0] for k in LENGTHS])


def test_at_the_long_runs_tokens_predictions_are_what_the_engine_did(
    profile: Profile, prior: AcceptancePrior
) -> None:
    assert np.abs(predicted(profile, prior, long_run=True, b=8) - measured(8)).max() < 0.03
    assert np.abs(predicted(profile, prior, long_run=True, b=2) - measured(2)).max() < 0.09


def test_as_measured_they_are_not(profile: Profile, prior: AcceptancePrior) -> None:
    apart = predicted(profile, prior, long_run=False, b=8) - measured(8)
    assert apart[0] > 0.1, "without drafts it seemed nearly as fast as with two"


def test_the_table_takes_a_length_that_is_as_good_as_the_best(
    profile: Profile, prior: AcceptancePrior
) -> None:
    surface, scatter = surface_and_scatter(profile, None, prior)
    options = BuildOptions(
        uncertainty=surface.relative_uncertainty, max_merge_loss=MAX_MERGE_LOSS, noise=scatter
    )
    lengths = build_table(surface, expected_tokens_of(prior), 8, options).draft_lengths
    assert measured(8)[lengths[7]] > 0.96
    assert measured(2)[lengths[1]] > 0.96


def test_a_client_profile_is_brought_there_too(profile: Profile, prior: AcceptancePrior) -> None:
    """Its samples are means already, and so of the constant kind."""
    client = profile.model_copy(update={"method": "client", "step_kind": "constant"})
    before, after = (surface_and_scatter(client, None, p)[0] for p in (None, prior))
    assert after.step_time_s(8, 3) < 0.95 * before.step_time_s(8, 3)


def test_a_drafter_that_fills_its_drafts_is_left_alone(
    profile: Profile, prior: AcceptancePrior
) -> None:
    steps = prior.counts.request_steps
    full = prior.counts.model_copy(update={"drafted_through": (steps, steps, int(0.97 * steps))})
    filling = prior.model_copy(update={"counts": full})
    before, after = (surface_and_scatter(profile, None, p)[0] for p in (None, filling))
    assert [after.step_time_s(b, k) for b in (1, 8) for k in LENGTHS] == [
        before.step_time_s(b, k) for b in (1, 8) for k in LENGTHS
    ]

"""A scenario in the simulator: the same policies and figures as on an engine."""

import json
import pathlib

import pytest

from bench.evaluation.scenario import Scenario, ScenarioError, load_scenario
from bench.evaluation.simulated import can_simulate, simulate

CLOSED = {"kind": "closed", "concurrency": 64}
POISSON = {"kind": "poisson", "rate_per_s": 5.0}


def changed(name: str, **changes: object) -> Scenario:
    values = load_scenario(name).model_dump(mode="json") | changes
    return Scenario.model_validate_json(json.dumps(values))


def test_shares_of_the_best_fixed_length(tmp_path: pathlib.Path) -> None:
    policies = ["fixed", "tuned table", "oracle table", "TurboSpec-style"]
    out = tmp_path / "sim.json"
    simulate(changed("qwen3-4b_eagle3", loads=[CLOSED, POISSON], policies=policies), out, seeds=2)
    found = json.loads(out.read_text())
    assert found["simulated"] is True
    closed, poisson = found["loads"]
    shares = {name: p["of_best_fixed"][0] for name, p in closed["policies"].items()}
    assert closed["best_fixed"] == "fixed 3"
    assert 0.99 < shares["tuned table"] < 1.02
    assert shares["oracle table"] >= shares["tuned table"] - 0.002
    assert shares["TurboSpec-style"] < 0.96
    assert shares["fixed 0"] < 0.6
    assert poisson["score"] == "tokens per request-second"
    assert poisson["policies"]["tuned table"]["mean_batch_size"] < 64


def test_after_a_switch_the_controller_leaves_the_stale_table_behind(
    tmp_path: pathlib.Path,
) -> None:
    out = tmp_path / "sim.json"
    policies = ["fixed", "tuned table", "controller"]
    scenario = changed("qwen3-4b_eagle3_switch", loads=[CLOSED], policies=policies)
    simulate(scenario, out, seeds=1)
    found = json.loads(out.read_text())
    labels = [load["load"] for load in found["loads"]]
    assert labels[0] == "closed 64"
    assert labels[2] == "closed 64, after a switch to hard"
    hard = found["loads"][2]["policies"]
    assert hard["stale table"]["of_tuned"][0] < 0.95
    assert hard["controller"]["of_tuned"][0] > 0.98


def test_only_what_was_recorded_can_be_simulated(tmp_path: pathlib.Path) -> None:
    longer = changed("qwen3-4b_eagle3", prompt_tok=2048)
    assert not can_simulate(longer)
    with pytest.raises(ScenarioError, match="only be run on an engine"):
        simulate(longer, tmp_path / "sim.json")
    with pytest.raises(ScenarioError, match="only be run on an engine"):
        simulate(load_scenario("smollm2_ngram_cpu"), tmp_path / "sim.json")
    assert not list(tmp_path.iterdir())

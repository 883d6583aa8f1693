"""The parts of the evaluation that need no engine."""

import argparse
import json
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from bench.evaluation.arms import Arm, Known, arms, expected_tokens_of, specs, tables
from bench.evaluation.cells import Cells
from bench.evaluation.compare import bouts
from bench.evaluation.engine import environment, promoted_version
from bench.evaluation.loads import gaps_s, spread_outputs
from bench.evaluation.profile_command import profile_command
from bench.evaluation.scenario import Poisson, Scenario, ScenarioError, Trace, load_scenario, names
from bench.evaluation.shares import best_fixed, interval, summarise_load
from bench.evaluation.window import EmptyWindowError, score_of, window_of
from tabletune.measure.load import LoadRequest
from tabletune.measure.steps import StepBatch
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.table import Parents, TableVersion, table_from_dense
from tabletune.simulate.scenarios.tables import GridStepTimes

SURVIVAL = (0.8, 0.5)


def steps(rows: Sequence[tuple[float, int, int, int]], accepted: Sequence[int]) -> StepBatch:
    """Steps of (interval_s, batch size, draft length, prefills), all verifying two guesses."""
    table = np.array(rows)
    count = len(rows)
    batch = table[:, 1].astype(np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    hits = np.array(accepted)
    return StepBatch(
        seq=np.arange(count),
        time_s=np.cumsum(np.nan_to_num(table[:, 0])),
        interval_s=table[:, 0],
        batch_size=batch,
        draft_length=table[:, 2].astype(np.int64),
        verified_length=zeros + 2,
        drafted_tok=2 * batch,
        scheduled_tok=3 * batch,
        prefill_requests=table[:, 3].astype(np.int64),
        output_tok=batch + hits,
        request_steps=batch,
        graph_mode=zeros + 2,
        padded_tok=zeros,
        drafted_through=np.stack([batch, batch], axis=1),
        accepted_through=np.stack([hits, 0 * hits], axis=1),
    )


def test_a_window_without_the_luck_of_acceptance() -> None:
    rows = [(9.0, 4, 2, 0), (0.1, 4, 2, 0), (0.1, 4, 2, 1), (np.nan, 4, 0, 0), (0.2, 4, 2, 0)]
    rows.append((0.05, 4, 2, 0))
    window = window_of("p", steps(rows, [4, 4, 0, 2, 2, 0]), SURVIVAL)
    assert window.seconds == pytest.approx(0.45)  # neither before the window nor while idle
    assert window.output_tok == 20 + 8
    assert window.rate_tok_s == pytest.approx(28 / 0.45)
    assert window.steadied_tok_s == pytest.approx((20 + 5 * 4 * 1.3) / 0.45)
    assert window.decode_tok_s == pytest.approx((4 + 4 * 1.3) / 0.2)
    assert window.user_tok_s == pytest.approx((20 + 5 * 4 * 1.3) / (0.45 * 4))
    assert window.lengths == {"0": 0.2, "2": 0.8}
    assert window.prefill_steps == 1
    real = window_of("p", steps(rows, [4, 4, 0, 2, 2, 0]), None)
    assert real.steadied_tok_s is None
    assert score_of(real.to_json(), open_load=False) == real.rate_tok_s
    assert score_of(window.to_json(), open_load=False) == window.steadied_tok_s
    assert score_of(window.to_json(), open_load=True) == window.user_tok_s
    with pytest.raises(EmptyWindowError, match="under p, found 2"):
        window_of("p", steps(rows[:2], [0, 0]), None)


def cell(score: float, boot: str = "b") -> dict[str, Any]:
    figures: dict[str, Any] = {"rate_tok_s": score, "steadied_tok_s": None, "user_tok_s": 1.0}
    figures |= {"seconds": 1.0, "output_tok": round(score), "prefill_steps": 0}
    figures |= {"decode_tok_s": score, "mean_batch_size": 2.0, "mean_step_time_s": 0.01}
    return {**figures, "boot": boot, "ungraphed_steps": 0, "steps": 5, "lengths": {"2": 1.0}}


def test_shares_are_of_the_fixed_length_that_was_best_on_average() -> None:
    rounds = [
        {"fixed 0": cell(100), "fixed 2": cell(120), "tuned table": cell(119)},
        {"fixed 0": cell(130), "fixed 2": cell(124), "tuned table": cell(125)},
        {"fixed 0": cell(100), "fixed 2": cell(122), "tuned table": cell(122)},
    ]
    found = summarise_load(rounds, list(rounds[0]), open_load=False)
    assert found["best_fixed"] == "fixed 2"
    assert found["policies"]["fixed 2"]["of_best_fixed"] == [1.0, 1.0, 1.0]
    middle, low, high = found["policies"]["fixed 0"]["of_best_fixed"]
    assert middle == pytest.approx(330 / 366, abs=1e-4)
    assert low == pytest.approx(100 / 122, abs=0.01)
    assert high == pytest.approx(130 / 124, abs=0.01)
    with pytest.raises(ValueError, match="add `fixed`"):
        best_fixed({"tuned table": np.array([1.0])})


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    chance = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        whole = chance.normal(100, 2, 12)
        part = 0.9 * whole + chance.normal(0, 1, 12)
        _, low, high = interval(part, whole, chance)
        covered += low <= 0.9 <= high
    assert 0.85 < covered / 200 < 0.99


def test_a_round_counts_whole_and_from_one_boot(tmp_path: pathlib.Path) -> None:
    cells, names = Cells(tmp_path), ["fixed 0", "tuned table"]
    assert cells.missing("closed 1", 0, names, "first") == names
    cells.save("closed 1", 0, "fixed 0", cell(1, "first"))
    assert cells.missing("closed 1", 0, names, "first") == ["tuned table"]
    assert cells.missing("closed 1", 0, names, "second") == names
    assert cells.whole_rounds("closed 1", 1, names) == []
    cells.save("closed 1", 0, "tuned table", cell(2, "second"))
    assert cells.missing("closed 1", 0, names, "second") == ["fixed 0"]
    cells.save("closed 1", 0, "fixed 0", cell(3, "second"))
    assert cells.missing("closed 1", 0, names, "third") == []
    (whole,) = cells.whole_rounds("closed 1", 1, names)
    assert whole["fixed 0"]["rate_tok_s"] == 3


def known() -> Known:
    """Step times with which drafting pays below 100 requests only."""
    b, k = np.arange(129.0)[:, None], np.arange(5.0)
    times = 0.004 + 0.00005 * b + np.where(b <= 100, 0.0001, 0.01) * k
    envelope = {str(n): ((1, 128),) for n in (0, 1, 3)} | {"4": ((1, 16),)}
    return Known(
        surface=GridStepTimes(times),
        envelope=Envelope(allowed=envelope),
        lengths=(0, 1, 3, 4),
        max_num_seqs=128,
        longest=4,
        expected_tokens=expected_tokens_of((0.72, 0.5, 0.34, 0.23)),
        tuned=(0, *[3] * 128),
    )


def test_tables_keep_to_the_envelope() -> None:
    found = tables(load_scenario("qwen3-4b_eagle3"), known())
    assert [name for name in found if name.startswith("fixed")] == [
        *("fixed 0", "fixed 1", "fixed 3", "fixed 4")
    ]
    documented = found["documented table"]
    assert [documented[b] for b in (1, 16, 17, 32, 33, 64, 65, 128)] == [4, 4, 3, 3, 3, 3, 1, 1]
    schedule = found["TensorRT-LLM-style"]  # {4: 4, 8: 2, 32: 1}; 2 is not in the envelope
    assert [schedule[b] for b in (4, 5, 8, 9, 32, 33)] == [4, 1, 1, 1, 1, 0]
    oracle = found["oracle table"]
    assert [oracle[b] for b in (1, 16, 17, 100, 101, 128)] == [4, 4, 3, 3, 0, 0]
    assert all(len(table) == 129 for table in found.values())


def test_arms_and_what_is_sent_for_each() -> None:
    scenario = load_scenario("qwen3-4b_eagle3")
    found = {arm.name: arm for arm in arms(scenario, known(), stale=(0, *[1] * 128))}
    assert found["fixed 3"].body == {"ranges": [[1, 128, 3]]}
    assert found["fixed 0"].body == {"ranges": [[1, 128, 0]]}
    assert found["stale table"].body == {"ranges": [[1, 128, 1]]}
    assert found["Nightjar-style"].body == {"policy": "Nightjar-style"}
    assert found["controller"] == Arm("controller", "controller")
    assert found["controller"].body == {"ranges": None}
    assert {name for name, arm in found.items() if arm.learns} == {
        *specs(scenario, known()),
        "controller",
    }
    assert json.loads(json.dumps(specs(scenario, known()))) == specs(scenario, known())


@pytest.mark.parametrize("name", names())
def test_every_scenario_can_be_read(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert len(bouts(scenario)) == len(scenario.loads) * max(1, len(scenario.traffic))


def test_the_engines_variables_are_those_of_the_profile(tmp_path: pathlib.Path) -> None:
    scenario = load_scenario("qwen3-30b-a3b_eagle3")
    name, value = "VLLM_MOE_ROUTING_SIMULATION_STRATEGY", "uniform_random"
    options = argparse.Namespace(model="M", drafter="D", engine="python3", work=pathlib.Path("out"))
    command = shlex.split(profile_command(scenario, options))
    assert command[:4] == ["env", f"{name}={value}", "tabletune", "profile"]
    variables = environment(scenario, tmp_path, "/inherited")
    assert variables[name] == value
    assert variables["TABLETUNE_SOURCE"] == (tmp_path / "store").as_uri()
    assert variables["PYTHONPATH"].endswith("/inherited")


def test_a_wrong_scenario_says_where(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bad.json"
    good = json.loads((pathlib.Path("bench/scenarios") / "qwen3-4b_eagle3.json").read_text())
    for changes, message in (
        ({"rounds": 2}, "rounds"),
        ({"loads": [{"kind": "closed"}]}, "concurrency"),
        ({"policies": ["fixed", "magic"]}, "magic"),
        ({"traffic": [{**good["traffic"][0], "survival": [0.5, 0.6, 0.1, 0.1]}]}, "must not rise"),
        ({"traffic": [{**good["traffic"][0], "survival": [0.5]}]}, "has 1 survival values"),
        ({"colour": "blue"}, "colour"),
    ):
        path.write_text(json.dumps(good | changes))
        with pytest.raises(ScenarioError, match=message):
            load_scenario(str(path))
    with pytest.raises(ScenarioError, match="known are"):
        load_scenario("unheard-of")


def test_gaps_have_the_rate_and_the_variation_asked_for() -> None:
    poisson = gaps_s(Poisson(kind="poisson", rate_per_s=20.0), 20_000)
    assert poisson.mean() == pytest.approx(0.05, rel=0.03)
    assert poisson.std() / poisson.mean() == pytest.approx(1, rel=0.03)
    bursty = Trace(kind="trace", rate_per_s=20.0, gap_variation=3.0, source="a test's own")
    gaps = gaps_s(bursty, 50_000)
    assert gaps.mean() == pytest.approx(0.05, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(3, rel=0.1)


def test_outputs_end_one_after_the_other() -> None:
    requests = [LoadRequest("a", 1024), LoadRequest("b", 100)]
    found = spread_outputs(requests, (400, 400), 8, at_once=4, longest_tok=4000)
    assert [r.max_tokens for r in found] == [100, 100, 300, 100, 400, 100, 400, 100]


def test_outputs_without_an_end_of_their_own_are_as_long_as_asked_for() -> None:
    requests = [LoadRequest("a", 100, {"ignore_eos": True})]
    found = spread_outputs(requests, (500, 1500), 400, at_once=1, longest_tok=4000)
    lengths = [r.max_tokens for r in found[1:]]
    assert 500 <= min(lengths) < 520
    assert 1480 < max(lengths) <= 1500
    found = spread_outputs(requests, (500, 1500), 400, at_once=1, longest_tok=700)
    lengths = [r.max_tokens for r in found[1:]]
    assert max(lengths) == 700
    assert len(set(lengths)) > 100, "shorter ones are spread, not cut to one length"


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("tuned table", None),
        ("documented table", [4] * 16 + [3] * 48 + [1] * 64),
        ("longest", [4] * 16 + [3] * 112),
        ("shortest", [0] * 128),
    ],
)
def test_what_the_controller_starts_from(start: str, expected: list[int] | None) -> None:
    values = load_scenario("qwen3-4b_eagle3").model_dump(mode="json") | {"promoted": start}
    scenario = Scenario.model_validate_json(json.dumps(values))
    one = table_from_dense([0, *[3] * 128], 4)
    plan = CapturePlan(
        graph_mode="NONE",
        capture_sizes=(),
        lengths=(0, 1, 3, 4),
        max_draft_length=4,
        max_num_seqs=128,
        graph_count=0,
    )
    tuned = TableVersion(
        table=one,
        plan=plan,
        envelope=known().envelope,
        fingerprint="0" * 64,
        parents=Parents(),
        created_at="2026-11-30T00:00:00+00:00",
    )
    version = promoted_version(scenario, tuned, known())
    assert version.table.dense()[1:] == (expected or [3] * 128)
    assert version.plan == plan
    assert version.content_hash == TableVersion.from_json(version.to_json()).content_hash

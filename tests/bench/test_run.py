"""bench.run end to end on a stand-in engine: real HTTP and processes, invented steps."""

import dataclasses
import json
import pathlib
import sys
import threading
from typing import Any

import pytest
from deployment import Deployment, new_deployment

from bench import run as bench_run
from bench.evaluation import engine as bench_engine
from bench.evaluation import workspace_facts
from tabletune.measure.engine_errors import EngineError
from tabletune.measure.validate import conclude
from tabletune.pipeline.build import Build
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import BootCancelled
from tabletune.pipeline.stage_validate import OnPluginEngine
from tabletune.records.plan import CapturePlan
from tabletune.records.table import TableVersion, table_from_dense
from tabletune.records.vllm_format import to_vllm

HERE = pathlib.Path(__file__).parent
LOADS = [{"kind": "closed", "concurrency": 2}, {"kind": "closed", "concurrency": 4}]


def scenario(folder: pathlib.Path, **changes: object) -> pathlib.Path:
    """A scenario of the small deployment."""
    values: dict[str, object] = {
        "name": "small",
        "what": "a small one",
        "target": "real",
        "method": "ngram",
        "max_num_seqs": 4,
        "max_draft_length": 2,
        "loads": LOADS,
        "rounds": 3,
        "window_s": 0.3,
        "settle_s": 0.05,
        "learn_s": 0.1,
        "ramp_s": 0.1,
        "output_tok": [8, 24],
        "policies": ["fixed", "tuned table", "oracle table", "TurboSpec-style", "Nightjar-style"],
        **changes,
    }
    path = folder / "scenario.json"
    path.write_text(json.dumps(values))
    return path


def with_policies(made: Deployment) -> Deployment:
    """The deployment, whose engine knows the benchmark's policies from now on."""
    server = made.engine.folder / "site" / "vllm" / "entrypoints" / "openai" / "api_server.py"
    paths = [str(HERE.parent / "pipeline"), str(HERE.parents[1])]
    server.write_text(
        f"import runpy, sys\nsys.path += {paths!r}\n"
        f"runpy.run_path({str(HERE / 'policy_server.py')!r}, run_name='__main__')\n"
    )
    return made


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A deployment with a profile, whose engine knows the benchmark's policies."""
    made = new_deployment(tmp_path_factory.mktemp("profiled"))
    ended = made.run("profile", "--json")
    assert ended.process.returncode == 0, ended.errors
    return with_policies(made)


def call(made: Deployment, path: pathlib.Path, out: pathlib.Path, *more: str) -> int:
    work, python = str(made.out), str(made.engine.python)
    arguments = [str(path), "--work", work, "--engine", python, "--out", str(out), *more]
    return bench_run.main(arguments)


def test_every_policy_at_every_load(profiled: Deployment, tmp_path: pathlib.Path) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    assert call(made, scenario(tmp_path), out) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    assert [load["load"] for load in found["loads"]] == ["closed 2", "closed 4"]
    policies: dict[str, Any] = {}
    for load in found["loads"]:
        assert load["rounds"] == 3
        assert load["boots"] == 1
        policies = load["policies"]
        assert set(policies) == {
            *("fixed 0", "fixed 2", "tuned table", "oracle table"),
            *("TurboSpec-style", "Nightjar-style"),
        }
        best = policies[load["best_fixed"]]
        assert best["of_best_fixed"] == [1.0, 1.0, 1.0]
        assert policies["fixed 2"]["lengths"] == {"2": 1.0}
        assert policies["fixed 0"]["lengths"] == {"0": 1.0}
        assert 0.3 < policies["tuned table"]["of_best_fixed"][0] < 2
    assert set(policies["Nightjar-style"]["lengths"]) <= {"0", "2"}, "1 is not in the envelope"
    cost = found["policy_cost"]["Nightjar-style"]
    assert cost["chosen_steps"] > 100
    assert cost["observed_steps"] > 50
    assert cost["choose_us"] > 0
    assert found["synthetic"] == "nothing"
    assert len(made.engine.boots()) == 1
    assert not made.engine.living()


def test_it_stops_in_time_and_goes_on(profiled: Deployment, tmp_path: pathlib.Path) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    path = scenario(tmp_path, loads=LOADS[:1])
    assert call(made, path, out, "--limit-s", "0.5") == bench_run.GO_ON
    assert json.loads(out.read_text())["loads"] == []
    assert call(made, path, out) == 0
    cells = sorted((made.out / "bench" / "small" / "cells").rglob("*.json"))
    assert len(cells) == 3 * 6
    before = [cell.stat().st_mtime_ns for cell in cells]
    assert call(made, path, out) == 0, "nothing is left to do"
    assert [cell.stat().st_mtime_ns for cell in cells] == before
    assert len(json.loads(out.read_text())["loads"]) == 1


def test_arrivals_and_jumps(profiled: Deployment, tmp_path: pathlib.Path) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    loads = [
        {"kind": "poisson", "rate_per_s": 60.0},
        {"kind": "jump", "low": 1, "high": 3, "period_s": 0.5},
    ]
    path = scenario(tmp_path, loads=loads, policies=["fixed", "tuned table"], window_s=1.5)
    assert call(made, path, out) == 0
    poisson, jump = json.loads(out.read_text())["loads"]
    assert poisson["score"] == "tokens per request-second"
    assert poisson["policies"]["fixed 2"]["user_tok_s"] > 50
    assert 1 < jump["policies"]["fixed 0"]["mean_batch_size"] < 3


def test_replicas_share_a_load_and_an_arm(profiled: Deployment, tmp_path: pathlib.Path) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    loads = [
        {"kind": "closed", "concurrency": 6},
        {"kind": "jump", "low": 2, "high": 6, "period_s": 0.4},
        {"kind": "poisson", "rate_per_s": 30.0},
    ]
    path = scenario(
        tmp_path, loads=loads, replicas=2, policies=["fixed", "tuned table", "controller"]
    )
    assert call(made, path, out) == 0
    assert len(made.engine.boots()) == 2
    found: dict[str, Any] = json.loads(out.read_text())
    assert [load["load"] for load in found["loads"]] == [
        *("closed 6", "jump 2 to 6", "poisson 30 per s")
    ]
    closed: list[dict[str, Any]] = found["loads"][0]["windows"]
    # Three requests of six on each of the two engines, and each gave its steps.
    assert all(window["mean_batch_size"] <= 3.0 for window in closed)
    for name, policy in found["loads"][0]["policies"].items():
        if name.startswith("fixed "):
            assert set(policy["lengths"]) == {name.removeprefix("fixed ")}, "on both engines"


def test_each_replica_computes_on_cores_of_its_own() -> None:
    assert [bench_engine.cores_of(n, 2, {4, 5, 6, 7, 9}) for n in range(2)] == [[4, 5], [6, 7]]
    assert [bench_engine.cores_of(n, 3, {0, 1}) for n in range(3)] == [[0], [1], [1]]


def test_each_replica_sees_gpus_of_its_own() -> None:
    assert [bench_engine.gpus_of(n, 1, 2, None) for n in range(2)] == ["0", "1"]
    assert [bench_engine.gpus_of(n, 2, 4, "4,5,6,7") for n in range(2)] == ["4,5", "6,7"]
    for there, visible in ((1, None), (1, "GPU-a"), (0, "")):
        with pytest.raises(bench_engine.ComparisonError, match="replica 2 needs 1 GPUs"):
            bench_engine.gpus_of(1, 1, there, visible)


class Boots:
    """Sessions of replicas: one fails at once, the other boots until it is given up."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.was_given_up = error, False

    def measuring(self, plan: CapturePlan, given_up: threading.Event) -> str:
        if self.error is not None:
            raise self.error
        if plan is None:
            self.was_given_up = given_up.wait(30)
            raise BootCancelled("given up")
        return "up"


def test_a_replica_that_fails_ends_the_others_boots() -> None:
    sessions: Any = [Boots(None), Boots(EngineError("no memory"))]
    plan: Any = None
    with pytest.raises(EngineError, match="no memory"):
        bench_engine.booted(sessions, plan)
    assert sessions[0].was_given_up
    # What was given up is not for good: a campaign goes on with the same sessions.
    sessions[1].error, plan = None, "a plan"
    assert bench_engine.booted(sessions, plan) == ["up", "up"]


def test_records_of_another_environment_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = new_deployment(tmp_path)
    model, out = ("--model", str(made.model), "--limit-s", "0"), tmp_path / "result.json"
    with_policies(made)
    plain = scenario(tmp_path)
    assert call(made, plain, out, *model) == bench_run.GO_ON
    other = scenario(tmp_path, engine_environment={"VLLM_LOGGING_LEVEL": "INFO"})
    assert call(made, other, out, *model) == 1
    assert "its records are of {}" in capsys.readouterr().err
    assert call(made, other, out) == 1
    assert len(made.engine.boots()) == 1


def test_prompts_for_which_there_is_no_room_are_refused(
    profiled: Deployment, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    assert call(made, scenario(tmp_path, prompt_tok=1_000_000), out) == 1
    assert "instead of 1000000; the scenario needs" in capsys.readouterr().err


def test_windows_that_replay_the_same_requests(
    profiled: Deployment, tmp_path: pathlib.Path
) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    policies = ["fixed", "tuned table", "TurboSpec-style"]
    path = scenario(tmp_path, loads=LOADS[:1], policies=policies, replay_tok=16)
    assert call(made, path, out) == 0
    (load,) = json.loads(out.read_text())["loads"]
    cells = sorted((made.out / "bench" / "small" / "cells").rglob("fixed-2.json"))
    tokens = [json.loads(cell.read_text())["output_tok"] for cell in cells]
    # As many tokens each time, to within the steps at both ends.
    assert max(tokens) - min(tokens) <= 12
    assert min(tokens) >= 2 * 16 - 6
    assert load["policies"]["fixed 2"]["lengths"] == {"2": 1.0}


def test_a_controller_that_does_not_follow_is_left_out(
    profiled: Deployment, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_engine, "FOLLOW_S", 0.1)
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    path = scenario(tmp_path, loads=LOADS[:1], policies=["fixed", "tuned table", "controller"])
    assert call(made, path, out) == 0
    found = json.loads(out.read_text())
    assert set(found["loads"][0]["policies"]) == {"fixed 0", "fixed 2", "tuned table"}
    assert "not followed" in found["controller_left_out"]


def test_another_deployments_folder_is_refused(
    profiled: Deployment, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    assert call(made, scenario(tmp_path, max_num_seqs=8), out) == 1
    assert "its max_num_seqs is 4, the scenario's 8" in capsys.readouterr().err
    assert not out.exists()
    for record in made.out.glob("records/*/profile.json"):
        record.unlink()
    assert call(made, scenario(tmp_path), out) == 1
    assert "is missing for" in capsys.readouterr().err
    assert sys.exc_info() == (None, None, None)


def test_the_tuned_table_is_what_a_validation_made_of_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out = with_policies(new_deployment(tmp_path)), tmp_path / "result.json"
    path = scenario(tmp_path, loads=LOADS[1:], policies=["fixed", "tuned table"])
    assert call(made, path, out, "--validate") == 1
    assert "expected --model with --validate" in capsys.readouterr().err
    really, forced = workspace_facts.validate_on_plugin_engine, list[TableVersion]()

    def corrected(run: RunContext, plan: CapturePlan, build: Build) -> OnPluginEngine:
        """As measured, but corrected to one other length everywhere, whatever the host's luck."""
        found = really(run, plan, build)
        other = 0 if max(build.version.table.dense()) else 2
        table = table_from_dense([0, *[other] * 4], build.version.table.max_draft_length)
        before = build.version.content_hash
        parents = build.version.parents.model_copy(update={"previous_version": before})
        version = build.version.model_copy(update={"table": table, "parents": parents})
        verdict = conclude(found.setup, found.bench, found.outcome)
        forced.append(version)
        return dataclasses.replace(found, version=version, corrected=(build.version, verdict))

    monkeypatch.setattr(workspace_facts, "validate_on_plugin_engine", corrected)
    model = ("--model", str(made.model))
    assert call(made, path, out, *model) == 0
    before = json.loads(out.read_text())
    assert before["validated"] is None
    assert call(made, path, out, *model, "--validate") == 0
    after = json.loads(out.read_text())
    assert len(made.engine.boots()) == 2, "validated and compared on one engine"
    assert isinstance(after["validated"]["passed"], bool)
    tables = after["loads"][0]["tables"]
    assert tables["tuned table"] == to_vllm(forced[0].table)
    assert tables["tuned table as built"] == before["loads"][0]["tables"]["tuned table"]
    old = before["loads"][0]["policies"]["tuned table"]["by_round_tok_s"]
    assert after["loads"][0]["policies"]["tuned table"]["by_round_tok_s"] != old
    assert call(made, path, out, *model, "--validate") == 0
    assert len(forced) == 1, "a version with a verdict is not validated again"
    assert json.loads(out.read_text())["loads"] == after["loads"]


def test_a_window_that_meets_too_few_steps_goes_on(
    profiled: Deployment, tmp_path: pathlib.Path
) -> None:
    made, out = profiled.copy(tmp_path), tmp_path / "result.json"
    path = scenario(tmp_path, loads=LOADS[1:], window_s=0.001, policies=["fixed", "tuned table"])
    assert call(made, path, out) == 0
    assert all(
        window["steps"] >= 2 for window in json.loads(out.read_text())["loads"][0]["windows"]
    )

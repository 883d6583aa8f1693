"""bench.campaign on a stand-in engine: measured and compared on one boot."""

import json
import pathlib

import pytest
from deployment import Deployment, new_deployment
from test_run import LOADS, scenario, with_policies

from bench import campaign
from bench.evaluation.scenario import load_scenario


def named(folder: pathlib.Path, name: str, **changes: object) -> str:
    (folder / name).mkdir()
    return str(scenario(folder / name, name=name, **changes))


def call(made: Deployment, out: pathlib.Path, *more: str) -> int:
    words = ["--work", str(made.out), "--engine", str(made.engine.python)]
    return campaign.main([*words, "--model", str(made.model), "--out", str(out), *more])


def test_one_boot_measures_and_compares_all(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, out = with_policies(new_deployment(tmp_path)), tmp_path / "results"
    policies = ["fixed", "tuned table", "TurboSpec-style"]
    one = named(tmp_path, "one", loads=LOADS[:1], policies=policies)
    other = named(tmp_path, "other", loads=LOADS[1:], policies=["fixed", "tuned table"])
    # The stand-in gives other outputs than the client's method asks for: that benchmark fails.
    methods = "--batch-sizes 2 --lengths 0,2 --rounds 2 --reference-samples 24"
    conditions = "--batch-sizes 2 --lengths 0,2 --rounds 2 --samples 24 --output-tok 32"
    more = ("--profile-methods", methods, "--profile-conditions", conditions)
    assert call(made, out, one, other, *more) == 1
    told = capsys.readouterr().err
    assert "error: profile_methods failed" in told
    loads = [json.loads((out / f"{n}.json").read_text())["loads"] for n in ("one", "other")]
    assert [[load["load"] for load in each] for each in loads] == [["closed 2"], ["closed 4"]], told
    assert loads[0][0]["policies"]["TurboSpec-style"]["of_best_fixed"][0] > 0.1
    assert len(made.engine.boots()) == 1
    assert not made.engine.living()
    cells = json.loads((out / "profile_conditions.json").read_text())["cells"]
    assert [(c["batch_size"], c["draft_length"]) for c in cells] == [(2, 0), (2, 2)], told
    for cell in cells:
        for condition in ("in_turn", "alone", "with_prompts"):
            found = cell[condition]
            assert found["steps"] >= 40, (condition, cell)
            assert len(found["by_round_ms"]) == 2
            assert found["step_ms"] == pytest.approx(cell["alone"]["step_ms"], rel=0.2)
    # All is there: only the boot is needed again.
    before = made.record("profile").read_bytes()
    (out / "profile_methods.json").write_text("{}")
    assert call(made, out, one, "--profile-methods", methods) == 0
    assert "profile_methods.json is there" in capsys.readouterr().err
    assert made.record("profile").read_bytes() == before


def test_scenarios_of_two_deployments_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = new_deployment(tmp_path)
    one, other = named(tmp_path, "one"), named(tmp_path, "other", max_num_seqs=8)
    assert call(made, tmp_path / "results", one, other) == 1
    assert "one and other have another max_num_seqs" in capsys.readouterr().err
    assert not made.engine.boots()
    campaign.check_one_deployment([load_scenario(one)])


def test_a_slip_in_a_benchmarks_options_is_told_before_any_boot(tmp_path: pathlib.Path) -> None:
    made = new_deployment(tmp_path)
    one = named(tmp_path, "one")
    with pytest.raises(SystemExit):
        call(made, tmp_path / "results", one, "--controller", "--nonsense 3")
    assert not made.engine.boots()
    again = str(scenario(tmp_path, name="one"))
    with pytest.raises(campaign.NotOneDeploymentError, match="name"):
        campaign.check_one_deployment([load_scenario(one), load_scenario(again)])


def test_a_failure_outweighs_a_time_limit() -> None:
    assert campaign.worst([0, 75, 1]) == 1
    assert campaign.worst([75, 0]) == 75

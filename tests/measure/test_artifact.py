"""Models are told apart by content; drafters of another model are refused."""

import json
import os
import pathlib
import struct
from typing import Any

import pytest

from tabletune.identity.artifact import Artifact, ArtifactError, identify
from tabletune.measure.drafter import check_drafter

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write_weights(path: pathlib.Path, data: bytes = b"\1" * 100_000) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def make_model(folder: pathlib.Path, weights: bool = True, **changes: Any) -> pathlib.Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}))
    if weights:
        write_weights(folder / "model.safetensors")
    return folder


def content(folder: pathlib.Path) -> str:
    return identify(str(folder)).content


def test_facts_of_a_folder(tmp_path: pathlib.Path) -> None:
    model = identify(str(make_model(tmp_path / "m")))
    assert model.architecture == "LlamaForCausalLM"
    assert (model.vocabulary_size, model.hidden_size, model.max_positions) == (100, 64, 2048)
    assert model.dtype == "bfloat16"
    assert model.weight_bytes == (tmp_path / "m" / "model.safetensors").stat().st_size
    assert model.model_facts().content == model.content


def test_content_does_not_depend_on_place_or_time(tmp_path: pathlib.Path) -> None:
    first, second = make_model(tmp_path / "a"), make_model(tmp_path / "b")
    os.utime(second / "model.safetensors", (1, 1))
    (second / "README.md").write_text("not part of the model")
    assert content(first) == content(second)


@pytest.mark.parametrize("change", ["config", "tokenizer", "weights", "size", "name", "template"])
def test_every_change_of_content_shows(tmp_path: pathlib.Path, change: str) -> None:
    folder = make_model(tmp_path / "m")
    before = content(folder)
    weights = folder / "model.safetensors"
    if change == "config":
        make_model(folder, rope_theta=1.0)
    elif change == "tokenizer":
        (folder / "tokenizer.json").write_text("{}")
    elif change == "weights":  # retrained: same shapes, same size
        write_weights(weights, b"\2" * 100_000)
    elif change == "size":
        write_weights(weights, b"\1" * 100_001)
    elif change == "name":
        weights.rename(folder / "other.safetensors")
    else:
        (folder / "chat_template.jinja").write_text("{{ x }}")
    assert content(folder) != before


def _bytes_read() -> int:
    """By this process so far, from files and whatever else."""
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def test_of_a_huge_model_little_is_read(tmp_path: pathlib.Path) -> None:
    """Twenty sparse files of 5 GB."""
    folder = make_model(tmp_path / "m", weights=False)
    for number in range(20):
        path = folder / f"model-{number:05}.safetensors"
        write_weights(path, b"")
        os.truncate(path, 5_000_000_000)
    before = _bytes_read()
    model = identify(str(folder))
    assert _bytes_read() - before < 0.01 * 100_000_000_000
    assert model.weight_bytes == 100_000_000_000


def test_nested_configs(tmp_path: pathlib.Path) -> None:
    nested = {"text_config": {"vocab_size": 7, "hidden_size": 8, "dtype": "float16"}}
    none = dict.fromkeys(CONFIG)
    model = identify(str(make_model(tmp_path / "m", **{**none, **nested, "model_type": "glue"})))
    assert (model.vocabulary_size, model.hidden_size, model.dtype) == (7, 8, "float16")
    assert model.architecture == "glue"


def make_cache(root: pathlib.Path) -> dict[str, str]:
    repository = root / "hub" / "models--org--name"
    make_model(repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return {"HF_HOME": str(root)}


def test_hub_model_is_its_commit(tmp_path: pathlib.Path) -> None:
    environment = make_cache(tmp_path)
    model = identify("org/name", environment=environment)
    assert (model.source, model.content) == ("hub", f"revision:{COMMIT}")
    assert identify("org/name", revision=COMMIT, environment=environment) == model
    with pytest.raises(ArtifactError, match="revision 'v2'"):
        identify("org/name", revision="v2", environment=environment)
    with pytest.raises(ArtifactError, match="hf download org/other"):
        identify("org/other", environment=environment)


def test_each_fault_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ArtifactError, match="check the path"):
        identify(str(tmp_path / "none"))
    with pytest.raises(ArtifactError, match="check the path"):
        identify("a/b/c")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ArtifactError, match=r"config\.json"):
        identify(str(empty))
    (empty / "config.json").write_text("{")
    with pytest.raises(ArtifactError, match="one that fails"):
        identify(str(empty))
    (empty / "config.json").write_text("[]")
    with pytest.raises(ArtifactError, match="list in it"):
        identify(str(empty))
    with pytest.raises(ArtifactError, match="a folder with a config"):
        identify(str(empty / "config.json"))
    bare = make_model(tmp_path / "bare", weights=False)
    with pytest.raises(ArtifactError, match="--load-format dummy"):
        identify(str(bare))
    assert identify(str(bare), require_weights=False).weight_bytes == 0
    (bare / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ArtifactError, match="Git LFS"):
        identify(str(bare))


def artifact(tmp_path: pathlib.Path, label: str, **changes: Any) -> Artifact:
    return identify(str(make_model(tmp_path / label, **changes)))


@pytest.mark.parametrize(
    ("method", "changes", "rule"),
    [
        ("draft_model", {}, None),
        ("draft_model", {"hidden_size": 8}, None),
        ("draft_model", {"vocab_size": 90}, "drafter-vocabulary"),
        ("eagle3", {"draft_vocab_size": 30}, None),
        ("eagle3", {"draft_vocab_size": 130}, "drafter-draft-vocabulary"),
        ("eagle3", {"vocab_size": 90}, "drafter-vocabulary"),
        ("eagle3", {"hidden_size": 8}, "drafter-hidden-size"),
        ("eagle3", {"hidden_size": 8, "target_hidden_size": 64}, None),
        ("eagle", {"hidden_size": 8}, "drafter-hidden-size"),
        ("dflash", {"hidden_size": 8}, None),
        ("ngram", {}, "drafter-unused"),
    ],
)
def test_drafters(
    tmp_path: pathlib.Path, method: str, changes: dict[str, Any], rule: str | None
) -> None:
    model, drafter = artifact(tmp_path, "model"), artifact(tmp_path, "drafter", **changes)
    found = [refusal.rule for refusal in check_drafter(model, drafter, method)]
    assert found == ([rule] if rule else [])


def test_same_size_but_other_vocabulary(tmp_path: pathlib.Path) -> None:
    model, drafter = artifact(tmp_path, "model"), artifact(tmp_path, "drafter")
    swapped = {"model": {"vocab": {"a": 1, "b": 0}}}
    (drafter.folder / "tokenizer.json").write_text(json.dumps(swapped))
    (refusal,) = check_drafter(model, drafter, "draft_model")
    assert "'a' is token 0 of the model, 1 of the drafter" in refusal.reason
    assert check_drafter(model, drafter, "draft_model", mixed_vocabularies=True) == []


def test_missing_drafter(tmp_path: pathlib.Path) -> None:
    model = artifact(tmp_path, "model")
    assert check_drafter(model, None, "ngram") == []
    assert check_drafter(model, None, "qwen3_next_mtp") == []
    assert [r.rule for r in check_drafter(model, None, "eagle3")] == ["drafter-missing"]


@pytest.mark.engine
def test_the_demonstration_model(engine_model: pathlib.Path) -> None:
    model = identify(str(engine_model))
    assert model.vocabulary_size is not None
    assert model.weight_bytes > 0

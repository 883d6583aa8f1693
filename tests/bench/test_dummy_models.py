"""Models without weights: sizes as published, and folders that keep their identity."""

import hashlib
import json
import pathlib

import pytest

from bench.dummy_models import CONFIGS, parameters, write_model

#: As the model cards give them, in billions.
PUBLISHED = {
    "qwen3-0.6b": 0.6,
    "qwen3-4b": 4.0,
    "qwen3-8b": 8.2,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shape_has_the_published_number_of_parameters(name: str) -> None:
    assert round(parameters(CONFIGS[name]) / 1e9, 1) == PUBLISHED[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_head_has_its_targets_width(name: str, tmp_path: pathlib.Path) -> None:
    head = CONFIGS[f"eagle3-{name}"]
    assert head["hidden_size"] == CONFIGS[name]["hidden_size"]
    assert head["num_hidden_layers"] == 1
    write_model(f"eagle3-{name}", tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == head
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("qwen3-4b", "ff85878cbe7de14e"),
        ("eagle3-qwen3-4b", "046415c5a9b277c6"),
    ],
)
def test_recorded_profiles_of_these_folders_stay_valid(
    name: str, digest: str, tmp_path: pathlib.Path
) -> None:
    write_model(name, tmp_path)
    content = (tmp_path / "config.json").read_bytes()
    assert hashlib.sha256(content).hexdigest()[:16] == digest

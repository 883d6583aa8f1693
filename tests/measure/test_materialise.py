"""The demonstration model is made once, whole or not at all."""

import json
import pathlib
import subprocess
import sys

import numpy
import pytest

from tabletune.measure import materialise
from tabletune.measure.materialise import (
    MARKER,
    MaterialiseError,
    is_materialised,
    materialise_smollm2,
    source_hash,
)
from tabletune.measure.materialise_smollm2 import llama_name, unpermute

PYTHON = pathlib.Path(sys.executable)


def gguf_order(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """llama.cpp's conversion: the two halves of each head's rows, interleaved."""
    half = weight.shape[0] // heads // 2
    rows = [
        head * 2 * half + part * half + row
        for head in range(heads)
        for row in range(half)
        for part in range(2)
    ]
    return weight[rows]


@pytest.mark.parametrize("heads", [1, 3, 9])
def test_unpermute_undoes_the_interleaving(heads: int) -> None:
    weight = numpy.arange(heads * 8 * 5).reshape(heads * 8, 5)
    assert (unpermute(gguf_order(weight, heads), heads) == weight).all()
    assert not (gguf_order(weight, heads) == weight).all()


def test_names() -> None:
    assert llama_name("token_embd.weight") == "model.embed_tokens.weight"
    assert llama_name("blk.12.ffn_up.weight") == "model.layers.12.mlp.up_proj.weight"
    for name in ("blk.x.ffn_up.weight", "blk.1.ssm.weight", "rope_freqs.weight"):
        with pytest.raises(KeyError):
            llama_name(name)


def whole_folder(folder: pathlib.Path) -> pathlib.Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    marker = {"source_sha256": source_hash(), "file_bytes": {"config.json": 2}}
    (folder / MARKER).write_text(json.dumps(marker))
    return folder


def test_a_whole_folder_is_reused_and_says_so(tmp_path: pathlib.Path) -> None:
    folder, lines = whole_folder(tmp_path / "model"), list[str]()
    assert materialise_smollm2(folder, PYTHON, lines.append).reused
    assert "reused" in lines[-1]


def test_damage_or_another_source_is_noticed(tmp_path: pathlib.Path) -> None:
    folder = whole_folder(tmp_path / "model")
    (folder / "config.json").write_text("{ }")
    assert not is_materialised(folder)
    (folder / "config.json").write_text("{}")
    assert is_materialised(folder)
    (folder / MARKER).write_text('{"source_sha256": "other", "file_bytes": {}}')
    assert not is_materialised(folder)
    (folder / MARKER).write_text("[")
    assert not is_materialised(folder)


def test_a_folder_of_other_files_is_left_alone(tmp_path: pathlib.Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MaterialiseError, match="choose another folder"):
        materialise_smollm2(tmp_path, PYTHON)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_full_disk_is_told_before_the_work(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(materialise, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(MaterialiseError, match="GB free"):
        materialise_smollm2(tmp_path / "model", PYTHON)


def test_an_unwritable_place_is_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MaterialiseError, match="could not write"):
        materialise_smollm2(tmp_path / "file" / "model", PYTHON)


@pytest.mark.engine
def test_the_real_model_writes_sense(tmp_path: pathlib.Path, engine_python: pathlib.Path) -> None:
    made = materialise_smollm2(tmp_path / "model", engine_python)
    assert not made.reused
    assert materialise_smollm2(tmp_path / "model", engine_python).reused
    code = (
        "import sys, torch; from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "t = AutoTokenizer.from_pretrained(sys.argv[1])\n"
        "m = AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "q = [{'role': 'user', 'content': 'What is the capital of France?'}]\n"
        "x = t.apply_chat_template(q, add_generation_prompt=True, return_tensors='pt', "
        "return_dict=True)\n"
        "print(t.decode(m.generate(**x, max_new_tokens=12, do_sample=False)[0]))\n"
    )
    answer = subprocess.run(
        [str(engine_python), "-c", code, str(made.folder)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Paris" in answer

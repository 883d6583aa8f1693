"""One table under several capture settings: which they are, and a run on a stand-in engine."""

import json
import pathlib

import pytest
from deployment import new_deployment
from test_golden_profile import DEVICE, ENGINE

from bench import capture_worth
from tabletune.measure.engine_errors import EngineError
from tabletune.pipeline.request import RunRequest
from tabletune.records.vllm_format import from_vllm

TABLE = [[1, 48, 4], [49, 96, 3], [97, 128, 2]]


def test_settings_differ_in_mode_and_sizes_only() -> None:
    request = RunRequest(model="m", method="eagle3", engine="python", drafter="d", max_num_seqs=128)
    table = from_vllm(TABLE, 128, 4).table
    found = capture_worth.settings(request, DEVICE, ENGINE, table)
    assert list(found) == ["vllm", "planned", "everything"]
    vllm, planned, everything = found.values()
    assert vllm.graph_mode == "FULL_DECODE_ONLY", "the default mode can crash"
    # vLLM's own: strides of 8 and 16 up to 512, and those of the table's widest batches.
    assert {8, 16, 512, 48 * 5, 96 * 4, 128 * 3} <= set(vllm.capture_sizes)
    assert len(vllm.capture_sizes) < len(planned.capture_sizes)
    assert everything.graph_mode == planned.graph_mode
    assert set(planned.capture_sizes) < set(everything.capture_sizes)
    assert max(everything.capture_sizes) == max(planned.capture_sizes)
    assert set(range(1, 641)) <= set(everything.capture_sizes)
    assert len(everything.capture_sizes) < 700
    assert {plan.lengths for plan in found.values()} == {planned.lengths}


@pytest.mark.parametrize("only", ["planned", "vllm"])
def test_a_table_and_no_drafts_take_turns(tmp_path: pathlib.Path, only: str) -> None:
    made, out = new_deployment(tmp_path), tmp_path / "worth.json"
    words = [
        *("--engine", str(made.engine.python), "--model", str(made.model), "--method", "ngram"),
        *("--table", "[[1, 4, 2]]", "--max-num-seqs", "4", "--max-draft-length", "2"),
        *("--loads", "2,4", "--rounds", "2", "--window-s", "0.3", "--only", only),
        *("--out", str(out)),
    ]
    assert capture_worth.main(words) == 0
    if only == "vllm":  # nothing is captured on a processor
        assert not made.engine.boots()
        assert capture_worth.main([*words, "--only", "nonsense"]) == 1
        return
    found = json.loads(out.read_text())
    assert found["table"] == [[1, 4, 2]]
    assert str(tmp_path) not in found["command"]
    setting = found["settings"]["planned"]
    assert setting["boot_s"] > 0
    assert [load["concurrency"] for load in setting["loads"]] == [2, 4]
    for load in setting["loads"]:
        assert len(load["table"]["tok_s"]) == len(load["no drafts"]["tok_s"]) == 2
        assert min(load["table"]["tok_s"]) > 0
        ms = load["table"]["step_ms"]
        assert 0 < ms["p50"] <= ms["p90"] <= ms["p99"] <= ms["p100"]
        # The stand-in's steps take longer with drafts.
        assert ms["p50"] > load["no drafts"]["step_ms"]["p50"]
    assert not made.engine.living()
    before = out.read_bytes()
    assert capture_worth.main(words) == 0, "measured already"
    assert (out.read_bytes(), len(made.engine.boots())) == (before, 1)
    assert capture_worth.main([*words, "--window-s", "0.4"]) == 1, "another question's file"
    assert out.read_bytes() == before


def test_an_engine_that_does_not_boot_is_told_and_tried_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, out = new_deployment(tmp_path), tmp_path / "worth.json"
    words = [
        *("--engine", str(made.engine.python), "--model", str(made.model), "--method", "ngram"),
        *("--table", "[[1, 4, 2]]", "--max-num-seqs", "4", "--max-draft-length", "2"),
        *("--loads", "2", "--rounds", "1", "--window-s", "0.3", "--only", "planned"),
        *("--out", str(out)),
    ]
    with monkeypatch.context() as broken:
        broken.setattr(capture_worth.EngineSession, "measuring", boot_fails)
        assert capture_worth.main(words) == 1
    setting = json.loads(out.read_text())["settings"]["planned"]
    assert "no boot today" in setting["failed"]
    assert setting["loads"] == []
    assert capture_worth.main(words) == 0
    assert "failed" not in json.loads(out.read_text())["settings"]["planned"]


def boot_fails(*_: object) -> None:
    raise EngineError("no boot today")

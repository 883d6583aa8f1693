"""A table as text, and the flags with which vLLM serves it."""

import json
import shlex

import pytest
from hypothesis import given, settings

from tabletune.records.table import Range, Table, TableVersion
from tabletune.records.text import (
    serve_arguments,
    shell_line,
    speculative_config,
    table_line,
    table_text,
)
from tabletune.records.vllm_format import MAXIMUM, SETTING, from_speculative_config
from tests.records import strategies
from tests.records.test_record_diff import plan, table, version


def test_the_columns_are_aligned() -> None:
    subject = Table(
        max_num_seqs=128,
        max_draft_length=3,
        ranges=(
            Range(first=1, last=1, draft_length=3, predicted_goodput_tok_s=812.4),
            Range(first=2, last=64, draft_length=1, predicted_goodput_tok_s=12345.6),
            Range(first=65, last=128, draft_length=0),
        ),
        notes=("measured at 64 tokens of context",),
    )
    assert table_text(subject).splitlines() == [
        "batch sizes  draft length  predicted tok/s",
        "          1             3              812",
        "       2–64             1           12,346",
        "     65–128             0                –",
        "note: measured at 64 tokens of context",
    ]
    assert table_line(subject) == "K=3 at 1, K=1 at 2–64, K=0 at 65–128"


def flags(arguments: list[str]) -> dict[str, str]:
    return dict(zip(arguments[::2], arguments[1::2], strict=True))


def test_the_flags_of_a_version() -> None:
    subject = version(table(3, 3, 0, 0), plan((1, 2, 4), (0, 1, 3)))
    found = flags(serve_arguments(subject, "eagle3", "draft/model", ["--dtype", "bfloat16"]))
    assert found["--max-num-seqs"] == "4"
    assert found["--dtype"] == "bfloat16"
    assert json.loads(found["--speculative-config"]) == {
        "method": "eagle3",
        "model": "draft/model",
        MAXIMUM: 3,
        SETTING: [[1, 2, 3], [3, 4, 0]],
    }
    assert json.loads(found["--compilation-config"]) == {
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": [1, 2, 4],
    }


def test_a_plan_without_graphs_says_so() -> None:
    found = flags(serve_arguments(version(table(1, 1, 1, 1), plan((), (1,))), "ngram", None))
    assert json.loads(found["--compilation-config"]) == {"cudagraph_mode": "NONE"}
    assert "model" not in json.loads(found["--speculative-config"])


def test_what_a_method_needs_besides_is_kept() -> None:
    subject = version(table(1, 1, 1, 1), plan((), (1,)))
    config = speculative_config(subject, "ngram", None, {"prompt_lookup_max": 4})
    assert config["prompt_lookup_max"] == 4
    with pytest.raises(ValueError, match=r"\['method', 'num_speculative_tokens'\] are decided"):
        speculative_config(subject, "ngram", None, {MAXIMUM: 9, "method": "eagle"})


@pytest.mark.parametrize(
    "argument",
    [
        "--max-num-seqs",
        "--max_num_seqs=8",
        "--speculative-config={}",
        "-sc",
        "-cc.cudagraph_mode=FULL",
        "--compilation-config.cudagraph_capture_sizes=[1]",
        "--spec-tokens",
        "--cudagraph-capture-sizes",
    ],
)
def test_what_the_version_decides_cannot_be_set_again(argument: str) -> None:
    subject = version(table(1, 1, 1, 1), plan((), (1,)))
    with pytest.raises(ValueError, match="which it decides; remove it"):
        serve_arguments(subject, "ngram", None, [argument])


@settings(max_examples=100, deadline=None)
@given(strategies.table_versions())
def test_the_line_is_what_a_shell_and_vllm_read_back(subject: TableVersion) -> None:
    arguments = serve_arguments(subject, "draft_model", "a folder/with 'quotes' $HOME")
    assert shlex.split(shell_line(arguments)) == arguments
    config = json.loads(flags(arguments)["--speculative-config"])
    parsed = from_speculative_config(config, subject.table.max_num_seqs)
    assert parsed is not None
    assert parsed.surprises == ()
    assert parsed.table.dense() == subject.table.dense()

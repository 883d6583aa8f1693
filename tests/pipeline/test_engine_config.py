"""The vLLM arguments of each kind of engine."""

import json

import pytest

from tabletune.pipeline.engine_config import (
    measuring_arguments,
    naming_table,
    plain_arguments,
    serving_arguments,
)
from tabletune.records.vllm_format import from_vllm
from tests.pipeline.evidence import h200_plan, h200_request
from tests.pipeline.test_build import built


def option(arguments: list[str], name: str) -> dict[str, object]:
    return json.loads(arguments[arguments.index(name) + 1])


def test_the_boot_table_names_every_length_once() -> None:
    request = h200_request()
    plan = h200_plan(request)
    table = naming_table(plan)
    parsed = from_vllm(table, plan.max_num_seqs, plan.max_draft_length)
    assert parsed.surprises == ()
    assert parsed.table.lengths == plan.lengths


def test_more_lengths_than_batch_sizes_are_refused() -> None:
    plan = h200_plan(h200_request()).model_copy(update={"max_num_seqs": 3})
    with pytest.raises(ValueError, match="need max_num_seqs"):
        naming_table(plan)


def test_a_measuring_engine_gets_plan_table_and_the_users_keys() -> None:
    extra = {"rejection_sample_method": "synthetic"}
    request = h200_request(speculative_extra=extra, engine_args=("--dtype", "bfloat16"))
    plan = h200_plan(request)
    arguments = measuring_arguments(request, plan)
    config = option(arguments, "--speculative-config")
    assert config["rejection_sample_method"] == "synthetic"
    assert config["num_speculative_tokens"] == 4
    assert option(arguments, "--compilation-config")["cudagraph_capture_sizes"] == list(
        plan.capture_sizes
    )
    assert arguments[-2:] == ["--dtype", "bfloat16"]


def test_the_stock_engine_boots_with_exactly_what_is_printed() -> None:
    request = h200_request()
    _, build = built(request)
    arguments = serving_arguments(request, build.version)
    config = option(arguments, "--speculative-config")
    table = [[r.first, r.last, r.draft_length] for r in build.version.table.ranges]
    assert config["num_speculative_tokens_per_batch_size"] == table


def test_the_plain_engine_does_not_speculate() -> None:
    assert not any("spec" in argument for argument in plain_arguments(h200_request()))

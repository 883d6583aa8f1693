"""What a run knows about joining prompts before the boot, and what its plans make of it."""

import dataclasses
import json
import pathlib

import pytest

from tabletune.pipeline.engine_config import measuring_arguments
from tabletune.pipeline.joining import joining_tok, max_batched_tok
from tabletune.pipeline.plans import choose_plans, plan_for_table
from tabletune.records.fingerprint import DeviceFacts
from tests.pipeline.evidence import h200_fingerprint, h200_request

FINGERPRINT = h200_fingerprint()
H200 = FINGERPRINT.device
GIB = 2**30


def device(**changes: object) -> DeviceFacts:
    return H200.model_copy(update=changes)


def test_four_prompts_of_the_mean_length_are_expected(tmp_path: pathlib.Path) -> None:
    texts = ["four" * 300, "four" * 500]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    request = h200_request(max_num_seqs=128, prompts=str(prompts))
    assert joining_tok(request, H200) == 4 * 400
    # Where step times are stated at a longer context, prompts are taken to be as long.
    assert joining_tok(dataclasses.replace(request, context_tok=512), H200) == 4 * 512


@pytest.mark.parametrize(
    ("arguments", "facts", "expected"),
    [
        ((), {}, 8192),
        ((), {"memory_bytes": 180 * GIB}, 16384),
        ((), {"memory_bytes": 24 * GIB}, 2048),
        ((), {"name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 80 * GIB}, 2048),
        ((), {"name": "NVIDIA GB10", "memory_bytes": 119 * GIB, "capability": "12.1"}, 2048),
        (("--max-num-batched-tokens", "700"), {}, 700),
        (("--max_num_batched_tokens=4k",), {}, 4000),
        (("--max-num-batched-tokens", "4K"), {}, 4096),
        (("--max-num-batched-tokens", "many"), {}, 0),
        (("--max-model-len", "512"), {}, 4096),
        (("--max-model-len", "auto"), {}, 8192),
    ],
)
def test_the_tokens_of_a_step_are_those_of_the_engine(
    arguments: tuple[str, ...], facts: dict[str, object], expected: int
) -> None:
    request = h200_request(max_num_seqs=8, engine_args=arguments)
    assert max_batched_tok(request, device(**facts)) == expected


def test_no_size_is_larger_than_a_step() -> None:
    arguments = ("--max-num-batched-tokens", "900")
    request = h200_request(max_num_seqs=128, engine_args=arguments)
    assert joining_tok(request, H200) == 900 - 640
    plan = choose_plans(request, H200, FINGERPRINT.engine, request.all_lengths)[0]
    assert plan.joining_sizes[-1] == plan.capture_sizes[-1] == 900
    full = dataclasses.replace(request, engine_args=("--max-num-batched-tokens", "640"))
    plan = choose_plans(full, H200, FINGERPRINT.engine, full.all_lengths)[0]
    assert plan.joining_sizes == ()


def test_the_engine_is_told_and_shorter_tables_keep_them() -> None:
    request = h200_request(max_num_seqs=128)
    plan, *others = choose_plans(request, H200, FINGERPRINT.engine, request.all_lengths)
    assert plan.joining_sizes
    listed = ", ".join(map(str, plan.joining_sizes))
    assert any(f"sizes {listed} are for steps in which prompts join" in n for n in plan.notes)
    told = measuring_arguments(request, plan)
    graphs = json.loads(told[told.index("--compilation-config") + 1])
    assert graphs["cudagraph_capture_sizes"] == list(plan.capture_sizes)
    assert not any(other.joining_sizes for other in others)
    fewer = plan_for_table(plan, (0, 2, 4), FINGERPRINT.engine, H200, "eagle3")
    assert fewer.joining_sizes == plan.joining_sizes


def test_an_engine_on_the_cpu_captures_nothing() -> None:
    request = h200_request(max_num_seqs=16, method="ngram", drafter=None)
    plans = choose_plans(request, device(platform="cpu"), FINGERPRINT.engine, request.all_lengths)
    assert [plan.capture_sizes for plan in plans] == [()]

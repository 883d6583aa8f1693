"""The capture prediction against vLLM's own graph manager, over generated settings.

`TABLETUNE_TEST_VLLM_SOURCE` may name a folder with another release's unpacked wheel: that
release is asked then, through the same engine environment.
"""

import json
import os
import pathlib
import random
import subprocess
from functools import cache
from typing import Any

import pytest

from tabletune.core.capture import (
    Graph,
    GraphSettings,
    PlanBudget,
    choose_plan,
    predict_graphs,
)
from tabletune.core.capture_defaults import default_capture_sizes
from tabletune.core.capture_graphs import GraphManager
from tabletune.core.capture_settings import effective_capture_sizes

pytestmark = pytest.mark.engine

ORACLE = pathlib.Path(__file__).with_name("vllm_graph_oracle.py")
MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
METHODS = ("eagle3", "eagle3", "eagle", "mtp", "dflash", "dspark", "ngram")
SETTINGS = 320
CUTS = (640, 800, 1152, 8192)
SEED = 20260


@cache
def ask_vllm(python: pathlib.Path) -> dict[str, Any]:
    """vLLM's answers to all questions of this file, from one process."""
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    source = os.environ.get("TABLETUNE_TEST_VLLM_SOURCE")
    if source:
        environment["PYTHONPATH"] = source
    questions = graph_questions() + default_questions()
    questions += [dict(case) for case in joining_cases()] + cut_questions()
    done = subprocess.run(
        [str(python), str(ORACLE)],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    reply: dict[str, Any] = json.loads(done.stdout)
    if source:
        assert reply["module"].startswith(source)
    return reply


@cache
def random_settings() -> tuple[dict[str, Any], ...]:
    """Settings of all modes, methods and runners: dense, sparse, planned and odd sizes."""
    rng = random.Random(SEED)
    settings: list[dict[str, Any]] = []
    for index in range(SETTINGS):
        max_length = rng.randint(1, 7)
        # A table can name only as many lengths as it has batch sizes.
        max_num_seqs = max(max_length + 1, rng.choice((1, 2, 3, 7, 16, 31, 64, 100)))
        lengths = rng.sample(range(max_length + 1), rng.randint(1, max_length + 1))
        method = rng.choice(METHODS)
        settings.append(
            {
                "graph_mode": rng.choice(MODES[1:] if index % 20 else MODES),
                "capture_sizes": random_sizes(rng, max_num_seqs, lengths, method),
                "max_num_seqs": max_num_seqs,
                "lengths": sorted(lengths),
                "max_draft_length": max_length,
                "method": method,
                "runner": "v1" if rng.random() < 0.15 else "v2",
            }
        )
    return tuple(settings)


def random_sizes(
    rng: random.Random, max_num_seqs: int, lengths: list[int], method: str
) -> list[int]:
    top = max_num_seqs * (max(lengths) + 1) + rng.randint(0, 40)
    kind = rng.randrange(6)
    if kind == 0:
        sizes = {rng.randint(1, top) for _ in range(rng.randint(1, 30))}
    elif kind == 1:
        sizes = {*range(rng.randint(1, 8), top + 1, rng.randint(1, 16)), top}
    elif kind == 2:
        sizes = set(default_capture_sizes(max_num_seqs, 8192, max(lengths)))
    elif kind == 3:
        batches = {rng.randint(1, max_num_seqs) for _ in range(12)}
        sizes = {b * (k + 1) for b in batches for k in lengths}
    else:
        plan = choose_plan(
            max_num_seqs,
            lengths,
            max_draft_length=max(1, *lengths),
            version="0.32.0",
            runner="v2",
            method=method,
            mixed_steps=kind == 5,
            joining_tok=rng.randint(1, 900),
        )
        sizes = {*plan.capture_sizes, 1}
    return sorted(sizes)


#: The plan of the H200 runs with sizes for joining prompts: five lengths at 128 requests.
H200_CHOSEN = {"max_num_seqs": 128, "lengths": [0, 1, 2, 3, 4], "max_draft_length": 4}


@cache
def joining_cases() -> tuple[dict[str, Any], ...]:
    """The H200 deployment with sizes for joining prompts, for each release and runner."""
    cases: list[dict[str, Any]] = []
    for method, runner, mode in (
        ("eagle3", "v2", "FULL_AND_PIECEWISE"),
        ("dflash", "v2", "FULL_AND_PIECEWISE"),
        ("ngram", "v2", "FULL_AND_PIECEWISE"),
        ("eagle3", "v1", "PIECEWISE"),
    ):
        plan = choose_plan(
            128,
            H200_CHOSEN["lengths"],
            max_draft_length=4,
            version="0.32.0",
            runner="v1" if runner == "v1" else "v2",
            method=method,
            budget=PlanBudget(max_graphs=704),
            mixed_steps=True,
        )
        assert plan.graph_mode == mode
        sizes = list(plan.capture_sizes)
        asked = {"graph_mode": mode, "capture_sizes": sizes, "method": method, "runner": runner}
        cases.append(H200_CHOSEN | asked)
    return tuple(cases)


def graph_questions() -> list[dict[str, Any]]:
    return [dict(setting) for setting in random_settings()]


@cache
def default_cases() -> tuple[dict[str, Any], ...]:
    rng = random.Random(SEED + 1)
    cases: list[dict[str, Any]] = []
    for _ in range(120):
        max_length = rng.randint(0, 16)
        max_num_seqs = rng.choice((1, 2, 5, 8, 31, 64, 128, 200, 256, 300, 512, 1000))
        edges = sorted(rng.sample(range(1, max_num_seqs + 1), min(max_num_seqs, 3)))
        firsts = [1, *(edge + 1 for edge in edges[:-1])]
        table = [
            [first, last, rng.randint(0, max_length)]
            for first, last in zip(firsts, [*edges[:-1], max_num_seqs], strict=True)
            if first <= last
        ]
        cases.append(
            {
                "max_num_seqs": max_num_seqs,
                "max_num_batched_tokens": rng.choice((100, 256, 500, 2048, 8192)),
                "max_draft_length": max_length,
                "table": table if max_length > 0 and rng.random() < 0.7 else None,
            }
        )
    return tuple(cases)


def default_questions() -> list[dict[str, Any]]:
    return [{"default_sizes": case} for case in default_cases()]


def cut_questions() -> list[dict[str, Any]]:
    """The sizes of `joining_cases`, given to engines with and without room for all of them."""
    sizes = joining_cases()[0]["capture_sizes"]
    shared = {"max_num_seqs": 128, "max_draft_length": 4, "table": None, "capture_sizes": sizes}
    return [{"default_sizes": shared | {"max_num_batched_tokens": t}} for t in CUTS]


def release(python: pathlib.Path) -> str:
    """The version of the vLLM that answers."""
    return str(ask_vllm(python)["vllm"]).split("+")[0]


def settings_of(case: dict[str, Any], version: str) -> GraphSettings:
    return GraphSettings(
        graph_mode=case["graph_mode"],
        capture_sizes=tuple(case["capture_sizes"]),
        max_num_seqs=case["max_num_seqs"],
        lengths=tuple(case["lengths"]),
        max_draft_length=case["max_draft_length"],
        version=version,
        runner=case["runner"],
        method=case["method"],
    )


def as_list(graph: Graph | None) -> list[Any] | None:
    if graph is None:
        return None
    return [graph.mode, graph.num_tokens, graph.num_reqs, graph.uniform_token_count]


def as_set(manager: GraphManager | None) -> set[Any]:
    return {tuple(as_list(g) or ()) for g in manager.graphs} if manager else set()


def reported(graphs: list[Any] | None) -> set[Any]:
    listed = [tuple(graph) for graph in graphs or []]
    assert len(listed) == len(set(listed))
    return set(listed)


def test_same_graphs_and_same_choice_on_v2(engine_python: pathlib.Path) -> None:
    answers = ask_vllm(engine_python)["answers"]
    compared = mismatched = stalled = 0
    for case, answer in zip(random_settings(), answers, strict=False):
        if case["runner"] != "v2":
            continue
        prediction = predict_graphs(settings_of(case, release(engine_python)))
        assert as_set(prediction.target) == reported(answer["target"]), case
        assert as_set(prediction.draft_first) == reported(answer["draft_first"]), case
        assert as_set(prediction.draft_rest) == reported(answer["draft_rest"]), case
        steps = {
            f"{b},{k}": [as_list(s.target), as_list(s.draft_first), as_list(s.draft_rest)]
            for (b, k), s in prediction.steps.items()
        }
        assert steps == answer["steps"], case
        mixed = [
            as_list(prediction.mixed_step_graph(tokens + 1))
            for tokens in range(len(answer["mixed"]))
        ]
        assert mixed == answer["mixed"], case
        compared += 1
        mismatched += bool(prediction.mismatches)
        stalled += bool(prediction.uncovered)
    assert compared >= 200
    # The comparison is worth something only where the hazards occur.
    assert mismatched >= 10
    assert stalled >= 50


def test_same_graphs_and_same_choice_on_v1(engine_python: pathlib.Path) -> None:
    answers = ask_vllm(engine_python)["answers"]
    compared = 0
    for case, answer in zip(random_settings(), answers, strict=False):
        if case["runner"] != "v1":
            continue
        prediction = predict_graphs(settings_of(case, release(engine_python)))
        assert as_set(prediction.target) == reported(answer["target"]), case
        steps = {f"{b},{k}": as_list(s.target) for (b, k), s in prediction.steps.items()}
        assert steps == answer["steps"], case
        assert not prediction.mismatches
        compared += 1
    assert compared >= 20


def test_default_sizes(engine_python: pathlib.Path) -> None:
    answers = ask_vllm(engine_python)["answers"][SETTINGS:][: len(default_cases())]
    assert len(answers) == len(default_cases())
    for case, answer in zip(default_cases(), answers, strict=True):
        widest = None
        if case["table"] is not None:
            widest = {}
            for _, last, length in case["table"]:
                widest[length] = max(last, widest.get(length, 0))
        sizes = default_capture_sizes(
            case["max_num_seqs"],
            case["max_num_batched_tokens"],
            case["max_draft_length"],
            widest,
        )
        assert list(sizes) == answer["sizes"], case
        assert sizes[-1] == answer["largest"]


def test_sizes_for_joining_prompts(engine_python: pathlib.Path) -> None:
    first = SETTINGS + len(default_cases())
    answers = ask_vllm(engine_python)["answers"][first:][: len(joining_cases())]
    for case, answer in zip(joining_cases(), answers, strict=True):
        prediction = predict_graphs(settings_of(case, release(engine_python)))
        assert as_set(prediction.target) == reported(answer["target"]), case["method"]
        if case["runner"] == "v1":
            continue
        assert as_set(prediction.draft_first) == reported(answer["draft_first"])
        assert as_set(prediction.draft_rest) == reported(answer["draft_rest"])
        # Steps of 1, 2, … tokens that hold a prompt: a prompt of 128 tokens joins 127 decodes.
        mixed = answer["mixed"]
        assert mixed[127 * 5 + 128 - 1] == ["PIECEWISE", 817, None, None]
        assert mixed[1152 - 1] == ["PIECEWISE", 1152, None, None]
        assert mixed[1153 - 1] is None
        # vLLM captures no FULL graph beyond the widest decode step.
        assert max(g[1] for g in answer["target"] if g[0] == "FULL") == 640


def test_sizes_beyond_the_tokens_of_a_step_are_dropped(engine_python: pathlib.Path) -> None:
    answers = ask_vllm(engine_python)["answers"][-len(CUTS) :]
    sizes = joining_cases()[0]["capture_sizes"]
    for limit, answer in zip(CUTS, answers, strict=True):
        assert tuple(answer["sizes"]) == effective_capture_sizes(sizes, limit)
        assert answer["largest"] == answer["sizes"][-1]
    assert [answer["largest"] for answer in answers] == [640, 724, 1152, 1152]

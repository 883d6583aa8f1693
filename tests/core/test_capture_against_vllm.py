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

from tabletune.core.capture import Graph, GraphSettings, choose_plan, predict_graphs
from tabletune.core.capture_defaults import default_capture_sizes
from tabletune.core.capture_graphs import GraphManager

pytestmark = pytest.mark.engine

ORACLE = pathlib.Path(__file__).with_name("vllm_graph_oracle.py")
MODES = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
METHODS = ("eagle3", "eagle3", "eagle", "mtp", "dflash", "dspark", "ngram")
SETTINGS = 320
SEED = 20260


@cache
def ask_vllm(python: pathlib.Path) -> dict[str, Any]:
    """vLLM's answers to all questions of this file, from one process."""
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    source = os.environ.get("TABLETUNE_TEST_VLLM_SOURCE")
    if source:
        environment["PYTHONPATH"] = source
    questions = graph_questions() + default_questions()
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
    kind = rng.randrange(5)
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
        )
        sizes = {*plan.capture_sizes, 1}
    return sorted(sizes)


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
    answers = ask_vllm(engine_python)["answers"][SETTINGS:]
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

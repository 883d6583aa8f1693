"""What vLLM takes from a boot table: its own lookup, and the graphs of its own managers."""

import json
import os
import pathlib
import random
import subprocess
from typing import Any

import pytest

from tabletune.core.capture import choose_plan
from tabletune.records.boot_table import boot_table
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.table import Parents, Table, TableVersion, table_from_dense
from tabletune.records.vllm_format import to_vllm

pytestmark = pytest.mark.engine

LOOKUP = pathlib.Path(__file__).with_name("vllm_lookup_oracle.py")
GRAPHS = pathlib.Path(__file__).parents[1] / "core" / "vllm_graph_oracle.py"


def ask(python: pathlib.Path, oracle: pathlib.Path, questions: object) -> Any:
    answer = subprocess.run(
        [python, oracle],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
        env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    return json.loads(answer.stdout)


def version_of(subject: Table, plan: CapturePlan) -> TableVersion:
    everywhere = ((1, plan.max_num_seqs),)
    return TableVersion(
        table=subject,
        plan=plan,
        envelope=Envelope(allowed={str(k): everywhere for k in plan.lengths}),
        fingerprint="f" * 64,
        parents=Parents(),
        created_at="2026-01-01T00:00:00+00:00",
    )


def random_version(rng: random.Random) -> TableVersion:
    longest = rng.randint(1, 7)
    lengths = sorted({*rng.sample(range(longest + 1), rng.randint(1, longest + 1)), longest})
    used = rng.sample(lengths, rng.randint(1, len(lengths)))
    lookup = [0]
    for length in sorted(used, reverse=True):
        lookup += [length] * rng.randint(2, 20)
    lookup += [lookup[-1]] * 8  # room for every other length
    plan = CapturePlan(
        graph_mode="NONE",
        capture_sizes=(),
        lengths=tuple(lengths),
        max_draft_length=longest,
        max_num_seqs=len(lookup) - 1,
        graph_count=0,
    )
    return version_of(table_from_dense(lookup, longest), plan)


def test_vllm_s_lookup_of_the_boot_table_names_every_length(engine_python: pathlib.Path) -> None:
    rng = random.Random(5)
    versions = [random_version(rng) for _ in range(1000)]
    tables = [boot_table(subject).table for subject in versions]
    questions = [
        (to_vllm(found), subject.plan.max_num_seqs, subject.plan.max_draft_length)
        for found, subject in zip(tables, versions, strict=True)
    ]
    lookups = ask(engine_python, LOOKUP, questions)
    changed = 0
    for lookup, found, subject in zip(lookups, tables, versions, strict=True):
        assert lookup == found.dense()
        assert sorted(set(lookup[1:])) == list(subject.plan.lengths)
        changed += found != subject.table
    assert changed > 300


@pytest.mark.parametrize("method", ["eagle3", "dflash"])
def test_vllm_captures_all_graphs_of_the_plan_for_the_boot_table_only(
    engine_python: pathlib.Path, method: str
) -> None:
    chosen = choose_plan(
        64, range(5), max_draft_length=4, version="0.32.0", runner="v2", method=method
    )
    plan = CapturePlan(
        graph_mode=chosen.graph_mode,
        capture_sizes=chosen.capture_sizes,
        lengths=chosen.lengths,
        max_draft_length=4,
        max_num_seqs=64,
        graph_count=chosen.graph_count,
    )
    promoted = table_from_dense([0, *[4] * 8, *[3] * 16, *[0] * 40], 4)
    booted = boot_table(version_of(promoted, plan)).table
    common = {
        "graph_mode": plan.graph_mode,
        "capture_sizes": plan.capture_sizes,
        "max_num_seqs": 64,
        "lengths": plan.lengths,
        "max_draft_length": 4,
        "method": method,
        "runner": "v2",
    }
    questions = [common, *({**common, "table": to_vllm(each)} for each in (booted, promoted))]
    whole, boot, alone = ask(engine_python, GRAPHS, questions)["answers"]
    assert plan.lengths == (0, 1, 2, 3, 4)
    assert boot == whole
    assert len(boot["target"]) == plan.graph_count
    without = [cell for cell, graphs in alone["steps"].items() if graphs[0] is None]
    assert "30,1" in without
    assert "30,3" not in without

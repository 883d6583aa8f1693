"""Our reading of a table against vLLM's own lookup, for thousands of generated tables."""

import json
import pathlib
import random
import subprocess
from collections import Counter
from typing import Any

import pytest

from tabletune.records.base import RecordError
from tabletune.records.table import table_from_dense
from tabletune.records.vllm_format import from_vllm, to_vllm

pytestmark = pytest.mark.engine

ORACLE = pathlib.Path(__file__).with_name("vllm_lookup_oracle.py")
Case = tuple[Any, int, int]


def ask_vllm(python: pathlib.Path, cases: list[Case]) -> list[list[int] | str]:
    answer = subprocess.run(
        [python, ORACLE], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    return json.loads(answer.stdout)


def dense_case(rng: random.Random) -> list[int]:
    lookup = [0]
    for _ in range(rng.randint(1, 8)):
        lookup += [rng.randint(0, 6)] * rng.randint(1, 30)
    return lookup


def loose_case(rng: random.Random) -> Case:
    """A table in order, with gaps, a tail and ranges beyond the largest batch size."""
    triples: list[list[int]] = []
    first = 1
    for _ in range(rng.randint(1, 7)):
        last = first + rng.randint(0, 20)
        triples.append([first, last, rng.randint(0, 5)])
        first = last + 1 + (rng.randint(1, 12) if rng.random() < 0.4 else 0)
    return triples, rng.randint(1, 120), 5


def wild_case(rng: random.Random) -> Case:
    """Anything of the right shape: often overlapping, unsorted, too long or not from 1."""
    triples = [
        [rng.randint(0, 12), rng.randint(0, 16), rng.randint(-1, 5)]
        for _ in range(rng.randint(0, 4))
    ]
    if triples and rng.random() < 0.7:
        triples[0][0] = 1
    return triples, rng.randint(1, 20), rng.randint(1, 5)


def coerced_case(rng: random.Random) -> tuple[str, Case]:
    """A sound table of at least two ranges with one silent coercion put in."""
    lookup = [0, *[1] * rng.randint(1, 9), *[0] * rng.randint(1, 9), *[3] * rng.randint(1, 9)]
    triples: list[list[Any]] = [list(triple) for triple in to_vllm(table_from_dense(lookup, 3))]
    where, column = rng.randrange(3), rng.randrange(3)
    how = rng.choice(["float", "fraction", "text", "bool", "unsorted", "clamped"])
    match how:
        case "float":
            triples[where][column] = float(triples[where][column])
        case "fraction":
            triples[where][2] += 0.9
        case "text":
            triples[where][column] = str(triples[where][column])
        case "bool":
            triples[0][2] = True
        case "unsorted":
            triples[0], triples[1] = triples[1], triples[0]
        case _:
            triples[where][2] = 4 + rng.randint(0, 100)
    return how, (triples, len(lookup) - 1, 3)


def test_what_we_write_vllm_reads_identically(engine_python: pathlib.Path) -> None:
    rng = random.Random(1)
    lookups = [dense_case(rng) for _ in range(3000)]
    cases: list[Case] = [
        (to_vllm(table_from_dense(lookup, 6)), len(lookup) - 1, 6) for lookup in lookups
    ]
    assert ask_vllm(engine_python, cases) == lookups


def test_what_we_accept_means_what_vllm_makes_of_it(engine_python: pathlib.Path) -> None:
    rng = random.Random(2)
    cases = [loose_case(rng) for _ in range(3000)]
    surprising = 0
    for case, theirs in zip(cases, ask_vllm(engine_python, cases), strict=True):
        ours = from_vllm(*case)
        assert ours.table.dense() == theirs, case
        surprising += bool(ours.surprises)
    assert surprising > 1000


def test_we_never_accept_what_vllm_refuses(engine_python: pathlib.Path) -> None:
    rng = random.Random(3)
    cases = [wild_case(rng) for _ in range(4000)]
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for case, theirs in zip(cases, ask_vllm(engine_python, cases), strict=True):
        try:
            ours = from_vllm(*case).table.dense()
        except RecordError:
            outcomes[False, isinstance(theirs, list)] += 1
            continue
        outcomes[True, isinstance(theirs, list)] += 1
        assert ours == theirs, case
    assert outcomes[True, False] == 0
    assert min(outcomes[True, True], outcomes[False, True], outcomes[False, False]) > 50, outcomes


def test_what_we_refuse_as_coerced_vllm_takes_without_a_word(engine_python: pathlib.Path) -> None:
    rng = random.Random(4)
    named = [coerced_case(rng) for _ in range(1200)]
    answers = ask_vllm(engine_python, [case for _, case in named])
    seen: Counter[str] = Counter()
    for (how, case), theirs in zip(named, answers, strict=True):
        assert isinstance(theirs, list), (how, case, theirs)
        assert max(theirs) <= 3
        with pytest.raises(RecordError):
            from_vllm(*case)
        seen[how] += 1
    assert len(seen) == 6


@pytest.mark.parametrize(
    ("table", "theirs"),
    [
        ([[1, 4, 2.9], [5, 8, 0]], [0, 2, 2, 2, 2, 0, 0, 0, 0]),
        ([[1, 4, True], [5, 8, 0]], [0, 1, 1, 1, 1, 0, 0, 0, 0]),
        ([[1, 4, "2"], [5, 8, 0]], [0, 2, 2, 2, 2, 0, 0, 0, 0]),
        ([[5, 8, 0], [1, 4, 9]], [0, 3, 3, 3, 3, 0, 0, 0, 0]),
    ],
)
def test_the_coercions_by_name(
    engine_python: pathlib.Path, table: list[list[Any]], theirs: list[int]
) -> None:
    assert ask_vllm(engine_python, [(table, 8, 3)]) == [theirs]
    with pytest.raises(RecordError):
        from_vllm(table, 8, 3)


@pytest.mark.parametrize("table", [[], None, [[2, 8, 3]], [[1, 4, 3], [4, 8, 1]], {"1-16": 3}])
def test_what_crashes_vllm_late_is_refused_here(engine_python: pathlib.Path, table: Any) -> None:
    assert "ValueError" in ask_vllm(engine_python, [(table, 8, 3)])[0]
    with pytest.raises(RecordError):
        from_vllm(table, 8, 3)

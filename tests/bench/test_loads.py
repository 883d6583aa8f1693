"""Loads on a server that is told what to answer."""

import threading
from collections.abc import Callable

import httpx
import numpy as np
import pytest

from bench.evaluation.loads import Arrivals
from tabletune.measure.api import EngineAddress
from tabletune.measure.load import LoadCounts, LoadRequest

NOWHERE = EngineAddress("http://127.0.0.1:9")
GOOD = {"choices": [{"text": "x"}], "usage": {"completion_tokens": 5}}


def arrived(answer: Callable[[], httpx.Response], count: int, most_open: int = 64) -> LoadCounts:
    """The counts once so many requests arrived."""
    enough, seen = threading.Event(), [0]

    def handle(request: httpx.Request) -> httpx.Response:
        seen[0] += 1
        if seen[0] == count:
            enough.set()
        return answer()

    requests, gaps = [LoadRequest("p", 5)], np.full(8, 0.001)
    with Arrivals(
        NOWHERE, "m", requests, gaps, most_open, lambda: httpx.MockTransport(handle)
    ) as load:
        assert enough.wait(30)
    return load.counts


def test_what_arrives_is_counted() -> None:
    counts = arrived(lambda: httpx.Response(200, json=GOOD), 9)
    assert counts.failed == 0
    assert counts.completed >= 8
    assert counts.completion_tok == 5 * counts.completed


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: httpx.Response(503, text="busy"), "HTTP 503: busy"),
        (lambda: httpx.Response(200, text="hello"), "no completion in the answer: hello"),
    ],
)
def test_what_fails_is_counted_and_told(answer: Callable[[], httpx.Response], words: str) -> None:
    counts = arrived(answer, 9)
    assert counts.completed == 0
    assert counts.failed >= 8
    assert counts.last_error == words


def test_what_finds_too_many_open_is_counted() -> None:
    enough = threading.Event()
    requests, gaps = [LoadRequest("p", 5)], np.full(8, 0.001)

    async def never(request: httpx.Request) -> httpx.Response:
        raise AssertionError("nothing is sent where none may be open")

    with Arrivals(NOWHERE, "m", requests, gaps, 0, lambda: httpx.MockTransport(never)) as load:
        while not load.counts.failed:
            enough.wait(0.01)
    assert load.counts.last_error == "0 requests were open already"

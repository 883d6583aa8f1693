"""A load on several engines: each request goes where the fewest are open."""

import asyncio
from collections import Counter

import httpx
import pytest

from bench.evaluation.balancer import Balancer

URLS = ("http://one:1000", "http://two:2000/")


class Held(httpx.AsyncBaseTransport):
    """Answers when told to; `open_now` by host."""

    def __init__(self) -> None:
        self.gates: list[tuple[httpx.Request, asyncio.Event]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        gate = asyncio.Event()
        self.gates.append((request, gate))
        await gate.wait()
        return httpx.Response(200, text=request.url.path)

    def open_now(self) -> Counter[str]:
        return Counter(
            f"{request.url.host}:{request.url.port}"
            for request, gate in self.gates
            if not gate.is_set()
        )


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_each_goes_where_the_fewest_are_open() -> None:
    async def serve() -> None:
        held = Held()
        async with httpx.AsyncClient(
            base_url="http://nobody", transport=Balancer(URLS, held)
        ) as http:
            sent = [asyncio.create_task(http.post("/v1/completions")) for _ in range(6)]
            await settle()
            assert held.open_now() == {"one:1000": 3, "two:2000": 3}
            for request, gate in held.gates:  # one engine answers all of its own
                assert request.headers["Host"] in ("one:1000", "two:2000")
                if request.url.host == "one":
                    gate.set()
            await settle()
            sent += [asyncio.create_task(http.post("/v1/completions")) for _ in range(3)]
            await settle()
            assert held.open_now() == {"one:1000": 3, "two:2000": 3}
            for _, gate in held.gates:
                gate.set()
            answers = await asyncio.gather(*sent)
            assert {answer.text for answer in answers} == {"/v1/completions"}

    asyncio.run(serve())


def test_requests_that_are_cancelled_or_fail_are_open_no_longer() -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async def serve() -> None:
        balancer = Balancer(URLS, Held())
        async with httpx.AsyncClient(base_url="http://nobody", transport=balancer) as http:
            task = asyncio.create_task(http.get("/"))
            await settle()
            assert sum(balancer.open_now) == 1
            task.cancel()
            await settle()
            assert balancer.open_now == [0, 0]
        balancer = Balancer(URLS, httpx.MockTransport(refuse))
        async with httpx.AsyncClient(base_url="http://nobody", transport=balancer) as http:
            with pytest.raises(httpx.ConnectError):
                await http.get("/")
            assert balancer.open_now == [0, 0]

    asyncio.run(serve())


def test_equals_take_turns() -> None:
    seen: Counter[str] = Counter()

    def answer(request: httpx.Request) -> httpx.Response:
        seen[request.url.host] += 1
        return httpx.Response(200)

    async def serve() -> None:
        balancer = Balancer(URLS, httpx.MockTransport(answer))
        async with httpx.AsyncClient(base_url="http://nobody", transport=balancer) as http:
            for _ in range(10):
                await http.get("/")

    asyncio.run(serve())
    assert seen == {"one": 5, "two": 5}


def test_no_engine_is_an_error() -> None:
    with pytest.raises(ValueError, match="found none"):
        Balancer([])

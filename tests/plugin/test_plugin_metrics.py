"""The plugin's lines on the engine's own /metrics page."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from live_world import World, target
from prometheus_client.parser import text_string_to_metric_families

from tabletune_vllm.exposition import render
from tabletune_vllm.metrics import batch_sizes, figures, inactive
from tabletune_vllm.metrics_page import Figures, MetricsPage

PAGE = b"# HELP vllm:x y\n# TYPE vllm:x gauge\nvllm:x 1.0\n"
PLAIN = b"text/plain; version=0.0.4; charset=utf-8"
KNOWN = {"plugin_version": "1", "active": False, "reason": "a test"}


def _samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(page.decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_figures_tell_what_is_in_force() -> None:
    world = World(mode="adapt")
    world.runtime.live_status = lambda: world.following.published
    world.poll(target([0, 2, 2, 1, 0], "abcdef0123456789"), "another fingerprint")
    world.ticks(2, 3)
    world.runtime.pin({"draft_length": 1})
    samples = _samples(render(figures(world.runtime)))
    run = (("model_name", "fake-model"), ("run_id", "run1"))

    def value(name: str, **labels: str) -> float:
        return samples[name, tuple(sorted((*run, *labels.items())))]

    assert value("tabletune_active") == 1
    assert value("tabletune_suspended") == 1
    assert value("tabletune_steps_total") == world.runtime.observer.ring.next
    assert value("tabletune_swaps_total") == world.runtime.swaps >= 1
    assert value("tabletune_refusals_total") == 1
    lengths = [value("tabletune_draft_length_in_force", batch_size=b) for b in "124"]
    assert lengths == [world.table()[1], world.table()[2], world.table()[4]]
    survival = [value("tabletune_survival", position=i) for i in "123"]
    assert 1 >= survival[0] >= survival[1] >= survival[2] > 0
    assert value("tabletune_decisions_total", kind="hold") >= 1
    (info,) = (dict(labels) for name, labels in samples if name == "tabletune_info")
    assert (info["mode"], info["version"], info["channel"]) == ("adapt", "abcdef012345", "live")


def test_an_engine_that_is_left_alone_shows_that() -> None:
    samples = _samples(render(inactive("0.1.0", "data parallel size 2")))
    assert {name for name, _ in samples} == {"tabletune_info", "tabletune_active"}
    assert samples["tabletune_active", (("model_name", ""), ("run_id", ""))] == 0


@pytest.mark.parametrize(
    ("size", "expected"), [(1, [1]), (4, [1, 2, 4]), (6, [1, 2, 4, 6]), (7, [1, 2, 4, 7])]
)
def test_batch_sizes_never_change_while_an_engine_serves(size: int, expected: list[int]) -> None:
    assert batch_sizes(size) == expected


def _app(
    body: bytes = PAGE, content: bytes = PLAIN, status: int = 200, parts: int = 2, more: Any = ()
) -> Callable[..., Awaitable[None]]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        length = (b"content-length", str(len(body)).encode())
        headers = [(b"content-type", content), length, *more]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for part in range(parts):
            piece = body[part::parts] if parts == 1 else body[part * 20 : (part + 1) * 20]
            if part == parts - 1:
                piece = body[part * 20 :]
            last = part == parts - 1
            await send({"type": "http.response.body", "body": piece, "more_body": not last})

    return app


def _get(app: Any, path: str = "/metrics", times: int = 1) -> tuple[int, dict[bytes, bytes], bytes]:
    async def run() -> tuple[int, dict[bytes, bytes], bytes]:
        for _ in range(times):
            sent: list[dict[str, Any]] = []

            async def send(message: dict[str, Any], sent: list[dict[str, Any]] = sent) -> None:
                sent.append(message)

            await app({"type": "http", "path": path}, None, send)
        body = b"".join(message.get("body", b"") for message in sent)
        assert [m.get("more_body", False) for m in sent[1:]][-1] is False
        return sent[0]["status"], dict(sent[0]["headers"]), body

    return asyncio.run(run())


def _page(app: Any, fetch: Any, timeout_s: float = 5.0) -> MetricsPage:
    return MetricsPage(app, Figures(fetch, lambda: 0.0, timeout_s))


async def _known() -> Mapping[str, object]:
    return KNOWN


def test_our_lines_follow_vllms_own() -> None:
    status, headers, body = _get(_page(_app(), _known))
    assert status == 200
    assert body.startswith(PAGE)
    assert b"tabletune_active" in body
    assert int(headers[b"content-length"]) == len(body)


def test_other_paths_pass_through() -> None:
    assert _get(_page(_app(), _known), "/metricsx")[2] == PAGE
    assert b"tabletune_active" in _get(_page(_app(), _known), "/metrics/")[2]


@pytest.mark.parametrize(
    "changes",
    [
        {"status": 500},
        {"content": b"application/openmetrics-text; version=1.0.0"},
        {"more": [(b"Content-Encoding", b"gzip")]},
    ],
)
def test_a_page_of_another_form_is_left_alone(changes: dict[str, Any]) -> None:
    _, headers, body = _get(_page(_app(**changes), _known))
    assert body == PAGE
    assert int(headers[b"content-length"]) == len(PAGE)


def test_the_page_does_not_wait_for_an_engine_that_does_not_answer() -> None:
    async def never() -> Mapping[str, object]:
        await asyncio.Event().wait()
        return {}

    assert _get(_page(_app(), never, timeout_s=0.01), times=3)[2] == PAGE


def test_a_failing_engine_and_an_error_reply_leave_the_page_alone() -> None:
    async def fail() -> Mapping[str, object]:
        raise ConnectionError("gone")

    async def error() -> Mapping[str, object]:
        return {"status": 503, "error": {}}

    async def nonsense() -> Mapping[str, object]:
        return {"active": True, "steps": "many"}

    for fetch in (fail, error, nonsense):
        assert _get(_page(_app(), fetch))[2] == PAGE


def test_the_engine_is_asked_once_a_second_at_most_and_once_at_a_time() -> None:
    calls: list[int] = []

    async def count() -> Mapping[str, object]:
        calls.append(1)
        return KNOWN

    now_s = [0.0]
    page = MetricsPage(_app(), Figures(count, lambda: now_s[0], 5.0))
    _get(page, times=5)
    assert len(calls) == 1
    now_s[0] = 1.5
    _get(page)
    assert len(calls) == 2


def test_the_last_figures_are_shown_while_the_engine_is_busy() -> None:
    answers = [KNOWN]

    async def once() -> Mapping[str, object]:
        if not answers:
            await asyncio.Event().wait()
        return answers.pop()

    now_s = [0.0]
    figures_ = Figures(once, lambda: now_s[0], 0.01)

    async def run() -> list[Any]:
        found = [await figures_.get()]
        now_s[0] = 60.0
        return [*found, await figures_.get(), await figures_.get()]

    assert asyncio.run(run()) == [KNOWN] * 3

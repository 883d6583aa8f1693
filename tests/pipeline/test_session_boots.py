"""Which engines a run boots, and with what."""

import pathlib

import pytest
from fake_environment import FakeEnvironment, make_environment, write_model

from tabletune.measure.engine_log import kv_cache_bytes
from tabletune.measure.progress import Silent
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import KV_CACHE_BYTES, EngineSession
from tabletune.records.plan import CapturePlan

PLAN = CapturePlan(
    graph_mode="NONE",
    capture_sizes=(),
    lengths=(0, 2),
    max_draft_length=2,
    max_num_seqs=4,
    graph_count=0,
)


class Told(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> FakeEnvironment:
    return make_environment(tmp_path / "environment")


@pytest.fixture
def model(tmp_path: pathlib.Path) -> pathlib.Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def told() -> Told:
    return Told()


def session(
    environment: FakeEnvironment, model: pathlib.Path, told: Told, platform: str, *more: str
) -> EngineSession:
    request = RunRequest(
        model=str(model),
        method="ngram",
        engine=str(environment.python),
        max_draft_length=2,
        max_num_seqs=4,
        lengths=(0, 2),
        engine_args=more,
    )
    logs = environment.folder / "logs"
    return EngineSession(request, environment.python, platform, logs, told)


def sizes(environment: FakeEnvironment) -> list[str | None]:
    """The KV cache that each boot was told, None for none."""
    found: list[str | None] = []
    for boot in environment.boots():
        words = boot["arguments"]
        told = KV_CACHE_BYTES in words
        found.append(words[words.index(KV_CACHE_BYTES) + 1] if told else None)
    return found


def test_later_engines_take_over_the_size_of_the_kv_cache(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_KV_GIB", "12.34")
    with session(environment, model, told, "cuda") as engines:
        engines.measuring(PLAN)
        engines.stop_measuring()
        with engines.plain():
            pass
    assert sizes(environment) == [None, str(int(12.33 * 2**30))]


def test_an_engine_that_does_not_start_so_starts_as_usual(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_KV_GIB", "-12.34")
    with session(environment, model, told, "cuda") as engines:
        engines.measuring(PLAN)
        engines.stop_measuring()
        with engines.plain() as plain:
            assert plain.engine.died() is None
    assert sizes(environment)[-1] is None
    assert any(KV_CACHE_BYTES in line and "once more without" in line for line in told.said)


@pytest.mark.parametrize(
    ("platform", "more"), [("cpu", ()), ("cuda", (f"{KV_CACHE_BYTES}=99999999",))]
)
def test_a_processor_or_a_size_that_is_given_is_left_alone(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    more: tuple[str, ...],
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_KV_GIB", "12.34")
    with session(environment, model, told, platform, *more) as engines:
        engines.measuring(PLAN)
        engines.stop_measuring()
        with engines.plain():
            pass
    assert sizes(environment) == [None, None]


def test_what_logs_say(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    assert kv_cache_bytes(log) is None
    log.write_text("nothing\n")
    assert kv_cache_bytes(log) is None
    line = (
        "(Worker pid=7) INFO 11-30 10:20:58 [gpu_worker.py:736] Available KV cache memory: {} GiB\n"
    )
    log.write_text(line.format("115.92") + line.format("115.4"))
    assert kv_cache_bytes(log) == int(115.39 * 2**30)
    log.write_text(line.format("0.0"))
    assert kv_cache_bytes(log) is None

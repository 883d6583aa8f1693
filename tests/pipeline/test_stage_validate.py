"""What the validation asks of an engine."""

import os
import pathlib
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from evidence import h200_fingerprint
from fake_environment import make_environment, write_model
from test_session_boots import PLAN, VERSION, Told, request_of, sizes

from tabletune.measure.api import EngineApi, ServedModel
from tabletune.measure.clock import SystemClock
from tabletune.measure.engine_errors import NoRoomForLog
from tabletune.measure.load import LoadCounts, LoadRequest
from tabletune.measure.progress import Silent
from tabletune.measure.validate import Outcome
from tabletune.measure.windows import LoadEndedError, PolicyRun
from tabletune.pipeline import stage_validate
from tabletune.pipeline.identify import Target
from tabletune.pipeline.request import RunRequest
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import EngineSession, LiveEngine
from tabletune.pipeline.stage_validate import (
    SYNTHETIC_OUTPUT_TOK,
    measure_when_it_has_stopped,
    validation_requests,
)
from tabletune.pipeline.workspace import Workspace
from tabletune.records.policy import NO_SPECULATION, STOCK

REQUEST = RunRequest(model="m", method="eagle3", drafter="d", engine="e", context_tok=64)
SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.7, 0.5]}


@pytest.fixture
def live() -> Callable[[int], LiveEngine]:
    """An engine that is only asked for its longest sequence."""
    return lambda longest: LiveEngine(cast(Any, None), cast(Any, None), ServedModel("m", longest))


def test_synthetic_text_ends_after_a_fixed_output(live: Callable[[int], LiveEngine]) -> None:
    request = replace(REQUEST, speculative_extra=SYNTHETIC)
    found = validation_requests(request, live(4096), Silent(), 256)
    assert {r.max_tokens for r in found} == {SYNTHETIC_OUTPUT_TOK}
    assert all(r.extra["ignore_eos"] for r in found)
    assert len({r.prompt for r in found if isinstance(r.prompt, str)}) == len(found)


def test_a_short_engine_gets_what_it_holds(live: Callable[[int], LiveEngine]) -> None:
    request = replace(REQUEST, speculative_extra=SYNTHETIC)
    found = validation_requests(request, live(256), Silent(), 256)
    assert {r.max_tokens for r in found} < set(range(1, 256))


@dataclass(frozen=True)
class After:
    """What a GPU's validation did when its measuring engine had stopped.

    Attributes:
        policies: measured next to each other, time after time.
        kept: of these what the outcome has.
        sizes: of the KV cache that each engine was told, None for none.
    """

    policies: list[list[str]]
    kept: list[list[str]]
    sizes: list[str | None]
    said: list[str]


@pytest.fixture
def after(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., After]:
    """Runs the later engines of a GPU's validation, on stand-ins.

    kv_gib: what the measuring engine has for its KV cache of 4,000 tokens; negative for engines
        that can be told none. output_tok: of one open request. die_beside: a core dies while
        two engines are measured. touched: requests of a window of two. trouble: what measuring two
        engines ends with.
    """

    def run(
        kv_gib: str,
        output_tok: int,
        die_beside: bool = False,
        touched: int = 2,
        trouble: Exception | None = None,
    ) -> After:
        policies, told = list[list[str]](), Told()
        environment = make_environment(tmp_path / "environment")

        def measure(
            setup: Any, bench: Any, runs: list[PolicyRun], outcome: Outcome, *rest: Any
        ) -> None:
            apis = [cast(EngineApi, run.engine) for run in runs]
            assert all(api.model() for api in apis), "they run"
            engines = max(1, len(runs))
            assert len(environment.living()) == 2 * engines, "servers and cores of no others"
            policies.append([run.policy for run in runs])
            outcome.remarks.append(" ".join(policies[-1]))
            if trouble is not None and engines == 2:
                raise trouble
            if die_beside and engines == 2:
                os.kill(environment.boots()[-1]["core_pid"], signal.SIGKILL)
                while True:
                    for api in apis:
                        api.metrics_text()

        monkeypatch.setenv("FAKE_ENGINE_KV_GIB", kv_gib)
        monkeypatch.setattr(stage_validate, "measure_elsewhere", measure)
        monkeypatch.setattr(stage_validate, "by_metrics_runs", lambda *_: [])
        request = request_of(environment, write_model(tmp_path / "model"))
        logs = tmp_path / "logs"
        with EngineSession(request, environment.python, "cuda", logs, told) as engines:
            engines.measuring(PLAN)
            context = RunContext(
                request,
                Target(environment.python, h200_fingerprint()),
                Workspace(tmp_path / "work"),
                engines,
                SystemClock(),
                told,
            )
            found: Any = SimpleNamespace(
                setup=SimpleNamespace(concurrencies=(1, 2)),
                bench=SimpleNamespace(
                    requests=[LoadRequest([1], output_tok)],
                    needed=lambda concurrency: touched * concurrency // 2,
                ),
                subject=None,
                outcome=Outcome(),
                version=VERSION,
            )
            outcome = measure_when_it_has_stopped(context, found)
        assert policies.pop(0) == [], "from the measuring engine's page"
        kept = [remark.split() for remark in outcome.remarks[1:]]
        return After(policies, kept, sizes(environment)[1:], told.said)

    return run


def test_two_engines_run_beside_each_other_where_a_gpu_has_room(
    after: Callable[..., After],
) -> None:
    found = after("115.0", 300)
    assert found.policies == found.kept == [[STOCK, NO_SPECULATION]]
    assert found.sizes[0] == found.sizes[1]
    assert found.sizes[0] is not None


@pytest.mark.parametrize(
    ("kv_gib", "output_tok", "touched", "why"),
    [
        ("60.0", 300, 2, "large weights"),
        ("115.0", 1024, 2, "long requests"),
        ("115.0", 300, 6, "windows of many requests"),
    ],
)
def test_else_they_follow_each_other(
    after: Callable[..., After], kv_gib: str, output_tok: int, touched: int, why: str
) -> None:
    found = after(kv_gib, output_tok, touched=touched)
    assert found.policies == found.kept == [[STOCK], [NO_SPECULATION]], why
    assert found.sizes == [str(int((float(kv_gib) - 0.01) * 2**30)), None]


@pytest.mark.parametrize(
    ("kv_gib", "fault"), [("-115.0", "dies"), ("115.0", "dies"), ("115.0", "fails")]
)
def test_two_engines_that_do_not_start_beside_each_other_follow_each_other(
    after: Callable[..., After], monkeypatch: pytest.MonkeyPatch, kv_gib: str, fault: str
) -> None:
    """Both die, or one when the other is up, which then has to go, or one answers with an error."""
    monkeypatch.setenv("FAKE_ENGINE_SHARE", fault)
    found = after(kv_gib, 300)
    assert found.policies == found.kept == [[STOCK], [NO_SPECULATION]]
    said = [line for line in found.said if "do not run beside each other" in line]
    assert len(said) == 1


def test_two_engines_of_which_one_dies_beside_the_other_follow_each_other(
    after: Callable[..., After],
) -> None:
    found = after("115.0", 300, die_beside=True)
    assert found.policies == [[STOCK, NO_SPECULATION], [STOCK], [NO_SPECULATION]]
    assert found.kept == [[STOCK], [NO_SPECULATION]], "windows beside each other are not mixed in"
    said = [line for line in found.said if "do not run beside each other" in line]
    assert len(said) == 1
    assert "while validating" in said[0]


def test_two_engines_that_cannot_be_measured_beside_each_other_follow_each_other(
    after: Callable[..., After],
) -> None:
    starved = LoadEndedError("no new generated tokens for too long", LoadCounts())
    found = after("115.0", 300, trouble=starved)
    assert found.policies == [[STOCK, NO_SPECULATION], [STOCK], [NO_SPECULATION]]
    assert found.kept == [[STOCK], [NO_SPECULATION]]


def test_a_full_disk_is_told_at_once(after: Callable[..., After], tmp_path: pathlib.Path) -> None:
    with pytest.raises(NoRoomForLog):
        after("115.0", 300, trouble=NoRoomForLog(tmp_path / "log", "full"))

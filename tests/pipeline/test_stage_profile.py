"""Which profiler a run gets, and which kept profile it may use again."""

import pathlib
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from evidence import h200_evidence, h200_fingerprint, h200_request

from tabletune.measure.api import EngineAddress, EngineApi, ServedModel
from tabletune.measure.clock import SystemClock
from tabletune.measure.load import LoadRequest
from tabletune.measure.profile_client import ClientProfiler
from tabletune.measure.profile_in_engine import BatchProfiler
from tabletune.measure.progress import Silent
from tabletune.pipeline.build import Evidence
from tabletune.pipeline.identify import Target
from tabletune.pipeline.profilers import Profiler, profiler_of
from tabletune.pipeline.run_context import RunContext
from tabletune.pipeline.session import LiveEngine
from tabletune.pipeline.stage_profile import PARTIAL, stage_profile
from tabletune.pipeline.workspace import Workspace
from tabletune.records.step_profile import Profile

REQUESTS = [LoadRequest("a", 1024)]


class BootedError(Exception):
    """Raised in place of booting an engine: something had to be measured."""


class NoEngine:
    """A session that boots nothing."""

    def measuring(self, plan: object) -> LiveEngine:
        raise BootedError


def chosen(requests: Sequence[LoadRequest] = REQUESTS, **values: object) -> Profiler:
    with EngineApi(EngineAddress("http://127.0.0.1:9")) as api:
        live = LiveEngine(cast(Any, None), api, ServedModel("m", 4096))
        request = h200_request(**values)
        return profiler_of(request, live, requests, 128.0, SystemClock(), Silent())


@pytest.mark.parametrize(("method", "kind"), [("ngram", "mixed"), ("eagle3", "constant")])
def test_in_engine_reads_steps_by_the_drafters_kind(method: str, kind: str) -> None:
    profiler = chosen(method=method)
    assert isinstance(profiler.measurer, BatchProfiler)
    assert (profiler.sample_kind, profiler.reference_tok) == (kind, 128 + 256)
    assert chosen([LoadRequest("a", 100)]).reference_tok == 128 + 50


@pytest.mark.parametrize("method", ["ngram", "eagle3"])
def test_client_takes_the_median_at_its_own_context(method: str) -> None:
    profiler = chosen(method=method, profile_method="client")
    assert isinstance(profiler.measurer, ClientProfiler)
    assert (profiler.sample_kind, profiler.reference_tok) == ("constant", 128 + 32.5)


def run_of(tmp_path: pathlib.Path, name: str, **values: object) -> tuple[RunContext, Evidence]:
    request = h200_request(**values)
    workspace = Workspace(tmp_path)
    evidence = h200_evidence(request)
    workspace.save(h200_fingerprint().identity, evidence.profile, name)
    target = Target(pathlib.Path("python"), h200_fingerprint())
    session = cast(Any, NoEngine())
    run = RunContext(request, target, workspace, session, SystemClock(), Silent())
    return run, evidence


def profile_of(run: RunContext, evidence: Evidence) -> Profile:
    return stage_profile(run, evidence.plan, evidence.qualification, np.ones(5))


def test_a_profile_by_the_same_method_is_reused(tmp_path: pathlib.Path) -> None:
    run, evidence = run_of(tmp_path, "profile")
    assert profile_of(run, evidence) == evidence.profile


def test_a_profile_by_the_other_method_is_not_reused(tmp_path: pathlib.Path) -> None:
    run, evidence = run_of(tmp_path, "profile", profile_method="client")
    with pytest.raises(BootedError):
        profile_of(run, evidence)


@pytest.mark.parametrize(("method", "goes_on"), [("in_engine", True), ("client", False)])
def test_an_unfinished_profile_goes_on_by_the_same_method_only(
    tmp_path: pathlib.Path, method: str, goes_on: bool
) -> None:
    run, evidence = run_of(tmp_path, PARTIAL, profile_method=method)
    said: list[str] = []
    run.progress.say = said.append  # type: ignore[method-assign]
    with pytest.raises(BootedError):
        profile_of(run, evidence)
    assert any("going on from" in sentence for sentence in said) == goes_on

"""Progress on Prefect's pages never stops a measurement."""

import pytest

pytest.importorskip("prefect")

from tabletune_tasks import run_progress
from tabletune_tasks.run_progress import RunProgress


def test_a_server_that_does_not_answer_costs_the_bar_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def unreachable(*_: object, **__: object) -> None:
        tried.append("asked")
        raise ConnectionError("nobody listens")

    monkeypatch.setattr(run_progress, "create_progress_artifact", unreachable)
    monkeypatch.setattr(run_progress, "update_progress_artifact", unreachable)
    now_s = [0.0]
    progress = RunProgress("chat", now_s=lambda: now_s[0])
    progress.start("profile", total=10)
    for done in range(1, 11):
        now_s[0] += 6.0
        progress.advance(done, "K=2 b=4")
    progress.start("validate")
    progress.say("reused")
    assert tried == ["asked"], "without a bar nothing is updated"

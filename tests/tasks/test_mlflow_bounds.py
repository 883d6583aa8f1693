"""A tracker that is away or hangs is given up within its bounds."""

import itertools
import socket
import time

import pytest

from tabletune.records.tracking_entry import TrackedRun, TrackingEntry

pytest.importorskip("mlflow")
pytest.importorskip("prefect")

from tabletune_tasks.mlflow_log import Tracker, TrackerError

ENTRY = TrackingEntry(
    key="k", experiment="tabletune.x", run=TrackedRun(name="r"), made_at="2026-01-02T03:04:05"
)


def test_a_refused_connection_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(TrackerError, match="did not take it"):
            Tracker(url).send(ENTRY)


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections and says nothing."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        begun_s = time.monotonic()
        with pytest.raises(TrackerError):
            Tracker(url).send(ENTRY)
        assert time.monotonic() - begun_s < 30


def test_the_whole_is_bounded_too() -> None:
    """Each call may be quick and all of them together too slow."""
    clock = itertools.count(step=40)
    tracker = Tracker("http://127.0.0.1:9", now_s=lambda: float(next(clock)))

    def slow(check: object) -> None:
        assert callable(check)
        for _ in range(5):
            check()

    with pytest.raises(TrackerError, match="it took longer than 60 s"):
        tracker._bounded(slow, 60.0)

"""The outbox beside killed, stubborn and simultaneous senders."""

import os
import pathlib
import threading

import pytest

pytest.importorskip("prefect")
pytest.importorskip("mlflow")

from tabletune.records.tracking_entry import TrackingEntry
from tabletune_tasks.mlflow_log import TrackerError, _explained
from tabletune_tasks.outbox import Outbox
from tests.tasks.test_outbox import entry

URL = "http://127.0.0.1:1"


def test_an_entry_that_is_never_taken_holds_up_no_other(tmp_path: pathlib.Path) -> None:
    box = Outbox(tmp_path / "outbox")
    for key in ("a", "b", "c"):
        box.put(entry(key))
    sent: list[str] = []

    def send(one: TrackingEntry) -> None:
        if one.key == "a":
            raise _explained(URL, "a value is too long", "INVALID_PARAMETER_VALUE")
        sent.append(one.key)

    result = box.empty(send, TrackerError)
    assert (sent, result.sent, result.left) == (["b", "c"], 2, 1)
    assert "too long" in result.stopped_by
    assert [path.stem for path in box.waiting()] == ["a"], "it is not lost either"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("API request to endpoint /x failed with error code 401 != 200.", "INTERNAL_ERROR"),
        ("not for you", "PERMISSION_DENIED"),
    ],
)
def test_wrong_credentials_are_named_and_stop_it(
    tmp_path: pathlib.Path, reason: str, code: str
) -> None:
    box, tried = Outbox(tmp_path / "outbox"), list[str]()
    for key in ("a", "b"):
        box.put(entry(key))

    def send(one: TrackingEntry) -> None:
        tried.append(one.key)
        raise _explained(URL, reason, code)

    result = box.empty(send, TrackerError)
    assert (tried, result.left) == (["a"], 2)
    assert "check MLFLOW_TRACKING_USERNAME" in result.stopped_by


def test_of_two_that_send_at_once_one_sends_each_entry_once(tmp_path: pathlib.Path) -> None:
    box = Outbox(tmp_path / "outbox")
    for number in range(5):
        box.put(entry(f"run-{number}"))
    sent: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def send(one: TrackingEntry) -> None:
        inside.set()
        assert go_on.wait(30)
        sent.append(one.key)

    first = threading.Thread(target=box.empty, args=(send, TrackerError))
    first.start()
    assert inside.wait(30)
    second = Outbox(tmp_path / "outbox").empty(send, TrackerError)
    assert (second.sent, second.left) == (0, 5)
    assert second.stopped_by == "another run sends what waits"
    go_on.set()
    first.join(30)
    assert sent == [f"run-{number}" for number in range(5)]
    # Nothing but an empty folder is left, and the lock is beside it.
    assert list((tmp_path / "outbox").iterdir()) == []


def test_what_a_killed_run_left_half_written_goes_after_a_day(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "outbox"
    box = Outbox(folder)
    report = tmp_path / "report.html"
    report.write_text("<p>kept</p>")
    kept = box.put(entry("kept", **{"report/report.html": str(report)}))
    now_s = kept.stat().st_mtime
    for days, name in ((2, "old"), (0, "new")):
        torn = folder / f".writing-{name}"
        torn.write_bytes(b"{")
        files = folder / f"{name}.files"
        (files / "x").mkdir(parents=True)
        for path in (torn, files):
            os.utime(path, (now_s - days * 86400, now_s - days * 86400))
    os.utime(folder / "kept.files", (now_s - 9e6, now_s - 9e6))
    box.put(entry("next"))
    left = {path.name for path in folder.iterdir()}
    assert left == {".writing-new", "new.files", "kept.json", "kept.files", "next.json"}

"""The outbox: nothing is lost, nothing is sent twice, nothing grows without end."""

import pathlib

import pytest

from tabletune.records.tracking_entry import Metric, TrackedRun, TrackingEntry

pytest.importorskip("prefect")

from tabletune_tasks.mlflow_log import TrackerError
from tabletune_tasks.outbox import Outbox


def entry(key: str, **files: str) -> TrackingEntry:
    run = TrackedRun(name=key, metrics=(Metric(name="boot_s", value=1.5),), files=files)
    return TrackingEntry(key=key, experiment="tabletune.x", run=run, made_at="2026-01-02T03:04:05")


def test_what_fails_stays_in_order_and_goes_later(tmp_path: pathlib.Path) -> None:
    box = Outbox(tmp_path / "outbox")
    for key in ("a", "b", "c"):
        box.put(entry(key))
    sent: list[str] = []

    def send(one: TrackingEntry) -> None:
        if one.key == "b" and "b" not in down:
            raise TrackerError("http://127.0.0.1:1", "refused")
        sent.append(one.key)

    down: set[str] = set()
    first = box.empty(send, TrackerError)
    assert (first.sent, first.left) == (1, 2)
    assert "refused" in first.stopped_by
    down.add("b")
    second = box.empty(send, TrackerError)
    assert (second.sent, second.left, second.stopped_by) == (2, 0, "")
    assert sent == ["a", "b", "c"]


def test_files_are_kept_although_the_run_folder_goes(tmp_path: pathlib.Path) -> None:
    report = tmp_path / "run" / "report.html"
    report.parent.mkdir()
    report.write_text("<p>first</p>")
    box = Outbox(tmp_path / "outbox")
    box.put(entry("a", **{"report/report.html": str(report)}))
    report.unlink()
    seen: list[str] = []
    box.empty(lambda one: seen.extend(read_all(one)), TrackerError)
    assert seen == ["<p>first</p>"]
    assert list((tmp_path / "outbox").iterdir()) == []


def read_all(one: TrackingEntry) -> list[str]:
    return [pathlib.Path(path).read_text() for path in one.run.files.values()]


def test_a_damaged_entry_does_not_stop_the_others(tmp_path: pathlib.Path) -> None:
    box = Outbox(tmp_path)
    box.put(entry("a"))
    (tmp_path / "a.json").write_bytes(b'{"kind": "tracking_entry", "key": NaN}')
    box.put(entry("b"))
    sent: list[str] = []
    result = box.empty(lambda one: sent.append(one.key), TrackerError)
    assert (result.sent, result.unreadable, result.left) == (1, 1, 0)
    assert sent == ["b"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.unreadable"]


def test_the_oldest_make_room(tmp_path: pathlib.Path) -> None:
    box = Outbox(tmp_path, most=3)
    for number in range(6):
        box.put(entry(f"run-{number}"))
    assert sorted(path.stem for path in box.waiting()) == ["run-3", "run-4", "run-5"]


def test_the_same_key_is_one_entry(tmp_path: pathlib.Path) -> None:
    box = Outbox(tmp_path)
    box.put(entry("a"))
    box.put(entry("a"))
    assert len(box.waiting()) == 1

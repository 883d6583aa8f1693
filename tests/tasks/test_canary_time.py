"""How long a canary was looked at, whatever the calendar says."""

import pathlib
from datetime import timedelta

import pytest

pytest.importorskip("prefect")

from tabletune.maintain.canary_channel import Pending, begin_canary
from tabletune.maintain.decisions import carry_out, decide
from tabletune.maintain.deployments import Deployment
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.folder import FolderStore
from tabletune_tasks import canaries
from tests.maintain.scenes import NOW, FixedClock, deployment, verdict, version
from tests.store.world import FINGERPRINT


class SplitClock(FixedClock):
    """Its calendar can be set without any time going by."""

    passed_s: float = 100.0

    def now_s(self) -> float:
        return self.passed_s


def decided_on(store: Store, one: Deployment, new: TableVersion, clock: FixedClock) -> Pending:
    pointer, _ = store.read_pointer("live")
    seen = verdict(new, pointer.table_version if pointer else "")
    decided = decide(store, one, store.put(new), store.put(seen), clock, "nightly")
    assert decided.allowed, decided.decision.reasons
    if pointer is None:
        move = carry_out(store, one, decided, clock, "nightly")
        return Pending(decided, move.pointer)
    return begin_canary(store, one, decided, clock, "nightly")


@pytest.mark.parametrize("hours", [-1000, -5, 5, 1000])
def test_a_clock_that_is_set_neither_ends_a_canary_nor_holds_it_up(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    store, clock = FolderStore(tmp_path / "store"), SplitClock(NOW)
    policy = {"minutes": 30, "most_minutes": 60}
    one = deployment(tmp_path, channels={"canary": "canary"}, canary=policy)
    store.put(FINGERPRINT)
    decided_on(store, one, version(3, 4, 1, 8, 0, 16), clock)
    pending = decided_on(store, one, version(3, 5, 1, 9, 0, 16), clock)
    monkeypatch.setattr(canaries, "SystemClock", lambda: clock)
    clock.now = NOW + timedelta(hours=hours)  # another host, or a step of this one's clock
    trial = canaries.observe.fn(one, pending)
    assert canaries.look_at.fn(one, trial).outcome == "go on"
    clock.passed_s += 59 * 60
    assert canaries.look_at.fn(one, canaries.renew.fn(one, trial)).outcome == "go on"
    clock.passed_s += 60
    judgement = canaries.look_at.fn(one, canaries.renew.fn(one, trial))
    assert judgement.outcome == "back"  # nobody sent traffic
    assert "took 0 steps" in judgement.reasons[0]
    canaries.end.fn(one, store, trial, judgement, "nightly")
    moves = [state.table_version for state in store.history("canary")]
    live, _ = store.read_pointer("live")
    assert live is not None
    assert moves[0] == live.table_version

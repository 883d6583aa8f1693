"""The plugin taken out of a running scheduler and put back, and how its rates are read."""

from collections.abc import Iterator

import fake_vllm
import pytest

from bench.evaluation import taken_out
from tabletune_vllm.errors import RequestError
from tabletune_vllm.live.follow import Following
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam import hooks
from tabletune_vllm.seam.step_hooks import METHODS
from tabletune_vllm.settings import Settings

BOOT = [0, 3, 3, 1, 0]


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch) -> Iterator[fake_vllm.Scheduler]:
    for owner, name in (
        *((hooks, "hook"), (Runtime, "swap_table")),
        *((Following, "turn"), (Following, "talk")),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end
    taken_out.install()
    taken_out.install()
    yield fake_vllm.Scheduler(list(BOOT))
    del Runtime._bench_taken_out  # type: ignore[attr-defined]


def steps(scheduler: fake_vllm.Scheduler, count: int) -> list[int]:
    lengths = []
    for _ in range(count):
        output, result = scheduler.decode(2, 1)
        scheduler.update_from_output(output, result)
        lengths.append(output.num_spec_tokens_to_schedule)
    return lengths


def recorded(runtime: Runtime) -> int:
    runtime.settle()
    return int(runtime.status()["steps"])


def test_out_leaves_nothing_of_the_plugins_and_in_brings_it_back(
    scheduler: fake_vllm.Scheduler,
) -> None:
    runtime = hooks.attach(scheduler, Settings(measure=True, ring_steps=256), "0.32.0")
    assert steps(scheduler, 5) == [3] * 5
    seen = recorded(runtime)
    assert seen >= 4
    assert runtime.swap_table({"plugin": "out"}) == {"plugin": "out", "active": True}
    runtime.swap_table({"plugin": "out"})
    assert not set(METHODS) & set(vars(scheduler))
    assert scheduler.dynamic_sd_lookup == BOOT
    assert type(scheduler.dynamic_sd_lookup) is list
    assert steps(scheduler, 5) == [3] * 5
    assert recorded(runtime) == seen
    assert Following.turn(None) is None  # type: ignore[arg-type]
    runtime.swap_table({"plugin": "in"})
    runtime.swap_table({"plugin": "in"})
    assert set(METHODS) & set(vars(scheduler))
    assert steps(scheduler, 5) == [3] * 5
    assert recorded(runtime) >= seen + 4
    runtime.swap_table({"ranges": [[1, 4, 1]]})
    assert steps(scheduler, 1) == [1], "other bodies mean what they meant"
    with pytest.raises(RequestError, match="in or out"):
        runtime.swap_table({"plugin": "away"})

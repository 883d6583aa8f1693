"""Loads, lengths and switches of traffic."""

from collections.abc import Callable
from math import inf

import numpy as np
import pytest

from tabletune.simulate.errors import SimulationError
from tabletune.simulate.lengths import FixedLength, ListedLength, LognormalLength
from tabletune.simulate.loads import ClosedLoop, Load, OpenLoop, Trace
from tabletune.simulate.workload import Source, Traffic, Workload

SHORT = (Traffic(FixedLength(3), FixedLength(5)),)


def _source(load: Load, traffic: tuple[Traffic, ...] = SHORT, seed: int = 0) -> Source:
    return Workload(load, traffic).start(np.random.default_rng(seed))


def _arrivals(load: Load, until_s: float) -> np.ndarray:
    source, times = _source(load), []
    while source.next_s < until_s:
        times.append(source.pop()[0])
    return np.array(times)


def test_closed_loop_clients_wait_for_their_answers() -> None:
    source = _source(ClosedLoop(2, think_s=0.5))
    assert [source.pop()[0] for _ in range(2)] == [0.0, 0.0]
    assert source.next_s == inf
    source.completed(3.0)
    source.completed(2.0)
    assert source.pop() == (2.5, 3, 5, 0)
    assert source.next_s == 3.5


def test_clients_can_start_one_after_the_other() -> None:
    source = _source(ClosedLoop(4, ramp_s=2.0))
    assert [source.pop()[0] for _ in range(4)] == [0.0, 0.5, 1.0, 1.5]


def test_exponential_thinking_has_its_mean() -> None:
    source = _source(ClosedLoop(1, think_s=0.2, exponential_think=True))
    thoughts = []
    for _ in range(4000):
        source.pop()
        source.completed(1.0)
        thoughts.append(source.next_s - 1.0)
    assert np.mean(thoughts) == pytest.approx(0.2, rel=0.05)
    assert np.std(thoughts) == pytest.approx(0.2, rel=0.08)


def test_poisson_arrivals_have_independent_exponential_gaps() -> None:
    gaps = np.diff(_arrivals(OpenLoop(50.0), 400.0))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.05)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.03


@pytest.mark.parametrize(("quiet", "busy"), [(5.0, 60.0), (0.0, 60.0), (5.0, 0.0)])
def test_bursts_come_when_they_should(quiet: float, busy: float) -> None:
    times = _arrivals(OpenLoop(quiet, burst_per_s=busy, on_s=0.5, off_s=1.5), 800.0)
    assert (np.diff(times) >= 0).all()
    on = times % 2.0 >= 1.5
    assert on.sum() / 200.0 == pytest.approx(busy, rel=0.05)
    assert (~on).sum() / 600.0 == pytest.approx(quiet, rel=0.05)


def test_a_trace_is_replayed_as_recorded() -> None:
    source = _source(Trace([0.1, 0.1, 4.0], [7, 8, 9], [1, 2, 3]))
    seen = [source.pop() for _ in range(3)]
    assert seen == [(0.1, 7, 1, 0), (0.1, 8, 2, 0), (4.0, 9, 3, 0)]
    assert source.next_s == inf


def test_traffic_switches_at_its_time() -> None:
    traffic = (*SHORT, Traffic(FixedLength(30), FixedLength(50), kind=1, from_s=1.0))
    source = _source(Trace([0.0, 0.999, 1.0], [1] * 3, [1] * 3), traffic)
    assert [source.pop()[3] for _ in range(3)] == [0, 0, 1]
    source = _source(ClosedLoop(3, ramp_s=3.0), traffic)
    assert [source.pop()[1:] for _ in range(3)] == [(3, 5, 0), (30, 50, 1), (30, 50, 1)]


def test_lengths_follow_their_distribution() -> None:
    rng = np.random.default_rng(0)
    values = LognormalLength(200, 0.6, low=20, high=3000).draw(rng, 20_000)
    assert np.median(values) == pytest.approx(200, rel=0.03)
    assert np.log(values).std() == pytest.approx(0.6, rel=0.05)
    assert values.min() >= 20
    assert values.max() <= 3000
    assert set(ListedLength([4, 7]).draw(rng, 100)) == {4, 7}


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedLength(0),
        lambda: ListedLength([]),
        lambda: ListedLength([3, 0]),
        lambda: LognormalLength(100, -1.0),
        lambda: Workload(OpenLoop(1.0), ()),
        lambda: Workload(OpenLoop(1.0), (Traffic(FixedLength(1), FixedLength(1), from_s=2.0),)),
        lambda: _source(ClosedLoop(0)),
        lambda: _source(OpenLoop(0.0)),
        lambda: _source(OpenLoop(1.0, burst_per_s=4.0)),
        lambda: _source(Trace([1.0, 0.5], [1, 1], [1, 1])),
        lambda: _source(Trace([1.0], [1], [0])),
        lambda: _source(Trace([1.0, 2.0], [1], [1])),
    ],
)
def test_impossible_workloads_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(SimulationError):
        make()

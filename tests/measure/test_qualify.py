"""Qualification of simulated engines with known faults."""

import threading

import numpy as np
import pytest
from simulated_engine import SimulatedEngine, staircase_s

from tabletune.measure.api import EngineApiError
from tabletune.measure.load import LoadRequest
from tabletune.measure.progress import Silent
from tabletune.measure.qualify import qualify
from tabletune.measure.qualify_drive import Driver, EngineFault
from tabletune.measure.qualify_options import QualifyOptions
from tabletune.measure.qualify_output import http_prompts
from tabletune.measure.qualify_result import QualificationResult

LENGTHS = (0, 1, 2, 3, 4)
REQUESTS = [LoadRequest(f"prompt {i}", 400 + 13 * i) for i in range(8)]


def same_output(requests, concurrency):
    return [list(range(r.max_tokens)) for r in requests]


class Recorded(Silent):
    """Keeps the shares that each stage told."""

    def __init__(self):
        self.shares = []

    def start(self, name, total=None):
        self.shares.append([])

    def advance(self, done, note=""):
        self.shares[-1].append(done)


def run(engine: SimulatedEngine, largest: int = 64, **arguments) -> QualificationResult:
    arguments = {"lengths": LENGTHS, "run_prompts": same_output} | arguments
    lengths = arguments.pop("lengths")
    return qualify(
        engine,
        "model",
        REQUESTS,
        lengths,
        largest,
        clock=engine,
        progress=arguments.pop("progress", Silent()),
        died=engine.died,
        open_load=engine.open_load,
        **arguments,
    )


def test_a_sound_engine_passes_everything_everywhere():
    engine = SimulatedEngine()
    result = run(engine)
    assert result.passed
    assert not result.stalled
    assert result.failed == ()
    assert result.envelope.allowed == {str(k): ((1, 64),) for k in LENGTHS}
    assert result.envelope.forbidden_transitions == ()
    assert result.excluded == ()
    names = {check.name for check in result.checks}
    for size in (1, 32, 64):
        assert {f"draft length {k} at batch size {size}" for k in LENGTHS} <= names
        pairs = {(old, new) for old in LENGTHS for new in LENGTHS if old != new}
        assert {f"switch {old} → {new} at batch size {size}" for old, new in pairs} <= names
    assert {"a shrinking batch", "prefills joining 32 decodes"} <= names
    assert {f"greedy output at draft length {k}" for k in LENGTHS[1:]} <= names
    assert "acceptance after length 0" in names
    assert {(c.batch_size, c.draft_length) for c in result.cells} >= {
        (b, k) for b in range(1, 65) for k in LENGTHS
    }
    assert [s.batch_size for s in result.slowest][:64] == list(range(1, 65))
    assert all(s.slowest_over_median < 1.6 for s in result.slowest)


def test_the_whole_takes_90_seconds_at_most_on_a_fast_engine_of_128():
    result = run(SimulatedEngine(), largest=128)
    assert result.passed
    assert {c.batch_size for c in result.cells} == set(range(1, 129))
    assert result.wall_time_s < 90


def test_a_slow_engine_takes_75_seconds_at_most():
    def cpu_s(size: int, verified: float, chosen: int) -> float:
        return 0.055 + 0.0018 * size * (1 + verified)

    result = run(SimulatedEngine(step_s=cpu_s), largest=16)
    assert result.passed
    assert result.failed == ()
    assert result.wall_time_s < 75
    assert result.envelope.allowed == {str(k): ((1, 16),) for k in LENGTHS}


def test_a_drafter_whose_work_varies_from_step_to_step_on_a_busy_slow_host_passes():
    """As n-gram drafting on two cores: time follows the tokens that happen to be scheduled."""

    def cpu_s(size: int, verified: float, chosen: int) -> float:
        return 0.055 + 0.004 * size * (1 + verified)

    engine = SimulatedEngine(
        step_s=cpu_s,
        noise=lambda rng: (
            rng.lognormal(0.0, 0.15) * (rng.uniform(2, 6) if rng.random() < 0.03 else 1)
        ),
        proposes=lambda rng: rng.beta(0.6, 0.9),
    )
    result = run(engine, largest=16, step_kind="mixed")
    assert result.passed
    assert result.failed == ()
    assert result.wall_time_s < 110


def test_the_stall_of_ungraphed_batches_is_found_exactly():
    """The measured stall: at b = 50 every length but 3 runs ungraphed, three times slower."""

    def stalls(size: int, verified: float, chosen: int) -> float:
        ungraphed = size == 50 and verified != 3
        return 0.0205 if ungraphed else staircase_s(size, verified, chosen)

    graphed = lambda size, verified: size != 50 or verified == 3  # noqa: E731
    result = run(SimulatedEngine(step_s=stalls, graphed=graphed))
    assert result.passed
    assert result.stalled
    for length in (0, 1, 2, 4):
        assert result.envelope.allowed[str(length)] == ((1, 49), (51, 64))
    assert result.envelope.allowed["3"] == ((1, 64),)
    assert result.envelope.forbidden_transitions == ()
    failed = {(c.batch_size, c.draft_length, c.fault) for c in result.failed}
    assert failed == {(50, k, "stall") for k in (0, 1, 2, 4)}
    assert "20.5 ms without a graph" in next(
        c.evidence for c in result.failed if c.draft_length == 0
    )


def test_a_stall_up_to_the_largest_batch_has_no_larger_one_to_compare_with():
    def stalls(size: int, verified: float, chosen: int) -> float:
        return 0.025 if size >= 57 and verified >= 2 else staircase_s(size, verified, chosen)

    result = run(SimulatedEngine(step_s=stalls))
    for length in (2, 3, 4):
        assert result.envelope.allowed[str(length)] == ((1, 56),)
    assert result.envelope.allowed["1"] == ((1, 64),)


def test_a_slow_switch_is_forbidden_and_no_other():
    result = run(SimulatedEngine(slow_switches={(2, 1): 0.9}))
    assert result.passed
    assert result.envelope.forbidden_transitions == ((2, 1),)
    assert all(ranges == ((1, 64),) for ranges in result.envelope.allowed.values())
    assert any("switch 2 → 1" in words for words in result.excluded)


def test_a_busy_host_fails_nothing():
    """One step in 25 takes up to ten times as long, and whole seconds are slower."""

    def busy(rng: np.random.Generator) -> float:
        hiccup = rng.uniform(2, 10) if rng.random() < 0.04 else 1.0
        return hiccup * rng.lognormal(0.0, 0.08)

    engine = SimulatedEngine(noise=busy)
    result = run(engine)
    assert result.passed
    assert result.failed == ()
    assert result.envelope.forbidden_transitions == ()


@pytest.mark.parametrize("begin", [3, 20, 35])
def test_a_host_that_is_slow_for_a_while_fails_nothing(begin):
    engine = SimulatedEngine()

    def slow_spell(rng: np.random.Generator) -> float:
        elapsed_s = engine.now_s() - 100
        return 3.0 if begin < elapsed_s < begin + 2.0 else 1.0

    engine._noise = slow_spell
    result = run(engine)
    assert result.failed == ()


def test_a_crash_ends_it_with_the_log_and_the_place():
    engine = SimulatedEngine(crash_at=lambda size, length: size >= 32 and length == 2)
    result = run(engine)
    assert not result.passed
    assert result.fatal is not None
    assert result.fatal.fault == "crash"
    assert "illegal memory access" in result.fatal.evidence
    assert "batch size 32" in result.fatal.name
    assert result.envelope.allowed == {}
    assert "crash" in result.reason


def test_a_hang_is_noticed_while_requests_are_open():
    engine = SimulatedEngine(hang_at=lambda size, length: size == 32 and length == 4)
    result = run(engine, options=QualifyOptions("constant", (1, 32), (1, 2), hang_s=5.0))
    assert result.fatal is not None
    assert result.fatal.fault == "hang"
    assert "no step for 5 s" in result.fatal.evidence
    assert "32 requests run" in result.fatal.evidence


def test_a_machine_that_stood_still_is_no_engine_that_hangs():
    """A suspended guest, or a frozen container: clocks go on, neither side runs meanwhile."""
    engine = SimulatedEngine(stands_s=dict.fromkeys(range(40, 4000, 400), 45.0))
    result = run(engine)
    assert result.passed, result.reason
    assert result.failed == ()
    assert result.envelope.allowed == {str(k): ((1, 64),) for k in LENGTHS}


class Late(SimulatedEngine):
    """Answers so many schedules too late, and everything else in time."""

    late, told = 1, 0

    def pin_schedule(self, schedule: list[tuple[int, int]], repeat: int = 1) -> None:
        super().pin_schedule(schedule, repeat)
        self.told += 1
        if self.told <= self.late:
            self.sleep_s(0.5)  # it walks meanwhile
            raise EngineApiError("POST /tabletune/pin", "ReadTimeout: timed out", "see its log")


class Gone(Late):
    """Answers nothing any more once it was late."""

    def metrics_text(self) -> str:
        raise EngineApiError("GET /metrics", "ReadTimeout: timed out", "see its log")


def test_a_walk_whose_begin_is_told_too_late_is_walked_whole():
    engine = Late()
    driver = Driver(engine, engine.open_load, engine, engine.died, hang_s=30.0)
    with engine.open_load(REQUESTS, 4) as load:
        driver.wait_ready(load, 4)
        steps = driver.walk(load, [(k, 40) for k in LENGTHS])
    assert [int((steps.draft_length == k).sum()) >= 39 for k in LENGTHS] == [True] * 5


def test_an_answer_that_is_too_late_is_asked_for_once_more():
    assert run(Late()).passed
    always = Late()
    always.late = 10**6
    for engine in (always, Gone()):
        result = run(engine)
        assert result.fatal is not None
        assert result.fatal.fault == "hang"
        assert "it does not answer" in result.reason


def test_a_hang_is_noticed_while_greedy_output_is_waited_for():
    class Asked(SimulatedEngine):
        """Its clock goes on with each look; it answers no prompt."""

        def now_s(self) -> float:
            self._now_s += 1.0
            return self._now_s

        def complete(self, model, prompt, max_tokens, **sampling):
            threading.Event().wait()

    engine = Asked()
    driver = Driver(engine, engine.open_load, engine, engine.died, hang_s=10.0)
    with pytest.raises(EngineFault, match="no step for 10 s"):
        http_prompts(driver, "model")(REQUESTS, 2)


def test_requests_that_ended_are_no_engine_that_hangs():
    result = run(SimulatedEngine(ends_at=200))
    assert result.fatal is not None
    assert result.fatal.fault == "refused"
    assert "the requests ended" in result.reason


def test_requests_that_the_engine_refuses_are_no_crash():
    engine = SimulatedEngine(refuses="HTTP 400: max_tokens is too large")
    result = run(engine)
    assert result.fatal is not None
    assert result.fatal.fault == "refused"
    assert "max_tokens is too large" in result.reason


def test_an_engine_that_always_drafts_the_most_is_caught():
    engine = SimulatedEngine(verified_of=lambda length: 4 if length else 0)
    result = run(engine)
    ignored = {c.draft_length for c in result.failed if c.fault == "ignored"}
    assert ignored == {1, 2, 3}
    assert result.envelope.lengths == (0, 4)
    assert "verified 256 drafts instead of" in " ".join(c.evidence for c in result.failed)


def test_a_drafter_that_may_propose_less_is_not_ignoring():
    engine = SimulatedEngine(verified_of=lambda length: min(length, 1))
    result = run(engine, step_kind="mixed")
    assert not any(c.fault == "ignored" for c in result.failed)


def test_acceptance_that_does_not_come_back_forbids_leaving_zero():
    engine = SimulatedEngine(accept=lambda stale: 0.05 if stale else 0.7)
    result = run(engine)
    assert {(0, k) for k in (1, 2, 3, 4)} <= set(result.envelope.forbidden_transitions)
    assert any("first guesses accepted" in words for words in result.excluded)


def test_output_that_changes_excludes_the_length():
    engine = SimulatedEngine()

    def run_prompts(requests, concurrency):
        outputs = same_output(requests, concurrency)
        if engine.pinned[-1] == 3:
            return [[-1 if i >= 2 else t for i, t in enumerate(o)] for o in outputs]
        return outputs

    result = run(engine, run_prompts=run_prompts)
    assert result.envelope.lengths == (0, 1, 2, 4)
    assert [c.draft_length for c in result.failed] == [3]
    assert result.failed[0].fault == "output"


def test_lengths_without_zero_and_a_batch_of_one():
    engine = SimulatedEngine()
    result = run(engine, largest=1, lengths=(2,))
    assert result.passed
    assert result.envelope.allowed == {"2": ((1, 1),)}


def test_the_plan_bounds_the_envelope():
    covered = {(b, k) for b in range(1, 65) for k in LENGTHS} - {(7, 2)}
    result = run(SimulatedEngine(), covered=covered)
    assert result.envelope.allowed["2"] == ((1, 6), (8, 64))
    assert any("outside the capture plan" in words for words in result.excluded)


def test_progress_rises_within_each_stage():
    progress = Recorded()
    run(SimulatedEngine(), progress=progress)
    assert all(shares == sorted(shares) for shares in progress.shares)
    walked = [shares for shares in progress.shares if len(shares) > 3]
    assert len(walked) >= 4
    assert all(shares[-1] > 0.9 for shares in walked)


def test_a_batch_that_never_fits_is_reported_and_costs_little_time():
    result = run(SimulatedEngine(most=40))
    assert result.passed
    missing = {check.name for check in result.failed}
    assert {f"draft length {k} at batch size 64" for k in LENGTHS} <= missing
    assert all("never seen among 64" in check.evidence for check in result.failed)
    assert result.wall_time_s < 240

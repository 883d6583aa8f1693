"""The benchmark's policies inside an engine core, on the plugin's own runtime and a small vLLM."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import fake_vllm
import numpy as np
import pytest

from bench.evaluation import policy_specs
from bench.evaluation.policies_in_runtime import install
from bench.evaluation.policy_table import FOREIGN_STEPS, PolicyTable, usable_lengths
from tabletune.simulate.policy import Observation, Steps
from tabletune.simulate.rivals.acceptance_tiers import SLOTS_BY_BATCH
from tabletune_vllm.errors import RequestError
from tabletune_vllm.runtime import Runtime
from tabletune_vllm.seam.hooks import attach
from tabletune_vllm.settings import Settings

BOOT = [0, 3, 3, 1, 0]
WHOLE = {str(k): [[1, 4]] for k in range(4)}
CELLS = {(b, k): 0.004 + 0.0001 * b * (k + 1) for b in (1, 2, 3, 4) for k in range(4)}
POLICIES = {
    "tiers": policy_specs.tiers({1: (1, 3)}, 3),
    "fitted": policy_specs.fitted_goodput(CELLS, 3),
    "bandit": policy_specs.bandit(3, 5),
}
REPOSITORY = pathlib.Path(__file__).parents[2]


class Engine:
    """One scheduler with the plugin and the policies; steps take 5 ms of its own time."""

    def __init__(self) -> None:
        self.scheduler = fake_vllm.Scheduler(list(BOOT))
        self.runtime = attach(self.scheduler, Settings(measure=True, ring_steps=256), "0.32.0")

    def steps(self, count: int, batch: int = 2, accepted: int = 1) -> list[int]:
        """The draft lengths of so many decode steps."""
        lengths = []
        for _ in range(count):
            output, result = self.scheduler.decode(batch, accepted)
            self.scheduler.update_from_output(output, result)
            lengths.append(output.num_spec_tokens_to_schedule)
        return lengths

    def choose(self, name: str) -> dict[str, Any]:
        return self.runtime.swap_table({"policy": name})

    def report(self) -> Any:
        return self.runtime.swap_table({"policy_report": True})["policies"]

    def table(self, name: str) -> PolicyTable:
        policies: Any = vars(self.runtime)["_bench_policies"]
        return policies._tables[name].asked


@pytest.fixture
def engine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for name in ("__init__", "swap_table", "_compose"):
        monkeypatch.setattr(Runtime, name, getattr(Runtime, name))  # put back at the end
    file = {"max_num_seqs": 4, "longest": 3, "envelope": WHOLE, "policies": POLICIES}
    path = tmp_path / "policies.json"
    path.write_text(json.dumps(file))
    install(path)
    install(path)  # vLLM may call a plugin twice
    yield Engine()
    del Runtime._bench_policies  # type: ignore[attr-defined]


def test_without_a_command_the_boot_table_decides(engine: Engine) -> None:
    assert engine.steps(2) == [3, 3]
    assert engine.report()["tiers"]["chosen_steps"] == 0


def test_a_policy_decides_each_step_until_a_table_comes(engine: Engine) -> None:
    engine.steps(2)
    assert engine.choose("tiers") == {"policy": "tiers", "active": True}
    # Warm-up of 10 steps at 3; no guess is accepted, so the tiers step down to 1.
    lengths = engine.steps(60, accepted=0)
    assert lengths[:8] == [3] * 8
    assert lengths[-20:] == [1] * 20
    assert engine.report()["tiers"]["chosen_lengths"] == {
        "1": lengths.count(1),
        "3": lengths.count(3),
    }
    engine.runtime.swap_table({"ranges": [[1, 4, 2]]})
    assert engine.steps(3) == [2, 2, 2]
    engine.choose("tiers")
    assert engine.steps(1) == [1], "its state was kept"
    engine.runtime.swap_table({"ranges": None})
    assert engine.steps(1) == [3]


def test_a_policy_learns_from_its_own_steps_only(engine: Engine) -> None:
    engine.choose("fitted")
    engine.steps(10)
    learnt = engine.table("fitted").policy.acceptance  # type: ignore[attr-defined]
    engine.runtime.swap_table({"ranges": [[1, 4, 3]]})
    engine.steps(20, accepted=3)
    assert engine.table("fitted").policy.acceptance == learnt  # type: ignore[attr-defined]
    engine.choose("fitted")
    engine.steps(FOREIGN_STEPS, accepted=3)
    assert engine.table("fitted").policy.acceptance == learnt  # type: ignore[attr-defined]
    engine.steps(5, accepted=3)
    assert engine.table("fitted").policy.acceptance > learnt  # type: ignore[attr-defined]


def test_a_pin_goes_before_the_policy_and_nothing_is_learnt(engine: Engine) -> None:
    engine.choose("bandit")
    engine.steps(10)
    before = engine.report()["bandit"]
    engine.runtime.pin({"draft_length": 2})
    assert engine.steps(5) == [2] * 5
    assert engine.report()["bandit"] == before


def test_the_status_can_be_read_without_asking_the_policy(engine: Engine) -> None:
    engine.choose("bandit")
    engine.steps(5)
    chosen = engine.report()["bandit"]["chosen_steps"]
    assert engine.runtime.status()["active"] is True
    assert engine.runtime.suspended == "a table is set by hand"
    assert engine.report()["bandit"]["chosen_steps"] == chosen == 5


def test_an_unknown_policy_is_refused_and_nothing_changes(engine: Engine) -> None:
    with pytest.raises(RequestError, match="bandit"):
        engine.choose("unheard of")
    assert engine.steps(2) == [3, 3]


def test_a_policy_that_fails_leaves_the_boot_table(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.choose("fitted")
    policy = engine.table("fitted").policy
    monkeypatch.setattr(policy, "draft_length", lambda *_: 1 // 0)
    assert engine.steps(2) == [3, 3]
    assert "ZeroDivisionError" in str(engine.runtime.reason)


class Recorder:
    """A policy that keeps what it is shown."""

    wants_steps = True

    def __init__(self, wanted: int) -> None:
        self.wanted, self.seen = wanted, list[Steps]()
        self.asked = list[tuple[int, int, int]]()

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        self.asked.append((batch_size, observation.step, observation.last_draft_length))
        return self.wanted

    def steady_steps(self, observation: Observation) -> int:
        return 1

    def observe(self, steps: Steps) -> None:
        self.seen.append(steps)


def record(**values: float) -> tuple[float, ...]:
    """One of the ring's records with three draft positions; what is not given is 0."""
    ring = importlib.import_module("tabletune_vllm.ring")
    facts = [values.get(name, 0) for name in (*ring.FLOAT_COLUMNS, *ring.INT_COLUMNS)]
    return (*facts, 4, 4, 0, 3, 1, 0)


def ticking() -> Callable[[], float]:
    """A clock that goes on by a microsecond at each look."""
    now = iter(range(10**9))
    return lambda: next(now) * 1e-6


def test_what_a_policy_is_shown_of_a_step() -> None:
    policy = Recorder(2)
    table = PolicyTable(policy, usable_lengths(WHOLE, 4, 3), ticking())
    given: dict[str, float] = {"time_s": 7.0, "step_time_s": 0.25, "batch_size": 4}
    given |= {"draft_length": 1, "draft_length_verified": 2, "prefill_requests": 1}
    given |= {"prefill_tokens": 9, "output_tokens": 8}
    for _ in range(FOREIGN_STEPS):
        table.observe(record(**given))
    assert not policy.seen
    table.observe(record(**given))
    (steps,) = policy.seen
    assert (steps.start_s, steps.step_time_s.tolist(), steps.tokens.tolist()) == (6.75, [0.25], [8])
    assert (steps.batch_size, steps.decode_requests, steps.prefill_tok) == (4, 3, 9)
    assert (steps.draft_length, steps.verified_length) == (1, 2)
    assert steps.drafted_through.tolist() == [[4, 4]]
    assert steps.accepted_through.tolist() == [[3, 1]]
    for other in ({"after_idle": 1}, {"disturbed": 1}, {"draft_length_verified": -1}):
        table.observe(record(**{**given, **other}))
    assert len(policy.seen) == 1
    report = table.cost.report()
    assert (report["observed_steps"], report["skipped_steps"]) == (1, FOREIGN_STEPS + 3)
    assert report["observe_us"] == 1.0


def test_a_length_outside_the_envelope_becomes_the_next_shorter_one() -> None:
    policy = Recorder(3)
    usable = usable_lengths({"0": [[1, 4]], "1": [[1, 4]], "3": [[1, 2]]}, 4, 3)
    table = PolicyTable(policy, usable, ticking())
    assert [table[b] for b in (2, 3)] == [3, 1]
    assert policy.asked == [(2, 0, 0), (3, 1, 3)]
    policy.wanted = 2
    assert table[1] == 1
    assert table.cost.choose_s == pytest.approx(3e-6)


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_python_with_the_folder_on_its_path_gets_the_policies(
    asked_for: bool, tmp_path: pathlib.Path
) -> None:
    path = os.pathsep.join(map(str, (REPOSITORY / "bench" / "engine_side", REPOSITORY)))
    environment = {k: v for k, v in os.environ.items() if k != "BENCH_POLICIES"}
    environment |= {"PYTHONPATH": path}
    if asked_for:
        environment["BENCH_POLICIES"] = str(tmp_path / "policies.json")
    program = (
        "import sys\n"
        "before = 'tabletune.simulate' in sys.modules\n"
        "from tabletune_vllm.runtime import Runtime\n"
        "print(before, hasattr(Runtime, '_bench_policies'))"
    )
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True)
    assert ended.stdout.decode().split() == ["False", str(asked_for)]


def test_specs_make_the_simulators_policies() -> None:
    made = policy_specs.policy_of(json.loads(json.dumps(policy_specs.tiers(SLOTS_BY_BATCH, 4))))
    assert made.draft_length(200, Observation()) == 0
    fitted = policy_specs.policy_of(json.loads(json.dumps(POLICIES["fitted"])))
    assert fitted.draft_length(1, Observation()) in range(4)
    with pytest.raises(policy_specs.UnknownPolicyError, match="'oracle'"):
        policy_specs.policy_of({"kind": "oracle"})
    assert np.isfinite(fitted.goodput_tok_s(1, 1))  # type: ignore[attr-defined]

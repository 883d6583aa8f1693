"""Small engines and the recorded H200 profile for the simulator's tests."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np

from tabletune.core.step_time import estimate_step_time
from tabletune.core.surface import StepTimeSurface
from tabletune.simulate.acceptance import AcceptanceModel
from tabletune.simulate.engine import Engine
from tabletune.simulate.lengths import FixedLength
from tabletune.simulate.loads import ClosedLoop, Load
from tabletune.simulate.policy import FixedPolicy, Observation, Policy, Steps
from tabletune.simulate.settings import EngineSettings
from tabletune.simulate.step_cost import StepCost
from tabletune.simulate.workload import Traffic, Workload

PROFILE = (
    pathlib.Path(__file__).parent.parent
    / "golden"
    / "h200_vllm0.32.0_qwen3-4b_eagle3_step_times.json"
)
SURVIVAL = (0.72, 0.50, 0.34, 0.23)


def h200_surface() -> StepTimeSurface:
    """K 0, 2, 3, 4 up to batch size 128; both graph modes took the same time where both ran."""
    recorded = json.loads(PROFILE.read_text("utf-8"))
    largest = [c for c in recorded["full_decode_only"]["raw"] if c["batch_size"] == 128]
    return StepTimeSurface.from_cells(
        {
            (c["batch_size"], c["draft_length"]): estimate_step_time(c["step_times_s"])
            for c in recorded["raw"] + [c for c in largest if c["draft_length"] != 1]
        }
    )


def plain_times(batch_size: int = 64, longest: int = 4) -> np.ndarray:
    """10 ms, and 0.1 ms more per token: float64[B+1, K+1]."""
    b = np.arange(batch_size + 1)[:, None]
    return 0.010 + 0.0001 * b * (1 + np.arange(longest + 1))


def constant_times(batch_size: int = 64, longest: int = 4) -> np.ndarray:
    """Every step takes 10 ms."""
    return np.full((batch_size + 1, longest + 1), 0.010)


def engine(
    load: Load | None = None,
    policy: Policy | None = None,
    *,
    prompt: int = 16,
    output: int = 64,
    cost: StepCost | None = None,
    models: Sequence[AcceptanceModel] = (AcceptanceModel(SURVIVAL),),
    workload: Workload | None = None,
    settings: EngineSettings | None = None,
    seed: int = 1,
) -> Engine:
    """An engine with what the test does not care about filled in."""
    traffic = (Traffic(FixedLength(prompt), FixedLength(output)),)
    return Engine(
        cost or StepCost(plain_times()),
        models,
        workload or Workload(load or ClosedLoop(8), traffic),
        policy or FixedPolicy(3),
        settings or EngineSettings(max_num_seqs=64),
        np.random.default_rng(seed),
    )


class Sequenced:
    """Chooses one length after another, and keeps what it was asked and shown."""

    wants_steps = True

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths
        self.asked: list[tuple[int, int, int]] = []  # (step, batch size, steps shown before)
        self.shown: list[Steps] = []
        self.most_context_tok = 0

    def draft_length(self, batch_size: int, observation: Observation) -> int:
        self.asked.append((observation.step, batch_size, self.shown_steps))
        self.most_context_tok = max(self.most_context_tok, observation.context_tok)
        return self.lengths[observation.step % len(self.lengths)]

    def steady_steps(self, observation: Observation) -> int:
        return 1

    def observe(self, steps: Steps) -> None:
        self.shown.append(steps)

    @property
    def shown_steps(self) -> int:
        return sum(steps.count for steps in self.shown)

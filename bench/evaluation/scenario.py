"""A scenario of the evaluation: configuration only, one JSON file in bench/scenarios."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bench.named_file import load_named

FOLDER = pathlib.Path(__file__).parent.parent / "scenarios"
#: Policies by name. `fixed` stands for every length of the plan, 0 (no drafting) included.
POLICIES = (
    *("fixed", "documented table", "tuned table", "oracle table", "controller"),
    *("SGLang-style, one slot", "SGLang-style, slots", "TensorRT-LLM-style"),
    *("TurboSpec-style", "Nightjar-style"),
)


#: Variables that the comparison decides on.
OWN_VARIABLES = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES", "VLLM_SERVER_DEV_MODE")


class ScenarioError(ValueError):
    """A scenario that cannot be used.

    Attributes: `path`, `found`.
    """

    def __init__(self, path: pathlib.Path, found: str) -> None:
        self.path, self.found = path, found
        super().__init__(f"{path}: expected a scenario (docs: bench/README.md), found {found}")


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Closed(_Strict):
    """Always `concurrency` open requests."""

    kind: Literal["closed"] = "closed"
    concurrency: int = Field(ge=1, le=4096)

    @property
    def name(self) -> str:
        return f"closed {self.concurrency}"


class Poisson(_Strict):
    """Requests that arrive by themselves, at random, `rate_per_s` on average."""

    kind: Literal["poisson"]
    rate_per_s: float = Field(gt=0)
    most_open: int = Field(default=1024, ge=1)

    @property
    def name(self) -> str:
        return f"poisson {self.rate_per_s:g} per s"


class Jump(_Strict):
    """A closed loop that jumps between two concurrencies every half `period_s`."""

    kind: Literal["jump"]
    low: int = Field(ge=1)
    high: int = Field(ge=2)
    period_s: float = Field(default=2.0, gt=0)

    @property
    def name(self) -> str:
        return f"jump {self.low} to {self.high}"


class Trace(_Strict):
    """Arrivals in bursts: gamma-distributed gaps, with the statistics of a public trace.

    source: which trace, and where its statistics are published.
    """

    kind: Literal["trace"]
    rate_per_s: float = Field(gt=0)
    gap_variation: float = Field(gt=0, description="standard deviation over mean of the gaps")
    most_open: int = Field(default=1024, ge=1)
    source: str = Field(min_length=10)

    @property
    def name(self) -> str:
        return f"trace {self.rate_per_s:g} per s"


AnyLoad = Annotated[Closed | Poisson | Jump | Trace, Field(discriminator="kind")]


class Traffic(_Strict):
    """Synthetic acceptance: S_1 … S_K, and in words where they come from."""

    name: str
    survival: tuple[float, ...] = Field(min_length=1)
    source: str = Field(min_length=10)

    @model_validator(mode="after")
    def _falls(self) -> Traffic:
        before = (1.0, *self.survival[:-1])
        if not all(0 <= s <= b for s, b in zip(self.survival, before, strict=True)):
            raise ValueError(f"survival {list(self.survival)} must not rise, within 0 … 1")
        return self


class Scenario(_Strict):
    """What is compared, under which loads.

    Attributes:
        target, drafter: names of bench/dummy_models.py, or `real` (given by --model).
        traffic: the first is what the engine boots with and is profiled under; each further
            one is a switch of workload while serving. Empty: acceptance is real.
        documented: which of vLLM's documented tables somebody would have copied.
        promoted: the table that the controller starts from.
        prompt_tok: length of the prompts; None: as in the profile.
        output_tok: shortest and longest output.
        window_s, settle_s: what counts, and what passes between a change and it.
        replay_tok: instead of window_s: each window replays the same requests from their start
            and counts so many output tokens of each open one. For real acceptance under closed
            loops.
        learn_s: unscored time for each policy that learns, once per load.
        engine_args: of vLLM, as in the profile that --work holds.
        engine_environment: the engine's variables, as in that profile; not those that the
            comparison decides on, nor the plugin's.
        speculative: further keys of vLLM's speculative config.
        gpus: of one engine.
        replicas: so many equal engines behind a router; loads are those of all together, and
            figures those of one in the mean, as long as none is idle.
    """

    name: str = Field(pattern=r"^[a-z0-9_.-]+$")
    what: str
    target: str
    drafter: str | None = None
    method: str
    max_num_seqs: int = Field(default=128, ge=1)
    max_draft_length: int = Field(default=4, ge=1)
    traffic: tuple[Traffic, ...] = ()
    loads: tuple[AnyLoad, ...] = Field(min_length=1)
    policies: tuple[str, ...] = POLICIES
    documented: Literal["eagle", "eagle3"] = "eagle3"
    promoted: Literal["tuned table", "documented table", "longest", "shortest"] = "tuned table"
    prompt_tok: int | None = Field(default=None, ge=1)
    output_tok: tuple[int, int] = (1024, 1024)
    rounds: int = Field(default=4, ge=3)
    window_s: float = Field(default=1.0, gt=0)
    settle_s: float = Field(default=0.4, ge=0)
    replay_tok: int | None = Field(default=None, ge=1)
    learn_s: float = Field(default=4.0, ge=0)
    ramp_s: float = Field(default=3.0, ge=0)
    engine_args: tuple[str, ...] = ()
    engine_environment: dict[str, str] = Field(default_factory=dict)
    speculative: dict[str, Any] = Field(default_factory=dict)
    gpus: int = Field(default=1, ge=0)
    replicas: int = Field(default=1, ge=1, le=16)
    note: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Scenario:
        unknown = sorted(set(self.policies) - set(POLICIES))
        if unknown:
            raise ValueError(f"policies {unknown} are unknown; known are {list(POLICIES)}")
        if "fixed" not in self.policies or "tuned table" not in self.policies:
            raise ValueError("policies must have `fixed` and `tuned table`: shares are of those")
        for traffic in self.traffic:
            if len(traffic.survival) != self.max_draft_length:
                raise ValueError(
                    f"traffic {traffic.name} has {len(traffic.survival)} survival values, "
                    f"expected max_draft_length = {self.max_draft_length}"
                )
        if self.replay_tok is not None and not all(isinstance(x, Closed) for x in self.loads):
            raise ValueError("replay_tok needs closed loops; leave it out, or the other loads")
        if self.replay_tok is not None and self.replicas > 1:
            raise ValueError("replay_tok needs one engine: a router sends requests anywhere")
        own = [
            name
            for name in self.engine_environment
            if name in OWN_VARIABLES or name.startswith(("TABLETUNE_", "BENCH_"))
        ]
        if own:
            raise ValueError(f"engine_environment sets {own}, which the comparison decides")
        names = [load.name for load in self.loads]
        if len(set(names)) < len(names):
            raise ValueError(f"two loads have the same name: {names}")
        return self

    @property
    def synthetic(self) -> bool:
        """Whether acceptance is synthetic."""
        return bool(self.traffic)

    def speculative_extra(self) -> dict[str, Any]:
        """What `tabletune run --speculative` was, or is to be, given."""
        if not self.traffic:
            return dict(self.speculative)
        rates = list(self.traffic[0].survival)
        synthetic = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": rates}
        return self.speculative | synthetic


def load_scenario(name: str) -> Scenario:
    """A scenario by its name in bench/scenarios, or by a path.

    Raises:
        ScenarioError: there is none, or it cannot be used.
    """
    return load_named(name, FOLDER, Scenario, ScenarioError)


def names() -> list[str]:
    """Every scenario in bench/scenarios."""
    return sorted(json.loads(file.read_bytes())["name"] for file in FOLDER.glob("*.json"))

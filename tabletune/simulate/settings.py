"""The settings of a simulated engine, named as vLLM names them."""

from __future__ import annotations

from dataclasses import dataclass

from tabletune.simulate.errors import SimulationError


@dataclass(frozen=True)
class EngineSettings:
    """max_num_seqs: most running requests. max_num_batched_tokens: most tokens in a step.
    kv_capacity_tok: tokens of context that fit; None: as many as needed.
    block_steps: run blocks of steps at once where that changes nothing but the speed.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    async_scheduling: bool = True
    kv_capacity_tok: int | None = None
    block_steps: bool = True

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1 or self.max_num_batched_tokens < 1:
            raise SimulationError(
                "engine settings", "max_num_seqs and max_num_batched_tokens >= 1", self, "raise"
            )

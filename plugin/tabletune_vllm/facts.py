"""What the seam found out about the engine at start, as plain values."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineFacts:
    """One engine; max_draft_length is K_max, model its name as clients use it."""

    vllm_version: str
    runner: str
    device: str
    method: str
    async_scheduling: bool
    max_num_seqs: int
    max_draft_length: int
    run_id: str
    started_unix_s: float
    model: str = ""

    @property
    def needs_graphs(self) -> bool:
        """Whether a length outside the boot table would run without a captured graph."""
        return self.runner == "V2" and self.device != "cpu"

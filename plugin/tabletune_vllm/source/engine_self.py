"""What an engine knows about itself, as the checks of a version need it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tabletune.identity.machine import Machine


@dataclass(frozen=True)
class EngineSelf:
    """One engine's own facts.

    device: "cpu" or "cuda". runner: "V1" or "V2". boot_lengths: the draft lengths of the boot
    table, ascending; those that have graphs. needs_graphs: whether another length would run
    without one. model, drafter: as vLLM was told, a folder or a hub name; drafter is None
    where the method has no weights of its own. settings: parallel sizes, dtype and the like,
    as text. graphs: what seam/graphs.py read. machine: see tabletune/identity/machine.py.
    """

    device: str
    vllm_version: str
    runner: str
    method: str
    max_num_seqs: int
    max_draft_length: int
    boot_lengths: tuple[int, ...]
    needs_graphs: bool
    model: str = ""
    model_revision: str | None = None
    drafter: str | None = None
    drafter_revision: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    graphs: Mapping[str, object] | None = None
    machine: Machine = field(default_factory=Machine)

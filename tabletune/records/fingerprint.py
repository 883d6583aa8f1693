"""The fingerprint: the facts under which a profile, and so a table, holds."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from tabletune.records.base import Facts, Record


class DeviceFacts(Facts):
    """What computes: GPUs, or the processor of a CPU engine.

    `memory_bytes` is one GPU's memory; 0 for a CPU engine, whose memory does not change
    step times. `capability` is CUDA's, such as ``9.0``; for a CPU the vector extensions.
    """

    platform: Literal["cuda", "cpu"]
    name: str
    count: int = Field(ge=1)
    capability: str
    memory_bytes: int = Field(ge=0)
    driver: str


class EngineFacts(Facts):
    """The engine: its distribution, version, model runner and PyTorch build."""

    distribution: str
    version: str
    runner: Literal["V1", "V2"]
    torch: str
    python: str


class ModelFacts(Facts):
    """A model or drafter by content.

    `content` is a hub revision (``revision:…``) or, for a folder, the hash over its config
    and the headers and sizes of its weight files (``sha256:…``); `label` is for people and
    does not count as identity.
    """

    label: str
    content: str
    architecture: str
    vocabulary_size: int = Field(ge=0)


class Fingerprint(Record):
    """The facts that a profile is valid for.

    Other records name a fingerprint by its `identity`, so that a model that moved to another
    folder keeps its profiles.

    `settings` holds, as text, the engine settings that change step time (dtype,
    max_num_seqs, max_model_len, tensor parallel size, quantisation, graph mode, …), sorted
    by name. `method` is the drafter's method, such as ``eagle3`` or ``ngram``; `drafter` is
    None where the method has no weights.
    """

    KIND: ClassVar[str] = "fingerprint"

    device: DeviceFacts
    engine: EngineFacts
    model: ModelFacts
    method: str
    drafter: ModelFacts | None
    settings: dict[str, str]

    @property
    def identity(self) -> str:
        """Hash over what counts: everything except the labels."""
        return self.unlabelled.content_hash

    @property
    def unlabelled(self) -> "Fingerprint":
        """The same facts without labels: the record whose content hash is the identity."""
        return self.model_copy(
            update={
                "model": self.model.model_copy(update={"label": ""}),
                "drafter": self.drafter and self.drafter.model_copy(update={"label": ""}),
            }
        )

    def matches(self, other: "Fingerprint") -> bool:
        """Whether a profile for `other` holds for this one."""
        return self.identity == other.identity

    def same_models(self, other: "Fingerprint") -> bool:
        """Whether model, drafter and method agree: the same deployment, perhaps upgraded."""
        upgraded = other.model_copy(
            update={"device": self.device, "engine": self.engine, "settings": self.settings}
        )
        return self.matches(upgraded)

    def differences(self, other: "Fingerprint") -> list[str]:
        """In words, what `other` has differently; empty when they match."""
        return list(_differences(self, other))


def _flat(fingerprint: Fingerprint) -> dict[str, str]:
    flat = {f"device {k}": str(v) for k, v in fingerprint.device.model_dump().items()}
    flat |= {f"engine {k}": str(v) for k, v in fingerprint.engine.model_dump().items()}
    flat |= {f"model {k}": str(v) for k, v in fingerprint.model.model_dump().items()}
    flat["drafter method"] = fingerprint.method
    if fingerprint.drafter is not None:
        flat |= {f"drafter {k}": str(v) for k, v in fingerprint.drafter.model_dump().items()}
    flat |= {f"setting {k}": v for k, v in fingerprint.settings.items()}
    return flat


def _differences(first: Fingerprint, second: Fingerprint) -> Iterator[str]:
    left, right = _flat(first), _flat(second)
    for name in dict.fromkeys([*left, *right]):
        if name in ("model label", "drafter label") or left.get(name) == right.get(name):
            continue
        yield f"{name}: {left.get(name, 'absent')} → {right.get(name, 'absent')}"

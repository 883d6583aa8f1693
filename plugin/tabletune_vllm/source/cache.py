"""The last good version on local disk, so that an engine starts with its source down.

It is laid out as a source is, and read with the same checks. Each kind of engine has a folder
of its own, named by what it follows and what it is; engines of one kind share it.
"""

import contextlib
import hashlib
import pathlib
import re
import shutil
from collections.abc import Mapping
from typing import Final

from tabletune.durable_file import write_durably
from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.pointer import Pointer
from tabletune.records.qualification import Qualification
from tabletune.records.step_profile import Profile
from tabletune.store.folder_source import FolderSource
from tabletune.store.layout import control_key, object_key, pointer_key
from tabletune_vllm.source.engine_self import EngineSelf

MAX_BYTES: Final = 64 * 2**20
MAX_FOLDERS: Final = 8
_FOLDER: Final = re.compile(r"follows-[0-9a-f]{16}")
#: What is left out first where the limit is exceeded.
_SPARE: Final = (Qualification.KIND, Profile.KIND, AcceptancePrior.KIND)


class VersionCache:
    """The cached version of one channel for one kind of engine.

    Writing never raises: a cache that cannot be written costs nothing but itself, and `problem`
    says why.
    """

    def __init__(
        self, root: pathlib.Path, source_url: str, channel: str, engine: EngineSelf
    ) -> None:
        kind = (source_url, channel, engine.device, engine.vllm_version, engine.runner)
        kind += (engine.method, engine.model, engine.drafter or "", str(engine.max_num_seqs))
        kind += (str(engine.max_draft_length), str(engine.boot_lengths), str(engine.machine))
        digest = hashlib.sha256("\0".join(kind).encode()).hexdigest()[:16]
        self.folder = root / f"follows-{digest}"
        self.source = FolderSource(self.folder)
        self.problem = ""
        self._channel = channel

    def save(self, pointer_data: bytes, objects: Mapping[str, bytes]) -> None:
        """Keep a version: its objects first, the pointer last, and nothing else."""
        state = hashlib.sha256(pointer_data).hexdigest()
        wanted = {object_key(Pointer, state): pointer_data, **objects}
        for kind in _SPARE:
            if sum(map(len, wanted.values())) > MAX_BYTES:
                wanted = {k: v for k, v in wanted.items() if f"/{kind}/" not in k}
        wanted[pointer_key(self._channel)] = pointer_data
        try:
            for key, data in wanted.items():
                self._write(key, data)
            self.problem = ""
        except OSError as error:
            self.problem = f"the cache {self.folder} cannot be written: {error}"
            return
        self._keep_only({*wanted, control_key(self._channel)})
        _keep_newest(self.folder.parent)

    def save_control(self, data: bytes | None) -> None:
        """Keep the switch, or forget it where there is none any more."""
        key = control_key(self._channel)
        try:
            if data is not None:
                self._write(key, data)
            else:
                (self.folder / key).unlink(missing_ok=True)
        except OSError as error:
            self.problem = f"the cache {self.folder} cannot be written: {error}"

    def _write(self, key: str, data: bytes) -> None:
        path = self.folder / key
        with contextlib.suppress(OSError):
            if path.read_bytes() == data:
                return
        write_durably(path, data)

    def _keep_only(self, keys: set[str]) -> None:
        with contextlib.suppress(OSError):
            for path in self.folder.rglob("*"):
                if path.is_file() and path.relative_to(self.folder).as_posix() not in keys:
                    path.unlink(missing_ok=True)


def _keep_newest(root: pathlib.Path) -> None:
    """Remove what other engines, of earlier versions perhaps, left long ago."""
    with contextlib.suppress(OSError):
        folders = [p for p in root.iterdir() if _FOLDER.fullmatch(p.name) and not p.is_symlink()]
        folders.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        for old in folders[MAX_FOLDERS:]:
            shutil.rmtree(old, ignore_errors=True)

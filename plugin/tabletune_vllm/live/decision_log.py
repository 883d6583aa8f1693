"""The decision log of this engine: what the controller saw and decided, tick by tick."""

from pathlib import Path

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.promoted import Promoted
from tabletune.records.decision_log import encode_header, encode_note, encode_promote, encode_tick
from tabletune_vllm import __version__
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.live.trace_file import TraceFile
from tabletune_vllm.live.words import Times


class DecisionLog:
    """Begins with the first controller: before it there is nothing to replay."""

    def __init__(self, path: Path, facts: EngineFacts, channel: str) -> None:
        self._path, self._facts, self._channel = path, facts, channel
        self._file: TraceFile | None = None
        self._promoted: Promoted | None = None
        self._mode = ""
        self._unix_s = 0.0

    @property
    def state(self) -> dict[str, object]:
        """Plain values for the status."""
        file = self._file
        path = self._path if file is None else file.path
        return {"path": str(path), "problem": None if file is None else file.problem}

    def begin(self, controller: Controller, seed: int, mode: str, at: Times) -> None:
        """Open the log for a new controller."""
        self._promoted, self._mode, self._unix_s = controller.promoted, mode, at.unix_s

        def header(number: int) -> bytes:
            assert self._promoted is not None
            return encode_header(
                run_id=self._facts.run_id,
                file_number=number,
                plugin_version=__version__,
                vllm_version=self._facts.vllm_version,
                channel=self._channel,
                mode=self._mode,
                seed=seed,
                boot_lengths=controller.boot_lengths,
                settings=controller.settings,
                promoted=self._promoted,
                opened_unix_s=self._unix_s,
            )

        self.close()
        self._file = TraceFile(self._path, self._facts.run_id, header)
        self.note("mode", mode, at)

    def ticked(self, observation: LiveObservation, decision: Decision, at: Times) -> None:
        """One tick."""
        self._write(encode_tick(at.now_s, at.unix_s, observation, decision), at)

    def promoted(self, promoted: Promoted, decision: Decision, at: Times) -> None:
        """The controller was told of another version."""
        self._write(encode_promote(at.now_s, at.unix_s, promoted, decision), at)
        self._promoted = promoted

    def note(self, event: str, detail: str, at: Times) -> None:
        """Something for people."""
        if event == "mode":
            self._mode = detail
        self._write(encode_note(at.now_s, at.unix_s, event, detail), at)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _write(self, line: bytes, at: Times) -> None:
        self._unix_s = at.unix_s
        if self._file is not None:
            self._file.write(line)

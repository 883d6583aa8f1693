"""Telling back: from time to time what this engine learned, for the flows to harvest."""

from typing import Any

from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.records.base import RecordError
from tabletune.records.live_totals import LiveTotals
from tabletune.records.snapshot import EngineRun, LiveSnapshot
from tabletune_vllm import __version__
from tabletune_vllm.live.loop import Loop
from tabletune_vllm.live.words import Times
from tabletune_vllm.logs import warn_once


class Teller:
    """Sums up on the deciding thread; the talking thread takes what is ready."""

    def __init__(self, channel: str, every_s: float, max_draft_length: int, at: Times) -> None:
        self._channel, self._every_s = channel, every_s
        self._totals = LiveTotals(max_draft_length, at.unix_s)
        self._last_s = at.now_s
        self._seen: LiveObservation | None = None
        self._ready: bytes | None = None

    def turned(self, loop: Loop, decision: Decision | None, at: Times) -> None:
        """Take in a turn; make a snapshot when one is due and a version is followed."""
        if decision is not None and loop.observation is not None:
            self._totals.add(loop.observation)
            self._totals.note(decision, at.unix_s)
        if loop.target is None or at.now_s - self._last_s < self._every_s:
            return
        self._last_s = at.now_s
        try:
            self._ready = self._snapshot(loop, at).to_json()
        except RecordError as error:
            # Too much to tell is no reason to stop serving the right table.
            warn_once(f"TableTune: no snapshot: {error}")

    def take(self) -> bytes | None:
        """What is ready to be told, once."""
        data, self._ready = self._ready, None
        return data

    def _snapshot(self, loop: Loop, at: Times) -> LiveSnapshot:
        facts, target, controller = loop.runtime.facts, loop.target, loop.controller
        assert target is not None
        promoted = target.promoted

        def profiled(batch_size: int, draft_length: int) -> float | None:
            covered = promoted is not None and promoted.surface.covered(batch_size, draft_length)
            if promoted is None or not covered:
                return None
            return promoted.surface.step_time_s(batch_size, draft_length)

        state: dict[str, Any] = {} if controller is None else controller.state()
        return self._totals.snapshot(
            channel=self._channel,
            mode=loop.mode,
            fingerprint=target.fingerprint,
            engine=EngineRun(
                run_id=facts.run_id,
                started_unix_s=facts.started_unix_s,
                plugin_version=__version__,
                vllm_version=facts.vllm_version,
                runner=facts.runner,
                device=facts.device,
                method=facts.method,
            ),
            table_version=target.version,
            table=loop.runtime.base[1:],
            to_unix_s=at.unix_s,
            profiled=profiled,
            survival=state.get("survival", ()),
            traffic_changes=state.get("traffic_changes", 0),
            exploration_spent_s=state.get("exploration", {}).get("spent_s", 0.0),
            falls=state.get("guard", {}).get("falls", 0),
        )

"""One turn of the background thread: take what the source said, look, decide, act, write down.

No thread and no clock in here: `turn` is called with the time, by the thread in background.py
or by a test.
"""

from collections.abc import Callable

import numpy as np

from tabletune.core.controller.controller import Controller
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.controller.summarise import summarise
from tabletune_vllm.live.applier import Applier, UnusableError, difference
from tabletune_vllm.live.columns import StepReader
from tabletune_vllm.live.decision_log import DecisionLog
from tabletune_vllm.live.journal import Journal
from tabletune_vllm.live.words import Target, Times
from tabletune_vllm.logs import logger
from tabletune_vllm.runtime import Runtime

# Drafters whose proposals are often short or missing: their steps differ in work by nature.
SHORT_PROPOSALS = ("ngram", "suffix")


class Loop:
    """The controller's surroundings in one engine.

    mode: what is done now, at most what the operator's setting allows. seed: of the
    controller's random numbers. log: the decision log, None where none is wanted. breathe: called
    between the parts of a turn, to let the engine's thread have the interpreter.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ControllerSettings,
        seed: int,
        log: DecisionLog | None,
        breathe: Callable[[], None] = lambda: None,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.seed = seed
        self.journal = Journal()
        self.target: Target | None = None
        self.controller: Controller | None = None
        self.mode = "off"
        self.suspended: str | None = None
        self.observation: LiveObservation | None = None
        self._applier = Applier(runtime)
        self.reader = StepReader(runtime.observer.ring, runtime.observer.settle)
        self._log = log
        self.breathe = breathe
        self._from_s: float | None = None
        self._full_drafts = not runtime.facts.method.startswith(SHORT_PROPOSALS)

    def set_mode(self, mode: str, why: str, at: Times) -> None:
        """Do more or less from now on; off puts the boot table in force at once."""
        if mode == self.mode:
            return
        logger.info("TableTune: mode %s, was %s%s", mode, self.mode, why and f": {why}")
        self.mode = mode
        self._note(at, "mode", mode)
        self._skip(at)
        if self.controller is not None:
            self.controller.adapt = mode != "follow"
        self._put_in_force(f"mode {mode}")

    def take(self, target: Target, at: Times) -> None:
        """Follow another table version.

        Raises nothing for a version that does not fit: that is a refusal, and the version
        before it stays in force.
        """
        try:
            self._applier.follow(target)
        except UnusableError as error:
            self.refuse(f"version {target.version[:12]}: {error}", at)
            return
        self.target = target
        for note in target.notes:
            logger.info("TableTune: version %s: %s", target.version[:12], note)
        promoted = target.promoted
        if promoted is None:
            self.controller = None
        elif self.controller is None:
            rng = np.random.default_rng(self.seed)
            boot_lengths = self.runtime.boot[1:]
            self.controller = Controller(self.settings, promoted, boot_lengths, rng)
            self.controller.adapt = self.mode != "follow"
            if self._log is not None:
                self._log.begin(self.controller, self.seed, self.mode, at)
        else:
            decision = self.controller.promote(promoted, at.now_s)
            if self._log is not None:
                self._log.promoted(promoted, decision, at)
        self._skip(at)
        source = "the cached copy of " if target.from_cache else ""
        self._put_in_force(f"{source}version {target.version[:12]} was promoted")

    def refuse(self, reason: str, at: Times) -> None:
        """Keep a refusal for the status; log it unless it is the last one again."""
        if self.journal.refused(at.unix_s, reason):
            logger.warning("TableTune: %s", reason)
            self._note(at, "refused", reason)

    def turn(self, at: Times) -> Decision | None:
        """Look at the steps since the last turn and act; None where there is nothing to do."""
        suspended = self.runtime.suspended
        if suspended != self.suspended:
            self.suspended = suspended
            self._note(at, "suspended" if suspended else "resumed", suspended or "")
            logger.info(
                "TableTune: the controller is %s",
                f"suspended: {suspended}" if suspended else "resumed",
            )
            self.runtime.settle()
            self._skip(at)
        if self.suspended or self.controller is None or self.mode == "off":
            self._skip(at)
            return None
        controller, settings = self.controller, self.settings
        columns = self.reader.read()
        self.breathe()
        from_s = at.now_s if self._from_s is None else self._from_s
        observation = summarise(
            columns,
            from_s,
            at.now_s,
            expected_step_time_s=controller.expected_step_time_s,
            full_drafts=self._full_drafts,
            stall_factor=settings.stall_factor,
            stall_floor_s=settings.stall_floor_s,
        )
        self._from_s, self.observation = at.now_s, observation
        self.breathe()
        decision = controller.tick(observation, at.now_s)
        self.breathe()
        if self._log is not None:
            self._log.ticked(observation, decision, at)
            self.breathe()
        self._act(decision, at)
        return decision

    def log_state(self) -> dict[str, object] | None:
        """Where the decision log is written, and what keeps it from being written."""
        return None if self._log is None else self._log.state

    def close(self, reason: str, at: Times) -> None:
        """The end of it: say so in the log and close it."""
        self._note(at, "off", reason)
        if self._log is not None:
            self._log.close()

    def _act(self, decision: Decision, at: Times) -> None:
        applied = self.mode != "shadow" and decision.kind != "hold"
        self.journal.decided(at.unix_s, applied, decision.to_dict())
        if self.mode == "shadow" and decision.lengths is not None:
            wanted = difference(self.runtime.base, (0, *decision.lengths))
            logger.info("TableTune, in shadow: would put %s: %s", wanted, decision.reason)
        if decision.lengths is not None:
            self._put_in_force(decision.reason, decision.predicted_gain)
        elif decision.probe and applied:
            self._applier.probe(decision.probe)

    def _put_in_force(self, why: str, gain: float = 0.0) -> None:
        before = self.runtime.base
        if self.mode in ("off", "shadow"):
            self._applier.put_boot()
        elif self.controller is not None:
            self._applier.put((0, *self.controller.table))
        elif self.target is not None:
            self._applier.put(self.target.table)
        else:
            return
        after = self.runtime.base
        if after != before:
            expected = f", predicted gain {gain:+.1%}" if gain else ""
            logger.info("TableTune: table %s: %s%s", difference(before, after), why, expected)

    def _skip(self, at: Times) -> None:
        self.reader.skip()
        self._from_s = at.now_s

    def _note(self, at: Times, event: str, detail: str) -> None:
        if self._log is not None:
            self._log.note(event, detail, at)

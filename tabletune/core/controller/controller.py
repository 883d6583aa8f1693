"""The controller: one tick in, one decision out. It never sees a file, a thread or a clock.

    controller = Controller(ControllerSettings(), promoted, boot_lengths, rng)
    decision = controller.tick(observation, now_s)

Deterministic: the same observations, times and seed give the same decisions. The promoted
table counts as in force from the start; put `controller.table` in force before the first tick.
"""

from __future__ import annotations

import numpy as np

from tabletune.core.controller.decide import Candidate, propose
from tabletune.core.controller.decision import Decision
from tabletune.core.controller.explore import Explorer
from tabletune.core.controller.guard import Guard
from tabletune.core.controller.known import Known
from tabletune.core.controller.live_batches import LiveBatches
from tabletune.core.controller.observation import LiveObservation
from tabletune.core.controller.outlook import Outlook, careful, look
from tabletune.core.controller.pace import Pace
from tabletune.core.controller.plane import Plane
from tabletune.core.controller.promoted import Promoted
from tabletune.core.controller.residuals import StepTimeResiduals
from tabletune.core.controller.settings import ControllerSettings
from tabletune.core.controller.survival import LiveSurvival
from tabletune.core.words import FloatArray

_LONGEST_TICK_S = 30.0  # a gap beyond this is a clock that jumped, or an engine that slept
_MOST_BOOT_FALLS = 3  # falls to the boot table until the controller stays off


class Controller:
    """See the module.

    promoted: the table version that is followed. boot_lengths: the table that the engine was
    started with, [b-1] for batch size b. rng: draws when blind probes are made. adapt: whether
    tables and probes are proposed; else it only learns and guards. It may be set at any time.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        promoted: Promoted,
        boot_lengths: tuple[int, ...],
        rng: np.random.Generator,
        adapt: bool = True,
    ) -> None:
        self.settings, self.boot_lengths = settings, tuple(boot_lengths)
        self._rng, self.adapt = rng, adapt
        self._clock_s = 0.0
        self._last_s: float | None = None
        self._survival = LiveSurvival(promoted.prior_counts(), settings)
        self._guard = Guard(settings)
        self._pace = Pace(settings, self._clock_s)
        self._boot_falls = 0
        self.off = False
        self.last_decision = Decision("hold", "nothing was decided yet")
        self._take(promoted)

    def _take(self, promoted: Promoted) -> None:
        settings, size = self.settings, promoted.max_num_seqs
        self.promoted, self.table = promoted, promoted.lengths
        self._plane = Plane(promoted)
        self._residuals = StepTimeResiduals(size, self._plane.lengths, settings)
        self._live = LiveBatches(size, settings.histogram_half_life_s)
        self._known = Known(self._plane, self._survival, self._residuals, self._live)
        forbidden = frozenset(frozenset(pair) for pair in promoted.forbidden_transitions)
        self._explorer = Explorer(settings, self._rng, forbidden)
        self._pace.start(self._clock_s)

    def promote(self, promoted: Promoted, now_s: float) -> Decision:
        """Follow another table version from now on."""
        self._advance(now_s)
        before = self.promoted
        account = self._explorer.account
        if promoted.max_draft_length == before.max_draft_length:
            self._survival.take_prior(promoted.prior_counts())
        else:
            self._survival = LiveSurvival(promoted.prior_counts(), self.settings)
        in_force = self.table
        self._take(promoted)
        self._explorer.account = account
        self._boot_falls, self.off = 0, False
        self._guard.quarantine_until_s = self._clock_s
        if len(in_force) == promoted.max_num_seqs:
            self.table = in_force
            self._put_in_force(promoted.lengths, self._look())
        reason = f"promoted: {promoted.version or 'a new table version'}"
        return self._decided(Decision("swap", reason, self.table))

    def tick(self, observation: LiveObservation, now_s: float) -> Decision:
        """Learn from one observation and decide."""
        elapsed_s = self._advance(now_s)
        if observation.steps == 0:
            return self._decided(Decision("hold", "no step was seen"))
        changed = self._learn(observation, elapsed_s)
        if self.off:
            return self._decided(Decision("hold", "off until the next promotion"))
        failure = self._guard.update(
            observation, self.expected_step_time_s, elapsed_s, self._clock_s
        )
        outlook = self._look()
        if failure is not None:
            return self._decided(self._fall(failure, outlook))
        self._exclude_stalling()
        self._explorer.settle(outlook, elapsed_s, observation.busy_s)
        if self._guard.in_quarantine(self._clock_s):
            return self._decided(Decision("hold", "in quarantine after a failed table"))
        if not self.adapt:
            return self._decided(Decision("hold", "follows promotions only"))
        return self._decided(self._choose(outlook, changed))

    def _look(self) -> Outlook:
        excluded = self._guard.excluded(self._clock_s)
        live = self._live.rows()
        return look(self._plane, self._survival, self._residuals, self.table, live, excluded)

    def _advance(self, now_s: float) -> float:
        elapsed_s = 0.0 if self._last_s is None else now_s - self._last_s
        self._last_s = now_s
        # Clocks jump: time never runs backwards here, and never far ahead at once.
        elapsed_s = min(max(elapsed_s, 0.0), _LONGEST_TICK_S)
        self._clock_s += elapsed_s
        return elapsed_s

    def _learn(self, observation: LiveObservation, elapsed_s: float) -> bool:
        self._pace.seen(observation.busy_s)
        self._live.update(observation, elapsed_s)
        cells: list[tuple[tuple[int, int], int, float, float]] = []
        for cell in observation.cells:
            usual_s = self._plane.step_time_s(cell.batch_size, cell.draft_length)
            if usual_s is not None:
                ratio = float(np.log(cell.step_time_s / usual_s))
                key = (cell.batch_size, cell.draft_length)
                cells.append((key, cell.count, ratio, cell.log_sd))
        self._residuals.update(cells, elapsed_s, observation.stretch_sd)
        changed = self._survival.update(observation, elapsed_s)
        if changed:
            self._pace.unsettle(self._clock_s)
            self._guard.traffic_changed()
            self._explorer.refresh()
        return changed

    def _choose(self, outlook: Outlook, changed: bool) -> Decision:
        pace, now_s = self._pace, self._clock_s
        evidence = self._evidence(outlook)
        weights = self._live.shares()
        if pace.may_swap(now_s):
            wanted = pace.least_gain(now_s), pace.certainty_z(now_s), pace.most_doubt(now_s)

            def candidate(view: Outlook) -> Candidate | None:
                return propose(self.promoted, self._plane, view, self.table, weights, *wanted)

            # Seldom so, and then with the dearer look.
            if candidate(outlook) is not None:
                found = candidate(careful(outlook, self._residuals))
                if found is not None:
                    return self._swap(found, outlook, weights, evidence)
        exploration = self._explorer.propose(self._known, outlook, self.settling, self._clock_s)
        if exploration is not None:
            evidence |= {"cost_s": exploration.cost_s, "value": exploration.value}
            reason = f"probe of {_words(exploration.probe)}: {exploration.why}"
            return Decision("explore", reason, None, exploration.probe, 0.0, evidence)
        reason = "traffic has changed, learning" if changed else "no table is clearly better"
        return Decision("hold", reason, evidence=evidence)

    def expected_step_time_s(self, batch_size: int, draft_length: int) -> float | None:
        """Seconds of a steady step as believed now, for `summarise`; None: not known."""
        usual_s = self._plane.step_time_s(batch_size, draft_length)
        if usual_s is None:
            return None
        return usual_s * self._residuals.factor(batch_size, draft_length)

    @property
    def settling(self) -> bool:
        """Whether start, promotion or a change of traffic was a short time ago."""
        return self._pace.settling(self._clock_s)

    def _put_in_force(
        self, lengths: tuple[int, ...], before: Outlook, by_choice: bool = False
    ) -> None:
        self.table = lengths
        self._pace.replaced(self._clock_s, by_choice)
        self._guard.swapped(self._clock_s, self._look().current - before.current)

    def _swap(
        self,
        candidate: Candidate,
        outlook: Outlook,
        weights: FloatArray,
        evidence: dict[str, float],
    ) -> Decision:
        live = int(np.argmax(weights)) + 1
        reason = (
            f"a better table: K={self.table[live - 1]} to {candidate.lengths[live - 1]} at batch "
            f"size {live}, {candidate.gain:+.1%} over the live batch sizes"
        )
        self._put_in_force(candidate.lengths, outlook, by_choice=True)
        evidence |= {"doubt": candidate.doubt, "least_gain": self._pace.least_gain(self._clock_s)}
        return Decision("swap", reason, self.table, (), candidate.gain, evidence)

    def _fall(self, failure: str, outlook: Outlook) -> Decision:
        new = frozenset(self.table) - frozenset(self.promoted.lengths)
        to_boot = self.table == self.promoted.lengths
        wait_s = self._guard.fall(self._clock_s, new)
        self._put_in_force(self.boot_lengths if to_boot else self.promoted.lengths, outlook)
        self._pace.unsettle(self._clock_s)
        if to_boot:
            self._boot_falls += 1
        if self._boot_falls >= _MOST_BOOT_FALLS:
            self.off = True
            return Decision("off", f"{failure}, again and again: boot table", self.table)
        name = "boot" if to_boot else "promoted"
        return Decision("revert", f"{failure}: {name} table for {wait_s:.0f} s", self.table)

    def _exclude_stalling(self) -> None:
        length = self._guard.stalled_length()
        # What the promoted table uses is judged after swaps only, and by its step times.
        if length is not None and length not in self.promoted.lengths:
            self._guard.exclude(frozenset((length,)), self._clock_s, self.settings.quarantine_s)

    def _evidence(self, outlook: Outlook) -> dict[str, float]:
        b = self._live.last_batch_size
        best = int(np.argmax(outlook.log_goodput[b - 1]))
        evidence = {
            "batch_size": float(b),
            "draft_length": float(self.table[b - 1]),
            "best_draft_length": float(self._plane.lengths[best]),
            "best_gain": float(outlook.log_goodput[b - 1, best] - outlook.current[b - 1]),
            "best_sd": float(outlook.contrast_sd[b - 1, best]),
            "dispersion": self._survival.dispersion,
            "account_s": self._explorer.account.balance_s,
        }
        survival = self._survival.gains.tolist()
        evidence |= {f"survival_{i}": value for i, value in enumerate(survival, 1)}
        return {k: round(v, 6) for k, v in evidence.items() if np.isfinite(v)}

    def _decided(self, decision: Decision) -> Decision:
        self.last_decision = decision
        return decision

    def state(self) -> dict[str, object]:
        """Plain JSON values for a status page and the live snapshot."""
        account = self._explorer.account
        return {
            "table": list(self.table),
            "version": self.promoted.version,
            "objective": self.promoted.objective,
            "settling": self.settling,
            "off": self.off,
            "survival": [round(v, 6) for v in self._survival.survival.tolist()],
            "proposal_rate": [round(v, 6) for v in self._survival.proposal_rate.tolist()],
            "dispersion": round(self._survival.dispersion, 3),
            "traffic_changes": self._survival.changes,
            "residuals": self._residuals.summary(),
            "exploration": {
                "balance_s": round(account.balance_s, 6),
                "spent_s": round(account.spent_s, 6),
            },
            "batch_size": self._live.last_batch_size,
            "guard": dict(self._guard.state(self._clock_s)),
            "last_decision": self.last_decision.to_dict(),
        }


def _words(probe: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"K={length} for {steps} steps" for length, steps in probe)

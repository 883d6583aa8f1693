"""From the follower's answers to what the loop follows."""

from dataclasses import replace

from tabletune.core.controller.promoted import Promoted
from tabletune.core.errors import CoreError
from tabletune.records.evidence import promoted_of
from tabletune_vllm.facts import EngineFacts
from tabletune_vllm.live.words import Target
from tabletune_vllm.source import NewVersion, Refused


class TargetMaker:
    """Reads answers for one engine; max_tpot_s: the engine's own limit, None for the version's."""

    def __init__(
        self, facts: EngineFacts, boot_lengths: list[int], max_tpot_s: float | None
    ) -> None:
        self._facts, self._boot_lengths, self._max_tpot_s = facts, boot_lengths, max_tpot_s

    def __call__(self, answer: object) -> Target | str | None:
        """A target, why an answer is refused, or None where nothing is new."""
        if isinstance(answer, Refused):
            return answer.reason
        return self._target(answer) if isinstance(answer, NewVersion) else None

    def _target(self, new: NewVersion) -> Target:
        version, facts = new.version, self._facts
        envelope = version.envelope
        usable = set(envelope.lengths)
        if facts.needs_graphs:
            usable &= set(self._boot_lengths)
        lengths = frozenset(k for k in usable if k <= facts.max_draft_length)
        target = Target(
            version=new.name,
            fingerprint=version.fingerprint,
            table=tuple(version.table.dense()[: facts.max_num_seqs + 1]),
            lengths=lengths,
            forbidden=frozenset(envelope.forbidden_transitions),
            envelope=envelope.contains,
            promoted=None,
            notes=new.notes,
            from_cache=new.from_cache,
        )
        try:
            return replace(target, promoted=self._promoted(new, target))
        except CoreError as error:
            # The table stands without its evidence; it is followed, not adapted.
            return replace(target, notes=(*target.notes, f"its evidence is of no use: {error}"))

    def _promoted(self, new: NewVersion, target: Target) -> Promoted | None:
        if new.profile is None or new.prior is None:
            return None
        facts = self._facts
        promoted = promoted_of(
            new.version,
            new.fingerprint,
            new.profile,
            new.prior,
            max_num_seqs=facts.max_num_seqs,
            max_tpot_s=self._max_tpot_s,
        )
        if promoted.max_draft_length != facts.max_draft_length:
            raise CoreError(
                "the version's longest draft",
                str(facts.max_draft_length),
                promoted.max_draft_length,
                "boot with the version's own command line to adapt it",
            )
        return replace(promoted, usable=tuple(sorted(target.lengths)))

"""From the follower's answers to what the loop follows."""

from dataclasses import replace

from tabletune.core.controller.promoted import Promoted
from tabletune.core.errors import CoreError
from tabletune.records.evidence import padded_tokens, surface_of, survival_counts
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
            table=tuple(version.table.dense()),
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
        version, fingerprint = new.version, new.fingerprint
        padded = padded_tokens(
            version.plan, fingerprint.engine, fingerprint.device, fingerprint.method
        )
        limit_s = version.max_tpot_s if self._max_tpot_s is None else self._max_tpot_s
        return Promoted(
            lengths=target.table[1:],
            usable=tuple(sorted(target.lengths)),
            surface=surface_of(new.profile, padded),
            prior=survival_counts(new.prior.counts),
            envelope=target.envelope,
            max_num_seqs=version.table.max_num_seqs,
            max_draft_length=self._facts.max_draft_length,
            forbidden_transitions=tuple(sorted(target.forbidden)),
            version=target.version,
            max_tpot_s=limit_s,
        )

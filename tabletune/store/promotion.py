"""Promotion and roll-back: what may move a channel's pointer, and what its history says."""

from dataclasses import dataclass
from typing import Literal

from tabletune.records.pointer import Pointer
from tabletune.records.table import TableVersion
from tabletune.records.verdict import Verdict
from tabletune.store.base import Store, Token
from tabletune.store.errors import LostRace, MoveRefused, ObjectMissing, StoreError
from tabletune.store.fingerprints import find_fingerprint, same_fingerprint
from tabletune.store.history import version_before
from tabletune.store.signing import Signer


@dataclass(frozen=True)
class Move:
    """How a promotion or roll-back ended.

    pointer: the state now in force.
    moved: False where that version was in force already, so that nothing was changed.
    notes: what the operator should know about it, in words.
    """

    pointer: Pointer
    moved: bool
    notes: tuple[str, ...] = ()


def promote(
    store: Store,
    channel: str,
    version_hash: str,
    verdict_hash: str | None,
    now: str,
    who: str,
    reason: str,
    *,
    force: bool = False,
    expected_version: str | None = None,
    signer: Signer | None = None,
) -> Move:
    """Put a table version in force on a channel, on a passing verdict.

    Args:
        verdict_hash: the verdict of this version; None only with `force`.
        now: the time, ISO 8601 in UTC.
        force: promote although the verdict is missing, failed or is about something else, or
            although the channel serves another model or drafter. What was overridden goes
            into the reason. The version and its fingerprint must be in the store even then.
        expected_version: the version that was in force when the candidate was compared with
            it, empty for none; None does not check. A caller that validates for minutes
            passes it, so that a promotion in the meantime is not undone unseen.
        signer: signs the pointer. A version that is in force already, but not signed by this
            key, is put in force once more.

    Raises:
        MoveRefused: with every reason found.
        ObjectMissing, ObjectCorrupt: the version or the verdict is not in the store, intact.
        LostRace: someone else moved the pointer, since `expected_version` or just now.
    """
    current, token = store.read_pointer(channel)
    if expected_version is not None and expected_version != _version_of(current):
        raise LostRace(channel, current)
    version = store.get(TableVersion, version_hash)
    if current is not None and _stands(current, version_hash, signer):
        return Move(current, False, (f"{version_hash[:12]} is already in force on {channel}",))
    measured = find_fingerprint(store, version.fingerprint)
    reasons = [
        *_verdict_reasons(store, version_hash, version, verdict_hash),
        *_deployment_reasons(store, current, version),
    ]
    if reasons and not force:
        raise MoveRefused(
            f"a passing verdict for {version_hash[:12]} and the deployment of channel {channel!r}",
            tuple(reasons),
            "validate this version, choose another channel, or force it and answer for it",
            can_be_forced=True,
        )
    verdict = "" if verdict_hash is None else verdict_hash
    pointer = _next(
        channel,
        current,
        token,
        version_hash,
        version.fingerprint,
        verdict,
        "force" if reasons else "promote",
        (now, who, f"{reason} (forced although {'; '.join(reasons)})" if reasons else reason),
    )
    notes = _notes(store, current, version, verdict)
    # Engines read it by its identity; those behind a web server can list nothing.
    store.put(measured.unlabelled)
    return _move(store, channel, pointer, token, signer, notes)


def rollback(
    store: Store,
    channel: str,
    now: str,
    who: str,
    reason: str,
    to: str | None = None,
    signer: Signer | None = None,
) -> Move:
    """Put an earlier version of this channel in force again.

    Args:
        now: the time, ISO 8601 in UTC.
        to: a version of this channel's history; None for the one before the version in
            force. After a roll-back that is the one before it in turn: rolling back twice
            never returns to the version that was rolled back from.
        signer: signs the pointer.

    Raises:
        MoveRefused: the channel has no pointer, no earlier version, or never had `to`.
        ObjectMissing, ObjectCorrupt: the version, or the history up to it, is lost.
        LostRace: someone else moved the pointer just now.
    """
    current, token = store.read_pointer(channel)
    if current is None:
        there = ", ".join(store.channels()) or "none"
        found = f"channel {channel!r} never had a version; channels there: {there}"
        raise _no_rollback(channel, found)
    if to is not None and to == current.table_version:
        return Move(current, False, (f"{to[:12]} is already in force on {channel}",))
    target = to if to is not None else version_before(store.history(channel))
    if not target:
        raise _no_rollback(channel, f"{current.table_version[:12]} has nothing before it")
    if to is not None and all(state.table_version != to for state in store.history(channel)):
        raise _no_rollback(channel, f"{to} was never in force on channel {channel!r}")
    version = store.get(TableVersion, target)
    pointer = _next(
        channel,
        current,
        token,
        target,
        version.fingerprint,
        "",
        "rollback",
        (now, who, reason),
    )
    notes = _notes(store, current, version, "")
    return _move(store, channel, pointer, token, signer, notes)


def _stands(current: Pointer, version_hash: str, signer: Signer | None) -> bool:
    """Whether a version is in force as it is wanted."""
    signed = signer is None or current.signed_by == signer.key_id
    return current.table_version == version_hash and signed


def _move(
    store: Store,
    channel: str,
    pointer: Pointer,
    token: Token,
    signer: Signer | None,
    notes: tuple[str, ...],
) -> Move:
    if signer is not None:
        pointer = signer.sign(pointer)
    store.move_pointer(channel, pointer, token)
    return Move(pointer, True, notes)


def _verdict_reasons(
    store: Store, version_hash: str, version: TableVersion, verdict_hash: str | None
) -> list[str]:
    """Why the verdict does not allow the promotion."""
    if verdict_hash is None:
        return ["there is no verdict"]
    verdict = store.get(Verdict, verdict_hash)
    reasons: list[str] = []
    if not verdict.passed:
        reasons += [f"the verdict failed: {reason}" for reason in verdict.reasons]
    if verdict.table_version != version_hash:
        reasons.append(f"the verdict is for table version {verdict.table_version[:12]}")
    if not same_fingerprint(store, verdict.fingerprint, version.fingerprint):
        reasons.append(f"the verdict was measured under fingerprint {verdict.fingerprint[:12]}")
    return reasons


def _deployment_reasons(store: Store, current: Pointer | None, version: TableVersion) -> list[str]:
    """Why the version does not belong to what the channel serves.

    Another engine version, GPU or setting is an upgrade, which a promotion is for; another
    model, drafter or method is another deployment.
    """
    if current is None or current.fingerprint == version.fingerprint:
        return []
    try:
        served = find_fingerprint(store, current.fingerprint)
    except ObjectMissing:
        return [f"the channel's fingerprint {current.fingerprint[:12]} is not in the store"]
    measured = find_fingerprint(store, version.fingerprint)
    if served.same_models(measured):
        return []
    return [f"the channel serves something else: {', '.join(served.differences(measured))}"]


def _notes(
    store: Store, before: Pointer | None, version: TableVersion, verdict_hash: str
) -> tuple[str, ...]:
    """What the operator should know about a move from `before` to `version`."""
    if before is None:
        return ()
    notes: list[str] = []
    try:
        changes = find_fingerprint(store, before.fingerprint).differences(
            find_fingerprint(store, version.fingerprint)
        )
        notes += [f"since the version before, {change}" for change in changes]
    except StoreError:  # a note is no reason to hold up a roll-back
        notes.append("the fingerprints of the two versions cannot be compared")
    if verdict_hash:
        compared = store.get(Verdict, verdict_hash).incumbent_version
        if compared != before.table_version:
            notes.append(
                f"the verdict compared it with {compared[:12] or 'no incumbent'}, but "
                f"{before.table_version[:12]} was in force here"
            )
    return tuple(notes)


def _next(
    channel: str,
    current: Pointer | None,
    token: Token,
    version: str,
    fingerprint: str,
    verdict: str,
    action: Literal["promote", "rollback", "force"],
    account: tuple[str, str, str],
) -> Pointer:
    """The state after `current`; `account` is when, by whom and why."""
    moved_at, moved_by, reason = account
    return Pointer(
        channel=channel,
        sequence=current.sequence + 1 if current else 1,
        table_version=version,
        fingerprint=fingerprint,
        verdict=verdict,
        action=action,
        previous_version=_version_of(current),
        previous_pointer=token.state,
        moved_at=moved_at,
        moved_by=moved_by,
        reason=reason,
    )


def _version_of(pointer: Pointer | None) -> str:
    return pointer.table_version if pointer is not None else ""


def _no_rollback(channel: str, found: str) -> MoveRefused:
    return MoveRefused(
        f"an earlier version of channel {channel!r} to return to",
        (found,),
        "see the channel's history, or promote a version that was validated",
        can_be_forced=False,
    )

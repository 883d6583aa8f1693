"""Finds the acceptance prior that was harvested from live traffic."""

from datetime import UTC, datetime, timedelta

from tabletune.records.acceptance import AcceptancePrior
from tabletune.records.base import RecordError
from tabletune.store.base import Store
from tabletune.store.errors import ObjectCorrupt, ObjectMissing


def live_prior(
    store: Store, fingerprint: str, draft_length: int, now: str, max_age_d: float
) -> AcceptancePrior | None:
    """The newest harvest for exactly this fingerprint and draft length, None without one.

    Args:
        now: ISO 8601 with its zone.
        max_age_d: days after which a harvest counts no more; one from the future never does.

    Raises:
        StoreError: the store cannot be read.
    """
    moment = datetime.fromisoformat(now)
    found: list[tuple[datetime, AcceptancePrior]] = []
    for name in store.list(AcceptancePrior):
        try:
            prior = store.get(AcceptancePrior, name)
        except (ObjectMissing, ObjectCorrupt, RecordError):
            continue  # whatever it is, it is no harvest that could be used
        if not prior.from_live_traffic:
            continue
        if (prior.fingerprint, prior.draft_length) != (fingerprint, draft_length):
            continue
        at = _moment(prior.measured_at)
        if at is not None and 0 <= (moment - at) / timedelta(days=1) <= max_age_d:
            found.append((at, prior))
    return max(found, key=lambda one: (one[0], one[1].content_hash))[1] if found else None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment

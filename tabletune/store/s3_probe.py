"""Whether a store keeps the conditions of writes, found out by trying.

Several S3 servers accept `If-Match` and `If-None-Match` and ignore them. On such a store two
promotions at the same time would overwrite one another unseen.
"""

import contextlib
import uuid

from tabletune.store.errors import ConditionsIgnored, StoreError
from tabletune.store.s3_objects import S3Objects


def check_conditions(objects: S3Objects) -> None:
    """Try every conditional write that a promotion needs, on an object of its own.

    Raises:
        ConditionsIgnored: a write got through that must not, or one was held up that must not.
        StoreError: the store cannot be written.
    """
    key = f"probe/{uuid.uuid4().hex}.json"
    try:
        failures = _failures(objects, key)
    finally:
        with contextlib.suppress(StoreError):  # an object too many is no harm
            objects.delete(key)
    if failures:
        raise ConditionsIgnored(
            f"a store that keeps the conditions of writes at {objects.place.url}",
            "; ".join(failures),
            "without them two promotions could overwrite each other: use another S3 server or "
            "a newer release of it; engines can still read from this one",
        )


def _failures(objects: S3Objects, key: str) -> list[str]:
    failures: list[str] = []
    first = objects.put(key, b'{"probe":1}', only_new=True)
    if first is None:
        return ["If-None-Match: * held up the first write of a new object"]
    if objects.put(key, b'{"probe":2}', only_new=True) is not None:
        failures.append("If-None-Match: * overwrote an object")
    if objects.put(key, b'{"probe":3}', only_over='"00000000000000000000000000000000"') is not None:
        failures.append("If-Match with another tag overwrote an object")
    if not failures and (not first or objects.put(key, b'{"probe":4}', only_over=first) is None):
        failures.append(f"If-Match with the tag that the write gave ({first!r}) was held up")
    return failures

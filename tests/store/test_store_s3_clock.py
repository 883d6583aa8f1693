"""A host whose clock is an hour off: a real S3 server refuses it, and the message says why."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tabletune.store.errors import StoreUnwritable
from tests.store.places import S3Prefix
from tests.store.world import FINGERPRINT


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_far_off_is_named(
    s3_place: S3Prefix, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    auth = pytest.importorskip("botocore.auth")
    right = auth.get_current_datetime

    def off(*options: Any, **more: Any) -> datetime:
        return right(*options, **more) + timedelta(hours=hours)

    store = s3_place.open()
    with monkeypatch.context() as patch:
        patch.setattr(auth, "get_current_datetime", off)
        with pytest.raises(StoreUnwritable, match="clock") as refused:
            store.put(FINGERPRINT)
        assert "set this machine's clock" in str(refused.value)
    assert s3_place.snapshot() == {}
    store.put(FINGERPRINT)  # and the same store is good once the clock is

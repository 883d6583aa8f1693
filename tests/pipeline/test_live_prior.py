"""Which harvest of live traffic a run takes acceptance from."""

import pathlib

import pytest

from tabletune.pipeline.live_prior import live_prior
from tabletune.records.acceptance import AcceptancePrior, PositionCounts
from tabletune.store.base import Store
from tabletune.store.folder import FolderStore

NOW = "2026-06-01T03:00:00+00:00"


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Store:
    return FolderStore(tmp_path / "store")


def prior(at: str, prompts: str = "live:0123", **changes: object) -> AcceptancePrior:
    counts = PositionCounts(drafted_through=(9, 9), accepted_through=(5, 1), request_steps=9)
    facts: dict[str, object] = {
        "fingerprint": "chat",
        "draft_length": 2,
        "source": "measured",
        "prompt_count": 3,
        "prompts_hash": prompts,
        "counts": counts,
        "wall_time_s": 1.0,
        "measured_at": at,
    }
    return AcceptancePrior.model_validate(facts | changes)


def find(store: Store, max_age_d: float = 30.0) -> AcceptancePrior | None:
    return live_prior(store, "chat", 2, NOW, max_age_d)


def test_the_newest_harvest_is_taken(store: Store) -> None:
    older, newer = prior("2026-05-20T00:00:00+00:00"), prior("2026-05-30T00:00:00+02:00")
    for one in (newer, older, prior("2026-05-31T00:00:00+00:00", prompts="sha of prompts")):
        store.put(one)
    assert find(store) == newer


@pytest.mark.parametrize(
    "other",
    [
        prior("2026-05-30T00:00:00+00:00", fingerprint="code"),
        prior("2026-05-30T00:00:00+00:00", draft_length=3),
        prior("2026-04-30T00:00:00+00:00"),  # too old
        prior("2026-06-02T00:00:00+00:00"),  # from the future
        prior("yesterday"),
    ],
)
def test_what_does_not_fit_is_left(store: Store, other: AcceptancePrior) -> None:
    store.put(other)
    assert find(store) is None


def test_what_cannot_be_read_hides_no_other(store: Store) -> None:
    good = prior("2026-05-30T00:00:00+00:00")
    store.put(good)
    name = store.put(prior("2026-05-31T00:00:00+00:00"))
    (damaged,) = pathlib.Path(store.url.removeprefix("file://")).rglob(f"{name}.json")
    damaged.write_bytes(b"{")
    assert find(store) == good

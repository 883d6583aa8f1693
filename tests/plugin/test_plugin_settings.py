"""The settings are parsed once, strictly, and unset means inert."""

import pytest

from tabletune_vllm.errors import SettingsError
from tabletune_vllm.settings import read_settings


def test_nothing_set_means_no_settings() -> None:
    assert read_settings({"PATH": "/bin", "VLLM_PLUGINS": "tabletune"}) is None


def test_measure_turns_on() -> None:
    settings = read_settings({"TABLETUNE_MEASURE": "1", "TABLETUNE_RING_STEPS": "512"})
    assert settings is not None
    assert settings.measure
    assert settings.ring_steps == 512
    assert settings.token is None


def test_later_names_are_accepted_and_told() -> None:
    settings = read_settings({"TABLETUNE_SOURCE": "s3://x", "TABLETUNE_MODE": "adapt"})
    assert settings is not None
    assert not settings.measure
    assert settings.later == ("TABLETUNE_MODE", "TABLETUNE_SOURCE")


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
    ],
)
def test_unknown_names_and_bad_values_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        read_settings(environ)


def test_the_token_is_not_in_the_message() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"TABLETUNE_TOKEN": "hunter2"})
    assert "hunter2" not in str(caught.value)

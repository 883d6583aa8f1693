"""docs/configuration.md is what the models say."""

import pytest

from tabletune_vllm.settings import KNOWN_NAMES
from tests.docs.configuration_page import PAGE, render


def test_the_page_is_that_of_the_models(request: pytest.FixtureRequest) -> None:
    made = render()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, "utf-8")
    assert PAGE.read_text("utf-8") == made, "write it anew with --update-golden"


def test_every_variable_of_an_engine_is_there() -> None:
    page = PAGE.read_text("utf-8")
    assert [name for name in KNOWN_NAMES if f"| `{name}` |" not in page] == []

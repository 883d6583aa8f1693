"""docs/options.md is what the commands say."""

import re

import pytest

from tests.docs.options_page import PAGE, render


def test_the_page_is_that_of_the_commands(request: pytest.FixtureRequest) -> None:
    made = render()
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, "utf-8")
    assert PAGE.read_text("utf-8") == made, "write it anew with --update-golden"


def test_every_option_says_what_it_means() -> None:
    rows = [line for line in render().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [row for row in rows if re.search(r"\| +\|$", row)] == []

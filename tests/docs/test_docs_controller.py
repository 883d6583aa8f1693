"""docs/controller.md names every setting with its default and its meaning."""

import pytest

from tests.docs.settings_table import defaults, read_rows, write_rows


def test_the_page_has_every_setting_as_it_is(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden", default=False):
        write_rows()
    rows = read_rows()
    assert {name: default for name, (default, _) in rows.items()} == defaults()
    unexplained = [name for name, (_, meaning) in rows.items() if not meaning]
    assert unexplained == [], "explain them in docs/controller.md"

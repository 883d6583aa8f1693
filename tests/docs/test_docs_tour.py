"""The numbers of docs/tour.md are those of the result files."""

import re

import pytest

from tests.docs.tour_blocks import BLOCKS, PAGE, render, result


def test_every_block_is_made_from_the_files(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text("utf-8")
    assert set(re.findall(r"<!-- made: (\w+) -->", page)) == set(BLOCKS)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(render(page), "utf-8")
    assert PAGE.read_text("utf-8") == render(page), "write it anew with --update-golden"


def test_times_in_the_text_are_those_of_the_run() -> None:
    words = " ".join(PAGE.read_text("utf-8").split())
    stages = result("run")["stages_s"]
    for stage in ("qualify", "profile", "boot of the measuring engine"):
        assert f"{stages[stage]:.0f} s" in words
    assert f"{result('run')['graphs_captured_as_predicted']} graphs" in words

"""run, profile and validate offer only options that do something for them."""

import pathlib

import pytest
from called import call
from typer.main import get_command

from tabletune.commands.app import app
from tabletune.commands.exit_codes import ExitCode


def offered(name: str) -> set[str]:
    """The options of a command, as they are typed."""
    commands = getattr(get_command(app), "commands")  # noqa: B009
    return {text for option in commands[name].params for text in option.opts}


def test_validating_takes_all_but_what_concerns_promotion() -> None:
    assert offered("run") - offered("validate") == {"--promote", "--revalidate", "--by"}
    assert offered("validate") - offered("run") == set()


def test_profiling_takes_nothing_about_validation_either() -> None:
    assert offered("validate") - offered("profile") == {"--concurrency", "--margin"}
    assert offered("profile") - offered("validate") == set()


def test_everything_that_is_missing_is_named_at_once(tmp_path: pathlib.Path) -> None:
    ended = call("run", "--model", "m", "--out", str(tmp_path / "out"))
    assert ended.status == ExitCode.USAGE
    said = " ".join(ended.errors.split())
    assert "--method, --engine: expected a value beside --model" in said
    assert "--method is such as eagle3 or ngram; --engine takes a name" in said


@pytest.mark.parametrize(
    "arguments", [("profile", "--margin", "0.1"), ("validate", "--no-promote")]
)
def test_an_option_of_another_command_is_refused(arguments: tuple[str, ...]) -> None:
    ended = call(*arguments)
    assert ended.status == ExitCode.USAGE
    assert "No such option" in ended.errors

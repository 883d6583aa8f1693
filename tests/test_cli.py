"""The command line's own errors: explained on standard error, with an exit status."""

import pytest

from tabletune.cli import main
from tabletune.commands.exit_codes import ExitCode


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", "--nonsense"], "No such option"),
        (["profile", "--profile-method", "foo"], "'foo' is not one of 'in_engine', 'client'"),
        (["run", "--max-draft-length", "many"], "--max-draft-length"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_ends_with_its_message_and_status(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == ExitCode.USAGE
    assert message in " ".join(capsys.readouterr().err.split())

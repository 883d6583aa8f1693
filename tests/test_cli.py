"""The command line's own errors: explained on standard error, with an exit status."""

import signal
import subprocess
import sys

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


def test_an_interrupt_while_importing_ends_quietly() -> None:
    """Importing the commands takes most of a second."""
    script = (
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tabletune.commands.app':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from tabletune.cli import main\n"
        "main(['show'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == b""

"""What others wrote is shown as they wrote it: requirements, paths, an installer's lines."""

import io

import pytest
from rich.console import Console

from tabletune.commands.console import TerminalProgress, terminal

WORDS = "vllm[audio]==0.33.0 at /srv/[/x]/a:+1:b"


@pytest.mark.parametrize("live", [False, True])
def test_progress_takes_no_words_for_markup(live: bool) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=live, width=200, emoji=False, color_system=None)
    with TerminalProgress(console) as progress:
        progress.start(f"stage {WORDS}")
        progress.advance(0, f"note {WORDS}")
        progress.say(f"said {WORDS}")
    for word in ("stage", "note", "said"):
        assert f"{word} {WORDS}" in shown.getvalue()


def test_messages_keep_their_colons(capsys: pytest.CaptureFixture[str]) -> None:
    terminal().print(WORDS, markup=False, soft_wrap=True)
    assert capsys.readouterr().out == f"{WORDS}\n"

"""A writer that is killed after any line of the code that writes leaves a sound store.

Each step forks: the child counts the lines it runs in that module and kills itself,
as `kill -9` would, at the n-th. The parent then looks at what is left.
"""

import os
import pathlib
import shutil
import signal
import sys
from types import FrameType
from typing import Any

import pytest

from tabletune.store.check import problems
from tabletune.store.folder import FolderStore
from tabletune.store.promotion import promote
from tests.store.world import AT, World

WRITING = ("durable.py", "durable_file.py")


def promote_and_die_at(root: pathlib.Path, step: int, version: str, verdict: str) -> bool:
    """Promote in a child that kills itself at its `step`-th line; whether it got there."""
    child = os.fork()
    if child == 0:
        left = step

        def count(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(WRITING):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return count

        try:
            sys.settrace(count)
            promote(FolderStore(root), "live", version, verdict, AT, "a child", "second")
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.timeout(300)
def test_a_promotion_killed_at_any_line_happened_or_did_not(tmp_path: pathlib.Path) -> None:
    template = World(tmp_path / "template")
    first, verdict = template.candidate()
    promote(template.store, "live", first, verdict, AT, "a test", "first")
    second, verdict = template.candidate()
    outcomes: list[str] = []
    step = 0
    killed = True
    while killed:
        step += 1
        root = tmp_path / "store"
        shutil.copytree(template.root, root)
        killed = promote_and_die_at(root, step, second, verdict)
        store = FolderStore(root)
        assert problems(store) == [], f"after line {step}"
        pointer, _ = store.read_pointer("live")
        assert pointer is not None
        outcomes.append(pointer.table_version)
        promote(store, "live", second, verdict, AT, "a test", "again")
        assert [state.table_version for state in store.history("live")] == [second, first]
        assert not list(root.rglob(".tmp-*")) or pointer.table_version == second
        shutil.rmtree(root)
    assert step > 50
    # First it had not happened, from some line on it had, and never anything else.
    happened = outcomes.index(second)
    assert outcomes == [first] * happened + [second] * (len(outcomes) - happened)

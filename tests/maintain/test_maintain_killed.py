"""A retune that is killed between any two writes loses nothing and is finished by the next one.

Each step forks; the child counts what it opens for writing and what it renames, and kills
itself, as `kill -9` would, just before the n-th.
"""

import os
import pathlib
import shutil
import signal
import sys
from collections.abc import Callable

import pytest

from tabletune.maintain.canary import CanaryJudgement
from tabletune.maintain.canary_channel import begin_canary, end_canary, pending_canary, wants_canary
from tabletune.maintain.decisions import carry_out, decide
from tabletune.maintain.deployments import Deployment
from tabletune.records.decision_record import PromotionDecision
from tabletune.records.table import TableVersion
from tabletune.store.base import Store
from tabletune.store.check import problems
from tabletune.store.folder import FolderStore
from tests.maintain.scenes import FixedClock, deployment, verdict, version
from tests.store.world import FINGERPRINT

FIRST = version(3, 4, 1, 8, 0, 16)
BETTER = version(3, 5, 1, 9, 0, 16)
GOOD = CanaryJudgement("promote", ("as quick",), 1.0, 0.99, 1.01)
BAD = CanaryJudgement("back", ("slower",), 0.8, 0.7, 0.9)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def retune(store: Store, one: Deployment, new: TableVersion, judgement: CanaryJudgement) -> None:
    """What a flow does after measuring, in the same order, able to go on from anywhere."""
    clock = FixedClock()
    pending = pending_canary(store, one)
    if pending is None:
        pointer, _ = store.read_pointer("live")
        seen = verdict(new, pointer.table_version if pointer else "")
        store.put(FINGERPRINT)
        decided = decide(store, one, store.put(new), store.put(seen), clock, "nightly")
        if not decided.allowed:
            return
        if not wants_canary(store, one):
            carry_out(store, one, decided, clock, "nightly")
            return
        pending = begin_canary(store, one, decided, clock, "nightly")
    end_canary(store, one, pending, judgement, clock, "nightly")


def killed_before_write(number: int, work: Callable[[], None]) -> bool:
    """Work in a child that kills itself before its n-th write; whether it got that far."""
    child = os.fork()
    if child == 0:
        left = number

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            flags = arguments[2] if event == "open" else 0
            if event == "os.rename" or (isinstance(flags, int) and flags & WRITES):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        status = 1
        try:
            sys.addaudithook(count)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def state(store: Store, channel: str) -> str:
    pointer, _ = store.read_pointer(channel)
    return pointer.table_version if pointer else ""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("canary", [None, "canary"])
@pytest.mark.parametrize("judgement", [GOOD, BAD], ids=["good", "bad"])
def test_killed_before_any_write_the_next_run_finishes_it(
    tmp_path: pathlib.Path, canary: str | None, judgement: CanaryJudgement
) -> None:
    one = deployment(tmp_path, channels={"canary": canary})
    template = tmp_path / "template"
    retune(FolderStore(template), one, FIRST, GOOD)
    old, new = FIRST.content_hash, BETTER.content_hash
    root, number, seen = tmp_path / "store", 0, set[str]()
    killed = True
    while killed:
        number += 1
        shutil.copytree(template, root)
        killed = killed_before_write(
            number, lambda: retune(FolderStore(root), one, BETTER, judgement)
        )
        store = FolderStore(root)
        assert problems(store) == [], f"before write {number}"
        seen.add(state(store, "live"))
        assert state(store, "live") in (old, new)
        back = canary is not None and judgement is BAD
        if not (back and state(store, "canary") == old):
            retune(store, one, BETTER, judgement)
        assert state(store, "live") == (old if back else new)
        assert len(list(store.history("live"))) == (1 if back else 2)
        if canary is not None:
            assert state(store, "canary") == (old if back else new)
        named = [pointer.reason for pointer in store.history("live")][:-1]
        decisions = store.list(PromotionDecision)
        assert all(any(name in reason for name in decisions) for reason in named)
        shutil.rmtree(root)
    assert number > 8
    assert seen == ({old} if canary is not None and judgement is BAD else {old, new})

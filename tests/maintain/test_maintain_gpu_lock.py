"""One GPU, one job: also across processes, kills and disagreeing orders."""

import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
from multiprocessing.connection import Connection

import pytest

from tabletune.maintain.gpu_lock import GpuBusy, gpu_lock, lock_folder
from tests.maintain.scenes import FixedClock

SPAWN = multiprocessing.get_context("spawn")
A, B = "GPU-aaaa", "GPU-bbbb"


def hold(folder: pathlib.Path, gpus: tuple[str, ...], end: Connection) -> None:
    """Hold until told to end; sends whether it got them."""
    with gpu_lock(gpus, "profiling chat", folder=folder):
        end.send("held")
        end.recv()


def take(gpus: list[str], wait_s: float, clock: FixedClock | None, folder: pathlib.Path) -> None:
    """Take locks and let go of them."""
    with gpu_lock(gpus, "second", wait_s, clock, folder):
        pass


def test_the_second_is_told_who_holds_it_and_gets_it_after_a_kill(tmp_path: pathlib.Path) -> None:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=hold, args=(tmp_path, (A,), theirs))
    process.start()
    assert ours.poll(60)
    assert ours.recv() == "held"
    with pytest.raises(GpuBusy) as caught, gpu_lock([A], "mine", folder=tmp_path):
        pytest.fail("both held it")
    assert f"process {process.pid} (profiling chat" in str(caught.value)
    with gpu_lock([B], "mine", folder=tmp_path):
        pass  # another GPU is another lock
    process.kill()
    process.join(60)
    with gpu_lock([A], "mine", folder=tmp_path):
        pass


def test_it_waits_as_long_as_it_is_told(tmp_path: pathlib.Path) -> None:
    clock = FixedClock()
    with gpu_lock([A], "first", folder=tmp_path), pytest.raises(GpuBusy):
        take([A], 2.5, clock, tmp_path)
    assert sum(clock.slept_s) == pytest.approx(2.5)


def test_of_several_gpus_all_or_none_are_held(tmp_path: pathlib.Path) -> None:
    with gpu_lock([B], "first", folder=tmp_path):
        with pytest.raises(GpuBusy), gpu_lock([A, B], "second", folder=tmp_path):
            pytest.fail("both held it")
        with gpu_lock([A], "third", folder=tmp_path):
            pass


def test_a_host_without_gpus_has_one_lock(tmp_path: pathlib.Path) -> None:
    with gpu_lock([], "first", folder=tmp_path), pytest.raises(GpuBusy, match="expected cpu"):
        take([], 0, clock=None, folder=tmp_path)


def test_opposite_orders_do_not_wait_for_each_other(tmp_path: pathlib.Path) -> None:
    done: list[str] = []

    def work(gpus: list[str], name: str) -> None:
        for _ in range(20):
            take(gpus, 60, QuickClock(), tmp_path)
        done.append(name)

    threads = [
        threading.Thread(target=work, args=(gpus, name))
        for gpus, name in (([A, B], "one"), ([B, A], "two"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == ["one", "two"]


class QuickClock(FixedClock):
    """Sleeps a thousandth of what it is told, for real."""

    def sleep_s(self, seconds: float) -> None:
        threading.Event().wait(seconds / 1000)


def test_a_holder_that_cannot_be_read_is_told_as_unknown(tmp_path: pathlib.Path) -> None:
    with gpu_lock([A], "first", folder=tmp_path):
        for damage in (b"{", b"[]", b'{"process": 1}'):
            (tmp_path / f"gpu-{A}.json").write_bytes(damage)
            with pytest.raises(GpuBusy, match="did not tell"):
                take([A], 0, None, tmp_path)


def test_a_name_never_leaves_the_folder(tmp_path: pathlib.Path) -> None:
    with gpu_lock(["../../etc/GPU 1"], "first", folder=tmp_path / "locks"):
        names = {path.name for path in (tmp_path / "locks").iterdir()}
    assert names == {"gpu-.._.._etc_GPU_1.lock", "gpu-.._.._etc_GPU_1.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]


def test_the_folder_is_the_same_for_all_and_can_be_chosen() -> None:
    assert lock_folder({"TT_LOCK_FOLDER": "/run/lock/tt"}) == pathlib.Path("/run/lock/tt")
    assert lock_folder({}).name == "tabletune-locks"


def test_children_of_a_holder_do_not_keep_the_lock(tmp_path: pathlib.Path) -> None:
    code = (
        "import subprocess, sys, pathlib\n"
        "from tabletune.maintain.gpu_lock import gpu_lock\n"
        f"with gpu_lock(['{A}'], 'x', folder=pathlib.Path({str(tmp_path)!r})):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'],\n"
        "                             stdout=subprocess.DEVNULL)\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = json.loads(process.stdout.readline())
    try:
        process.kill()
        process.wait(30)
        with gpu_lock([A], "mine", folder=tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()

"""Starting and stopping servers, shown with a small one in place of Prefect's."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from infra.local_stack import LocalStack, Ports, StackError
from tests.s3_server import free_ports

#: Answers its health page; a child of its own stays as long as it is let.
SERVER = """
import http.server, subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
open(sys.argv[2], "w").write(str(child.pid))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
OUTER = """
import pathlib, sys
from tests.infra.test_local_stack import small_stack
stack = small_stack(pathlib.Path(sys.argv[1]))
stack.start()
print(stack.services["prefect"].process.pid, flush=True)
sys.stdin.read()
"""
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 60.0


def small_stack(state: pathlib.Path) -> LocalStack:
    port = free_ports(1)
    stack = LocalStack(state, Ports(prefect=port), parts=("prefect",))
    service = stack.services["prefect"]
    service.command = [sys.executable, "-c", SERVER, str(port), str(state / "child")]
    return stack


def wait_until_gone(pid: int) -> None:
    end_s = time.monotonic() + LIMIT_S
    while is_there(pid):
        assert time.monotonic() < end_s, f"process {pid} is still there"
        time.sleep(0.02)  # another process ends: there is nothing to wait on


def is_there(pid: int) -> bool:
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def test_a_server_comes_back_after_it_was_killed(tmp_path: pathlib.Path) -> None:
    with small_stack(tmp_path) as stack:
        assert stack.dead() is None
        stack.kill("prefect")
        assert stack.dead() == "prefect"
        stack.launch("prefect")
        stack.wait_until_up("prefect")
        assert stack.dead() is None
        process = stack.services["prefect"].process
        child = int((tmp_path / "child").read_text())
    assert process is not None
    assert process.returncode is not None
    wait_until_gone(child)  # also what a server started


def test_one_that_ends_at_once_is_told_with_its_last_words(tmp_path: pathlib.Path) -> None:
    stack = small_stack(tmp_path)
    stack.services["prefect"].command = [sys.executable, "-c", "raise SystemExit('no database')"]
    with pytest.raises(StackError, match=r"prefect ended; the end of .*\n  no database"):
        stack.start()


def test_killed_itself_it_leaves_no_server(tmp_path: pathlib.Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells a process of its parent's death")
    outer = subprocess.Popen(
        [sys.executable, "-c", OUTER, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert outer.stdout is not None
    with outer:
        server = int(outer.stdout.readline())
        assert is_there(server)
        outer.send_signal(signal.SIGKILL)
        outer.wait(LIMIT_S)
    wait_until_gone(server)
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)  # its own child is its matter


def test_credentials_stay_and_are_private(tmp_path: pathlib.Path) -> None:
    first = LocalStack(tmp_path, parts=("prefect",)).credentials
    assert LocalStack(tmp_path, parts=("prefect",)).credentials == first
    assert (tmp_path / "credentials.json").stat().st_mode & 0o777 == 0o600
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    assert all(len(secret) >= 32 for secret in first.values())

